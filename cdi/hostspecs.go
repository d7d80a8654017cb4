package cdi

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"

	cdiapi "tags.cncf.io/container-device-interface/pkg/cdi"

	"github.com/generic-dp/generic-dp/device"
)

// HostSpecs are the CDI specs that others keep on the host. A file is read
// when it is new or has changed; looking when nothing has costs a stat for each.
// It may be used from several goroutines.
type HostSpecs struct {
	dirs []string

	mu       sync.Mutex
	files    map[string]hostFile // by path
	broken   []string            // directories that can't be read, and why
	devices  []device.CDIDevice
	problems []error
}

// hostFile is one spec file as it was read last.
type hostFile struct {
	info     fs.FileInfo
	priority int
	devices  []device.CDIDevice
	err      error
}

// NewHostSpecs returns the specs in dirs. A directory goes before those that
// are named in front of it, as for a container runtime, whose order is
// StaticDir, then the one of generated specs.
func NewHostSpecs(dirs ...string) *HostSpecs {
	h := &HostSpecs{}
	for _, d := range dirs {
		if d = filepath.Clean(d); !slices.Contains(h.dirs, d) {
			h.dirs = append(h.dirs, d)
		}
	}
	return h
}

// Devices lists the CDI devices of all specs by name, as a container runtime
// that reads them now resolves the names. What is wrong with one file is among
// the errors, by path, and degrades its devices alone. A device that two files
// of one directory describe is resolved by no runtime, whatever other
// directories say, and is an error too. Specs of this program are left out.
//
// The results are not to be changed: they are the same until a file changes.
func (h *HostSpecs) Devices() ([]device.CDIDevice, []error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.look()
	return h.devices, h.problems
}

// Has reports whether a runtime that reads the specs now finds the device
// with the qualified name.
func (h *HostSpecs) Has(name string) bool {
	devices, _ := h.Devices()
	_, found := slices.BinarySearchFunc(devices, name, func(d device.CDIDevice, name string) int { return cmp.Compare(d.Name, name) })
	return found
}

// look reads what changed.
func (h *HostSpecs) look() {
	files := map[string]hostFile{}
	var broken []string
	changed := h.files == nil
	for priority, dir := range h.dirs {
		entries, err := os.ReadDir(dir)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			broken = append(broken, fmt.Sprintf("CDI specs: read %q: %v", dir, cause(err)))
		}
		for _, e := range entries {
			if !isSpec(e.Name()) || isOwn(e.Name()) {
				continue
			}
			path := filepath.Join(dir, e.Name())
			info, err := os.Stat(path)
			if err != nil || !info.Mode().IsRegular() {
				continue // gone meanwhile, or nothing that a runtime reads
			}
			f, known := h.files[path]
			if !known || !same(f.info, info) {
				f = readHostFile(path, info, priority)
				changed = true
			}
			files[path] = f
		}
	}
	if changed || len(files) != len(h.files) || !slices.Equal(broken, h.broken) {
		h.files, h.broken = files, broken
		h.resolve()
	}
}

// same reports whether a file is the one that was read before. One that was
// replaced by rename is another.
func same(a, b fs.FileInfo) bool {
	return os.SameFile(a, b) && a.Size() == b.Size() && a.ModTime().Equal(b.ModTime())
}

func readHostFile(path string, info fs.FileInfo, priority int) hostFile {
	f := hostFile{info: info, priority: priority}
	spec, err := cdiapi.ReadSpec(path, priority)
	if err != nil {
		if inner := errors.Unwrap(err); inner != nil {
			err = inner // the rest is the path
		}
		f.err = fmt.Errorf("CDI spec %q: %w", path, cause(err))
		return f
	}
	for _, d := range spec.Devices {
		var nodes []string
		for _, n := range d.ContainerEdits.DeviceNodes {
			nodes = append(nodes, cmp.Or(n.HostPath, n.Path))
		}
		f.devices = append(f.devices, device.CDIDevice{Name: spec.Kind + "=" + d.Name, Nodes: nodes})
	}
	return f
}

// resolve works out which device each name stands for, as Cache.refresh of
// the CDI library does.
func (h *HostSpecs) resolve() {
	h.problems = nil
	for _, text := range h.broken {
		h.problems = append(h.problems, errors.New(text))
	}
	type resolved struct {
		file     string
		priority int
		device   device.CDIDevice
	}
	found := map[string]resolved{}
	ambiguous := map[string]bool{}
	paths := make([]string, 0, len(h.files))
	for path := range h.files {
		paths = append(paths, path)
	}
	slices.SortFunc(paths, func(a, b string) int {
		return cmp.Or(cmp.Compare(h.files[a].priority, h.files[b].priority), cmp.Compare(a, b))
	})
	for _, path := range paths {
		f := h.files[path]
		if f.err != nil {
			h.problems = append(h.problems, f.err)
		}
		for _, d := range f.devices {
			if other, ok := found[d.Name]; ok && other.priority == f.priority {
				ambiguous[d.Name] = true
				h.problems = append(h.problems, fmt.Errorf("CDI device %q is in %q and in %q: runtimes take neither", d.Name, other.file, path))
				continue
			}
			found[d.Name] = resolved{path, f.priority, d}
		}
	}
	h.devices = nil
	for name, r := range found {
		if !ambiguous[name] {
			h.devices = append(h.devices, r.device)
		}
	}
	slices.SortFunc(h.devices, func(a, b device.CDIDevice) int { return cmp.Compare(a.Name, b.Name) })
}
