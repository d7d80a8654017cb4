package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"io"
	"os"
	"path"
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

// tarGzip returns a compressed archive.
func tarGzip(level int, files []file) ([]byte, error) {
	var archive bytes.Buffer
	compressed, err := gzip.NewWriterLevel(&archive, level)
	if err != nil {
		return nil, err
	}
	if err := writeTar(compressed, files); err != nil {
		return nil, err
	}
	err = compressed.Close()
	return archive.Bytes(), err
}

// readDir reads the files below a directory, sorted by name, and prefixes their names.
func readDir(dir, prefix string) (files []file, err error) {
	err = filepath.WalkDir(dir, func(name string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		below, err := filepath.Rel(dir, name)
		if err != nil {
			return err
		}
		data, err := os.ReadFile(name)
		files = append(files, file{path.Join(prefix, filepath.ToSlash(below)), 0o644, data})
		return err
	})
	return files, err
}

// untar unpacks an archive of regular files.
func untar(archive, dir string) error {
	f, err := os.Open(archive)
	if err != nil {
		return err
	}
	defer f.Close()
	for r := tar.NewReader(f); ; {
		header, err := r.Next()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		data, err := io.ReadAll(r)
		if err != nil {
			return err
		}
		name := filepath.Join(dir, filepath.Clean("/"+header.Name))
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(name, data, 0o644); err != nil {
			return err
		}
	}
}
