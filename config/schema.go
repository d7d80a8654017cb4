package config

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"strings"
)

// Schema is the language as JSON Schema, for editors: its keys, the types of
// their values and what the reference says of them. It is draft 4, the highest
// that the usual TOML editors know. What it accepts may still break a rule.
func Schema() ([]byte, error) {
	language := topTable.schema()
	b := schemaBuilder{definitions: make(map[string]form), comments: commentsOf(Reference, language)}
	root := form{
		"$schema": "http://json-schema.org/draft-04/schema#",
		"title":   "generic-dp configuration",
	}
	maps.Copy(root, b.object(language, ""))
	root["definitions"] = b.definitions
	text, err := json.MarshalIndent(root, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("write schema: %w", err)
	}
	return append(text, '\n'), nil
}

// schemaBuilder collects the kinds of table, each once.
type schemaBuilder struct {
	definitions map[string]form
	comments    map[string]string
}

// object is a kind of table that stands at a way such as "resource.match.",
// which is empty at the top.
func (b *schemaBuilder) object(s *schema, way string) form {
	properties := make(map[string]form, len(s.keys))
	for _, k := range s.keys {
		property := maps.Clone(s.forms[k])
		// What an exclude takes a match takes too.
		comment := cmp.Or(b.comments[way+k], b.comments[strings.Replace(way, ".exclude.", ".match.", 1)+k])
		for _, below := range []*schema{s.sub[k], s.entries[k]} {
			if below == nil || b.definitions[below.name] != nil {
				continue
			}
			b.definitions[below.name] = b.object(below, way+k+".")
		}
		if comment != "" {
			property["description"] = comment
		}
		properties[k] = property
	}
	object := form{"type": "object", "properties": properties, "additionalProperties": false}
	if len(s.required) > 0 {
		object["required"] = s.required
	}
	return object
}
