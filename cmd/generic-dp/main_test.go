package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/generic-dp/generic-dp/config"
	"github.com/generic-dp/generic-dp/machine"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"generic-dp": main})
}

// TestScripts runs the command as its users do. A script finds the recorded
// machine that it names with `machine` below $WORK/machine.
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
			// The path of a socket has at most 107 bytes.
			e.Setenv("TMPDIR", os.TempDir())
			e.Setenv("EXAMPLES", examples)
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

// Every example is in order, and speaks of no key that the language has not.
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

// The README names every flag with the words of the usage text.
func TestReadmeNamesEveryFlag(t *testing.T) {
	t.Parallel()
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	var usage strings.Builder
	if code := run(t.Context(), []string{"serve", "--help"}, &usage, &usage); code != 0 {
		t.Fatalf("serve --help: status %d", code)
	}
	for line := range strings.Lines(usage.String()) {
		fields := strings.Fields(line)
		if len(fields) == 0 || !strings.HasPrefix(fields[0], "--") {
			continue
		}
		if !strings.Contains(string(readme), "`"+fields[0]+"`") {
			t.Errorf("README.md does not name %s", fields[0])
		}
	}
}
