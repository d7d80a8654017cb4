package agent

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/generic-dp/generic-dp/internal/sys/atomicfile"
)

// waitingName is the file in the run directory that names the instance that waits for the lock.
const waitingName = "waiting"

// instance identifies an instance to an administrator who finds two of them. In a pod, every PID is
// 1, and the host name is the name of the pod.
type instance struct {
	// PID is 0 in the zero value, which stands for an unknown instance.
	PID      int    `json:"pid"`
	Hostname string `json:"hostname"`
	// Listen is the address of metrics and probes, empty if there is none.
	Listen string `json:"listen"`
	// Started distinguishes instances with equal PIDs and host names, in nanoseconds since 1970.
	Started int64 `json:"started"`
}

// thisInstance returns the identity of this process.
func thisInstance(o Options) instance {
	hostname, _ := os.Hostname() // an empty name only shortens a log line
	return instance{
		PID:      os.Getpid(),
		Hostname: hostname,
		Listen:   o.Listen,
		Started:  time.Now().UnixNano(),
	}
}

// attributes returns the identity for a log line.
func (i instance) attributes() []any {
	if i == (instance{}) {
		return nil // an older version leaves no identity
	}
	return []any{"pid", i.PID, "hostname", i.Hostname, "listen", i.Listen}
}

// readInstance reads the identity in a file. It returns the zero value if there is none. It is also
// the zero value if the file is too long, or is not JSON.
func readInstance(path string) instance {
	var i instance
	text, err := atomicfile.Read(path, atomicfile.MaxSize)
	if err == nil {
		_ = json.Unmarshal(text, &i) // an unreadable identity is none
	}
	return i
}

// writeTo writes the identity over the content of an open file. The lock is held on the file
// itself, so it cannot be replaced.
func (i instance) writeTo(file *os.File) error {
	text, err := json.Marshal(i)
	if err != nil {
		return err
	}
	// A reader may meet an empty file in between, and then knows no identity.
	err = file.Truncate(0)
	if err != nil {
		return err
	}
	_, err = file.WriteAt(text, 0)
	return err
}

// peers knows the other instance that uses the run directory. Its files only serve the log: an
// error in them is ignored.
type peers struct {
	// dir is the run directory, which both instances share.
	dir string
	// own is the identity of this process.
	own instance
	// log gets a line when a second instance appears, and when it ends.
	log *slog.Logger
	// waitsSince is when this instance began to wait for the lock.
	waitsSince time.Time
	// holder is the instance for which this instance waits.
	holder instance
	// seen is the waiting instance that was logged last.
	seen instance
}

// newPeers returns the peers of a process that neither waits for the lock nor holds it.
func newPeers(o Options) *peers {
	return &peers{
		dir: o.Paths.RunDir,
		own: thisInstance(o),
		log: o.Log,
	}
}

// waits says that this instance waits for the lock. The file is for reportWaiting of the instance
// that holds the lock.
func (p *peers) waits(now time.Time) {
	p.waitsSince = now
	p.holder = readInstance(filepath.Join(p.dir, lockName))
	text, err := json.Marshal(p.own)
	if err == nil {
		_ = atomicfile.Write(filepath.Join(p.dir, waitingName), text, 0o600)
	}
	p.log.Info("another instance writes links, specs and state: waiting for it to end",
		append([]any{"run_dir", p.dir}, p.holder.attributes()...)...)
}

// holds says that this instance has the lock, and for how long it has waited.
func (p *peers) holds(lock *os.File, now time.Time) {
	_ = p.own.writeTo(lock)
	path := filepath.Join(p.dir, waitingName)
	// A third instance may wait by now, and have replaced the file.
	if readInstance(path) == p.own {
		_ = atomicfile.Remove(path)
	}
	// The lock was free at the start, which is not worth a line.
	if p.waitsSince.IsZero() {
		return
	}
	waited := now.Sub(p.waitsSince).Seconds()
	p.log.Info("this instance writes links, specs and state now",
		append([]any{"run_dir", p.dir, "waited_seconds", waited}, p.holder.attributes()...)...)
}

// reportWaiting logs an instance that waits for this one to end. In an update that is normal.
// Otherwise two units or two DaemonSets serve the same node. The loop calls it in each pass while
// it holds the lock. Each instance is logged once.
func (p *peers) reportWaiting() {
	waiting := readInstance(filepath.Join(p.dir, waitingName))
	if waiting == p.seen {
		return
	}
	p.seen = waiting
	if waiting == (instance{}) || waiting == p.own {
		return
	}
	p.log.Info("another instance uses the same run directory, and waits for this one to end",
		append([]any{"run_dir", p.dir}, waiting.attributes()...)...)
}

// errNotRoot is why serve cannot start without root. lacking are the directories that it cannot
// write, with their flags.
func errNotRoot(uid int, lacking []string) error {
	return fmt.Errorf("uid %d cannot write %s\n"+
		"  hint: serve runs as root, without any capability; with other directories it also runs as another user, and generic-dp try needs no privileges",
		uid, joinWords(lacking))
}

// joinWords joins words for a sentence.
func joinWords(words []string) string {
	text := ""
	for i, word := range words {
		switch {
		case i == 0:
		case i == len(words)-1:
			text += " and "
		default:
			text += ", "
		}
		text += word
	}
	return text
}

// lacking returns the directories that serving writes and that this user cannot write, with their
// flags. A missing directory counts as writable if its nearest existing ancestor is.
func (p Paths) lacking(isWritable func(dir string) bool) []string {
	var all []string
	for _, d := range []struct{ flag, dir string }{
		{"run-dir", p.RunDir},
		{"state-dir", p.StateDir},
		{"kubelet-dir", p.KubeletDir},
		{"cdi-dir", p.CDIDir},
	} {
		nearest := d.dir
		for !present(nearest) && nearest != filepath.Dir(nearest) {
			nearest = filepath.Dir(nearest) // serving makes the rest
		}
		if d.dir != "" && !isWritable(nearest) {
			all = append(all, fmt.Sprintf("%s (--%s)", d.dir, d.flag))
		}
	}
	return all
}
