package plugin

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/generic-dp/generic-dp/internal/kubelet/checkpoint"
	"github.com/generic-dp/generic-dp/internal/kubelet/socket"
	"github.com/generic-dp/generic-dp/internal/sys/watch"
)

const (
	// kubeletSocket is the name of the kubelet's socket in its directory.
	kubeletSocket = "kubelet.sock"
	// bindToListen is the age from which a socket without a listener is dead.
	bindToListen = time.Second
)

// KubeletSocket is the state of the kubelet's socket.
type KubeletSocket struct {
	// Present: the file exists, possibly without a listener.
	Present bool
	// Generation counts the sockets seen so far: every start of the kubelet
	// makes a new one. It is 0 before the first.
	Generation uint64
	// Since is when the socket was made, computed from the age of its file when it was
	// first seen: later changes of the clock do not matter.
	Since time.Time
}

// KubeletWatch follows the kubelet's directory for all plugins of the process: the
// sockets of the kubelet, of the plugins and of other instances. There is one watch,
// since a user has few inotify instances (fs.inotify.max_user_instances, 128). The
// directory may come and go.
type KubeletWatch struct {
	dir, socketPath string
	log             *slog.Logger
	Files           *watch.Watcher // of the directory; Run runs it
	// Checkpoint has a value when the kubelet's checkpoint may have changed, and at first.
	// Its capacity is 1; it is for one reader.
	Checkpoint chan struct{}

	mu            sync.Mutex
	kubelet       KubeletSocket
	kubeletID     socket.FileID         // of its socket
	changed       chan struct{}         // closed when kubelet changes
	ownSockets    map[string]*ownSocket // by name
	pluginSockets map[string]bool       // names, other instances' included
	missing       bool                  // the directory does not exist

	connMu sync.Mutex
	conn   *kubeletConn // in use; nil is none
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
		Checkpoint:    make(chan struct{}, 1),
		changed:       make(chan struct{}),
		ownSockets:    map[string]*ownSocket{},
		pluginSockets: map[string]bool{},
	}
}

// Kubelet returns the state of the kubelet's socket and a channel that is closed
// when that changes.
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
		_ = w.Files.Run(ctx)
	}) // always nil
	running.Go(func() {
		w.connectAhead(ctx)
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
			if name == checkpoint.Name {
				w.announceCheckpoint()
				continue
			}
			w.check(name)
		}
	}
}

func (w *KubeletWatch) announceCheckpoint() {
	select {
	case w.Checkpoint <- struct{}{}:
	default: // it is announced already
	}
}

// checkAll checks every file in the directory.
func (w *KubeletWatch) checkAll() {
	w.checkDir()
	w.announceCheckpoint()
	w.check(kubeletSocket)
	entries, _ := os.ReadDir(w.dir) // an unreadable one is empty
	names := map[string]bool{}
	for _, e := range entries {
		names[e.Name()] = true
	}
	w.mu.Lock()
	for name := range w.pluginSockets {
		names[name] = true // it may have been removed
	}
	w.mu.Unlock()
	for name := range names {
		w.check(name)
	}
}

// checkDir logs when the directory disappears and reappears.
func (w *KubeletWatch) checkDir() {
	_, err := os.Stat(w.dir)
	missing := errors.Is(err, fs.ErrNotExist)
	w.mu.Lock()
	defer w.mu.Unlock()
	if missing == w.missing {
		return
	} else if missing {
		w.log.Warn("kubelet directory does not exist, waiting for it", "kubelet_dir", w.dir)
	} else {
		w.log.Info("kubelet directory exists", "kubelet_dir", w.dir)
	}
	w.missing = missing
}

// check updates the state of a file in the directory: the socket of the kubelet, a
// plugin or another instance.
func (w *KubeletWatch) check(name string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	id, present := socket.Identify(filepath.Join(w.dir, name))
	if resource, ok := socket.ResourceOf(name); ok {
		w.checkPlugin(name, resource, id, present)
	} else if name == kubeletSocket && (present != w.kubelet.Present || present && id != w.kubeletID) {
		w.checkKubelet(id, present)
	}
}

func (w *KubeletWatch) checkKubelet(id socket.FileID, present bool) {
	if present {
		w.kubeletID = id
		now := time.Now()
		age := max(0, now.Sub(id.Made))
		w.kubelet = KubeletSocket{Present: true, Generation: w.kubelet.Generation + 1, Since: now.Add(-age)}
		if w.kubelet.Generation > 1 {
			w.log.Info("kubelet restarted", "socket", w.socketPath)
		}
	} else {
		w.kubelet.Present = false
		w.log.Info("kubelet socket removed", "socket", w.socketPath)
	}
	close(w.changed)
	w.changed = make(chan struct{})
}

func (w *KubeletWatch) checkPlugin(name, resource string, id socket.FileID, present bool) {
	if present {
		w.pluginSockets[name] = true
	} else {
		delete(w.pluginSockets, name)
	}
	if o := w.ownSockets[name]; o != nil && (!present || id != o.socket.ID) {
		close(o.gone)
		delete(w.ownSockets, name)
	}
	for other, o := range w.ownSockets {
		if other != name && o.socket.Resource() == resource {
			select {
			case o.others <- struct{}{}:
			default:
			}
		}
	}
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

// ownSocket is a socket of a plugin of this process.
type ownSocket struct {
	socket *socket.Socket
	// gone is closed when the file is removed or replaced.
	gone chan struct{}
	// others has a value when other instances' sockets of the same resource may have
	// come or gone.
	others chan struct{}
}

// track watches a plugin's socket until untrack.
func (w *KubeletWatch) track(s *socket.Socket) *ownSocket {
	o := &ownSocket{socket: s, gone: make(chan struct{}), others: make(chan struct{}, 1)}
	o.others <- struct{}{} // earlier events were missed
	w.mu.Lock()
	w.ownSockets[s.Name] = o
	w.mu.Unlock()
	w.check(s.Name)
	return o
}

func (w *KubeletWatch) untrack(o *ownSocket) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.ownSockets, o.socket.Name)
}

// hasNewer reports whether another instance, as in a rolling update, lives and may have
// registered the resource after this one. That is not the order in which they made their
// sockets: an instance registers up to registerWithin later.
func (w *KubeletWatch) hasNewer(o *ownSocket) bool {
	w.mu.Lock()
	names := slices.Collect(maps.Keys(w.pluginSockets))
	w.mu.Unlock()
	for _, name := range names {
		if resource, _ := socket.ResourceOf(name); resource != o.socket.Resource() || name == o.socket.Name {
			continue
		}
		path := filepath.Join(w.dir, name)
		id, ok := socket.Identify(path)
		if !ok || id.Made.Before(o.socket.ID.Made.Add(-registerWithin)) {
			continue
		}
		if time.Since(id.Made) < bindToListen || !socket.Dead(path) {
			return true
		}
	}
	return false
}
