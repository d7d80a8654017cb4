package plugin

import (
	"context"
	"log/slog"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/generic-dp/generic-dp/internal/holds"
	"github.com/generic-dp/generic-dp/internal/kubelet"
	"github.com/generic-dp/generic-dp/internal/sys/watch"
)

// kubeletSocket is the name of the kubelet's socket in its directory.
const kubeletSocket = "kubelet.sock"

// KubeletSocket is the state of the kubelet's socket.
type KubeletSocket struct {
	// Present is set if the file exists, possibly without a listener.
	Present bool
	// Generation counts the sockets seen so far, from 1: every start of the kubelet makes a
	// new one.
	Generation uint64
	// Since is when the socket was made, computed from the age of its file when it was
	// first seen: later changes of the clock do not matter.
	Since time.Time
}

// KubeletWatch follows the kubelet's directory for all plugins of the process: the sockets of
// the kubelet and of the plugins. There is a single watch, because a user
// has few inotify instances (fs.inotify.max_user_instances, 128). The directory may disappear
// and reappear.
type KubeletWatch struct {
	dir        string
	socketPath string
	log        *slog.Logger
	// Files watches the directory. Run runs it.
	Files *watch.Watcher
	// Checkpoint has a value when the kubelet's checkpoint may have changed, and at the
	// start. It has one reader and a capacity of 1.
	Checkpoint chan struct{}
	// IsRetired is set to keep the plugins from registering again: another instance of the program is about
	// to register the same resources, and has to be the last one.
	IsRetired atomic.Bool

	mu        sync.Mutex
	kubelet   KubeletSocket
	kubeletID kubelet.FileID
	// changed is closed when kubelet changes, or when a socket of a plugin may be gone.
	changed chan struct{}

	connMu sync.Mutex
	// conn is the connection in use, nil if there is none.
	conn *kubeletConn
}

// NewKubeletWatch makes a watch of dir, the kubelet's device-plugins directory.
func NewKubeletWatch(dir string, log *slog.Logger) *KubeletWatch {
	dir = filepath.Clean(dir)
	return &KubeletWatch{
		dir:        dir,
		socketPath: filepath.Join(dir, kubeletSocket),
		log:        log,
		Files: watch.New(watch.Options{
			// The directory may be replaced by a link, and its parent moved.
			Source: "kubelet directory",
			Events: watch.Names,
			Dirs: func() []string {
				return []string{dir, filepath.Dir(dir)}
			},
			Resync: 2 * time.Minute,
			Poll:   time.Second,
			Log:    log,
		}),
		Checkpoint: make(chan struct{}, 1),
		changed:    make(chan struct{}),
	}
}

// Kubelet returns the state of the kubelet's socket and a channel that is closed
// when that changes, or when a socket of a plugin may be gone.
func (w *KubeletWatch) Kubelet() (KubeletSocket, <-chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.kubelet, w.changed
}

// Run follows the directory until ctx is cancelled, which is no error; it never
// gives up.
func (w *KubeletWatch) Run(ctx context.Context) error {
	var running sync.WaitGroup
	defer running.Wait()
	running.Go(func() {
		_ = w.Files.Run(ctx) // always nil
	})
	running.Go(func() {
		// The first registrations find a connection, which is made while the host is scanned.
		_, _ = w.connect(ctx) // there may be no kubelet yet
	})
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-w.Files.Changes():
		}
		names, all := w.Files.Take()
		if all {
			w.checkAll()
			continue
		}
		for _, name := range names {
			w.check(name)
		}
	}
}

// check follows a change of a file in the directory. A socket of a plugin only matters when it is removed.
func (w *KubeletWatch) check(name string) {
	switch name {
	case holds.CheckpointName:
		w.announceCheckpoint()
		return
	case kubeletSocket:
		w.checkKubelet()
		return
	}
	_, isThere := kubelet.Identify(filepath.Join(w.dir, name))
	if kubelet.IsOwn(name) && !isThere {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.announce()
	}
}

// announceCheckpoint says that the checkpoint may have changed.
func (w *KubeletWatch) announceCheckpoint() { watch.Signal(w.Checkpoint) }

// checkAll checks every file in the directory.
func (w *KubeletWatch) checkAll() {
	w.announceCheckpoint()
	w.checkKubelet()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.announce() // each plugin checks its own socket
}

// announce wakes everybody who waits for a change. The caller holds the lock.
func (w *KubeletWatch) announce() {
	close(w.changed)
	w.changed = make(chan struct{})
}

// checkKubelet updates the state of the kubelet's socket.
func (w *KubeletWatch) checkKubelet() {
	w.mu.Lock()
	defer w.mu.Unlock()
	id, isPresent := kubelet.Identify(w.socketPath)
	hasSameFile := !isPresent || id == w.kubeletID
	if isPresent == w.kubelet.Present && hasSameFile {
		return
	}
	if isPresent {
		w.kubeletID = id
		now := time.Now()
		age := max(0, now.Sub(id.Made))
		w.kubelet = KubeletSocket{
			Present:    true,
			Generation: w.kubelet.Generation + 1,
			Since:      now.Add(-age),
		}
		if w.kubelet.Generation > 1 {
			w.log.Info("kubelet restarted", "socket", w.socketPath)
		}
	} else {
		w.kubelet.Present = false
		w.log.Info("kubelet socket removed", "socket", w.socketPath)
	}
	w.announce()
}

// await returns when d has passed, or earlier when the kubelet's socket is gone or has
// another generation, or ctx is cancelled.
func (w *KubeletWatch) await(ctx context.Context, generation uint64, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	for {
		kubelet, changed := w.Kubelet()
		if !kubelet.Present || kubelet.Generation != generation {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
			return
		case <-changed:
		}
	}
}
