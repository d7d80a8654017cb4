package sysfs

import (
	"maps"
	"sync"
)

// Trace is what was read below a root, by path relative to it: a tree with only these
// files reads the same.
type Trace struct {
	// Attrs are the contents of attributes, as the kernel gave them.
	Attrs map[string]string
	// Links are the targets of links.
	Links map[string]string
	// Dirs are existing directories. Other entries of listed directories are not kept.
	Dirs map[string]bool
}

// Trace returns a tree that records its reads, and a function that returns the
// recording. Both are safe for concurrent use.
func (fs FS) Trace() (traced FS, trace func() Trace) {
	t := &tracer{kept: Trace{Attrs: make(map[string]string), Links: make(map[string]string), Dirs: make(map[string]bool)}}
	fs.trace = t
	return fs, t.trace
}

// tracer records a trace; nil does not record.
type tracer struct {
	mu   sync.Mutex
	kept Trace
}

func (t *tracer) trace() Trace {
	t.mu.Lock()
	defer t.mu.Unlock()
	return Trace{Attrs: maps.Clone(t.kept.Attrs), Links: maps.Clone(t.kept.Links), Dirs: maps.Clone(t.kept.Dirs)}
}

func (t *tracer) attr(dir, name string, content []byte) {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.kept.Attrs[dir+"/"+name] = string(content)
}

func (t *tracer) link(dir, name string, target []byte) {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.kept.Links[dir+"/"+name] = string(target)
}

func (t *tracer) dir(dir string) {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.kept.Dirs[dir] = true
}
