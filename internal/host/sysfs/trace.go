package sysfs

import (
	"maps"
	"sync"
)

// Trace is everything that was read below a root, by path relative to the root. The same reads of a
// tree with only these files have the same results.
type Trace struct {
	// Attrs are the contents of attributes as read from the kernel.
	Attrs map[string]string
	// Links are the targets of links.
	Links map[string]string
	// Dirs are existing directories. Other entries of listed directories are not recorded.
	Dirs map[string]bool
}

// Trace returns a tree that records its reads, and a function that returns the
// recording. Both are safe for concurrent use.
func (fs FS) Trace() (traced FS, trace func() Trace) {
	t := &tracer{}
	t.reads.Attrs = make(map[string]string)
	t.reads.Links = make(map[string]string)
	t.reads.Dirs = make(map[string]bool)
	fs.trace = t
	return fs, t.trace
}

// tracer records a trace. A nil tracer does not record.
type tracer struct {
	mu    sync.Mutex
	reads Trace
}

func (t *tracer) trace() Trace {
	t.mu.Lock()
	defer t.mu.Unlock()
	return Trace{
		Attrs: maps.Clone(t.reads.Attrs),
		Links: maps.Clone(t.reads.Links),
		Dirs:  maps.Clone(t.reads.Dirs),
	}
}

func (t *tracer) attr(dir, name string, content []byte) {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.reads.Attrs[dir+"/"+name] = string(content)
}

func (t *tracer) link(dir, name string, target []byte) {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.reads.Links[dir+"/"+name] = string(target)
}

func (t *tracer) dir(dir string) {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.reads.Dirs[dir] = true
}
