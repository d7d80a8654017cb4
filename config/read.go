package config

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/generic-dp/generic-dp/internal/sys/files"
)

// File is the text of one configuration file.
type File struct {
	// Name is the name without directory, by which files are ordered.
	Name string
	// Path is the path as it was given, for messages: editors and CI find the line by it. If it is
	// empty, messages show the name.
	Path string
	Data []byte
}

// shown returns the name of the file in messages.
func (f *File) shown() string { return cmp.Or(f.Path, f.Name) }

// Read reads the text of the configuration at path: a file, or a directory whose *.toml files are read in
// name order as one. ignored has a note for each file of a directory that looks like a part of the
// configuration and is not.
func Read(path string) (files []File, ignored []Problem, err error) {
	for {
		version := mountedVersion(path)
		files, ignored, err = read(path)
		if mountedVersion(path) == version {
			break
		}
		// The kubelet removes the files of the former version, maybe while they were read: what is
		// missing in them says nothing about the new one.
	}
	if err != nil {
		return nil, nil, fmt.Errorf("read configuration: %w", err)
	}
	return files, ignored, nil
}

// mountedVersion returns the version of a mounted ConfigMap, which changes before a file of the
// former one is removed. It is empty for other files.
func mountedVersion(path string) string {
	version, err := os.Readlink(filepath.Join(path, "..data"))
	if err != nil {
		// The path may be a file in it.
		version, _ = os.Readlink(filepath.Join(filepath.Dir(path), "..data"))
	}
	return version
}

// read is Read without the prefix of its errors. With an error, the other results have no meaning.
func read(path string) (files []File, ignored []Problem, err error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, nil, err
	}
	if !info.IsDir() {
		f, err := readFile(path, path)
		// A file that is named explicitly is read whatever its name is.
		return []File{f}, nil, err
	}

	// A mounted ConfigMap is a directory of links into ..data, a link that the kubelet
	// replaces atomically (k8s.io/kubernetes/pkg/volume/util, AtomicWriter). Reading
	// below its target gives files of one version.
	dir := path
	data, err := filepath.EvalSymlinks(filepath.Join(path, "..data"))
	if err == nil {
		dir = data
	} else if !errors.Is(err, fs.ErrNotExist) {
		return nil, nil, err
	}
	// ReadDir sorts by name, which is the order of the resources.
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, nil, err
	}
	size := 0
	for _, e := range entries {
		// Messages have the path that people know, and not the directory behind ..data, whose name
		// changes with each version.
		shown := filepath.Join(path, e.Name())
		// Editors and the kubelet hide their own files with a dot.
		isHidden := strings.HasPrefix(e.Name(), ".")
		if isHidden || filepath.Ext(e.Name()) != ".toml" {
			ignored = append(ignored, ignoredNote(e.Name(), shown)...)
			continue
		}
		f, err := readFile(filepath.Join(dir, e.Name()), shown)
		isDangling := errors.Is(err, fs.ErrNotExist) && e.Type()&fs.ModeSymlink != 0
		if isDangling {
			// One dangling link must not take the resources of the other files away.
			ignored = append(ignored, Problem{
				File: shown,
				Text: "is ignored: it is a symbolic link to a file that does not exist",
			})
			continue
		}
		if err != nil {
			return nil, nil, err
		}
		// readFile limits each file, and this the memory for all of them.
		size += len(f.Data)
		if size > maxSize {
			return nil, nil, fmt.Errorf("%s: the files are larger than %d bytes in total", path, maxSize)
		}
		files = append(files, f)
	}
	// A directory without files is an error and not an empty configuration: it is probably a wrong
	// path or a ConfigMap with wrong keys.
	if len(files) == 0 {
		text := path + `: no file in this directory has a name that ends in ".toml"`
		for _, p := range ignored {
			text += "\n" + p.String()
		}
		return nil, nil, errors.New(text)
	}
	return files, ignored, nil
}

// ignoredNote returns a note for a file that its author probably takes for a part of the
// configuration.
func ignoredNote(name, shown string) []Problem {
	extension := filepath.Ext(name)
	hint := ""
	switch strings.ToLower(extension) {
	case ".toml":
		hint = "rename it to " + quote(strings.TrimSuffix(name, extension)+".toml")
	case ".yaml", ".yml", ".json":
		hint = "kubectl generic-dp import converts the configuration of another plugin"
	}
	// Other files, such as a README, are nobody's mistake.
	if hint == "" || strings.HasPrefix(name, ".") {
		return nil
	}
	return []Problem{{
		File: shown,
		Text: `is ignored: the name of a configuration file ends in ".toml"`,
		Hint: hint,
	}}
}

// readFile reads a file of the configuration. shown is its path in messages. A file larger than
// maxFileSize is an error.
func readFile(path, shown string) (File, error) {
	data, err := files.Read(path, maxFileSize)
	return File{
		Name: filepath.Base(path),
		Path: shown,
		Data: data,
	}, err
}
