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
	if err != nil {
		t.Fatal(err)
	}
	document, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource("schema.json", document); err != nil {
		t.Fatal(err)
	}
	s, err := c.Compile("schema.json")
	if err != nil {
		t.Fatal(err)
	}
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
	if err != nil {
		t.Fatal(err)
	}
	document, err := jsonschema.UnmarshalJSON(bytes.NewReader(written))
	if err != nil {
		t.Fatal(err)
	}
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
		if err != nil {
			t.Fatal(err)
		}
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
		if err != nil {
			t.Fatal(err)
		}
		if s.Validate(tomlDocument(t, data)) == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}
