package plugin

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// owned is a plugin's socket as the watch follows it.
type owned struct {
	socket *ownSocket
	// gone is closed when the socket is.
	gone chan struct{}
	// newer are the sockets of the same resource that another instance, as in a
	// rolling update, may have registered after this one. That is not the order
	// in which they were made: an instance registers up to timing.register after
	// it has made its socket.
	newer map[string]bool
	// joined has a value when newer is no longer empty, left when it is again.
	joined, left chan struct{}
}

// own follows s until forget.
func (w *KubeletWatch) own(s *ownSocket) *owned {
	o := &owned{
		socket: s, gone: make(chan struct{}),
		newer: map[string]bool{}, joined: make(chan struct{}, 1), left: make(chan struct{}, 1),
	}
	w.mu.Lock()
	w.owned[s.name] = o
	var others []string // those whose events came before
	for name := range w.sockets {
		if r, _ := resourceOf(name); r == s.resource() && name != s.name {
			others = append(others, name)
		}
	}
	w.mu.Unlock()
	w.lookAt(s.name)
	for _, name := range others {
		if w.listening(name) {
			w.lookAt(name)
		}
	}
	return o
}

// listening reports whether somebody listens on a socket in the directory. A
// socket on which nobody does is dead for good, and counts no more, but for one
// so young that it may be between bind and listen.
func (w *KubeletWatch) listening(name string) bool {
	path := filepath.Join(w.dir, name)
	if id, ok := identify(path); !dead(path) || ok && time.Since(time.Unix(0, id.made.Nano())) < w.bindToListen {
		return true
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.dead[name] = true
	return false
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
	if present {
		w.sockets[name] = true
	} else {
		delete(w.sockets, name)
		delete(w.dead, name)
	}
	for _, o := range w.owned {
		switch own := o.socket.resource(); {
		case name == o.socket.name:
			if !present || id != o.socket.id {
				close(o.gone)
				delete(w.owned, name)
			}
		case own != resource:
		case !present:
			o.leave(name)
		case w.dead[name]:
		case id.made.Nano() > o.socket.id.made.Nano()-registerWithin.Nanoseconds():
			o.join(name)
		}
	}
}

// join takes note of the newer socket name.
func (o *owned) join(name string) {
	if o.newer[name] {
		return
	}
	o.newer[name] = true
	select {
	case o.joined <- struct{}{}:
	default:
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
// still on the sockets of newer instances.
func (w *KubeletWatch) lookAtAll() {
	w.look()
	names := map[string]bool{}
	// A directory that can't be read has nothing.
	entries, _ := os.ReadDir(w.dir)
	for _, e := range entries {
		names[e.Name()] = true
	}
	w.mu.Lock()
	for name := range w.sockets {
		names[name] = true // one that is gone
	}
	owned := slices.Collect(maps.Values(w.owned))
	w.mu.Unlock()
	for name := range names {
		w.lookAt(name)
	}
	for _, o := range owned {
		w.probe(o)
	}
}

// probe looks whether somebody listens still on the sockets of newer instances:
// one that is killed leaves its socket, and no event tells.
func (w *KubeletWatch) probe(o *owned) {
	w.mu.Lock()
	names := slices.Collect(maps.Keys(o.newer))
	w.mu.Unlock()
	for _, name := range names {
		if !w.listening(name) {
			w.mu.Lock()
			o.leave(name)
			w.mu.Unlock()
		}
	}
}
