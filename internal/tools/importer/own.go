package importer

import (
	"errors"
	"fmt"
	"path"
	"strings"

	"github.com/generic-dp/generic-dp/config"
	"github.com/generic-dp/generic-dp/internal/order"
)

// Own is a configuration of generic-dp itself in a manifest.
type Own struct {
	// Object is what has it, such as "ConfigMap/generic-dp". It is empty in the values of a
	// chart.
	Object string
	// Line is the line of its first file in the manifest, from 1.
	Line int
	// Files are its TOML files, sorted by name as serve reads them.
	Files []config.File
	// positions are the positions of the files in the manifest, by name.
	positions map[string]position
}

// ErrNoConfiguration means that a manifest is valid YAML without a configuration of generic-dp.
var ErrNoConfiguration = errors.New("no configuration in it")

// FindOwn finds the configurations of generic-dp in a manifest: the *.toml keys of ConfigMaps, of
// the values of the chart, and of what contains these, such as a HelmRelease of Flux, an
// Application of Argo CD or a list of objects. file is the path of the manifest in messages.
func FindOwn(file string, data []byte) ([]Own, error) {
	if len(data) > maxInput {
		return nil, fmt.Errorf("%s: is too long: at most %d bytes are allowed", file, maxInput)
	}
	c := &conversion{
		file: file,
		text: string(data),
	}
	s := &ownSearch{
		manifest: file,
		lines:    strings.Split(c.text, "\n"),
	}
	for _, document := range c.parse(c.text, "", 0) {
		s.walk(document, "")
	}
	if len(c.problems) > 0 {
		return nil, c.sortedProblems()
	}
	if s.problem != nil {
		return nil, fmt.Errorf("%s: %w", file, s.problem)
	}
	if len(s.found) == 0 {
		return nil, fmt.Errorf("%s: %w: want a key such as \"config.toml\" with the text of a file", file, ErrNoConfiguration)
	}
	return s.found, nil
}

// ownSearch is the state of FindOwn.
type ownSearch struct {
	// manifest is the path of the manifest, and lines are its lines.
	manifest string
	lines    []string

	found   []Own
	problem error
}

// walk searches a value of an object.
func (s *ownSearch) walk(v *value, object string) {
	switch {
	case v.mapping():
		s.walkMapping(v, object)
	case v.list():
		for _, item := range v.items() {
			s.walk(item, object)
		}
	case v.scalar() && mayHaveOwn(v.Value):
		// Texts in YAML: the values of an Argo CD Application, or a ConfigMap with values. A
		// text that is not YAML has none.
		before := len(v.c.problems)
		documents := v.documents()
		v.c.problems = v.c.problems[:before]
		for _, document := range documents {
			if !document.scalar() {
				s.walk(document, object)
			}
		}
	}
}

// mayHaveOwn reports whether a text may be YAML with a key that ends in .toml.
func mayHaveOwn(text string) bool {
	return strings.Contains(text, ".toml:") || strings.Contains(text, `.toml":`)
}

func (s *ownSearch) walkMapping(v *value, object string) {
	name := v.get("metadata").get("name")
	if v.has("kind") && name.scalar() {
		object = v.get("kind").Value + "/" + name.Value
	}
	fields, err := v.fields()
	if err != nil {
		s.problem = errors.Join(s.problem, err)
		return
	}
	own := Own{Object: object, positions: map[string]position{}}
	for _, f := range fields {
		switch {
		case f.key == lastApplied:
		case path.Ext(f.key) == ".toml" && f.scalar():
			if len(own.Files) == 0 {
				own.Line = f.Line
			}
			own.Files = append(own.Files, config.File{Name: f.key, Data: []byte(f.Value)})
			own.positions[f.key] = positionOf(s.manifest, f, s.lines)
		default:
			s.walk(f, object)
		}
	}
	if len(own.Files) == 0 {
		return
	}
	order.Sort(own.Files, func(a, b config.File) int { return strings.Compare(a.Name, b.Name) })
	s.found = append(s.found, own)
}
