//go:build adversary

package adversary

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// test/PROMISES.md names existing tests only, and every test of this package.
func TestPromises(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../PROMISES.md")
	if err != nil {
		t.Fatal(err)
	}
	var tests strings.Builder
	err = filepath.WalkDir("../..", func(path string, d fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		tests.Write(text)
		if own := filepath.Dir(path) == "../../test/adversary"; own {
			for _, m := range regexp.MustCompile(`func (Test\w+)\(t `).FindAllSubmatch(text, -1) {
				if name := string(m[1]); name != t.Name() && !strings.Contains(string(page), "`"+name+"`") {
					t.Errorf("test/PROMISES.md does not name %s", name)
				}
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range regexp.MustCompile("`Test\\w+`").FindAllString(string(page), -1) {
		if name = strings.Trim(name, "`"); !strings.Contains(tests.String(), "func "+name+"(t ") {
			t.Errorf("test/PROMISES.md names %s, which no _test.go file has", name)
		}
	}
}
