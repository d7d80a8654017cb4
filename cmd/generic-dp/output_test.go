package main

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// YAML output is the same data as JSON output, whatever strings a device reports.
func TestYAMLIsJSON(t *testing.T) {
	t.Parallel()
	report := map[string]any{
		"empty": map[string]any{}, "none": []any{}, "null": nil, "number": 1.5, "yes": true, "nested": []any{[]any{"a", []any{}}, map[string]any{"b": []any{map[string]any{"c": "d"}}}},
		"strings": []string{
			"", "plain", "/dev/ttyUSB0", "10c4:1234", "1e5", "0x1f", "007", "true", "No", "null", "~", "- a", "a: b", "a #b", " a ", "\"'", "é\u2028<&>", "a\nb", "*", "&a", "!t", "%", "@", "y", ".inf", "2026-11-20", "it's", "a,b", "[a]", "{a}",
		},
	}
	var asJSON, asYAML strings.Builder
	if err := encode(&asJSON, "json", report); err != nil {
		t.Fatal(err)
	}
	if err := encode(&asYAML, "yaml", report); err != nil {
		t.Fatal(err)
	}
	var want, got any
	if err := json.Unmarshal([]byte(asJSON.String()), &want); err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal([]byte(asYAML.String()), &got); err != nil {
		t.Fatalf("%v\n%s", err, asYAML.String())
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("YAML\n%s\nis %v\nwant %v", asYAML.String(), got, want)
	}
}
