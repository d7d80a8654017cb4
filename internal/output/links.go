package output

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

// Links is the directory of all links that follow devices, <run-dir>/links. It has no state in memory:
// the directory itself says which links exist. Any number of callers may use it at once.
//
// The kubelet calls Allocate once in the life of a pod and reuses the response at every
// later start of a container. Container runtimes resolve a symbolic link in the host path of
// a device at each start. So a container is given <run-dir>/links/<ID>/<key>, which points to
// the current node of the device. A stale link would inject the next device with that name
// into the wrong container, so stale links are removed before anything else is made.
type Links struct {
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

// LinksOf lists the links of an offer: one for each followed node, companions included. An offer
// that is injected by a CDI name has no links, because its CDI entry follows the device.
func LinksOf(o device.Offer) []Link {
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
func (t Links) Path(id, key string) string {
	return filepath.Join(t.Dir, id, key)
}

// IsRight reports whether a link exists and points to its target.
func (t Links) IsRight(l Link) bool {
	target, err := os.Readlink(t.Path(l.ID, l.Key))
	return err == nil && target == l.Target
}

// Plan returns what to change so that the directory contains the links in want, and the existing
// links that keep approves. A nil keep approves none. The error joins the links that cannot
// be made and the directories that cannot be read. The plan for everything else is valid.
func (t Links) Plan(want []Link, keep func(Link) bool) (files.Plan, error) {
	plan := files.Plan{Label: "--run-dir"}
	var errs []error
	// The targets are by path, and empty for a link that cannot be made. That concerns both of two links
	// with one path and different targets.
	wanted := map[string]string{}
	for _, l := range want {
		path := t.Path(l.ID, l.Key)
		target, isTwice := wanted[path]
		isConflict := isTwice && target != l.Target
		if isConflict || !isName(l.ID) || !isName(l.Key) {
			errs = append(errs, fmt.Errorf("--run-dir: device %q cannot have a link %q to %q", l.ID, l.Key, l.Target))
			l.Target = ""
		}
		wanted[path] = l.Target
	}
	ids, err := entries(t.Dir)
	errs = append(errs, err)
	for _, id := range ids {
		stale, err := t.stale(id, wanted, keep)
		errs = append(errs, err)
		plan.StaleTrees = append(plan.StaleTrees, stale...)
	}
	for _, path := range slices.Sorted(maps.Keys(wanted)) {
		if wanted[path] != "" {
			plan.Missing = append(plan.Missing, files.File{
				Path:   path,
				Target: wanted[path],
			})
		}
	}
	return plan, errors.Join(errs...)
}

// stale lists the paths in the directory of a device that are neither wanted nor kept. If
// nothing would be left, it lists only the directory. Nothing is stale in a directory that cannot be read.
func (t Links) stale(id fs.DirEntry, wanted map[string]string, keep func(Link) bool) ([]string, error) {
	dir := filepath.Join(t.Dir, id.Name())
	if !id.IsDir() {
		return []string{dir}, nil
	}
	have, err := entries(dir)
	if err != nil {
		return nil, err
	}
	var stale []string
	for _, e := range have {
		path := filepath.Join(dir, e.Name())
		target, _ := os.Readlink(path) // empty for anything else
		link := Link{
			ID:     id.Name(),
			Key:    e.Name(),
			Target: target,
		}
		want, isWanted := wanted[path]
		isKept := !isWanted && isName(link.Key) && keep != nil && keep(link)
		isRight := target != "" && (isKept || want == target)
		if !isRight {
			stale = append(stale, path)
		}
	}
	if len(stale) == len(have) {
		return []string{dir}, nil
	}
	return stale, nil
}

// entries lists a directory by name. A missing directory is empty.
func entries(dir string) ([]fs.DirEntry, error) {
	all, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("--run-dir: %w", err)
	}
	return all, nil
}

// isName reports whether a text can name a link or its directory. The grammar of IDs and keys allows no
// other text, but they contain strings that USB devices choose, so they are checked again here. Hidden
// names are temporary links, "." and "..".
func isName(text string) bool {
	return text != "" && !strings.HasPrefix(text, ".") && !strings.ContainsAny(text, "/\x00")
}
