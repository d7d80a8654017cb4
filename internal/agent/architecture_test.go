package agent_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// reference is a function and the file that ARCHITECTURE.md names for it.
var reference = regexp.MustCompile("`([A-Za-z]+)` \\(`([a-z/_]+\\.go)`\\)")

// file is any Go file that the page names.
var file = regexp.MustCompile("`([a-z/_]+\\.go)`")

// The walks through the code and the folders of ARCHITECTURE.md are true.
func TestArchitecture(t *testing.T) {
	t.Parallel()
	const root = "../.."
	page, err := os.ReadFile(filepath.Join(root, "ARCHITECTURE.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range file.FindAllStringSubmatch(string(page), -1) {
		if _, err := os.Stat(filepath.Join(root, m[1])); err != nil {
			t.Errorf("the page names a file that does not exist: %v", err)
		}
	}
	references := reference.FindAllStringSubmatch(string(page), -1)
	if len(references) < 20 {
		t.Errorf("%d references to functions, want at least 20: has their form changed?", len(references))
	}
	for _, m := range references {
		function, path := m[1], m[2]
		source, err := os.ReadFile(filepath.Join(root, path))
		if err != nil {
			continue // reported above
		}
		declared := regexp.MustCompile(`(?m)^func (\([^)]*\) )?` + function + `[\[(]`)
		if !declared.Match(source) {
			t.Errorf("%s declares no function %s", path, function)
		}
	}
	for _, g := range groups {
		for _, folder := range g.folders {
			if strings.HasPrefix(folder, "internal/") && !strings.Contains(string(page), "`"+folder) {
				t.Errorf("the page does not name the folder %s", folder)
			}
		}
	}
}
