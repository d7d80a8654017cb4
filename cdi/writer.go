package cdi

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
	specs "tags.cncf.io/container-device-interface/specs-go"

	"github.com/generic-dp/generic-dp/internal/sys/atomicfile"
	"github.com/generic-dp/generic-dp/internal/sys/files"
)

// The names of spec files start with filePrefix, followed by the mark of the
// installation that owns the file: markLen hexadecimal digits between dashes, or
// nothing for the default one. Runtimes read files that end in fileSuffix.
const (
	filePrefix = "generic-dp_"
	fileSuffix = ".json"
	markLen    = 8
)

// maxFileName is the maximum length of the name of a file in bytes (NAME_MAX in
// include/uapi/linux/limits.h), including the temporary one.
const maxFileName = 255 - len(atomicfile.TempSuffix)

// Writer maintains the spec files of one installation in a directory that container
// runtimes read. Its only state is the disk, and it ignores foreign files. One goroutine
// may write claims beside the one that applies plans. Any number may read.
type Writer struct {
	// Dir is the host's /var/run/cdi. It is made with the first spec.
	Dir string
	// Owner distinguishes installations that share Dir, by a mark in the names of their
	// files. Empty is the default installation, which has none. Files of another owner
	// always stay.
	Owner string

	parsed parsedSpecs
}

// Plan returns what to change so that the directory holds exactly the specs in want, claims
// aside, and those existing entries that keep approves. keep gets the host paths of an
// entry's nodes. It approves entries of held devices that are no longer configured; nil
// approves none.
//
// An entry that is lost or changed leaves its file before any other entry is written:
// containers that start in between fail instead of getting the wrong device. An error says
// that the directory cannot be read. The plan is valid for the files that are known.
func (w *Writer) Plan(want []*Spec, keep func(kind, device string, hostPaths []string) bool) (files.Plan, error) {
	plan := files.Plan{Label: "--cdi-dir"}
	names, err := w.names()
	errs := []error{err}
	wanted := map[string]*Spec{}
	for _, spec := range want {
		wanted[w.FileName(spec.Kind)] = spec
	}
	for _, name := range names {
		if w.isClaim(name) {
			continue // WriteClaim writes these
		}
		have := w.read(name)
		next := retain(have, wanted[name], keep)
		if next == nil {
			delete(wanted, name)
		} else {
			wanted[name] = next
		}
		rest := unchanged(have, next)
		if rest == nil {
			plan.Stale = append(plan.Stale, w.path(name))
		} else if len(rest.Devices) < len(have.Devices) {
			file, err := w.file(name, rest)
			errs = append(errs, err)
			plan.Reduced = append(plan.Reduced, file)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(wanted)) {
		file, err := w.file(name, wanted[name])
		errs = append(errs, err)
		plan.Missing = append(plan.Missing, file)
	}
	return plan, errors.Join(errs...)
}

// unchanged returns the part of a spec that another one also has, nil if there is none.
// Both may be nil.
func unchanged(have, next *Spec) *Spec {
	if have == nil || next == nil {
		return nil
	}
	gone := lost(have, next)
	if len(gone) == 0 {
		return have
	}
	var rest []specs.Device
	for _, d := range have.Devices {
		if !slices.Contains(gone, d.Name) {
			rest = append(rest, d)
		}
	}
	return newSpec(have.Kind, rest)
}

// Missing lists the entries of a spec that its file does not have, after a failed plan.
func (w *Writer) Missing(spec *Spec) []string {
	return lost(spec, w.read(w.FileName(spec.Kind)))
}

// Edits returns the edits of a qualified name, nil if there is none. They must not be changed.
// A file is read again only if it was replaced or changed since the last call.
func (w *Writer) Edits(qualified string) *Edits {
	kind, device, _ := strings.Cut(qualified, "=")
	return w.parsed.edits(w, w.FileName(kind))[device]
}

// parsedSpecs has the edits in spec files as last read: each claim is prepared with a few
// devices of a spec that may have thousands.
type parsedSpecs struct {
	mu    sync.Mutex
	files map[string]parsedSpec // by name
}

// parsedSpec is the content of a file. Writes replace files, so that a changed file has another
// inode or time.
type parsedSpec struct {
	ino   uint64
	size  int64
	mtime unix.Timespec
	edits map[string]*Edits // by device
}

func (p *parsedSpecs) edits(w *Writer, name string) map[string]*Edits {
	p.mu.Lock()
	defer p.mu.Unlock()
	var st unix.Stat_t
	if err := unix.Stat(filepath.Join(w.Dir, name), &st); err != nil {
		delete(p.files, name)
		return nil
	}
	last := p.files[name]
	same := last.ino == st.Ino && last.size == st.Size && last.mtime == st.Mtim
	if same && last.edits != nil {
		return last.edits
	}
	next := parsedSpec{
		ino:   st.Ino,
		size:  st.Size,
		mtime: st.Mtim,
		edits: map[string]*Edits{},
	}
	spec := w.read(name)
	for i := 0; spec != nil && i < len(spec.Devices); i++ {
		next.edits[spec.Devices[i].Name] = &spec.Devices[i].ContainerEdits
	}
	if p.files == nil {
		p.files = map[string]parsedSpec{}
	}
	p.files[name] = next
	return next.edits
}

// Clean removes all files of the installation and returns their paths.
func (w *Writer) Clean() (removed []string, err error) {
	names, err := w.names()
	errs := []error{err}
	for _, name := range names {
		if err := w.remove(name); err != nil {
			errs = append(errs, err)
			continue
		}
		removed = append(removed, filepath.Join(w.Dir, name))
	}
	return removed, errors.Join(errs...)
}

// retain adds to spec, which may be nil, the entries of have that keep wants.
func retain(have, spec *Spec, keep func(kind, device string, hostPaths []string) bool) *Spec {
	if have == nil || keep == nil {
		return spec
	}
	devices := []specs.Device{}
	if spec != nil {
		devices = append(devices, spec.Devices...)
	}
	for _, d := range have.Devices {
		wanted := slices.ContainsFunc(devices, func(n specs.Device) bool { return n.Name == d.Name })
		if !wanted && keep(have.Kind, d.Name, hostPaths(d)) {
			devices = append(devices, d)
		}
	}
	return newSpec(have.Kind, devices)
}

func hostPaths(d specs.Device) []string {
	var paths []string
	for _, n := range d.ContainerEdits.DeviceNodes {
		paths = append(paths, cmp.Or(n.HostPath, n.Path))
	}
	return paths
}

// lost lists the entries of before that are missing or different in after, which may be
// nil.
func lost(before, after *Spec) (names []string) {
	text := func(d specs.Device) string {
		data, _ := json.Marshal(d) // it has been in a file, or will be
		return string(data)
	}
	now := map[string]string{}
	for i := 0; after != nil && i < len(after.Devices); i++ {
		now[after.Devices[i].Name] = text(after.Devices[i])
	}
	for _, d := range before.Devices {
		if now[d.Name] != text(d) {
			names = append(names, d.Name)
		}
	}
	return names
}

// names lists the files of the installation, sorted, including temporary ones left by a
// crash.
func (w *Writer) names() ([]string, error) {
	entries, err := os.ReadDir(w.Dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("--cdi-dir: %w", err)
	}
	var names []string
	for _, e := range entries {
		if name := strings.TrimSuffix(e.Name(), atomicfile.TempSuffix); isOf(w.Owner, name) && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names, nil
}

// read returns the spec in a file; nil if it is not valid, or belongs in another one.
func (w *Writer) read(name string) *Spec {
	data, err := atomicfile.Read(filepath.Join(w.Dir, name), atomicfile.MaxSize)
	spec := &Spec{}
	if err != nil || json.Unmarshal(data, spec) != nil || w.FileName(spec.Kind) != name || len(spec.Devices) == 0 {
		return nil
	}
	return spec
}

// path is the path of a spec file.
func (w *Writer) path(name string) string { return filepath.Join(w.Dir, name) }

// file returns a spec file, which is readable for all users.
func (w *Writer) file(name string, spec *Spec) (files.File, error) {
	text, err := json.MarshalIndent(spec, "", "  ")
	if err != nil {
		return files.File{}, fmt.Errorf("--cdi-dir: %s: %w", name, err)
	}
	return files.File{Path: w.path(name), Text: append(text, '\n'), Mode: 0o644}, nil
}

// write writes a spec file, unless it already has that content.
func (w *Writer) write(name string, spec *Spec) error {
	file, err := w.file(name, spec)
	if err != nil {
		return err
	}
	plan := files.Plan{Label: "--cdi-dir", Missing: []files.File{file}}
	return plan.Make()
}

func (w *Writer) remove(name string) error {
	if err := atomicfile.Remove(filepath.Join(w.Dir, name)); err != nil {
		return fmt.Errorf("--cdi-dir: %w", err)
	}
	return nil
}

// FileName is the name of the spec file of a kind, "generic-dp_example.com_gpu.json". A
// kind that is too long for a file name is replaced by its hash.
func (w *Writer) FileName(kind string) string {
	name := prefix(w.Owner) + strings.ReplaceAll(kind, "/", "_") + fileSuffix
	if len(name) > maxFileName {
		sum := sha256.Sum256([]byte(kind))
		name = prefix(w.Owner) + hex.EncodeToString(sum[:16]) + fileSuffix
	}
	return name
}

// prefix is the prefix of an installation's files. No kind starts with a dash, so that
// none is ambiguous with a mark.
func prefix(owner string) string {
	if owner == "" {
		return filePrefix
	}
	sum := sha256.Sum256([]byte(owner))
	return filePrefix + "-" + hex.EncodeToString(sum[:markLen/2]) + "-"
}

// isOwn reports whether the name is that of a spec file of any installation.
func isOwn(name string) bool {
	return strings.HasPrefix(name, filePrefix) && strings.HasSuffix(name, fileSuffix)
}

// isOf reports whether the name is that of a spec file of the owner.
func isOf(owner, name string) bool {
	return isOwn(name) && strings.HasPrefix(name, prefix(owner)) && (owner != "" || !strings.HasPrefix(name, filePrefix+"-"))
}

// isSpec reports whether runtimes read files of that name.
func isSpec(name string) bool {
	ext := filepath.Ext(name)
	return ext == ".json" || ext == ".yaml"
}
