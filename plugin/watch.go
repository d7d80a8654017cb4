package plugin

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/generic-dp/generic-dp/internal/watch"
)

// kubeletSocket is the name of the kubelet's socket in its directory.
const kubeletSocket = "kubelet.sock"

// KubeletSocket is what is known of the kubelet's socket.
type KubeletSocket struct {
	// Present: the file is there, which does not mean that anybody listens.
	Present bool
	// Generation counts the sockets seen so far: every start of the kubelet
	// makes a new one. It is 0 before the first.
	Generation uint64
	// Since is when it was made: by the age that its file had when it was first
	// seen, so that a clock that is set later doesn't matter.
	Since time.Time
}

// KubeletWatch follows the kubelet's directory and tells every plugin of the
// process when the kubelet's socket is made anew and when a plugin's own socket
// is gone. There is one for a process, since a user has few inotify instances
// (fs.inotify.max_user_instances, 128). The directory may come, go and be made
// anew.
type KubeletWatch struct {
	dir, socket string
	log         *slog.Logger
	files       *watch.Watcher

	bindToListen time.Duration // how old a socket without a listener is dead

	mu      sync.Mutex
	kubelet KubeletSocket
	id      fileID
	changed chan struct{}
	owned   map[string]*owned
	sockets map[string]bool // of plugins, by name
	dead    map[string]bool // those of others on which nobody listens any more
	missing bool            // the directory does not exist

	connecting sync.Mutex
	conn       *kubeletConn // that is in use; nil where none is
}

// NewKubeletWatch makes a watch of dir, the kubelet's device-plugins directory.
// A nil log discards.
func NewKubeletWatch(dir string, log *slog.Logger) *KubeletWatch {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	dir = filepath.Clean(dir)
	return &KubeletWatch{
		dir:    dir,
		socket: filepath.Join(dir, kubeletSocket),
		log:    log,
		files: watch.New(watch.Options{
			// A link may take the place of the directory, and the one above be moved.
			Source: "kubelet directory", Events: watch.Names, Dirs: func() []string { return []string{dir, filepath.Dir(dir)} },
			Resync: 2 * time.Minute, Poll: time.Second, Log: log,
		}),
		changed: make(chan struct{}),
		owned:   map[string]*owned{},
		sockets: map[string]bool{},
		dead:    map[string]bool{},

		bindToListen: time.Second,
	}
}

// Dir is the directory that is watched.
func (w *KubeletWatch) Dir() string { return w.dir }

// Kubelet returns what is known of the kubelet's socket and a channel that is
// closed when that changes.
func (w *KubeletWatch) Kubelet() (KubeletSocket, <-chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.kubelet, w.changed
}

// Degraded reports whether inotify is unavailable, so that the directory is polled every
// second.
func (w *KubeletWatch) Degraded() bool { return w.files.Degraded() != nil }

// Run follows the directory until ctx is cancelled, which is no error; it never
// gives up.
func (w *KubeletWatch) Run(ctx context.Context) error {
	var files sync.WaitGroup
	defer files.Wait()
	files.Go(func() { _ = w.files.Run(ctx) }) // always nil
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-w.files.Changes():
		}
		names, all := w.files.Take()
		if all {
			w.checkMissing()
			w.lookAtAll()
			continue
		}
		for _, name := range names {
			if name == kubeletSocket {
				w.look()
			} else {
				w.lookAt(name)
			}
		}
	}
}

// look looks at the kubelet's socket and returns what Kubelet does.
func (w *KubeletWatch) look() (KubeletSocket, <-chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	id, present := identify(w.socket)
	if present == w.kubelet.Present && (!present || id == w.id) {
		return w.kubelet, w.changed
	}
	if present {
		w.id = id
		now := time.Now()
		age := max(0, now.Sub(time.Unix(0, id.made.Nano())))
		w.kubelet = KubeletSocket{Present: true, Generation: w.kubelet.Generation + 1, Since: now.Add(-age)}
		if w.kubelet.Generation > 1 {
			w.log.Info("kubelet restarted", "socket", w.socket)
		}
	} else {
		w.kubelet.Present = false
		w.log.Info("kubelet socket removed", "socket", w.socket)
	}
	close(w.changed)
	w.changed = make(chan struct{})
	return w.kubelet, w.changed
}

// await returns when d has passed, or earlier when the kubelet's socket is gone
// or not of that generation, or ctx is cancelled.
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

// checkMissing logs that there is no directory, and that there is one again.
func (w *KubeletWatch) checkMissing() {
	_, err := os.Stat(w.dir)
	missing := errors.Is(err, fs.ErrNotExist)
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case missing == w.missing:
		return
	case missing:
		w.log.Warn("kubelet directory does not exist, waiting for it", "kubelet_dir", w.dir)
	default:
		w.log.Info("kubelet directory exists", "kubelet_dir", w.dir)
	}
	w.missing = missing
}
