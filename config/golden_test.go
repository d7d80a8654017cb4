package config_test

import (
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/generic-dp/generic-dp/config"
)

var update = flag.Bool("update", false, "write the golden error texts of testdata/bad")

// Every file or directory of testdata/bad is an invalid configuration, whose problems
// are in the golden file next to it.
func TestBad(t *testing.T) {
	t.Parallel()
	entries, err := os.ReadDir("testdata/bad")
	must(t, err)
	for _, e := range entries {
		if filepath.Ext(e.Name()) == ".txt" {
			continue
		}
		name := strings.TrimSuffix(e.Name(), ".toml")
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg, err := load(filepath.Join("testdata/bad", e.Name()))
			var problems config.Problems
			if cfg != nil || !errors.As(err, &problems) {
				t.Fatalf("Load() = %v, %v, want nil and Problems", cfg, err)
			}
			// Messages show the path as it was given.
			got := strings.ReplaceAll(err.Error(), "testdata/bad/", "") + "\n"
			golden := filepath.Join("testdata/bad", name+".txt")
			if *update {
				must(t, os.WriteFile(golden, []byte(got), 0o644))
				return
			}
			want, err := os.ReadFile(golden)
			must(t, err)
			equal(t, "error text", string(want), got)
		})
	}
}
