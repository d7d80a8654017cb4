package config

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/BurntSushi/toml"
	"github.com/google/go-cmp/cmp"
)

// The reference parses, so that no key in it is unknown, and has every key of
// every kind of table.
func TestReferenceHasEveryKey(t *testing.T) {
	t.Parallel()
	cfg, err := Parse(File{Name: "reference.toml", Data: []byte(Reference)})
	if err != nil {
		t.Fatal(err)
	}
	if got, want := cfg.Resources[0].Name, "example.com/zigbee"; got != want {
		t.Errorf("name = %q, want %q", got, want)
	}

	var raw map[string]any
	if _, err := toml.Decode(Reference, &raw); err != nil {
		t.Fatal(err)
	}
	seen := make(map[string]bool)
	var visit func(way string, raw any, s *schema)
	visit = func(way string, raw any, s *schema) {
		items, ok := elements(raw)
		if !ok {
			items = []any{raw}
		}
		for _, item := range items {
			m, ok := item.(map[string]any)
			if !ok || s == nil {
				continue
			}
			for k, v := range m {
				seen[way+k] = true
				visit(way+k+".", v, s.sub[k])
				if own, ok := v.(map[string]any); ok && s.entries[k] != nil {
					visit(way+k+".", slices.Collect(maps.Values(own)), s.entries[k])
				}
			}
		}
	}
	visit("", raw, topTable.schema())

	known := make(map[string]bool)
	var list func(way string, s *schema)
	list = func(way string, s *schema) {
		for _, k := range s.keys {
			known[way+k] = true
			// The tables of exclude are those of match.
			if sub := s.sub[k]; sub != nil && k != "exclude" {
				list(way+k+".", sub)
			}
			// The values of annotations are those of env.
			if sub := s.entries[k]; sub != nil && k != "annotations" {
				list(way+k+".", sub)
			}
		}
	}
	list("", topTable.schema())
	maps.DeleteFunc(seen, func(k string, _ bool) bool { return strings.HasPrefix(k, "resource.exclude.") })
	if diff := cmp.Diff(slices.Sorted(maps.Keys(known)), slices.Sorted(maps.Keys(seen))); diff != "" {
		t.Errorf("keys of reference.toml (-language +reference):\n%s", diff)
	}
}

// The reference lists every variable.
func TestReferenceHasEveryVariable(t *testing.T) {
	t.Parallel()
	for _, name := range knownVariables().listed() {
		if !strings.Contains(Reference, "${"+name+"}") {
			t.Errorf("no ${%s}", name)
		}
	}
}
