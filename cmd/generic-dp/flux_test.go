package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Flux may replace ${id} before the program sees it.
func TestFluxNotes(t *testing.T) {
	t.Parallel()
	const release = "apiVersion: helm.toolkit.fluxcd.io/v2\nkind: HelmRelease\n"
	for text, want := range map[string]string{
		release + "x: ${id}\n":                                     "${id} is replaced by Flux",
		release + "x: $${id}\n":                                    "$${id} is ${id} in the cluster",
		release + "x: $5\n":                                        "",
		release + "# " + fluxAnnotation + "\nx: ${id}\n":           "",
		"apiVersion: v1\nkind: ConfigMap\ndata: {a.toml: ${id}}\n": "",
	} {
		path := filepath.Join(t.TempDir(), "release.yaml")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		notes := ""
		for _, n := range fluxNotes(path) {
			notes += n.String()
		}
		if want == "" && notes != "" || !strings.Contains(notes, want) {
			t.Errorf("%q: notes %q; want %q", text, notes, want)
		}
	}
}
