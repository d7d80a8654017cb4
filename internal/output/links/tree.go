// Package links plans the links that follow devices.
//
// The kubelet calls Allocate once in the life of a pod and reuses the response at every
// later start of a container. Container runtimes resolve a symbolic link in the host path of
// a device at each start. So a container is given <run-dir>/links/<ID>/<key>, which points to
// the current node of the device. A stale link would inject the next device with that name
// into the wrong container, so stale links are removed before anything else is made.
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
	"github.com/generic-dp/generic-dp/internal/sys/files"
)

// Tree is the directory of all links, <run-dir>/links. It has no state in memory: the
// directory itself says which links exist. Any number of callers may use it at once.
type Tree struct {
	// Dir is an absolute path that is the same on the host.
	Dir string
}

// Link is one link: the node with this key of the device with this ID is at Target, a
// path on the host such as "/dev/ttyUSB1".
type Link struct {
	ID     string
	Key    string
	Target string
}

// For lists the links of an offer: one for each followed node, companions included. An offer
// that is injected by a CDI name has no links, because its CDI entry follows the device.
func For(o device.Offer) []Link {
	if o.CDI {
		return nil
	}
	var want []Link
	for _, n := range o.Nodes {
		if !n.Follow {
			continue
		}
		want = append(want, Link{
			ID:     o.ID,
			Key:    n.Key,
			Target: n.HostPath,
		})
	}
	return want
}

// Path is the path of the link of a node, whether it exists or not.
func (t *Tree) Path(id, key string) string {
	return filepath.Join(t.Dir, id, key)
}

// IsRight reports whether a link exists and points to its target.
func (t *Tree) IsRight(l Link) bool {
	target, err := os.Readlink(t.Path(l.ID, l.Key))
	return err == nil && target == l.Target
}

// Keep reports whether an existing link stays that is no longer configured, because a container
// holds its device.
type Keep func(Link) bool

// Plan returns what to change so that the tree contains the links in want, and the existing
// links that keep approves. A nil keep approves none. The error joins the links that cannot
// be made and the directories that cannot be read. The plan for everything else is valid.
func (t *Tree) Plan(want []Link, keep Keep) (files.Plan, error) {
	plan := files.Plan{Label: "--run-dir"}
	wanted, err := t.byPath(want)
	errs := []error{err}
	ids, err := entries(t.Dir)
	errs = append(errs, err)
	for _, id := range ids {
		stale, err := t.stale(id, wanted, keep)
		errs = append(errs, err)
		plan.StaleTrees = append(plan.StaleTrees, stale...)
	}
	for _, path := range slices.Sorted(maps.Keys(wanted)) {
		target := wanted[path].Target
		if target == "" {
			continue // two links conflict
		}
		plan.Missing = append(plan.Missing, files.File{
			Path:   path,
			Target: target,
		})
	}
	return plan, errors.Join(errs...)
}

// byPath returns the wanted links by their paths. Two links with one path and different
// targets are an error: neither is made, and the target is empty.
func (t *Tree) byPath(want []Link) (map[string]Link, error) {
	var errs []error
	wanted := map[string]Link{}
	for _, l := range want {
		if err := check(l); err != nil {
			errs = append(errs, err)
			continue
		}
		path := t.Path(l.ID, l.Key)
		have, ok := wanted[path]
		if ok && have.Target != l.Target {
			errs = append(errs, fmt.Errorf("--run-dir: link %q of device %q cannot point to both %q and %q",
				l.Key, l.ID, have.Target, l.Target))
			l.Target = ""
		}
		wanted[path] = l
	}
	return wanted, errors.Join(errs...)
}

// stale lists the paths in the directory of a device that are neither wanted nor kept. If
// nothing would be left, it lists only the directory.
func (t *Tree) stale(id fs.DirEntry, wanted map[string]Link, keep Keep) ([]string, error) {
	dir := filepath.Join(t.Dir, id.Name())
	if !id.IsDir() {
		return []string{dir}, nil
	}
	have, err := entries(dir)
	var stale []string
	for _, e := range have {
		path := filepath.Join(dir, e.Name())
		target, readErr := os.Readlink(path)
		link := Link{
			ID:     id.Name(),
			Key:    e.Name(),
			Target: target,
		}
		if readErr != nil || !stays(path, link, wanted, keep) {
			stale = append(stale, path)
		}
	}
	isEmpty := len(stale) == len(have) && err == nil
	if isEmpty {
		return []string{dir}, nil
	}
	return stale, err
}

// stays reports whether an existing link is wanted as it is, or kept.
func stays(path string, l Link, wanted map[string]Link, keep Keep) bool {
	want, isConfigured := wanted[path]
	if isConfigured {
		return want == l
	}
	isInTree := check(l) == nil
	return isInTree && keep != nil && keep(l)
}

// entries lists a directory by name. A missing directory is empty.
func entries(dir string) ([]fs.DirEntry, error) {
	list, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return list, fmt.Errorf("--run-dir: %w", err)
	}
	return list, nil
}

// check returns an error for a link outside of the tree. The grammar of IDs and keys does not
// allow one, but they contain strings that USB devices choose, so they are checked again here.
func check(l Link) error {
	for _, name := range []string{l.ID, l.Key} {
		isHidden := strings.HasPrefix(name, ".") // temporary links, "." and ".."
		hasSlash := strings.ContainsAny(name, "/\x00")
		if name == "" || isHidden || hasSlash {
			return fmt.Errorf("--run-dir: device %q: %q cannot name a link: a name must not be empty, begin with a dot or contain \"/\"",
				l.ID, name)
		}
	}
	if !filepath.IsAbs(l.Target) {
		return fmt.Errorf("--run-dir: device %q: link %q: target %q is not an absolute path",
			l.ID, l.Key, l.Target)
	}
	return nil
}
