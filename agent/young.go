package agent

import (
	"time"

	"golang.org/x/sys/unix"

	"github.com/generic-dp/generic-dp/device"
)

// young are the times at which the latest nodes of hardware were made, by its path
// in sysfs, of what is younger than calm. They stand in for the events of the time
// before anybody listened: a driver may be about to make the next node, and have
// made no event since.
type young map[string]time.Time

// youngNodes looks at the inodes of nodes. Their times are those of writes and of
// other owners, too, so that they mean nothing for what was there before. here is
// where a path of the host is.
func youngNodes(nodes []*device.Node, here func(string) string, now time.Time) young {
	found := young{}
	for _, n := range nodes {
		var st unix.Stat_t
		if n.Hardware == nil || unix.Lstat(here(n.Path), &st) != nil {
			continue
		}
		if kind := st.Mode & unix.S_IFMT; kind != unix.S_IFCHR && kind != unix.S_IFBLK {
			continue // a recorded machine's
		}
		age := now.Sub(time.Unix(0, unix.TimespecToNsec(st.Ctim)))
		if age < 0 || age > calm {
			continue
		}
		// By the clock that a change of the time leaves alone.
		if made := now.Add(-age); made.After(found[n.Hardware.Path]) {
			found[n.Hardware.Path] = made
		}
	}
	return found
}

// made is when the latest node of hardware was made; zero for long ago.
func (y young) made(hardware string) time.Time { return y[hardware] }
