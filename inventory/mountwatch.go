package inventory

import (
	"bytes"
	"context"
	"hash"
	"hash/fnv"
	"io"
	"os"
	"path/filepath"
	"sync"
	"time"
)

// What changed is left to itself for mountPause before it is looked at, since a
// container that starts makes dozens of mounts, and for a multiple of what the last
// look took: where there are thousands, and they come and go, that is no more than a
// small share of a core.
const (
	mountPause  = 100 * time.Millisecond
	mountFactor = 20
)

// MountWatch says when file systems are mounted from other block devices than
// before, or others are swap space. Neither events of devices nor inotify tell of
// that, but the kernel wakes whoever polls its tables (mounts_poll in
// fs/proc_namespace.c, swaps_poll in mm/swapfile.c). On a node with containers
// they change all the time: what is of no block device does not count. While
// nothing changes, and while nobody wants to know, it does nothing.
type MountWatch struct {
	proc    proc
	changes chan struct{} // holds one: the tables are not what was read
	redirs  chan struct{} // holds one: read is another

	mu   sync.Mutex
	read TablesRead
}

// TablesRead stands for what of the tables was read. The zero value is nothing.
type TablesRead struct {
	asked bool
	sum   uint64
}

// NewMountWatch makes a watch of the tables of a host's /proc.
func NewMountWatch(o Options) *MountWatch {
	return &MountWatch{proc: proc{root: o.withDefaults().Proc}, changes: make(chan struct{}, 1), redirs: make(chan struct{}, 1)}
}

// Changes returns a channel that has a value when the tables are not what was
// read of them last. It is for one reader.
func (w *MountWatch) Changes() <-chan struct{} { return w.changes }

// Read says what was read of the tables last. While that is nothing, nothing is
// watched.
func (w *MountWatch) Read(r TablesRead) {
	w.mu.Lock()
	another := w.read != r
	w.read = r
	w.mu.Unlock()
	if another {
		poke(w.redirs)
	}
}

func (w *MountWatch) lastRead() TablesRead {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.read
}

// Run watches until ctx ends, and returns nil then. Tables that can't be polled
// are not: whoever reads them says what is wrong with them.
func (w *MountWatch) Run(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-w.redirs:
			if w.lastRead().asked {
				w.follow(ctx)
			}
		}
	}
}

// follow watches until nobody wants to know any more.
func (w *MountWatch) follow(ctx context.Context) {
	var readers sync.WaitGroup
	defer readers.Wait()
	woken := make(chan struct{}, 1)
	for _, table := range append(w.proc.mountTables(), swapTable) {
		f, err := os.Open(filepath.Join(w.proc.root, table))
		if err != nil {
			continue
		}
		defer f.Close() // its reader ends
		readers.Go(func() { awaitTable(f, woken) })
	}
	// What was read may have been something in between, that nobody else saw: what
	// counts is that it is what there is.
	for read := w.lastRead(); read.asked; read = w.lastRead() {
		began := time.Now()
		if w.tables() != read {
			poke(w.changes)
		}
		pause := max(mountPause, mountFactor*time.Since(began))
		select {
		case <-ctx.Done():
			return
		case <-w.redirs:
		case <-woken:
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
	}
}

// tables reads the tables as Attributes does.
func (w *MountWatch) tables() TablesRead {
	sum := newTableSum()
	for _, table := range append(w.proc.mountTables(), swapTable) {
		_ = w.proc.each(table, func(line []byte) string {
			sum.add(line)
			return ""
		})
	}
	return sum.read()
}

// tableSum sums up what of the lines of tables is of block devices. A table that
// can't be read is one that says nothing.
type tableSum struct{ hash.Hash64 }

func newTableSum() tableSum { return tableSum{fnv.New64a()} }

func (s tableSum) read() TablesRead { return TablesRead{asked: true, sum: s.Sum64()} }

// add takes in a line of mountinfo, or of swaps, of which only the name counts,
// and not how much of it is used.
func (s tableSum) add(line []byte) {
	if bytes.HasPrefix(line, []byte("/")) {
		name, _, _ := bytes.Cut(line, []byte(" "))
		_, _ = io.WriteString(s, string(name)+"\n")
	} else if mayBeOfBlock(line) {
		if m, ok := parseMount(string(line)); ok {
			_, _ = io.WriteString(s, m.line+"\n")
		}
	}
}

// awaitTable has a value in woken whenever the table changed, until f is closed.
func awaitTable(f *os.File, woken chan struct{}) {
	conn, err := f.SyscallConn()
	for err == nil {
		// What wakes the poller before it is told to wait is lost, so that whoever
		// looks is woken when it waits.
		waits := false
		err = conn.Read(func(uintptr) bool {
			if waits {
				return true
			}
			waits = true
			poke(woken)
			return false
		})
	}
}
