package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
	"github.com/spf13/pflag"

	"github.com/generic-dp/generic-dp/config"
	"github.com/generic-dp/generic-dp/machine"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"generic-dp": main})
}

// TestScripts runs the command line. The script command "machine" unpacks a recorded
// machine to $WORK/machine.
func TestScripts(t *testing.T) {
	t.Parallel()
	machines, err := filepath.Abs("../../testdata/machines")
	if err != nil {
		t.Fatal(err)
	}
	examples, err := filepath.Abs("../../examples/configs")
	if err != nil {
		t.Fatal(err)
	}
	testscript.Run(t, testscript.Params{
		Dir: "testdata",
		Setup: func(e *testscript.Env) error {
			// Socket paths have at most 107 bytes.
			e.Setenv("TMPDIR", os.TempDir())
			e.Setenv("EXAMPLES", examples)
			e.Setenv("MACHINES", machines)
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"machine": func(ts *testscript.TestScript, _ bool, args []string) {
				archive, err := os.ReadFile(filepath.Join(machines, args[0]+".txtar"))
				ts.Check(err)
				ts.Check(machine.Unpack(ts.MkAbs("machine"), archive))
			},
		},
	})
}

// Every example is a valid configuration.
func TestExamples(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("../../examples/configs/*.toml")
	if err != nil || len(files) == 0 {
		t.Fatalf("examples: %v, %v", files, err)
	}
	for _, file := range files {
		if _, err := config.Load(file); err != nil {
			t.Errorf("%s: %v", file, err)
		}
	}
}

// The README has every flag with its default and its usage text.
func TestReadmeDocumentsFlags(t *testing.T) {
	t.Parallel()
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	newFlags().all.VisitAll(func(f *pflag.Flag) {
		usage, byDefault, special := strings.Cut(strings.TrimSuffix(f.Usage, ")"), " (default ")
		if !special {
			byDefault = strings.ToLower(f.DefValue)
		}
		if want := fmt.Sprintf("\n| `--%s` | `%s` | %s", f.Name, byDefault, usage); !strings.Contains(string(readme), want) {
			t.Errorf("README.md lacks %q", want)
		}
	})
}
