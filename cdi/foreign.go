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
	"github.com/generic-dp/generic-dp/internal/sys/files"
	"github.com/generic-dp/generic-dp/internal/sys/slow"
)

// StaticDir is the directory of CDI specs that administrators write. Runtimes read it in
// addition to the directory of generated specs.
const StaticDir = cdiapi.DefaultStaticDir

// ForeignSpecs reads the CDI specs of other programs and of other installations of this program.
// It reads a file only when the file is new or has changed: otherwise Read costs one stat per
// file. It is safe for concurrent use.
type ForeignSpecs struct {
	// Late is called when a file or directory has answered that did not answer in time. It is not called
	// again before a Read in time: files that are always slow must not cause endless reads. It may be nil.
	Late func()

	owner   string
	dirs    []string
	readDir func(dir string) ([]os.DirEntry, error)
	calls   slow.Calls[struct{}, *Foreign]

	mu sync.Mutex
	// last is the result of the last update, nil before the first one.
	last *Foreign
	// reading is the file or directory that the update reads.
	reading string
	// isLate is set if Late was called since the last read in time.
	isLate bool
}

// patience is how long Read waits for a file or directory that does not answer, for example on a
// dead mount. It must suffice for a large spec on a busy CPU: otherwise the first list would
// lack devices.
const patience = 500 * time.Millisecond

// Foreign is what the foreign specs contained when they were read last. It is shared and
// read-only.
type Foreign struct {
	// Devices are the CDI devices, sorted by name, as a container runtime currently resolves
	// the names.
	Devices []device.CDIDevice
	// Kinds maps each kind to the path of a file that has it, including files of other
	// installations of this program. These kinds must not be written: if two files have a
	// device with the same name, a runtime uses neither, or the one in the later directory.
	Kinds map[string]string
	// Problems are errors of single files and directories, and devices that are in two files
	// of one directory, which no runtime resolves. Everything else is valid.
	Problems []error
	// Unread is why the specs are not known yet, nil if they are.
	Unread error

	// files are the files in rising priority.
	files []*foreignFile
	// unreadable are the errors of directories. They are also in Problems.
	unreadable []error
}

// foreignFile is one spec file as last read.
type foreignFile struct {
	path string
	// info says whether the file has changed since.
	info fs.FileInfo
	// priority is the index of its directory. The device of a higher priority wins.
	priority int
	// kind is known even if the rest of the file is invalid, and empty if it is not.
	kind    string
	devices []device.CDIDevice
	err     error
}

const (
	// maxForeign is the maximum size of a foreign spec in bytes. A spec for eight GPUs in 56
	// parts has a third of this size. The YAML library needs a hundred times the size of a
	// file as memory.
	maxForeign = 256 << 10
	// maxKeys is the maximum number of keys in a mapping: the YAML library compares every
	// key with every other one.
	maxKeys = 1000
)

// NewForeignSpecs returns the specs in dirs that do not belong to owner, see Writer. A directory
// has precedence over the directories before it. Container runtimes read StaticDir first, and
// then the directory of generated specs.
func NewForeignSpecs(owner string, dirs ...string) *ForeignSpecs {
	s := &ForeignSpecs{
		owner:   owner,
		readDir: os.ReadDir,
	}
	s.calls.Late = func(struct{}) {
		s.mu.Lock()
		wasLate := s.isLate
		s.isLate = true
		s.mu.Unlock()
		if s.Late != nil && !wasLate {
			s.Late()
		}
	}
	for _, dir := range dirs {
		dir = filepath.Clean(dir)
		if !slices.Contains(s.dirs, dir) {
			s.dirs = append(s.dirs, dir)
		}
	}
	return s
}

// Read returns what the specs contain. While a file or directory does not answer, it
// returns what was read last, and only the first caller waits.
func (s *ForeignSpecs) Read() *Foreign {
	found, inTime := s.attempt()
	if inTime {
		found, inTime = s.attempt() // the first one may have joined an update that began before a change
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !inTime {
		return s.hanging()
	}
	s.isLate = false
	return found
}

// attempt returns the result of an update that runs, or of another one.
func (s *ForeignSpecs) attempt() (found *Foreign, inTime bool) {
	found, _, inTime = s.calls.Do(context.Background(), struct{}{}, patience, s.update)
	return found, inTime
}

// hanging is what was read last, with the problem that something does not answer. The caller holds the lock.
func (s *ForeignSpecs) hanging() *Foreign {
	hangs := fmt.Errorf("CDI specs of other programs can't be read: %q does not answer", s.reading)
	if s.last == nil {
		return &Foreign{Unread: hangs, Problems: []error{hangs}}
	}
	last := *s.last
	last.Problems = append(slices.Clip(last.Problems), hangs)
	return &last
}

// Check returns why a runtime does not resolve a qualified name, nil if it does.
func (f *Foreign) Check(name string) error {
	_, found := sort.Find(len(f.Devices), func(i int) int {
		return cmp.Compare(name, f.Devices[i].Name)
	})
	if !found && f.Unread == nil {
		return errors.New("no spec of the host has it")
	}
	return f.Unread
}

// update reads the files that have changed. One update runs at a time, see calls.
func (s *ForeignSpecs) update() *Foreign {
	s.mu.Lock()
	last := s.last
	s.mu.Unlock()
	isFirst := last == nil
	if isFirst {
		last = &Foreign{}
	}
	next := &Foreign{Kinds: map[string]string{}}
	for priority, dir := range s.dirs {
		s.readSpecsIn(dir, priority, last, next)
	}
	// Unchanged files have the same pointers.
	hasSameFiles := slices.Equal(next.files, last.files)
	hasSameErrors := fmt.Sprint(next.unreadable) == fmt.Sprint(last.unreadable)
	if hasSameFiles && hasSameErrors && !isFirst {
		return last
	}
	next.resolve()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last = next
	return next
}

// readSpecsIn adds the spec files of one directory to next. Files that have not changed are
// copied from last.
func (s *ForeignSpecs) readSpecsIn(dir string, priority int, last, next *Foreign) {
	s.setReading(dir)
	entries, err := s.readDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		next.unreadable = append(next.unreadable, fmt.Errorf("CDI specs: %w", err))
	}
	for _, e := range entries {
		name := e.Name()
		if !isSpec(name) || isOf(s.owner, name) {
			continue
		}
		path := filepath.Join(dir, name)
		s.setReading(path)
		info, err := os.Stat(path)
		if err != nil {
			continue // it was removed meanwhile
		}
		if !info.Mode().IsRegular() {
			continue // runtimes ignore it
		}
		file := last.unchanged(path, info)
		if file == nil {
			file = &foreignFile{
				path:     path,
				info:     info,
				priority: priority,
			}
			file.read()
		}
		next.files = append(next.files, file)
	}
}

// setReading records what is being read, for the error if it hangs.
func (s *ForeignSpecs) setReading(path string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reading = path
}

// unchanged returns a file that was read before, nil if it is new or has changed.
func (f *Foreign) unchanged(path string, info fs.FileInfo) *foreignFile {
	for _, file := range f.files {
		if file.path == path && isUnchanged(file.info, info) {
			return file
		}
	}
	return nil
}

// isUnchanged reports whether a file is still the one that was read. A file that was replaced by a
// rename has changed: size and time alone would miss a copy with the times of the file.
func isUnchanged(read, now fs.FileInfo) bool {
	isSameTime := read.ModTime().Equal(now.ModTime())
	return isSameTime && read.Size() == now.Size() && os.SameFile(read, now)
}

// read reads and checks the file. It is the only place that opens a foreign spec.
func (f *foreignFile) read() {
	spec, err := f.parse()
	name := filepath.Base(f.path)
	if isOwn(name) || uuid().MatchString(name) {
		// It belongs to another installation or to a claim: its devices are not devices of
		// the host.
		return
	}
	if err != nil {
		if inner := errors.Unwrap(err); inner != nil {
			err = inner // the outer error only adds the path
		}
		f.err = fmt.Errorf("CDI spec %q: %w", f.path, err)
		return
	}
	for _, d := range spec.Devices {
		if ofClaim(spec.Kind, d.Name) {
			continue
		}
		own := cdiNodes(d.ContainerEdits.DeviceNodes, false)
		common := cdiNodes(spec.ContainerEdits.DeviceNodes, true)
		f.devices = append(f.devices, device.CDIDevice{
			Name:  spec.Kind + "=" + d.Name,
			Nodes: append(own, common...),
		})
	}
}

// parse reads the spec and sets the kind. The kind of an invalid spec is taken too: runtimes
// reject the spec only until its owner repairs it.
func (f *foreignFile) parse() (*cdiapi.Spec, error) {
	data, err := files.Read(f.path, maxForeign)
	if err != nil {
		return nil, err
	}
	if err := checkYAML(data); err != nil {
		return nil, err
	}
	raw, err := cdiapi.ParseSpec(data)
	if raw == nil && err == nil {
		err = errors.New("no spec in it")
	}
	if raw == nil {
		return nil, err
	}
	f.kind = raw.Kind
	return cdiapi.ReadSpec(f.path, f.priority) // the library validates only files
}

// ofClaim reports whether a DRA driver or another device plugin made a device for its own pods.
// By convention the vendor of such a device begins with "k8s.", or its name contains the UID of
// a claim (DRAPlugin in k8s.io/dynamic-resource-allocation/kubeletplugin). The names of NVIDIA's
// GPUs contain a UUID after a prefix, but belong to the host.
func ofClaim(kind, name string) bool {
	if strings.HasPrefix(kind, "k8s.") {
		return true
	}
	isGPU := strings.HasPrefix(name, "GPU-")
	isPartOfGPU := strings.HasPrefix(name, "MIG-")
	if isGPU || isPartOfGPU {
		return false
	}
	return uuid().MatchString(name)
}

// uuid matches a text that contains a UUID.
var uuid = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile("(?i)[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
})

// checkYAML rejects a text that the YAML library would reject only after minutes, and with
// gigabytes of memory: the library reports each pair of equal keys.
func checkYAML(data []byte) error {
	var text yaml.Node
	if err := yaml.Unmarshal(data, &text); err != nil {
		return err
	}
	return checkKeys(&text)
}

// checkKeys rejects a mapping with equal keys or with more than maxKeys keys.
func checkKeys(n *yaml.Node) error {
	seen := map[string]bool{}
	for i, child := range n.Content {
		isKey := n.Kind == yaml.MappingNode && i%2 == 0 // keys and values alternate
		if isKey {
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

// cdiNodes are the device nodes of edits. common is set for the edits of the whole spec. If an
// edit has no device number, runtimes use the number of the node on the host
// (DeviceNode.fillMissingInfo of the CDI library).
func cdiNodes(edits []*specs.DeviceNode, common bool) []device.CDINode {
	var nodes []device.CDINode
	for _, e := range edits {
		n := device.CDINode{
			Path:   cmp.Or(e.HostPath, e.Path),
			Common: common,
		}
		hasNumber := e.Type != "" && e.Major != 0
		if hasNumber {
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

// resolve resolves the name of each device in the same way as Cache.refresh of the CDI library,
// and collects the kinds. Files come in rising priority. A device that is in two files of one directory
// is not resolved, even if a directory of higher priority has it.
func (f *Foreign) resolve() {
	f.Problems = slices.Clone(f.unreadable)
	devices := map[string]device.CDIDevice{}
	files := map[string]*foreignFile{} // by the name of the device
	var ambiguous []string
	for _, file := range f.files {
		_, isKnown := f.Kinds[file.kind]
		if file.kind != "" && !isKnown {
			f.Kinds[file.kind] = file.path
		}
		// An invalid file has no devices, but its kind stays reserved.
		if file.err != nil {
			f.Problems = append(f.Problems, file.err)
		}
		for _, d := range file.devices {
			other := files[d.Name]
			if other != nil && other.priority == file.priority {
				ambiguous = append(ambiguous, d.Name)
				f.Problems = append(f.Problems, fmt.Errorf("CDI device %q is in %q and in %q: container runtimes use neither",
					d.Name, other.path, file.path))
				continue
			}
			devices[d.Name] = d
			files[d.Name] = file
		}
	}
	for _, name := range ambiguous {
		delete(devices, name)
	}
	for _, name := range slices.Sorted(maps.Keys(devices)) {
		f.Devices = append(f.Devices, devices[name])
	}
}
