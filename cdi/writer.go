package cdi

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"

	specs "tags.cncf.io/container-device-interface/specs-go"
)

// Writer keeps our spec files in a directory that container runtimes read. It
// keeps nothing in memory: what is on disk is the truth. Files of others are
// never touched. One caller at a time may use a Writer.
type Writer struct {
	// Dir is where the host's /var/run/cdi is here. It is made when the first
	// spec is written.
	Dir string
	// Owner tells apart the installations on a host that share Dir: the names
	// of their files have a mark that is made of it. Empty is the default
	// installation, whose files have none. An owner's files are no other's to
	// change, also where that one is gone for good.
	Owner string
}

// file is one spec file of ours.
type file struct {
	name string
	spec *specs.Spec // nil where it can't be read: runtimes can't either
}

// Sync makes the directory hold exactly the specs in want (nil ones are
// skipped), and besides them those entries that are there and that keep
// wants, which is asked with the host paths of their nodes: of devices that are
// still held though gone from the configuration. Files that lose or change an
// entry are written before those that only gain, and one that can't be
// written without a stale entry is removed. A file that would not change is
// not written. What can't be done does not stop the rest.
func (w *Writer) Sync(want []*specs.Spec, keep func(kind, device string, hostPaths []string) bool) error {
	have, err := w.own()
	errs := []error{err}
	next := map[string]*specs.Spec{}
	for _, s := range want {
		if s != nil {
			next[w.FileName(s.Kind)] = s
		}
	}
	for _, f := range have {
		if f.spec != nil && w.FileName(f.spec.Kind) != f.name {
			f.spec = nil // what is in it is not what we write there
		}
		spec := retain(f, next[f.name], keep)
		delete(next, f.name)
		if spec == nil || loses(f.spec, spec) {
			errs = append(errs, w.replace(f, spec))
			continue
		}
		next[f.name] = spec
	}
	for _, name := range slices.Sorted(maps.Keys(next)) {
		errs = append(errs, w.write(name, next[name]))
	}
	return errors.Join(errs...)
}

// FileName is the name of the spec file of a kind,
// "generic-dp_example.com_gpu.json".
func (w *Writer) FileName(kind string) string { return fileName(w.Owner, kind) }

// Files lists the paths of all spec files of ours, sorted.
func (w *Writer) Files() ([]string, error) {
	have, err := w.own()
	paths := make([]string, len(have))
	for i, f := range have {
		paths[i] = filepath.Join(w.Dir, f.name)
	}
	return paths, err
}

// Clean removes all files of ours.
func (w *Writer) Clean() error {
	have, err := w.own()
	errs := []error{err, w.removeTemp()}
	for _, f := range have {
		errs = append(errs, w.remove(f.name))
	}
	return errors.Join(errs...)
}

// retain adds to spec, which may be nil, what of f is to be kept.
func retain(f file, spec *specs.Spec, keep func(kind, device string, hostPaths []string) bool) *specs.Spec {
	if f.spec == nil || keep == nil {
		return spec
	}
	kept := without(f.spec, func(d specs.Device) bool {
		return spec != nil && slices.ContainsFunc(spec.Devices, func(n specs.Device) bool { return n.Name == d.Name }) ||
			!keep(f.spec.Kind, d.Name, hostPaths(d))
	})
	if kept != nil && spec != nil {
		kept.Devices = slices.Concat(spec.Devices, kept.Devices)
	}
	if kept == nil {
		return spec
	}
	return kept
}

func hostPaths(d specs.Device) []string {
	var paths []string
	for _, n := range d.ContainerEdits.DeviceNodes {
		paths = append(paths, cmp.Or(n.HostPath, n.Path))
	}
	return paths
}

// without copies spec without some of its devices; nil if none is left.
func without(spec *specs.Spec, drop func(specs.Device) bool) *specs.Spec {
	if spec == nil {
		return nil
	}
	out := *spec
	out.Devices = slices.DeleteFunc(slices.Clone(spec.Devices), drop)
	if len(out.Devices) == 0 {
		return nil
	}
	return &out
}

// loses reports whether an entry of before is not in after as it was.
func loses(before, after *specs.Spec) bool {
	if before == nil {
		return true
	}
	now := map[string]specs.Device{}
	for _, d := range after.Devices {
		now[d.Name] = d
	}
	return slices.ContainsFunc(before.Devices, func(d specs.Device) bool { return !reflect.DeepEqual(now[d.Name], d) })
}

// replace writes spec in the place of f, which has a stale entry. No spec, or
// one that can't be written, means that the file goes: containers that can't
// start are better than containers with another's device.
func (w *Writer) replace(f file, spec *specs.Spec) error {
	if spec == nil {
		return w.remove(f.name)
	}
	if err := w.write(f.name, spec); err != nil {
		return errors.Join(err, w.remove(f.name))
	}
	return nil
}

// write writes a spec file unless it has that content already. It appears
// whole, under its name, on disk and readable for all.
func (w *Writer) write(name string, spec *specs.Spec) error {
	path := filepath.Join(w.Dir, name)
	spec, err := finish(spec)
	if err != nil {
		return fmt.Errorf("--cdi-dir: write %q: %w", path, err)
	}
	data, err := encode(spec)
	if err != nil {
		return fmt.Errorf("--cdi-dir: write %q: %w", path, err)
	}
	if have, err := os.ReadFile(path); err == nil && bytes.Equal(have, data) {
		return nil
	}
	if err := os.MkdirAll(w.Dir, 0o755); err != nil {
		return fmt.Errorf("--cdi-dir: make directory %q: %w", w.Dir, cause(err))
	}
	if err := w.writeFile(path, data); err != nil {
		return fmt.Errorf("--cdi-dir: write %q: %w", path, cause(err))
	}
	return nil
}

func (w *Writer) writeFile(path string, data []byte) (err error) {
	temp, err := os.CreateTemp(w.Dir, tempPattern(w.Owner))
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = os.Remove(temp.Name()) // Clean removes it too
		}
	}()
	_, err = temp.Write(data)
	if err == nil {
		err = temp.Chmod(0o644)
	}
	if err == nil {
		err = temp.Sync()
	}
	if closeErr := temp.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		return err
	}
	if err = os.Rename(temp.Name(), path); err != nil {
		return err
	}
	return syncDir(w.Dir)
}

// syncDir makes names in a directory last.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}

// own reads our files, by name. One that can't be read as a spec is there
// without one.
func (w *Writer) own() ([]file, error) {
	entries, err := os.ReadDir(w.Dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("--cdi-dir: read %q: %w", w.Dir, cause(err))
	}
	var files []file
	for _, e := range entries {
		if !isOf(w.Owner, e.Name()) {
			continue
		}
		f := file{name: e.Name()}
		if data, err := os.ReadFile(filepath.Join(w.Dir, e.Name())); err == nil {
			spec := &specs.Spec{}
			if json.Unmarshal(data, spec) == nil && spec.Kind != "" && len(spec.Devices) > 0 {
				f.spec = spec
			}
		}
		files = append(files, f)
	}
	return files, nil
}

func (w *Writer) remove(name string) error {
	path := filepath.Join(w.Dir, name)
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("--cdi-dir: remove %q: %w", path, cause(err))
	}
	return nil
}

// removeTemp removes what a crash left behind.
func (w *Writer) removeTemp() error {
	entries, err := os.ReadDir(w.Dir)
	if err != nil {
		return nil // own has reported it
	}
	var errs []error
	for _, e := range entries {
		if isTemp(w.Owner, e.Name()) {
			errs = append(errs, w.remove(e.Name()))
		}
	}
	return errors.Join(errs...)
}

// cause takes the reason out of an error that repeats operation and path.
func cause(err error) error {
	var pathErr *fs.PathError
	var linkErr *os.LinkError
	switch {
	case errors.As(err, &pathErr):
		return pathErr.Err
	case errors.As(err, &linkErr):
		return linkErr.Err
	}
	return err
}
