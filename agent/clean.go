package agent

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/generic-dp/generic-dp/internal/atomicfile"
	"github.com/generic-dp/generic-dp/ledger"
	"github.com/generic-dp/generic-dp/links"
	"github.com/generic-dp/generic-dp/plugin"
)

// Clean removes what serving leaves behind: links, CDI specs, state, and
// sockets that nobody serves. It refuses while an instance is serving. The
// directories themselves stay: they may be mounts.
func Clean(p Paths) (removed []string, err error) {
	if _, err := os.Stat(p.RunDir); err == nil {
		lock, err := openLock(p.RunDir)
		if err != nil {
			return nil, fmt.Errorf("--run-dir: %w", err)
		}
		defer lock.close()
		mine, err := lock.try()
		if err != nil {
			return nil, err
		}
		if !mine {
			return nil, fmt.Errorf("an instance is serving: it holds %s", filepath.Join(p.RunDir, lockName))
		}
	}
	var errs []error
	note := func(path string, err error) {
		if err != nil {
			errs = append(errs, err)
		} else {
			removed = append(removed, path)
		}
	}
	tree := &links.Tree{Dir: filepath.Join(p.RunDir, linksName)}
	if present(tree.Dir) {
		note(tree.Dir, tree.Clean())
	}
	writer := p.specWriter()
	specs, err := writer.Files()
	errs = append(errs, err)
	if len(specs) > 0 {
		err := writer.Clean()
		for _, spec := range specs {
			note(spec, err)
		}
	}
	for _, name := range append(ledger.Files(), lastGoodName, lastGoodName+atomicfile.TempSuffix) {
		if path := filepath.Join(p.StateDir, name); present(path) {
			note(path, os.Remove(path))
		}
	}
	if present(p.KubeletDir) {
		sockets, err := plugin.SweepSockets(p.KubeletDir)
		for _, name := range sockets {
			removed = append(removed, filepath.Join(p.KubeletDir, name))
		}
		errs = append(errs, err)
	}
	if path := filepath.Join(p.RunDir, lockName); present(path) {
		note(path, os.Remove(path))
	}
	return removed, errors.Join(errs...)
}

func present(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}
