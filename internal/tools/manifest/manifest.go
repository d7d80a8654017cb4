// Package manifest reads YAML manifests of Kubernetes, and finds the configurations of generic-dp
// in them. Nodes of YAML are used instead of decoded values, because they have the line of each
// value and the text of each scalar as it is written.
package manifest

import (
	"errors"
	"fmt"
	"path"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/generic-dp/generic-dp/config"
	"github.com/generic-dp/generic-dp/internal/order"
)

// Configuration is a configuration of generic-dp in a manifest.
type Configuration struct {
	// Object is what has it, such as "ConfigMap/generic-dp". It is empty in the values of a
	// chart.
	Object string
	// Line is the line of its first file in the manifest, from 1.
	Line int
	// Files are its TOML files, sorted by name as serve reads them.
	Files []config.File
}

// Find finds the configurations of generic-dp in a manifest: the *.toml keys of ConfigMaps, of
// the values of the chart, and of what contains these, such as a HelmRelease of Flux, an
// Application of Argo CD or a list of objects. file is the path of the manifest in messages.
func Find(file string, data []byte) ([]Configuration, error) {
	documents, err := Documents(string(data), 0)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	s := &search{manifest: file}
	for _, document := range documents {
		s.walk(document, "")
	}
	if s.problem != nil {
		return nil, fmt.Errorf("%s: %w", file, s.problem)
	}
	if len(s.found) == 0 {
		return nil, fmt.Errorf("%s: no configuration in it: want a key such as \"config.toml\" with the text of a file\n  hint: kubectl generic-dp import %[1]s converts the configuration of another plugin", file)
	}
	return s.found, nil
}

// search is the state of Find.
type search struct {
	manifest string // its path
	found    []Configuration
	problem  error
}

// walk searches a value of an object.
func (s *search) walk(n *yaml.Node, object string) {
	switch n.Kind {
	case yaml.MappingNode:
		s.walkMapping(n, object)
	case yaml.SequenceNode:
		for _, item := range n.Content {
			s.walk(Resolve(item), object)
		}
	case yaml.ScalarNode:
		s.walkText(n, object)
	}
}

// walkText searches YAML in a text: the values of an Argo CD Application, or a ConfigMap with
// values. A text that is not YAML has no configuration.
func (s *search) walkText(n *yaml.Node, object string) {
	mayHaveFile := strings.Contains(n.Value, ".toml:") || strings.Contains(n.Value, `.toml":`)
	if !mayHaveFile {
		return
	}
	documents, err := Documents(n.Value, FirstLine(n)-1)
	if err != nil {
		return
	}
	for _, document := range documents {
		if document.Kind != yaml.ScalarNode {
			s.walk(document, object)
		}
	}
}

func (s *search) walkMapping(n *yaml.Node, object string) {
	fields, err := Fields(n)
	if err != nil {
		s.problem = errors.Join(s.problem, err)
		return
	}
	if name := objectName(n); name != "" {
		object = name
	}
	c := Configuration{Object: object}
	for _, f := range fields {
		switch {
		case f.Key == LastApplied:
		case path.Ext(f.Key) == ".toml" && f.Node.Style&yaml.FoldedStyle != 0:
			s.problem = errors.Join(s.problem, fmt.Errorf("line %d: %s is a folded block, which joins its lines: write \"%s: |\" for \"%s: >\"", f.Line, f.Key, f.Key, f.Key))
		case path.Ext(f.Key) == ".toml" && f.Kind == yaml.ScalarNode:
			if len(c.Files) == 0 {
				c.Line = f.Line
			}
			c.Files = append(c.Files, s.file(f))
		default:
			s.walk(f.Node, object)
		}
	}
	if len(c.Files) == 0 {
		return
	}
	order.Sort(c.Files, func(a, b config.File) int { return strings.Compare(a.Name, b.Name) })
	s.found = append(s.found, c)
}

// file returns the file of a key. Empty lines in front of a literal text give its lines the numbers that
// they have in the manifest. Other texts have other lines, so that messages name the key.
func (s *search) file(f Field) config.File {
	file := config.File{
		Name: f.Key,
		Data: []byte(f.Value),
	}
	if f.Node.Style&yaml.LiteralStyle != 0 {
		file.Path = s.manifest
		file.Data = []byte(strings.Repeat("\n", FirstLine(f.Node)-1) + f.Value)
	}
	return file
}
