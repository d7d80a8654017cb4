package config

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/generic-dp/generic-dp/internal/atomicfile"
)

// File is the text of one configuration file.
type File struct {
	// Name without directory, as in messages.
	Name string
	Data []byte
}

// Load reads the configuration at path: a file, or a directory whose *.toml files are
// read in name order as one. An invalid text is an error of type Problems; other errors
// are read errors.
func Load(path string) (*Config, error) {
	files, err := Read(path)
	if err != nil {
		return nil, err
	}
	return Parse(files...)
}

// Read reads the text of the configuration at path, like Load.
func Read(path string) ([]File, error) {
	files, err := read(path)
	if err != nil {
		return nil, fmt.Errorf("read configuration: %w", err)
	}
	return files, nil
}

func read(path string) ([]File, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.IsDir() {
		f, err := readFile(path)
		return []File{f}, err
	}

	// A mounted ConfigMap is a directory of links into ..data, a link that the kubelet
	// replaces atomically (k8s.io/kubernetes/pkg/volume/util, AtomicWriter). Reading
	// below its target gives files of one version.
	dir := path
	if data, err := filepath.EvalSymlinks(filepath.Join(path, "..data")); err == nil {
		dir = data
	} else if !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var files []File
	size := 0
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), ".") || filepath.Ext(e.Name()) != ".toml" {
			continue
		}
		f, err := readFile(filepath.Join(dir, e.Name()))
		if err != nil {
			return nil, err
		}
		if size += len(f.Data); size > maxSize {
			return nil, fmt.Errorf("%s: larger than %d bytes in all: want at most 2 MiB", path, maxSize)
		}
		files = append(files, f)
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("%s: no *.toml file in this directory", path)
	}
	return files, nil
}

func readFile(path string) (File, error) {
	data, err := atomicfile.Read(path, MaxFileSize)
	return File{Name: filepath.Base(path), Data: data}, err
}

// Hash is that of a configuration with these files. It covers names and texts with
// their lengths, so that different sets of files have different input.
func Hash(files []File) string {
	h := sha256.New()
	for _, f := range files {
		for _, part := range [][]byte{[]byte(f.Name), f.Data} {
			h.Write(binary.BigEndian.AppendUint64(nil, uint64(len(part))))
			h.Write(part)
		}
	}
	return hex.EncodeToString(h.Sum(nil))
}
