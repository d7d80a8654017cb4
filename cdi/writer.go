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

	specs "tags.cncf.io/container-device-interface/specs-go"

	"github.com/generic-dp/generic-dp/internal/sys/files"
)

// The names of spec files begin with filePrefix, followed by the mark of the installation that
// owns the file: markLen hexadecimal digits between dashes, or nothing for the default
// installation. Runtimes read files that end in fileSuffix.
const (
	filePrefix = "generic-dp_"
	fileSuffix = ".json"
	markLen    = 8
)

// maxFileName is the maximum length of a file name in bytes: the name of the temporary file must
// not exceed NAME_MAX (include/uapi/linux/limits.h).
const maxFileName = 255 - len(files.TempSuffix)

// Writer maintains the spec files of one installation in a directory that container
// runtimes read. Its only state is the disk, and it ignores foreign files. One goroutine
// may write claims beside the one that applies plans. Any number may read.
type Writer struct {
	// Dir is the host's /var/run/cdi. It is made with the first spec.
	Dir string
	// Owner distinguishes installations that share Dir, by a mark in the names of their
	// files. The default installation has an empty Owner and no mark. Files of another owner
	// always stay.
	Owner string
}

// Keep reports whether an existing entry stays that is no longer configured, because a container
// holds its device. hostPaths are the paths of its nodes on the host.
type Keep func(kind, device string, hostPaths []string) bool

// Plan returns what to change so that the directory has exactly the specs in want, the claims,
// and the existing entries that keep approves. A nil keep approves none.
//
// An entry that is lost or changed leaves its file before any other entry is written:
// containers that start in between fail instead of getting the wrong device. An error says
// that the directory cannot be read. The plan is valid for the files that are known.
func (w *Writer) Plan(want []*Spec, keep Keep) (files.Plan, error) {
	plan := files.Plan{Label: "--cdi-dir"}
	names, err := w.names()
	errs := []error{err}
	wanted := map[string]*Spec{}
	// Retained entries are added to the wanted specs below.
	for _, spec := range want {
		name := w.FileName(spec.Kind)
		// A claim's file says which pods hold which devices. Nothing else may replace it.
		if w.isClaim(name) {
			errs = append(errs, fmt.Errorf("--cdi-dir: the kind %q is reserved for claims", spec.Kind))
			continue
		}
		wanted[name] = spec
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
			file, err := w.unsynced(name, rest)
			errs = append(errs, err)
			plan.Reduced = append(plan.Reduced, file)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(wanted)) {
		file, err := w.unsynced(name, wanted[name])
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
	gone := changedEntries(have, next)
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
	return changedEntries(spec, w.read(w.FileName(spec.Kind)))
}

// Has reports whether the spec of a kind is on disk.
func (w *Writer) Has(kind string) bool {
	_, err := os.Lstat(w.path(w.FileName(kind)))
	return err == nil
}

// Edits returns the edits of a qualified name, nil if there is none.
func (w *Writer) Edits(qualified string) *Edits {
	kind, name, _ := strings.Cut(qualified, "=")
	for _, d := range devicesOf(w.read(w.FileName(kind))) {
		if d.Name == name {
			return &d.ContainerEdits
		}
	}
	return nil
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
		removed = append(removed, w.path(name))
	}
	return removed, errors.Join(errs...)
}

// retain adds to spec, which may be nil, the entries of have that keep wants.
func retain(have, spec *Spec, keep Keep) *Spec {
	if have == nil || keep == nil {
		return spec
	}
	devices := slices.Clone(devicesOf(spec))
	wanted := map[string]bool{}
	for _, d := range devices {
		wanted[d.Name] = true
	}
	for _, d := range have.Devices {
		if wanted[d.Name] {
			continue
		}
		paths := hostPaths(d)
		if keep(have.Kind, d.Name, paths) {
			devices = append(devices, d)
		}
	}
	return newSpec(have.Kind, devices)
}

// devicesOf returns the devices of a spec, which may be nil.
func devicesOf(spec *Spec) []specs.Device {
	if spec == nil {
		return nil
	}
	return spec.Devices
}

// hostPaths are the paths of the nodes of an entry on the host. An edit without such a path uses
// its path in the container for both.
func hostPaths(d specs.Device) []string {
	var paths []string
	for _, n := range d.ContainerEdits.DeviceNodes {
		path := cmp.Or(n.HostPath, n.Path)
		paths = append(paths, path)
	}
	return paths
}

// changedEntries lists the entries of before that are missing or different in after, which may be
// nil.
func changedEntries(before, after *Spec) []string {
	now := map[string]string{}
	for _, d := range devicesOf(after) {
		now[d.Name] = entryText(d)
	}
	var names []string
	for _, d := range before.Devices {
		if now[d.Name] != entryText(d) {
			names = append(names, d.Name)
		}
	}
	return names
}

// entryText is an entry as text, to compare it with another one.
func entryText(d specs.Device) string {
	data, _ := json.Marshal(d) // never fails for what was in a file
	return string(data)
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
		name := strings.TrimSuffix(e.Name(), files.TempSuffix)
		if isOf(w.Owner, name) && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names, nil
}

// read returns the spec in a file, or nil if it is invalid or has the kind of another file.
func (w *Writer) read(name string) *Spec {
	spec := &Spec{}
	if files.ReadJSON(w.path(name), files.MaxSize, spec) != nil {
		return nil
	}
	isOfFile := w.FileName(spec.Kind) == name
	if !isOfFile || len(spec.Devices) == 0 {
		return nil
	}
	return spec
}

// path is the path of a spec file.
func (w *Writer) path(name string) string {
	return filepath.Join(w.Dir, name)
}

// file returns a spec file. All users may read it, because runtimes may run without root.
func (w *Writer) file(name string, spec *Spec) (files.File, error) {
	text, err := json.MarshalIndent(spec, "", "  ")
	if err != nil {
		return files.File{}, fmt.Errorf("--cdi-dir: %s: %w", name, err)
	}
	file := files.File{
		Path: w.path(name),
		Text: append(text, '\n'),
		Mode: 0o644,
	}
	return file, nil
}

// unsynced returns a spec file that is renamed into place without a sync, so that no disk delays a
// list. That is safe: after a power failure every container starts anew, and the first plan replaces a
// file that was lost or cut off. Only an entry that is no longer configured, and that was written in the
// last seconds before the failure, is lost.
func (w *Writer) unsynced(name string, spec *Spec) (files.File, error) {
	file, err := w.file(name, spec)
	file.Staging = file.Path + files.TempSuffix
	return file, err
}

// write writes a spec file and syncs it, unless it already has that content.
func (w *Writer) write(name string, spec *Spec) error {
	file, err := w.file(name, spec)
	if err != nil {
		return err
	}
	plan := files.Plan{
		Label:   "--cdi-dir",
		Missing: []files.File{file},
	}
	return plan.Make()
}

// remove removes a file. It is no error if the file is missing.
func (w *Writer) remove(name string) error {
	if err := files.Remove(w.path(name)); err != nil {
		return fmt.Errorf("--cdi-dir: %w", err)
	}
	return nil
}

// FileName is the name of the spec file of a kind, "generic-dp_example.com_gpu.json". A
// kind that is too long for a file name is replaced by its hash.
func (w *Writer) FileName(kind string) string {
	prefix := prefix(w.Owner)
	readable := strings.ReplaceAll(kind, "/", "_")
	name := prefix + readable + fileSuffix
	if len(name) <= maxFileName {
		return name
	}
	// Half of the hash is enough to make a collision impossible in practice.
	sum := sha256.Sum256([]byte(kind))
	hash := hex.EncodeToString(sum[:16])
	return prefix + hash + fileSuffix
}

// prefix is the prefix of the files of an installation. A kind never begins with a dash, so it
// cannot be mistaken for a mark.
func prefix(owner string) string {
	if owner == "" {
		return filePrefix
	}
	sum := sha256.Sum256([]byte(owner))
	mark := hex.EncodeToString(sum[:markLen/2])
	return filePrefix + "-" + mark + "-"
}

// isOwn reports whether a file of this name is a spec of any installation of this program.
func isOwn(name string) bool {
	hasPrefix := strings.HasPrefix(name, filePrefix)
	hasSuffix := strings.HasSuffix(name, fileSuffix)
	return hasPrefix && hasSuffix
}

// isOf reports whether a file of this name is a spec of the owner's installation.
func isOf(owner, name string) bool {
	if !isOwn(name) {
		return false
	}
	if owner == "" {
		hasMark := strings.HasPrefix(name, filePrefix+"-")
		return !hasMark
	}
	return strings.HasPrefix(name, prefix(owner))
}

// isSpec reports whether runtimes read files of that name.
func isSpec(name string) bool {
	ext := filepath.Ext(name)
	return ext == ".json" || ext == ".yaml"
}
