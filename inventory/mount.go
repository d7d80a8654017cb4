package inventory

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/generic-dp/generic-dp/device"
)

// mount is what matters of a line of mountinfo
// (Documentation/filesystems/proc.rst, 3.5).
type mount struct {
	major, minor uint32
	point        string // where it is mounted
	whole        bool   // not only a directory of the file system
	source       string
	line         string // what another scan takes for the same mount
}

// parseMount reads a line of mountinfo: ID, parent's ID, device number, root
// within the file system, mount point, options, optional fields, "-", type,
// source, options of the file system.
func parseMount(line string) (mount, bool) {
	mounted, system, found := strings.Cut(line, " - ")
	// A mount point may have spaces of other kinds in it.
	f, s := strings.Split(mounted, " "), strings.Split(system, " ")
	if !found || len(f) < 6 || len(s) < 2 {
		return mount{}, false
	}
	_, major, minor, ok := parseRecordedNode("block " + f[2])
	m := mount{major: major, minor: minor, point: unescape(f[4]), whole: f[3] == "/", source: unescape(s[1])}
	root := "/"
	if !m.whole {
		root = "/directory"
	}
	m.line = strings.Join([]string{"0 0", f[2], root, f[4], "rw -", s[0], s[1], "rw"}, " ")
	return m, ok
}

// unescape turns "\040" into a space, as the kernel writes what would end a
// field (mangle in fs/proc_namespace.c), and leaves out control characters.
func unescape(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+3 < len(s) {
			if c, err := strconv.ParseUint(s[i+1:i+4], 8, 8); err == nil {
				b.WriteByte(byte(c))
				i += 3
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return -1
		}
		return r
	}, strings.ToValidUTF8(b.String(), "\uFFFD"))
}

// mountUse notes the block devices that file systems are mounted from.
func (a *Attributes) mountUse(b *blocks, sum tableSum) {
	mounts := make(map[*device.Node]mount)
	var failed error
	read := 0
	for _, table := range a.proc.mountTables() {
		found := make(map[*device.Node]mount)
		err := a.proc.each(table, func(line []byte) string {
			sum.add(line)
			if !mayBeOfBlock(line) {
				return ""
			}
			m, ok := parseMount(string(line))
			if !ok {
				return ""
			}
			nodes := b.mounted(m)
			for _, n := range nodes {
				if had, ok := found[n]; !ok || m.betterThan(had) {
					found[n] = m
				}
			}
			if len(nodes) == 0 {
				return ""
			}
			return m.line
		})
		if err != nil {
			failed = err
			continue
		}
		read++
		// The mount points of the first process tell more than those of a
		// container.
		for n, m := range found {
			if had, ok := mounts[n]; !ok || m.whole && !had.whole {
				mounts[n] = m
			}
		}
	}
	if read == 0 && failed != nil {
		a.problem("/proc/self/mountinfo", failed)
	}
	for n, m := range mounts {
		if m.whole {
			b.use(n, fmt.Sprintf("%s is mounted from %s", m.point, n.Path))
		} else {
			b.use(n, "a file system is mounted from "+n.Path)
		}
	}
}

// mayBeOfBlock reports whether a line of mountinfo may be of a block device. A
// node has thousands of others, of pods, and is scanned often.
func mayBeOfBlock(line []byte) bool {
	if bytes.Contains(line, []byte(" /dev/")) {
		return true
	}
	rest := line
	for range 2 {
		_, rest, _ = bytes.Cut(rest, []byte(" "))
	}
	return !bytes.HasPrefix(rest, []byte("0:"))
}

// mounted returns the block devices that a file system is mounted from. One
// with a number of its own, as btrfs, says them by the paths it was given, all
// in one as bcachefs writes them.
func (b *blocks) mounted(m mount) []*device.Node {
	if n := b.of(number{device.BlockNode, m.major, m.minor}); n != nil {
		return []*device.Node{n}
	}
	if m.major != 0 || !strings.HasPrefix(m.source, "/dev/") {
		return nil
	}
	var found []*device.Node
	for _, p := range slices.Concat([]string{m.source}, strings.Split(m.source, ":")) {
		if n := b.byPath[p]; n != nil && !slices.Contains(found, n) {
			found = append(found, n)
		}
	}
	return found
}

// betterThan reports whether m tells more of what a device is for than other:
// a whole file system more than a directory of it, and the shortest path most.
func (m mount) betterThan(other mount) bool {
	if m.whole != other.whole {
		return m.whole
	}
	return cmp.Or(cmp.Compare(len(m.point), len(other.point)), cmp.Compare(m.point, other.point)) < 0
}

// swapUse notes the block devices that are swap. Of a file the path is of no
// device, and the file system that it is on is mounted.
func (a *Attributes) swapUse(b *blocks, sum tableSum) {
	err := a.proc.each(swapTable, func(line []byte) string {
		sum.add(line)
		f := strings.Fields(string(line))
		if len(f) == 0 || b.byPath[unescape(f[0])] == nil {
			return ""
		}
		n := b.byPath[unescape(f[0])]
		b.use(n, n.Path+" is swap space")
		return f[0] + " partition 0 0 0"
	})
	if err != nil {
		a.problem("/proc/swaps", err)
	}
}
