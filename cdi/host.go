package cdi

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"

	cdiapi "tags.cncf.io/container-device-interface/pkg/cdi"
	specs "tags.cncf.io/container-device-interface/specs-go"

	"github.com/generic-dp/generic-dp/device"
)

// StaticDir holds the CDI specs of a host that no program generates. Runtimes
// read it besides the directory of generated ones.
const StaticDir = cdiapi.DefaultStaticDir

// HostSpecs are the CDI specs of others on the host. A file is read when it is
// new or has changed; where none has, each call costs a stat for each file.
// Safe for concurrent use.
type HostSpecs struct {
	owner string
	dirs  []string

	mu       sync.Mutex
	files    map[string]hostFile // by path
	broken   []string            // unreadable directories, with the reason
	devices  []device.CDIDevice
	kinds    map[string]string
	problems []error
}

// hostFile is one spec file as it was read last.
type hostFile struct {
	info     fs.FileInfo
	priority int
	kind     string
	devices  []device.CDIDevice
	err      error
}

// NewHostSpecs returns the specs in dirs that are not owner's, see Writer. A
// directory has precedence over those before it, as for a container runtime,
// whose order is StaticDir, then the directory of generated specs.
func NewHostSpecs(owner string, dirs ...string) *HostSpecs {
	h := &HostSpecs{owner: owner}
	for _, d := range dirs {
		if d = filepath.Clean(d); !slices.Contains(h.dirs, d) {
			h.dirs = append(h.dirs, d)
		}
	}
	return h
}

// Devices lists the CDI devices of all specs by name, as a container runtime that
// reads them now resolves the names. An error is that of one file, or of a device in
// two files of one directory, which no runtime resolves, and leaves the rest valid.
// Specs of this program are left out. The results are shared and read-only.
func (h *HostSpecs) Devices() ([]device.CDIDevice, []error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.update()
	return h.devices, h.problems
}

// Has reports whether a runtime that reads the specs now finds the device
// with the qualified name.
func (h *HostSpecs) Has(name string) bool {
	devices, _ := h.Devices()
	_, found := slices.BinarySearchFunc(devices, name, func(d device.CDIDevice, name string) int { return cmp.Compare(d.Name, name) })
	return found
}

// Kinds maps each kind of the specs to the path of a file that has it, other
// installations of this program included. Of two devices with one name a runtime
// takes neither, or that of the later directory, so these kinds must not be
// written. The result is read-only.
func (h *HostSpecs) Kinds() map[string]string {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.update()
	return h.kinds
}

// update reads the files that changed.
func (h *HostSpecs) update() {
	files := map[string]hostFile{}
	var broken []string
	changed := h.files == nil
	for priority, dir := range h.dirs {
		entries, err := os.ReadDir(dir)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			broken = append(broken, fmt.Sprintf("CDI specs: %v", err))
		}
		for _, e := range entries {
			if !isSpec(e.Name()) || isOf(h.owner, e.Name()) {
				continue
			}
			path := filepath.Join(dir, e.Name())
			info, err := os.Stat(path)
			if err != nil || !info.Mode().IsRegular() {
				continue // gone meanwhile, or ignored by runtimes
			}
			f, known := h.files[path]
			if !known || !unchanged(f.info, info) {
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

// unchanged reports whether a file is the one that was read before. One that was
// replaced by rename is another.
func unchanged(a, b fs.FileInfo) bool {
	return os.SameFile(a, b) && a.Size() == b.Size() && a.ModTime().Equal(b.ModTime())
}

// readHostFile is the only place that opens a spec of somebody else.
func readHostFile(path string, info fs.FileInfo, priority int) hostFile {
	f := hostFile{info: info, priority: priority}
	spec, err := cdiapi.ReadSpec(path, priority)
	if err == nil {
		f.kind = spec.Kind
	} else if data, err := os.ReadFile(path); err == nil {
		// Runtimes refuse it until its owner mends it: the kind stays taken.
		if raw, err := cdiapi.ParseSpec(data); err == nil && raw != nil {
			f.kind = raw.Kind
		}
	}
	if isOwn(filepath.Base(path)) {
		return f // another installation's: its devices are no devices of the host
	}
	if err != nil {
		if inner := errors.Unwrap(err); inner != nil {
			err = inner // the rest is the path
		}
		f.err = fmt.Errorf("CDI spec %q: %w", path, err)
		return f
	}
	for _, d := range spec.Devices {
		nodes := append(cdiNodes(d.ContainerEdits.DeviceNodes, false), cdiNodes(spec.ContainerEdits.DeviceNodes, true)...)
		f.devices = append(f.devices, device.CDIDevice{Name: spec.Kind + "=" + d.Name, Nodes: nodes})
	}
	return f
}

// cdiNodes are the device nodes that a spec gives. Runtimes take the number from the
// host's node where the spec leaves it out (DeviceNode.fillMissingInfo of the CDI
// library).
func cdiNodes(edits []*specs.DeviceNode, common bool) []device.CDINode {
	var nodes []device.CDINode
	for _, e := range edits {
		n := device.CDINode{Path: cmp.Or(e.HostPath, e.Path), Common: common}
		if e.Type != "" && e.Major != 0 {
			n.Type, n.Major, n.Minor = device.CharNode, uint32(e.Major), uint32(e.Minor)
			if e.Type == "b" {
				n.Type = device.BlockNode
			}
		}
		nodes = append(nodes, n)
	}
	return nodes
}

// resolve works out which device each name stands for, as Cache.refresh of the
// CDI library does, and which kinds are taken.
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
	h.kinds = map[string]string{}
	paths := slices.SortedFunc(maps.Keys(h.files), func(a, b string) int {
		return cmp.Or(cmp.Compare(h.files[a].priority, h.files[b].priority), cmp.Compare(a, b))
	})
	for _, path := range paths {
		f := h.files[path]
		if _, taken := h.kinds[f.kind]; f.kind != "" && !taken {
			h.kinds[f.kind] = path
		}
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
