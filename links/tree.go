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
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/generic-dp/generic-dp/device"
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

// Sync makes the tree contain the links in want, and existing ones that keep wants; nil
// keeps none. It removes all stale and wrong links before it makes any, so that links
// of two devices are never mixed up; it writes nothing if all links are right. A
// failure does not stop the rest; the error joins all failures.
func (t *Tree) Sync(want []Link, keep func(Link) bool) error {
	targets, errs := group(want)
	ids, err := entries(t.Dir)
	errs = append(errs, err)
	for _, id := range ids {
		if !id.IsDir() {
			errs = append(errs, remove(filepath.Join(t.Dir, id.Name())))
			continue
		}
		errs = append(errs, t.prune(id.Name(), targets[id.Name()], keep))
	}
	for _, l := range sorted(want) {
		if targets[l.ID][l.Key] == l.Target && l.Target != "" {
			errs = append(errs, t.make(l))
		}
	}
	return errors.Join(errs...)
}

// Clean removes the whole tree.
func (t *Tree) Clean() error { return remove(t.Dir) }

// prune removes from the directory of a device all links that are neither targets, by
// key, nor kept, and the directory if nothing is left.
func (t *Tree) prune(id string, targets map[string]string, keep func(Link) bool) error {
	dir := filepath.Join(t.Dir, id)
	var errs []error
	used := len(targets) > 0
	have, err := entries(dir)
	if err != nil && used {
		return err
	}
	for _, e := range have {
		l := Link{ID: id, Key: e.Name()}
		target, err := os.Readlink(t.Path(l.ID, l.Key))
		l.Target = target
		wanted, configured := targets[l.Key]
		switch {
		case err == nil && configured && wanted == target:
		case err == nil && !configured && keep != nil && check(l) == nil && keep(l):
			used = true
		default:
			errs = append(errs, remove(t.Path(l.ID, l.Key)))
		}
	}
	if !used {
		return remove(dir)
	}
	return errors.Join(errs...)
}

// make makes a link unless it exists, atomically.
func (t *Tree) make(l Link) error {
	path := t.Path(l.ID, l.Key)
	if target, err := os.Readlink(path); err == nil && target == l.Target {
		return nil
	}
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("--run-dir: %w", err)
	}
	temp := filepath.Join(dir, tempPrefix+l.Key)
	err := os.Symlink(l.Target, temp)
	if errors.Is(err, fs.ErrExist) { // left over from a crash
		if err = os.Remove(temp); err == nil {
			err = os.Symlink(l.Target, temp)
		}
	}
	if err == nil {
		if err = os.Rename(temp, path); err != nil {
			_ = os.Remove(temp) // the next Sync removes it too
		}
	}
	if err != nil {
		return fmt.Errorf("--run-dir: %w", err)
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

// group maps links to targets by ID and key. An invalid link, and one with several
// targets, is an error and has no entry.
func group(want []Link) (map[string]map[string]string, []error) {
	byID := map[string]map[string]string{}
	var errs []error
	for _, l := range want {
		if err := check(l); err != nil {
			errs = append(errs, err)
			continue
		}
		links := byID[l.ID]
		if links == nil {
			links = map[string]string{}
			byID[l.ID] = links
		}
		switch target, ok := links[l.Key]; {
		case !ok:
			links[l.Key] = l.Target
		case target != l.Target:
			errs = append(errs, fmt.Errorf("--run-dir: link %q of device %q cannot lead to both %q and %q", l.Key, l.ID, target, l.Target))
			links[l.Key] = "" // neither is right
		}
	}
	return byID, errs
}

// sorted returns links by ID and key.
func sorted(want []Link) []Link {
	return slices.SortedFunc(slices.Values(want), func(a, b Link) int {
		return cmp.Or(cmp.Compare(a.ID, b.ID), cmp.Compare(a.Key, b.Key))
	})
}

// check rejects links outside of the tree. IDs and keys are safe by their grammar, but
// contain strings of USB devices, so this checks them again.
func check(l Link) error {
	if err := checkName(l.ID); err != nil {
		return fmt.Errorf("--run-dir: %w", err)
	}
	if err := checkName(l.Key); err != nil {
		return fmt.Errorf("--run-dir: device %q: %w", l.ID, err)
	}
	if !filepath.IsAbs(l.Target) {
		return fmt.Errorf("--run-dir: device %q: link %q: target %q is not an absolute path", l.ID, l.Key, l.Target)
	}
	return nil
}

func checkName(name string) error {
	if name == "" || strings.HasPrefix(name, ".") || strings.ContainsAny(name, "/\x00") {
		return fmt.Errorf("%q cannot name a link: want a name without %q that does not begin with a dot", name, "/")
	}
	return nil
}
