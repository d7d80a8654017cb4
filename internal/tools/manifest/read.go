package manifest

import (
	"path/filepath"

	"github.com/generic-dp/generic-dp/config"
	"github.com/generic-dp/generic-dp/internal/tools/cli"
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

// Read reads the configurations at a path, of which only a manifest may have several: a TOML file, a
// directory of them as serve reads it, or a manifest. The path "-" is standard input, with a TOML
// file or a manifest. ignored has a note for each file of a directory that is not read.
func Read(path string) (found []Configuration, ignored []config.Problem, err error) {
	isPiped := path == "-"
	if !isPiped && !isManifest(path) {
		files, ignored, err := config.Read(path)
		return []Configuration{{Files: files}}, ignored, err
	}
	name, text, err := cli.ReadInput(path)
	if err != nil {
		return nil, nil, err
	}
	found, err = Find(name, text)
	if !isPiped {
		return found, nil, err
	}
	if err != nil {
		// The text is not a manifest with a configuration, so it must be a file. If it is broken
		// YAML instead, the parser of TOML reports it.
		file := config.File{Name: name, Data: text}
		return []Configuration{{Files: []config.File{file}}}, nil, nil
	}
	return found, nil, nil
}
