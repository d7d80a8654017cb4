package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/generic-dp/generic-dp/config"
	"github.com/generic-dp/generic-dp/internal/tools/cli"
	"github.com/generic-dp/generic-dp/internal/tools/manifest"
)

// isManifest reports whether a path names a YAML or JSON file. The content is not considered: a
// TOML file is never searched for a manifest.
func isManifest(path string) bool {
	switch filepath.Ext(path) {
	case ".yaml", ".yml", ".json":
		return true
	}
	return false
}

// readManifest finds the configuration in a manifest: in the data of a ConfigMap, or in the values
// of a chart or of a HelmRelease. name is the path of the manifest in messages. It fails if the
// text is no YAML, or does not contain exactly one configuration: several could not be served as
// one.
func readManifest(name string, text []byte) (*manifest.Configuration, error) {
	found, err := manifest.Find(name, text)
	if errors.Is(err, manifest.ErrNoConfiguration) {
		return nil, fmt.Errorf("%w\n  hint: kubectl generic-dp import %s converts the configuration of another plugin", err, cli.ShellQuote(name))
	}
	if err != nil {
		return nil, err
	}
	if len(found) > 1 {
		return nil, fmt.Errorf("%s: contains several configurations, in the lines %d and %d: want one", name, found[0].Line, found[1].Line)
	}
	return &found[0], nil
}

// writeFiles writes the files of a configuration to a new directory, which the agent of a session
// reads. It fails if the directory exists.
func writeFiles(dir string, files []config.File) error {
	err := os.Mkdir(dir, 0o700)
	if err != nil {
		return err
	}
	for _, file := range files {
		name := filepath.Base(file.Name) // the manifest chooses the name
		if !strings.HasSuffix(name, ".toml") {
			name = "config.toml" // standard input
		}
		err := os.WriteFile(filepath.Join(dir, name), file.Data, 0o600)
		if err != nil {
			return err
		}
	}
	return nil
}
