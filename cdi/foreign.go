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
	"time"

	"go.yaml.in/yaml/v3"
	cdiapi "tags.cncf.io/container-device-interface/pkg/cdi"
	specs "tags.cncf.io/container-device-interface/specs-go"

	"github.com/generic-dp/generic-dp/internal/device"
	"github.com/generic-dp/generic-dp/internal/sys/atomicfile"
	"github.com/generic-dp/generic-dp/internal/sys/slow"
)

// StaticDir is the directory of CDI specs that no program generates. Runtimes read it
// in addition to the directory of generated ones.
const StaticDir = cdiapi.DefaultStaticDir

// ForeignSpecs reads the CDI specs of other programs and of other installations of this
// one. A file is read when it is new or has changed; otherwise each Read costs a stat per
// file. Safe for concurrent use.
type ForeignSpecs struct {
	// Late is called when what did not answer in time has answered and another Read may
	// return something else; nil is ignored.
	Late func()

	owner   string
	dirs    []string
	readDir func(dir string) ([]os.DirEntry, error)
	calls   slow.Calls[struct{}, update]

	mu      sync.Mutex
	last    *Foreign // nil before the first
	begun   int      // updates so far
	running bool     // the last one runs
	at      string   // what it reads
	stale   bool     // another Read may return something else than the last one
}

// update is the result of an update, and which one it is, counted from 1.
type update struct {
	*Foreign
	number int
}

// patience is how long Read waits for a file or directory that does not answer, on a dead
// mount. A first list would lack devices for a large spec on a busy CPU if it were short.
const patience = 500 * time.Millisecond

// Foreign is what the foreign specs contained when they were read last. It is shared and
// read-only.
type Foreign struct {
	// Devices are the CDI devices by name, as a container runtime currently resolves the
	// names.
	Devices []device.CDIDevice
	// Kinds maps each kind to the path of a file that has it, other installations of this
	// program included. Of two devices with one name a runtime takes neither, or that of the
	// later directory, so these kinds must not be written.
	Kinds map[string]string
	// Problems concern one file or directory each, or a device in two files of one
	// directory, which no runtime resolves; the rest is valid.
	Problems []error
	// Unread is why nothing is known yet; nil if it is.
	Unread error

	files      []*foreignFile // in rising priority
	unreadable []error        // of directories, also in Problems
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
	s := &ForeignSpecs{owner: owner, readDir: os.ReadDir}
	s.calls.Late = func(struct{}) {
		s.late()
	}
	for _, d := range dirs {
		if d = filepath.Clean(d); !slices.Contains(s.dirs, d) {
			s.dirs = append(s.dirs, d)
		}
	}
	return s
}

// Read returns what the specs contain. While a file or directory does not answer, it
// returns what was read last, and only the first caller waits.
func (s *ForeignSpecs) Read() *Foreign {
	s.mu.Lock()
	defer s.mu.Unlock()
	begun := s.begun
	for {
		s.mu.Unlock()
		u, _, ok := s.calls.Do(context.Background(), struct{}{}, patience, s.update)
		s.mu.Lock()
		// An update that began earlier may have passed by what has changed since.
		if ok && u.number > begun {
			return u.Foreign
		}
		if !ok && s.running {
			break
		}
	}
	joined := s.begun == begun
	s.stale = s.stale || joined
	hangs := fmt.Errorf("CDI specs of other programs can't be read: %q does not answer", s.at)
	if s.last == nil {
		return &Foreign{Unread: hangs, Problems: []error{hangs}}
	} else if joined { // longer than patience
		hanging := *s.last
		hanging.Problems = append(slices.Clip(hanging.Problems), hangs)
		return &hanging
	}
	return s.last
}

// late calls Late, unless nothing is new: files that are always slow must not cause
// endless reads.
func (s *ForeignSpecs) late() {
	s.mu.Lock()
	stale := s.stale
	s.stale = false
	s.mu.Unlock()
	if stale && s.Late != nil {
		s.Late()
	}
}

// Check returns why a runtime does not resolve the qualified name.
func (f *Foreign) Check(name string) error {
	_, found := sort.Find(len(f.Devices), func(i int) int {
		return cmp.Compare(name, f.Devices[i].Name)
	})
	if !found && f.Unread == nil {
		return errors.New("no spec of the host has it")
	}
	return f.Unread
}

// update reads the files that changed. One runs at a time, see calls.
func (s *ForeignSpecs) update() update {
	s.mu.Lock()
	s.begun++
	s.running = true
	last := s.last
	s.mu.Unlock()
	if last == nil {
		last = &Foreign{}
	}
	next := &Foreign{Kinds: map[string]string{}}
	for priority, dir := range s.dirs {
		s.reading(dir)
		entries, err := s.readDir(dir)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			next.unreadable = append(next.unreadable, fmt.Errorf("CDI specs: %w", err))
		}
		for _, e := range entries {
			if !isSpec(e.Name()) || isOf(s.owner, e.Name()) {
				continue
			}
			path := filepath.Join(dir, e.Name())
			s.reading(path)
			info, err := os.Stat(path)
			if err != nil || !info.Mode().IsRegular() {
				continue // removed meanwhile, or ignored by runtimes
			}
			f := last.unchanged(path, info)
			if f == nil {
				f = &foreignFile{path: path, info: info, priority: priority}
				f.read()
			}
			next.files = append(next.files, f)
		}
	}
	changed := !slices.Equal(next.files, last.files) || fmt.Sprint(next.unreadable) != fmt.Sprint(last.unreadable)
	if changed {
		next.resolve()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.running = false
	if changed || s.last == nil {
		s.last = next
		s.stale = true
	}
	return update{s.last, s.begun}
}

func (s *ForeignSpecs) reading(path string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.at = path
}

// unchanged returns a file as read before; nil if changed or replaced, also by a rename.
func (f *Foreign) unchanged(path string, info fs.FileInfo) *foreignFile {
	i := slices.IndexFunc(f.files, func(f *foreignFile) bool {
		return f.path == path && os.SameFile(f.info, info) && f.info.Size() == info.Size() && f.info.ModTime().Equal(info.ModTime())
	})
	if i < 0 {
		return nil
	}
	return f.files[i]
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
				return fmt.Errorf("yaml: line %d: key %q is there twice, or is one of more than %d",
					child.Line, child.Value, maxKeys)
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
			n.Type = device.CharNode
			n.Major = uint32(e.Major)
			n.Minor = uint32(e.Minor)
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
func (f *Foreign) resolve() {
	f.Problems = slices.Clone(f.unreadable)
	type resolved struct {
		file      *foreignFile
		device    device.CDIDevice
		ambiguous bool
	}
	found := map[string]*resolved{}
	for _, file := range f.files {
		if _, taken := f.Kinds[file.kind]; file.kind != "" && !taken {
			f.Kinds[file.kind] = file.path
		}
		if file.err != nil {
			f.Problems = append(f.Problems, file.err)
		}
		for _, d := range file.devices {
			r := found[d.Name]
			if r == nil {
				found[d.Name] = &resolved{file: file, device: d}
			} else if r.file.priority == file.priority {
				r.ambiguous = true
				f.Problems = append(f.Problems, fmt.Errorf("CDI device %q is in %q and in %q: runtimes take neither",
					d.Name, r.file.path, file.path))
			} else {
				r.file = file
				r.device = d
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(found)) {
		if r := found[name]; !r.ambiguous {
			f.Devices = append(f.Devices, r.device)
		}
	}
}
