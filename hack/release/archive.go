package main

import (
	"archive/tar"
	"io"
	"os"
	"path/filepath"
	"time"
)

// file is a regular file of an archive.
type file struct {
	name string
	mode int64
	data []byte
}

// writeTar writes a reproducible archive: without times and owners.
func writeTar(w io.Writer, files []file) error {
	archive := tar.NewWriter(w)
	for _, f := range files {
		header := &tar.Header{Name: f.name, Mode: f.mode, Size: int64(len(f.data)), ModTime: time.Unix(0, 0), Format: tar.FormatUSTAR}
		if err := archive.WriteHeader(header); err != nil {
			return err
		}
		if _, err := archive.Write(f.data); err != nil {
			return err
		}
	}
	return archive.Close()
}

// readDir reads the files below a directory, sorted by name.
func readDir(dir string) (files []file, err error) {
	err = filepath.WalkDir(dir, func(name string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		below, err := filepath.Rel(dir, name)
		if err != nil {
			return err
		}
		data, err := os.ReadFile(name)
		files = append(files, file{filepath.ToSlash(below), 0o644, data})
		return err
	})
	return files, err
}
