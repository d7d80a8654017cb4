package config

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/BurntSushi/toml"
	"github.com/santhosh-tekuri/jsonschema/v6"
)

// compileSchema compiles the output of Schema, which must be a valid draft 4 schema.
func compileSchema(t *testing.T) *jsonschema.Schema {
	t.Helper()
	text, err := Schema()
	must(t, err)
	document, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	must(t, err)
	c := jsonschema.NewCompiler()
	must(t, c.AddResource("schema.json", document))
	s, err := c.Compile("schema.json")
	must(t, err)
	if s.DraftVersion != 4 {
		t.Errorf("draft %d, want 4", s.DraftVersion)
	}
	return s
}

// tomlDocument is TOML as input of a JSON validator.
func tomlDocument(t *testing.T, text []byte) any {
	t.Helper()
	var tables map[string]any
	if _, err := toml.Decode(string(text), &tables); err != nil {
		t.Fatal(err)
	}
	written, err := json.Marshal(tables)
	must(t, err)
	document, err := jsonschema.UnmarshalJSON(bytes.NewReader(written))
	must(t, err)
	return document
}

// The schema accepts valid configurations.
func TestSchemaAccepts(t *testing.T) {
	t.Parallel()
	s := compileSchema(t)
	files, err := filepath.Glob("testdata/good/*.toml")
	if err != nil || len(files) == 0 {
		t.Fatal("no file", err)
	}
	for _, name := range append(files, "reference.toml") {
		data, err := os.ReadFile(name)
		must(t, err)
		if err := s.Validate(tomlDocument(t, data)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// The schema rejects unknown keys, keys in the wrong letter case, and tables and words of the wrong type.
func TestSchemaRefuses(t *testing.T) {
	t.Parallel()
	s := compileSchema(t)
	for _, name := range []string{
		"unknown-keys", "letter-case", "letter-case-tables", "keys-elsewhere", "exclude", "hooks", "owner", "mdev", "net", "enumerations", "types-booleans", "companions",
	} {
		data, err := os.ReadFile("testdata/bad/" + name + ".toml")
		must(t, err)
		if s.Validate(tomlDocument(t, data)) == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

// must ends the test after an error of its own steps.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
