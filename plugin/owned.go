package plugin

import (
	"os"
	"path/filepath"
)

// owned is a plugin's socket as the watch follows it.
type owned struct {
	socket *ownSocket
	// gone is closed when the socket is.
	gone chan struct{}
	// newer are the sockets of the same resource that were made after this one:
	// another instance has registered since, as happens in a rolling update.
	newer map[string]bool
	// left has a value when newer has become empty.
	left chan struct{}
}

// own follows s until forget.
func (w *KubeletWatch) own(s *ownSocket) *owned {
	o := &owned{socket: s, gone: make(chan struct{}), newer: map[string]bool{}, left: make(chan struct{}, 1)}
	w.mu.Lock()
	w.owned[s.name] = o
	w.mu.Unlock()
	w.lookAt(s.name)
	return o
}

func (w *KubeletWatch) forget(o *owned) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.owned, o.socket.name)
}

// newest reports whether no newer socket of the same resource is known.
func (w *KubeletWatch) newest(o *owned) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(o.newer) == 0
}

// lookAt looks at what may be a socket of this program: a plugin's own one, or
// that of another instance.
func (w *KubeletWatch) lookAt(name string) {
	resource, ok := resourceOf(name)
	if !ok {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	id, present := identify(filepath.Join(w.dir, name))
	for _, o := range w.owned {
		switch own, _ := resourceOf(o.socket.name); {
		case name == o.socket.name:
			if !present || id != o.socket.id {
				close(o.gone)
				delete(w.owned, name)
			}
		case own != resource:
		case !present:
			o.leave(name)
		case !id.madeBefore(o.socket.id):
			o.newer[name] = true
		}
	}
}

// leave takes note that the newer socket name is gone.
func (o *owned) leave(name string) {
	if !o.newer[name] {
		return
	}
	delete(o.newer, name)
	if len(o.newer) == 0 {
		select {
		case o.left <- struct{}{}:
		default:
		}
	}
}

// lookAtAll looks at everything in the directory, and whether somebody listens
// still on the sockets of newer instances: one that is killed leaves its socket.
func (w *KubeletWatch) lookAtAll() {
	w.look()
	names := map[string]bool{}
	// A directory that can't be read has nothing.
	entries, _ := os.ReadDir(w.dir)
	for _, e := range entries {
		names[e.Name()] = true
	}
	newer := map[string]bool{}
	w.mu.Lock()
	for name, o := range w.owned {
		names[name] = true
		for name := range o.newer {
			names[name], newer[name] = true, true
		}
	}
	w.mu.Unlock()
	for name := range names {
		w.lookAt(name)
	}
	for name := range newer {
		if dead(filepath.Join(w.dir, name)) {
			w.mu.Lock()
			for _, o := range w.owned {
				o.leave(name)
			}
			w.mu.Unlock()
		}
	}
}
