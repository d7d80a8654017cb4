package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/generic-dp/generic-dp/config"
)

// A configuration often lives in a manifest: in the data of a ConfigMap, or in the values of a
// chart or of a HelmRelease. Commands read it there, and problems have the lines of the manifest.

// manifest is the configuration in a YAML or JSON file. JSON is read as YAML, which contains it.
type manifest struct {
	// files are the files of the configuration in the order of the manifest. config.Parse sorts
	// them.
	files []config.File
	// positions are the positions of the files in the manifest, by their path in messages. It is
	// nil for a configuration from standard input that is not in a manifest.
	positions map[string]position
}

// position is the position of the text of a file in a manifest.
type position struct {
	// manifest is the path of the manifest.
	manifest string
	// line is the line before the text, from 1, and indent the number of columns before it. For a
	// literal text, line is the line with the key and the indicator "|".
	line   int
	indent int
	// isLiteral is set if the lines of the text are lines of the manifest. Quoted and folded
	// texts have other lines, so their problems have the position of the key.
	isLiteral bool
}

// isManifest reports whether a path names a YAML or JSON file. The content is not considered: a
// TOML file is never searched for a manifest.
func isManifest(path string) bool {
	switch filepath.Ext(path) {
	case ".yaml", ".yml", ".json":
		return true
	}
	return false
}

// readManifest finds the files of a configuration in a manifest: all keys of one table that end
// in ".toml". name is the path of the manifest in messages. It fails if the text is no YAML, or
// if there is no such table or more than one: several configurations could not be served as one.
func readManifest(name string, text []byte) (*manifest, error) {
	m := &manifest{positions: make(map[string]position)}
	var group *yaml.Node
	// A file may have several documents, such as the output of helm template.
	documents := yaml.NewDecoder(bytes.NewReader(text))
	for {
		var document yaml.Node
		err := documents.Decode(&document)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		for _, found := range tablesWithFiles(&document) {
			if group != nil {
				return nil, fmt.Errorf("%s: contains several configurations, in the lines %d and %d: want one", name, group.Line, found.Line)
			}
			group = found
		}
	}
	if group == nil {
		return nil, fmt.Errorf("%s: no configuration in it: want a key such as \"config.toml\" with the text of a file\n"+
			"  hint: generic-dp import %s converts the configuration of another plugin", name, shellQuote(name))
	}
	lines := strings.Split(string(text), "\n")
	// The Content of a mapping alternates between keys and values.
	for i := 0; i < len(group.Content); i += 2 {
		key := group.Content[i].Value
		value := group.Content[i+1]
		if isFile(key, value) {
			m.add(name, key, value, lines)
		}
	}
	return m, nil
}

// tablesWithFiles returns the tables at and below a node that contain files of a configuration.
// It does not search below such a table. An alias has no Content, so a table with an anchor is
// found once.
func tablesWithFiles(n *yaml.Node) []*yaml.Node {
	var found []*yaml.Node
	if n.Kind == yaml.MappingNode {
		for i := 0; i < len(n.Content); i += 2 {
			if isFile(n.Content[i].Value, n.Content[i+1]) {
				return []*yaml.Node{n}
			}
		}
	}
	for _, child := range n.Content {
		found = append(found, tablesWithFiles(child)...)
	}
	return found
}

// isFile reports whether a key and its value are a file of a configuration. A key that ends in
// ".toml" with a table or a number as its value is something else.
func isFile(key string, value *yaml.Node) bool {
	return strings.HasSuffix(key, ".toml") && value.Kind == yaml.ScalarNode && value.Tag == "!!str"
}

// add adds a file with its position. name is the path of the manifest, and lines are its lines.
func (m *manifest) add(name, key string, value *yaml.Node, lines []string) {
	shown := name + ": " + key
	m.files = append(m.files, config.File{
		Name: key,
		Path: shown,
		Data: []byte(value.Value),
	})
	p := position{
		manifest:  name,
		line:      value.Line,
		isLiteral: value.Style&yaml.LiteralStyle != 0,
	}
	if p.isLiteral && value.Line < len(lines) {
		first := lines[value.Line] // the line after the indicator "|"
		p.indent = len(first) - len(strings.TrimLeft(first, " "))
	}
	m.positions[shown] = p
}

// locate returns a problem with its position in the manifest. A problem of another file, or
// without a file, stays as it is.
func (m *manifest) locate(p config.Problem) config.Problem {
	at, isOurs := m.positions[p.File]
	if !isOurs {
		return p
	}
	p.File = at.manifest
	if p.Line > 0 && at.isLiteral {
		p.Line += at.line
		p.Column += at.indent
		return p
	}
	p.Line = at.line
	p.Column = 1
	return p
}

// locateAll gives problems their positions in the manifest. It changes the elements of the slice.
func (m *manifest) locateAll(problems []config.Problem) {
	for i := range problems {
		problems[i] = m.locate(problems[i])
	}
}

// write writes the files of the configuration to a new directory, which the agent of a session
// reads. It fails if the directory exists.
func (m *manifest) write(dir string) error {
	err := os.Mkdir(dir, 0o700)
	if err != nil {
		return err
	}
	for _, file := range m.files {
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
