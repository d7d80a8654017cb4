package main

import (
	"context"
	"log"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/generic-dp/generic-dp/config"
	"github.com/generic-dp/generic-dp/internal/agent"
	"github.com/generic-dp/generic-dp/internal/host/recording"
	"github.com/generic-dp/generic-dp/internal/tools/plugin"
)

func TestMain(m *testing.M) {
	programs := map[string]func(){"generic-dp": main, pluginName: pluginMain, "kubectl": fakeKubectl}
	testscript.Main(builtProgram{m, os.Getenv("GENERIC_DP_SCRIPTS_BIN")}, programs)
}

// pluginName is the name of the plugin's file.
const pluginName = "kubectl-generic_dp"

// pluginMain is the plugin of kubectl, whose scripts and pages also need this program.
func pluginMain() {
	os.Exit(plugin.Run(context.Background(), version, os.Args[1:], os.Stdout, os.Stderr))
}

// builtProgram runs tests with a build of the program in place of the test binary, which has the
// race detector and the packages of all tests, and takes five times as long to start. Scripts
// and pages start hundreds of processes.
type builtProgram struct {
	tests testscript.TestingM
	// file is the built program, empty if there is none.
	file string
}

// Run implements testscript.TestingM. The plugin is beside the program.
func (p builtProgram) Run() int {
	if p.file == "" {
		return p.tests.Run()
	}
	dir, err := os.MkdirTemp("", "programs")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	for _, name := range []string{"generic-dp", pluginName} {
		built := filepath.Join(filepath.Dir(p.file), name)
		if err := os.Symlink(built, filepath.Join(dir, name)); err != nil {
			log.Fatal(err)
		}
	}
	if err := os.Setenv("PATH", dir+":"+os.Getenv("PATH")); err != nil {
		log.Fatal(err)
	}
	return p.tests.Run()
}

// TestScripts runs the command line. The script command "machine" unpacks a recorded
// machine to $WORK/machine.
func TestScripts(t *testing.T) {
	t.Parallel()
	machines, err := filepath.Abs("../../testdata/machines")
	must(t, err)
	examples, err := filepath.Abs("../../examples/configs")
	must(t, err)
	clusters, err := filepath.Abs("testdata/fleet")
	must(t, err)
	testscript.Run(t, testscript.Params{
		Dir:           "testdata",
		UpdateScripts: *update,
		Setup: func(e *testscript.Env) error {
			// Socket paths have at most 107 bytes.
			e.Setenv("TMPDIR", os.TempDir())
			e.Setenv("EXAMPLES", examples)
			e.Setenv("MACHINES", machines)
			e.Setenv("FLEET", clusters)
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"machine": func(ts *testscript.TestScript, _ bool, args []string) {
				archive, err := os.ReadFile(filepath.Join(machines, args[0]+".txtar"))
				ts.Check(err)
				ts.Check(recording.Unpack(ts.MkAbs("machine"), archive))
			},
		},
	})
}

func recordings(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob("../../testdata/machines/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("recorded machines: %v, %v", files, err)
	}
	return files
}

// command runs a command that must succeed, and returns its output.
func command(t *testing.T, args ...string) string {
	t.Helper()
	var out, stderr strings.Builder
	if code := run(t.Context(), args, &out, &stderr); code != 0 {
		t.Fatalf("%s: status %d: %s\n%s", strings.Join(args, " "), code, stderr.String(), out.String())
	}
	return out.String()
}

// recorded scans a recorded machine.
func recorded(t *testing.T, machine string) (*flags, *agent.View) {
	t.Helper()
	f := newFlags()
	f.paths.Sysfs = machine
	cmd, _, err := newRoot(f).Find([]string{"devices"})
	if err == nil {
		err = f.unpack(cmd)
	}
	must(t, err)
	t.Cleanup(func() {
		if err := os.RemoveAll(f.unpacked); err != nil {
			t.Error(err)
		}
	})
	must(t, f.all.Set("allow", "all"))
	view, err := f.scan(t.Context(), &config.Config{})
	must(t, err)
	return f, view
}

func place(t testing.TB, file, text string) {
	t.Helper()
	must(t, os.MkdirAll(filepath.Dir(file), 0o755))
	must(t, os.WriteFile(file, []byte(text), 0o600))
}

// must ends the test after an error of its own steps.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
