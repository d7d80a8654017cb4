// Package links maintains the links that follow devices.
//
// The kubelet calls Allocate once in a pod's life and reuses the response at every
// later start of a container, and container runtimes resolve a symbolic link in a
// device's host path at each start. So a container is given <run-dir>/links/<ID>/<key>,
// which points to the current node of the device. A stale link would inject the next
// device with that name into the wrong container. Hence stale links are removed first,
// in any case.
package links

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/generic-dp/generic-dp/internal/device"
)

// tempPrefix is the prefix of temporary links. No ID or key starts with a dot.
const tempPrefix = ".new-"

// Tree is the directory of all links, <run-dir>/links. It has no state in memory: the
// state is on disk, and missing links are made again. Only one caller at a time may
// change a tree; Path is safe at any time.
type Tree struct {
	// Dir is an absolute path that is the same on the host.
	Dir string
}

// Link is one link: the node with this key of the device with this ID is at Target, a
// path on the host such as "/dev/ttyUSB1".
type Link struct {
	ID, Key, Target string
}

// For lists the links of an offer: one for each followed node, companions included. An
// offer that is injected by a CDI name has none, since its CDI entry follows the
// device.
func For(o device.Offer) []Link {
	if o.CDI {
		return nil
	}
	var want []Link
	for _, n := range o.Nodes {
		if n.Follow {
			want = append(want, Link{ID: o.ID, Key: n.Key, Target: n.HostPath})
		}
	}
	return want
}

// Path is the path of the link of a node, whether it exists or not.
func (t *Tree) Path(id, key string) string { return filepath.Join(t.Dir, id, key) }

// Sync makes the tree contain the links in want, and the existing links that keep approves;
// nil approves none. It removes all stale and wrong links before it makes any, so that links
// of two devices are never mixed up; it writes nothing if all links are right. A
// failure does not stop the rest; the error joins all failures.
func (t *Tree) Sync(want []Link, keep func(Link) bool) error {
	var errs []error
	missing := map[string]Link{} // by path
	for _, l := range want {
		if err := check(l); err != nil {
			errs = append(errs, err)
			continue
		}
		path := t.Path(l.ID, l.Key)
		if have, ok := missing[path]; ok && have.Target != l.Target {
			errs = append(errs, fmt.Errorf("--run-dir: link %q of device %q cannot lead to both %q and %q", l.Key, l.ID, have.Target, l.Target))
			l.Target = "" // neither
		}
		missing[path] = l
	}
	ids, err := entries(t.Dir)
	errs = append(errs, err)
	for _, id := range ids {
		errs = append(errs, t.prune(id, missing, keep))
	}
	for _, path := range slices.Sorted(maps.Keys(missing)) {
		if l := missing[path]; l.Target != "" {
			errs = append(errs, t.make(l))
		}
	}
	return errors.Join(errs...)
}

// prune removes from the directory of a device what is neither wanted nor kept, and the
// directory if nothing is left. It deletes the links that are right from wanted.
func (t *Tree) prune(id fs.DirEntry, wanted map[string]Link, keep func(Link) bool) error {
	dir := filepath.Join(t.Dir, id.Name())
	if !id.IsDir() {
		return remove(dir)
	}
	have, err := entries(dir)
	errs := []error{err}
	left := 0
	for _, e := range have {
		path := filepath.Join(dir, e.Name())
		target, err := os.Readlink(path)
		l := Link{id.Name(), e.Name(), target}
		want, configured := wanted[path]
		switch {
		case err == nil && want == l:
			delete(wanted, path)
			left++
		case err == nil && !configured && keep != nil && check(l) == nil && keep(l):
			left++
		default:
			errs = append(errs, remove(path))
		}
	}
	if left == 0 && err == nil {
		errs = append(errs, remove(dir))
	}
	return errors.Join(errs...)
}

// make makes a link unless it exists, atomically.
func (t *Tree) make(l Link) error {
	path := t.Path(l.ID, l.Key)
	temp := t.Path(l.ID, tempPrefix+l.Key)
	err := os.MkdirAll(filepath.Dir(path), 0o755)
	if err == nil {
		err = os.Symlink(l.Target, temp)
	}
	if err == nil {
		err = os.Rename(temp, path)
	}
	if err != nil {
		return fmt.Errorf("--run-dir: %w", errors.Join(err, os.RemoveAll(temp)))
	}
	return nil
}

// remove removes whatever is at path, if anything.
func remove(path string) error {
	if err := os.RemoveAll(path); err != nil {
		return fmt.Errorf("--run-dir: %w", err)
	}
	return nil
}

// entries lists a directory by name; a missing one is empty.
func entries(dir string) ([]fs.DirEntry, error) {
	list, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return list, fmt.Errorf("--run-dir: %w", err)
	}
	return list, nil
}

// check refuses a link outside of the tree. IDs and keys are safe by their grammar, but
// have strings of USB devices in them, so they are checked again where it matters.
func check(l Link) error {
	for _, name := range []string{l.ID, l.Key} {
		if name == "" || strings.HasPrefix(name, ".") || strings.ContainsAny(name, "/\x00") {
			return fmt.Errorf("--run-dir: device %q: %q cannot name a link: want a name without \"/\" that does not begin with a dot", l.ID, name)
		}
	}
	if !filepath.IsAbs(l.Target) {
		return fmt.Errorf("--run-dir: device %q: link %q: target %q is not an absolute path", l.ID, l.Key, l.Target)
	}
	return nil
}
