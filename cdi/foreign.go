package cdi

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"sort"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"go.yaml.in/yaml/v3"
	cdiapi "tags.cncf.io/container-device-interface/pkg/cdi"
	specs "tags.cncf.io/container-device-interface/specs-go"

	"github.com/generic-dp/generic-dp/device"
	"github.com/generic-dp/generic-dp/internal/atomicfile"
	"github.com/generic-dp/generic-dp/internal/slow"
)

// StaticDir is the directory of CDI specs that no program generates. Runtimes read it
// in addition to the directory of generated ones.
const StaticDir = cdiapi.DefaultStaticDir

// ForeignSpecs are the foreign CDI specs on the host. A file is read when it is new or has
// changed; otherwise each call costs a stat per file. If a file system hangs, one call
// waits for patience, and what was read before is valid until it answers. Safe for
// concurrent use.
type ForeignSpecs struct {
	// Late is called when a file system that hung has answered; nil is ignored.
	Late func()

	owner string
	dirs  []string
	calls slow.Calls[struct{}, *foundSpecs]
	last  atomic.Pointer[foundSpecs] // nil before the first read
}

// patience is how long to wait for a file system.
const patience = 500 * time.Millisecond

// foundSpecs is the immutable result of a read.
type foundSpecs struct {
	unreadable []error        // of directories
	files      []*foreignFile // in rising priority
	devices    []device.CDIDevice
	kinds      map[string]string
	problems   []error // of files and devices
}

// foreignFile is one spec file as last read.
type foreignFile struct {
	path     string
	info     fs.FileInfo
	priority int
	kind     string
	devices  []device.CDIDevice
	err      error
}

const (
	// maxForeign is the maximum size of a foreign spec in bytes. One for eight GPUs in
	// 56 parts has a third of it; the YAML library takes a hundred times as much.
	maxForeign = 256 << 10
	// maxKeys is the maximum number of keys in a mapping. The YAML library compares
	// them in pairs.
	maxKeys = 1000
)

// NewForeignSpecs returns the specs in dirs that are not owner's, see Writer. A
// directory has precedence over those before it, as for a container runtime,
// whose order is StaticDir, then the directory of generated specs.
func NewForeignSpecs(owner string, dirs ...string) *ForeignSpecs {
	h := &ForeignSpecs{owner: owner}
	h.calls.Late = func(struct{}) {
		if h.Late != nil {
			h.Late()
		}
	}
	for _, d := range dirs {
		if d = filepath.Clean(d); !slices.Contains(h.dirs, d) {
			h.dirs = append(h.dirs, d)
		}
	}
	return h
}

// Devices lists the CDI devices of all specs by name, as a container runtime currently
// resolves the names. An error concerns one file, or a device in two files of one
// directory, which no runtime resolves; the rest is valid. Specs of this program are left
// out. The results are shared and read-only.
func (h *ForeignSpecs) Devices() ([]device.CDIDevice, []error) {
	found, err := h.current()
	if err != nil {
		return found.devices, append(slices.Clone(found.problems), err)
	}
	return found.devices, append(slices.Clip(found.unreadable), found.problems...)
}

// Has reports whether a runtime currently resolves the qualified name.
func (h *ForeignSpecs) Has(name string) bool {
	devices, _ := h.Devices()
	_, found := sort.Find(len(devices), func(i int) int { return cmp.Compare(name, devices[i].Name) })
	return found
}

// Kinds maps each kind of the specs to the path of a file that has it, other
// installations of this program included. Of two devices with one name a runtime
// takes neither, or that of the later directory, so these kinds must not be
// written. The result is read-only. An error means that they are not known yet.
func (h *ForeignSpecs) Kinds() (map[string]string, error) {
	found, err := h.current()
	if found.kinds != nil {
		err = nil
	}
	return found.kinds, err
}

// current returns what the specs are now, or what they were before and that they can't be
// read now.
func (h *ForeignSpecs) current() (foundSpecs, error) {
	found, _, ok := h.calls.Do(context.Background(), struct{}{}, patience, h.read)
	if ok {
		return *found, nil
	}
	err := fmt.Errorf("CDI specs: no answer from the file system of %s", strings.Join(h.dirs, " or "))
	if found = h.last.Load(); found == nil {
		return foundSpecs{}, err
	}
	return *found, err
}

// read reads the files that changed. One call runs at a time.
func (h *ForeignSpecs) read() *foundSpecs {
	last := cmp.Or(h.last.Load(), &foundSpecs{})
	found := &foundSpecs{}
	for priority, dir := range h.dirs {
		entries, err := os.ReadDir(dir)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			found.unreadable = append(found.unreadable, fmt.Errorf("CDI specs: %w", err))
		}
		for _, e := range entries {
			if !isSpec(e.Name()) || isOf(h.owner, e.Name()) {
				continue
			}
			path := filepath.Join(dir, e.Name())
			info, err := os.Stat(path)
			if err != nil || !info.Mode().IsRegular() {
				continue // removed meanwhile, or ignored by runtimes
			}
			f := last.unchanged(path, info)
			if f == nil {
				f = &foreignFile{path: path, info: info, priority: priority}
				f.read()
			}
			found.files = append(found.files, f)
		}
	}
	if last.kinds != nil && slices.Equal(found.files, last.files) {
		found.devices, found.kinds, found.problems = last.devices, last.kinds, last.problems
	} else {
		found.resolve()
	}
	h.last.Store(found)
	return found
}

// unchanged returns a file as read before; nil if changed or replaced, also by a rename.
func (s *foundSpecs) unchanged(path string, info fs.FileInfo) *foreignFile {
	i := slices.IndexFunc(s.files, func(f *foreignFile) bool {
		return f.path == path && os.SameFile(f.info, info) && f.info.Size() == info.Size() && f.info.ModTime().Equal(info.ModTime())
	})
	if i < 0 {
		return nil
	}
	return s.files[i]
}

// read is the only place that opens a foreign spec.
func (f *foreignFile) read() {
	var spec *cdiapi.Spec
	data, err := atomicfile.Read(f.path, maxForeign)
	if err == nil {
		err = bearable(data)
	}
	if err == nil {
		var raw *specs.Spec
		if raw, err = cdiapi.ParseSpec(data); raw != nil {
			// Runtimes reject an invalid one until its owner repairs it: the kind stays taken.
			f.kind = raw.Kind
			spec, err = cdiapi.ReadSpec(f.path, f.priority) // the library validates files only
		} else if err == nil {
			err = errors.New("no spec in it")
		}
	}
	if isOwn(filepath.Base(f.path)) || uuid().MatchString(filepath.Base(f.path)) {
		return // another installation's, or of a claim: its devices are no devices of the host
	}
	if err != nil {
		if inner := errors.Unwrap(err); inner != nil {
			err = inner // the rest is the path
		}
		f.err = fmt.Errorf("CDI spec %q: %w", f.path, err)
		return
	}
	for _, d := range spec.Devices {
		if ofClaim(spec.Kind, d.Name) {
			continue
		}
		nodes := append(cdiNodes(d.ContainerEdits.DeviceNodes, false), cdiNodes(spec.ContainerEdits.DeviceNodes, true)...)
		f.devices = append(f.devices, device.CDIDevice{Name: spec.Kind + "=" + d.Name, Nodes: nodes})
	}
}

// ofClaim reports whether a DRA driver or another device plugin made a device for its own
// pods: by convention its vendor begins with "k8s.", or its name has the UID of a claim
// (DRAPlugin in k8s.io/dynamic-resource-allocation/kubeletplugin). NVIDIA's GPUs have a
// UUID behind a prefix.
func ofClaim(kind, name string) bool {
	gpu := strings.HasPrefix(name, "GPU-") || strings.HasPrefix(name, "MIG-")
	return strings.HasPrefix(kind, "k8s.") || !gpu && uuid().MatchString(name)
}

// uuid matches a text that contains a UUID.
var uuid = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile("(?i)[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
})

// bearable returns an error for a text that the YAML library would take minutes and
// gigabytes to reject: it reports each pair of equal keys.
func bearable(data []byte) error {
	var text yaml.Node
	if err := yaml.Unmarshal(data, &text); err != nil {
		return err
	}
	return checkKeys(&text)
}

func checkKeys(n *yaml.Node) error {
	seen := map[string]bool{}
	for i, child := range n.Content {
		if n.Kind == yaml.MappingNode && i%2 == 0 {
			if seen[child.Value] || len(seen) == maxKeys {
				return fmt.Errorf("yaml: line %d: key %q is there twice, or is one of more than %d", child.Line, child.Value, maxKeys)
			}
			seen[child.Value] = true
		}
		if err := checkKeys(child); err != nil {
			return err
		}
	}
	return nil
}

// cdiNodes are the device nodes of a spec. Runtimes use the number of the host's node
// if the spec has none (DeviceNode.fillMissingInfo of the CDI library).
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

// resolve resolves the name of each device, like Cache.refresh of the CDI library, and
// collects the taken kinds.
func (s *foundSpecs) resolve() {
	s.kinds = map[string]string{}
	type resolved struct {
		file      *foreignFile
		device    device.CDIDevice
		ambiguous bool
	}
	found := map[string]*resolved{}
	for _, f := range s.files {
		if _, taken := s.kinds[f.kind]; f.kind != "" && !taken {
			s.kinds[f.kind] = f.path
		}
		if f.err != nil {
			s.problems = append(s.problems, f.err)
		}
		for _, d := range f.devices {
			r := found[d.Name]
			switch {
			case r == nil:
				found[d.Name] = &resolved{file: f, device: d}
			case r.file.priority == f.priority:
				r.ambiguous = true
				s.problems = append(s.problems, fmt.Errorf("CDI device %q is in %q and in %q: runtimes take neither", d.Name, r.file.path, f.path))
			default:
				r.file, r.device = f, d
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(found)) {
		if r := found[name]; !r.ambiguous {
			s.devices = append(s.devices, r.device)
		}
	}
}
