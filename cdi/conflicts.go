package cdi

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	cdiapi "tags.cncf.io/container-device-interface/pkg/cdi"
)

// StaticDir is where hosts keep CDI specs that nobody generates. Runtimes
// read it besides the directory of generated ones.
const StaticDir = cdiapi.DefaultStaticDir

// Conflict is a spec file of somebody else that has a kind of ours. Of two
// devices of one name a runtime takes neither, or that of the directory which
// comes last, so such a kind is not to be written.
type Conflict struct {
	Kind string
	File string // path of the other's spec file
}

// Conflicts finds the kinds that specs of others in dirs have, by kind and
// file; other installations of this program are others, too. A directory that
// is missing has none; a file that can't be read as a spec is none to a runtime
// either.
func (w *Writer) Conflicts(kinds []string, dirs ...string) ([]Conflict, error) {
	var found []Conflict
	var errs []error
	for _, dir := range dirs {
		entries, err := os.ReadDir(dir)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, fmt.Errorf("--cdi-dir: read %q: %w", dir, cause(err)))
		}
		for _, e := range entries {
			if e.IsDir() || isOf(w.Owner, e.Name()) || !isSpec(e.Name()) {
				continue
			}
			path := filepath.Join(dir, e.Name())
			data, err := os.ReadFile(path)
			if err != nil {
				continue
			}
			spec, err := cdiapi.ParseSpec(data)
			if err == nil && spec != nil && slices.Contains(kinds, spec.Kind) {
				found = append(found, Conflict{Kind: spec.Kind, File: path})
			}
		}
	}
	slices.SortFunc(found, func(a, b Conflict) int {
		return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.File, b.File))
	})
	return found, errors.Join(errs...)
}
