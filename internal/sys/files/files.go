// Package files reads small regular files and replaces them atomically: readers find either the old content
// or the new content, even after a power failure.
//
// It changes many files in two phases. A Plan says what to do: Remove takes away everything that is stale,
// and Make writes everything that is missing.
//
// A program that keeps several kinds of files plans all of them, removes what is stale in all
// of them, and only then makes anything. In between, no file describes a state that has
// passed, and none describes the new state only in part.
package files

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// dirMode lets any user of a container enter a directory.
const dirMode fs.FileMode = 0o755

// tempPrefix begins the names of links that are not complete yet.
const tempPrefix = ".new-"

// File is a regular file or a symbolic link that should exist.
type File struct {
	Path string
	// Target is the target of a symbolic link. It is empty for a regular file.
	Target string
	// Text and Mode are the content and the permissions of a regular file.
	Text []byte
	Mode fs.FileMode
	// Staging is the path at which a regular file is written before it is renamed to
	// Path, for directories whose readers read every name. It is empty where readers
	// ignore TempSuffix. A staged file is not synced to disk: it may be lost in
	// a power failure, and its writer makes it again at the next start.
	Staging string
}

// Plan is what has to change in the files of one kind. The zero Plan changes nothing.
type Plan struct {
	// Label begins each error: the flag that names the directory, such as "--run-dir".
	Label string
	// Stale are files and links that should not exist.
	Stale []string
	// StaleTrees are paths that should not exist, whatever they are and contain.
	StaleTrees []string
	// Reduced are files that lose part of their content. Each is rewritten without that
	// part when stale files are removed. If that fails, the file is removed: no content
	// is better than stale content.
	Reduced []File
	// Dirs are directories that should exist, which any user may enter.
	Dirs []string
	// Missing are files that should exist with this content.
	Missing []File
	// KeepParent is set if the parents of missing files belong to another program. Then a
	// missing parent is an error.
	KeepParent bool
}

// Remove removes all stale files and contents. A failure does not stop the rest: the
// error is the first one and a count.
func (p *Plan) Remove() error {
	var errs []error
	for _, path := range p.Stale {
		errs = append(errs, Remove(path))
	}
	for _, path := range p.StaleTrees {
		errs = append(errs, os.RemoveAll(path))
	}
	for _, file := range p.Reduced {
		if err := p.write(file); err != nil {
			errs = append(errs, err, Remove(file.Path))
		}
	}
	return p.label(errs)
}

// Make makes all missing directories and files, each atomically. Existing files with the
// same content are not written. A failure does not stop the rest.
func (p *Plan) Make() error {
	var errs []error
	for _, dir := range p.Dirs {
		errs = append(errs, makeDir(dir))
	}
	for _, file := range p.Missing {
		errs = append(errs, p.write(file))
	}
	return p.label(errs)
}

// label returns the first error with the label, and how many more there are: they usually have
// the same cause.
func (p *Plan) label(errs []error) error {
	failures := slices.DeleteFunc(errs, func(err error) bool { return err == nil })
	switch len(failures) {
	case 0:
		return nil
	case 1:
		return fmt.Errorf("%s: %w", p.Label, failures[0])
	default:
		return fmt.Errorf("%s: %w (and %d more)", p.Label, failures[0], len(failures)-1)
	}
}

// write makes a file or a link, and its parent unless p.KeepParent is set.
func (p *Plan) write(file File) error {
	if !strings.Contains(file.Path, "/") {
		// Nothing belongs into the working directory, which may be any.
		return fmt.Errorf("no directory is set for %q", file.Path)
	}
	if !p.KeepParent {
		if err := os.MkdirAll(filepath.Dir(file.Path), dirMode); err != nil {
			return err
		}
	}
	if file.Target != "" {
		return writeLink(file)
	}
	if file.Staging == "" {
		return Write(file.Path, file.Text, file.Mode)
	}
	return replace(file.Path, file.Staging, file.Text, file.Mode, false)
}

// writeLink makes a link. An existing one is replaced by a rename, so that readers always
// find a link.
func writeLink(file File) error {
	target, err := os.Readlink(file.Path)
	if err == nil && target == file.Target {
		return nil
	}
	dir, name := filepath.Split(file.Path)
	temp := filepath.Join(dir, tempPrefix+name)
	err = os.Symlink(file.Target, temp)
	if err == nil {
		err = os.Rename(temp, file.Path)
	}
	if err != nil {
		return errors.Join(err, os.RemoveAll(temp))
	}
	return nil
}

// makeDir makes a directory with dirMode, whatever the umask is.
func makeDir(dir string) error {
	if _, err := os.Lstat(dir); err == nil {
		return nil
	}
	if err := os.MkdirAll(dir, dirMode); err != nil {
		return err
	}
	return os.Chmod(dir, dirMode)
}
