package config

import (
	_ "embed"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/BurntSushi/toml"
	"github.com/google/go-cmp/cmp"
)

// reference is a configuration with every key of the language, with its default and its
// meaning as comments.
//
//go:embed reference.toml
var reference string

// helps are all keys of the language with their help: "resource.match.usb.id".
func helps() map[string]string {
	all := make(map[string]string)
	var visit func(above string, f form)
	visit = func(above string, f form) {
		for name, property := range f.properties() {
			all[above+name], _ = property["description"].(string)
			visit(above+name+".", property)
		}
		for _, key := range []string{"items", "additionalProperties"} {
			if below, ok := f[key].(form); ok {
				visit(above, below)
			}
		}
		either, _ := f["anyOf"].([]form)
		for _, below := range either {
			visit(above, below)
		}
	}
	visit("", describeFile())
	return all
}

// The reference is valid, so that it has no unknown key, and contains every key of
// every table.
func TestReferenceHasEveryKey(t *testing.T) {
	t.Parallel()
	cfg, err := Parse(File{Name: "reference.toml", Data: []byte(reference)})
	must(t, err)
	if got, want := cfg.Resources[0].Name, "example.com/zigbee"; got != want {
		t.Errorf("name = %q, want %q", got, want)
	}

	known := helps()
	// The tables of exclude are those of match, the values of annotations those of env.
	maps.DeleteFunc(known, func(key, _ string) bool {
		return strings.HasPrefix(key, "resource.exclude.") || strings.HasPrefix(key, "resource.container.annotations.")
	})
	var raw map[string]any
	if _, err := toml.Decode(reference, &raw); err != nil {
		t.Fatal(err)
	}
	seen := make(map[string]bool)
	var visit func(above string, raw any)
	visit = func(above string, raw any) {
		items, ok := normal(raw).([]any)
		if !ok {
			items = []any{raw}
		}
		for _, item := range items {
			m, _ := item.(map[string]any)
			for name, v := range m {
				if _, ok := known[above+name]; ok {
					seen[above+name] = true
					visit(above+name+".", v)
				} else {
					visit(above, v) // an arbitrary key
				}
			}
		}
	}
	visit("", raw)
	if diff := cmp.Diff(slices.Sorted(maps.Keys(known)), slices.Sorted(maps.Keys(seen))); diff != "" {
		t.Errorf("keys of reference.toml (-language +reference):\n%s", diff)
	}
}

// The schema's help of a key is in the reference.
func TestReferenceHasEveryHelp(t *testing.T) {
	t.Parallel()
	var comments strings.Builder
	for line := range strings.Lines(reference) {
		if _, comment, ok := strings.Cut(line, "# "); ok {
			comments.WriteString(comment + " ")
		}
	}
	text := strings.ToLower(strings.Join(strings.Fields(comments.String()), " "))
	for key, help := range helps() {
		if help == "" || !strings.Contains(text, strings.ToLower(help)) {
			t.Errorf("%s: %q is not in the reference", key, help)
		}
	}
}

// The reference lists every variable.
func TestReferenceHasEveryVariable(t *testing.T) {
	t.Parallel()
	for _, v := range variables() {
		table, _, isOfTable := strings.Cut(v.name, ".")
		if !strings.Contains(reference, "${"+v.name+"}") && !(isOfTable && strings.Contains(reference, "${"+table+".KEY}")) {
			t.Errorf("no ${%s}", v.name)
		}
	}
}
