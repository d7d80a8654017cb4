package manifest_test

import (
	"strings"
	"testing"

	"github.com/generic-dp/generic-dp/config"
	"github.com/generic-dp/generic-dp/internal/tools/manifest"
)

// A configuration of generic-dp is found wherever a manifest has it. The script check.txt has ConfigMaps,
// values and a HelmRelease.
func TestFind(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ name, text, want string }{
		{"the text of values in an Application of Argo CD", `
apiVersion: argoproj.io/v1alpha1
kind: Application
metadata: {name: dp}
spec:
  source:
    helm:
      values: |
        config:
          10-a.toml: a = 1
`, "Application/dp: 10-a.toml=a = 1"},
		{"a list of objects in JSON", `{"kind": "List", "items": [{"kind": "ConfigMap", "metadata": {"name": "x"}, "data": {"a.toml": "a = 1"}}]}`, "ConfigMap/x: a.toml=a = 1"},
	} {
		found, err := manifest.Find("m.yaml", []byte(test.text))
		if err != nil {
			t.Errorf("%s: %v", test.name, err)
			continue
		}
		var all []string
		for _, own := range found {
			var files []string
			for _, f := range own.Files {
				files = append(files, f.Name+"="+strings.TrimSpace(string(f.Data)))
			}
			all = append(all, own.Object+": "+strings.Join(files, ", "))
		}
		if got := strings.Join(all, "; "); got != test.want {
			t.Errorf("%s: %q, want %q", test.name, got, test.want)
		}
	}
}

func TestFindNothing(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"kind: ConfigMap\nmetadata: {name: x}\ndata: {config.yaml: x}\n": "m.yaml: no configuration in it",
		"a: [": "m.yaml: line 1: invalid YAML",
		"data:\n  10-a.toml: |\n\tdomain = \"example.com\"\n": "m.yaml: line 2: invalid YAML: found a tab character where an indentation space is expected",
		"data:\n  10-a.toml: >\n    a\n":                      `m.yaml: line 2: 10-a.toml is a folded block, which joins its lines: write "10-a.toml: |"`,
	} {
		if _, err := manifest.Find("m.yaml", []byte(text)); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
}

// A problem of a file has its line in the manifest if the text has the same lines there.
func TestLines(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ name, text, want string }{
		{"a literal text", "data:\n  a.toml: |\n    # a\n    b = 2\n", "m.yaml:4:1: "},
		{"a literal text that begins with an empty line", "data:\n  a.toml: |\n\n    b = 2\n", "m.yaml:4:1: "},
		{"a literal text in a literal text", "values: |\n  config:\n    a.toml: |\n      # a\n      b = 2\n", "m.yaml:5:1: "},
		{"a quoted text", "data:\n  a.toml: \"# a\\nb = 2\"\n", "a.toml:2:1: "},
	} {
		found, err := manifest.Find("m.yaml", []byte(test.text))
		if err != nil {
			t.Errorf("%s: %v", test.name, err)
			continue
		}
		_, err = config.Parse(found[0].Files...)
		if err == nil || !strings.HasPrefix(err.Error(), test.want) {
			t.Errorf("%s: %v, want %s", test.name, err, test.want)
		}
	}
}
