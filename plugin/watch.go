package plugin

import (
	"context"
	"log/slog"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"
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
	inotify     func() (*dirWatch, error)
	resync      time.Duration // between looks that no event asked for
	poll        time.Duration // between looks where there is no inotify

	bindToListen time.Duration // how old a socket without a listener is dead

	mu      sync.Mutex
	kubelet KubeletSocket
	id      fileID
	changed chan struct{}
	owned   map[string]*owned
	sockets map[string]bool // of plugins, by name
	dead    map[string]bool // those of others on which nobody listens any more
	state   watchState

	connecting sync.Mutex
	conn       *kubeletConn // that is in use; nil where none is
}

// watchState is what is logged when it changes.
type watchState struct {
	missing  bool // the directory does not exist
	degraded bool // there is no inotify
}

// NewKubeletWatch makes a watch of dir, the kubelet's device-plugins directory.
// A nil log discards.
func NewKubeletWatch(dir string, log *slog.Logger) *KubeletWatch {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	dir = filepath.Clean(dir)
	return &KubeletWatch{
		dir:     dir,
		socket:  filepath.Join(dir, kubeletSocket),
		log:     log,
		inotify: newDirWatch,
		resync:  2 * time.Minute,
		poll:    time.Second,
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

// Degraded reports whether inotify is not to be had, so that the directory is
// looked at every second instead.
func (w *KubeletWatch) Degraded() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.state.degraded
}

// Run follows the directory until ctx is cancelled, which is no error; it never
// gives up.
func (w *KubeletWatch) Run(ctx context.Context) error {
	for ctx.Err() == nil {
		err := w.follow(ctx)
		if ctx.Err() != nil {
			break
		}
		w.setDegraded(err)
		w.pollFor(ctx, w.resync)
	}
	return nil
}

// follow looks whenever inotify says that there is something to see. It returns
// when ctx is cancelled or inotify fails.
func (w *KubeletWatch) follow(ctx context.Context) error {
	in, err := w.inotify()
	if err != nil {
		return err
	}
	defer in.close()
	defer context.AfterFunc(ctx, in.wake)()
	for {
		entry, missing, err := in.watch(w.dir)
		if err != nil {
			return err
		}
		w.setDegraded(nil)
		w.setMissing(missing)
		w.lookAtAll()
		if err := w.events(ctx, in, entry); err != nil || ctx.Err() != nil {
			return err
		}
	}
}

// events looks at what changed until something calls for new watches: the
// directory, or entry in the directory above it, came or went. So does time:
// nobody tells when a directory further up is moved.
func (w *KubeletWatch) events(ctx context.Context, in *dirWatch, entry string) error {
	deadline := time.Now().Add(w.resync)
	for {
		events, err := in.read(ctx, deadline)
		if err != nil || events == nil {
			return err
		}
		for _, e := range events {
			switch {
			case e.mask&(unix.IN_Q_OVERFLOW|unix.IN_IGNORED|unix.IN_DELETE_SELF|unix.IN_MOVE_SELF|unix.IN_UNMOUNT) != 0:
				return nil
			case e.above && e.name == entry:
				return nil
			case e.above:
			case e.name == kubeletSocket:
				w.look()
			default:
				w.lookAt(e.name)
			}
		}
	}
}

// pollFor looks every now and then for about d.
func (w *KubeletWatch) pollFor(ctx context.Context, d time.Duration) {
	tick := time.NewTicker(w.poll)
	defer tick.Stop()
	end := time.Now().Add(d)
	for time.Now().Before(end) {
		w.lookAtAll()
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
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

// setDegraded says once that there is no inotify, and once that there is again.
func (w *KubeletWatch) setDegraded(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch degraded := err != nil; {
	case degraded == w.state.degraded:
		return
	case degraded:
		w.log.Warn("no inotify, looking at the kubelet's directory every second", "kubelet_dir", w.dir, "reason", err)
	default:
		w.log.Info("inotify works again", "kubelet_dir", w.dir)
	}
	w.state.degraded = err != nil
}

// setMissing says once that there is no directory, and once that there is again.
func (w *KubeletWatch) setMissing(missing bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case missing == w.state.missing:
		return
	case missing:
		w.log.Warn("kubelet directory does not exist, waiting for it", "kubelet_dir", w.dir)
	default:
		w.log.Info("kubelet directory exists", "kubelet_dir", w.dir)
	}
	w.state.missing = missing
}
