// Package product runs the program under test like its users do: a process with a
// configuration file and flags.
package product

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/generic-dp/generic-dp/test/e2e/process"
)

// binEnv names the program under test, by default bin/generic-dp of the repository.
const binEnv = "GENERIC_DP_BIN"

// Repository returns the absolute path of a file of the repository.
func Repository(elem ...string) string {
	_, file, _, _ := runtime.Caller(0)
	return filepath.Join(append([]string{filepath.Dir(file), "../../.."}, elem...)...)
}

// Binary returns the absolute path of the program under test.
func Binary(t testing.TB) string {
	t.Helper()
	path := os.Getenv(binEnv)
	if path == "" {
		path = Repository("bin", "generic-dp")
	}
	path, err := filepath.Abs(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); err != nil {
		t.Fatalf("no program to test: %v: run make build, or set %s", err, binEnv)
	}
	return path
}

// Spec is how to run the plugin.
type Spec struct {
	// Config is the text of the configuration file.
	Config string
	// Args are additional flags, after the default ones; the last occurrence of a flag
	// counts.
	Args []string
	// Env is added to the environment.
	Env []string
	// Dir is the plugin's directory, by default a new one. A second plugin in it finds
	// the state of the first.
	Dir string
	// Name is the name of its log, by default "plugin". Two plugins of a test need
	// different names.
	Name string

	// LogDir and Start are set by the environment of the plugin.
	LogDir string
	Start  func(*exec.Cmd) error
}

// Plugin is a running plugin.
type Plugin struct {
	*process.Process
	// Dir is the directory of its files.
	Dir  string
	spec Spec
}

// Start starts the plugin, without waiting.
func Start(t testing.TB, s Spec) *Plugin {
	t.Helper()
	if s.LogDir == "" {
		s.LogDir = process.LogDir(t)
	}
	if s.Dir == "" {
		s.Dir = t.TempDir()
	}
	if s.Name == "" {
		s.Name = "plugin"
	}
	p := &Plugin{Dir: s.Dir, spec: s}
	p.Configure(t, s.Config)
	p.start(t)
	return p
}

func (p *Plugin) start(t testing.TB) {
	t.Helper()
	argv := []string{
		Binary(t), "serve",
		"--config", p.ConfigFile(),
		"--run-dir", p.RunDir(),
		"--state-dir", p.StateDir(),
		"--cdi-dir", p.CDIDir(),
		"--listen", "",
	}
	p.Process = process.Start(t, process.Spec{
		Name:   p.spec.Name,
		Argv:   append(argv, p.spec.Args...),
		Env:    p.spec.Env,
		LogDir: p.spec.LogDir,
		Start:  p.spec.Start,
	})
}

// Stop ends the plugin with SIGTERM, like an upgrade: it saves its state and succeeds.
func (p *Plugin) Stop(t testing.TB) {
	t.Helper()
	if code := p.Process.Stop(t); code != 0 {
		t.Errorf("%s: exit code %d after SIGTERM, want 0", p.spec.Name, code)
	}
}

// Restart kills the plugin, if it runs, and starts it again with its files.
func (p *Plugin) Restart(t testing.TB) {
	t.Helper()
	p.Kill()
	p.start(t)
}

// Configure replaces the configuration file atomically, like editors and ConfigMaps do.
// It does not wait for the plugin.
func (p *Plugin) Configure(t testing.TB, text string) {
	t.Helper()
	for _, dir := range []string{p.RunDir(), p.StateDir(), p.CDIDir()} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	next := p.ConfigFile() + ".next"
	if err := os.WriteFile(next, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(next, p.ConfigFile()); err != nil {
		t.Fatal(err)
	}
}

// Wipe removes the links and CDI specs from the directory of a plugin, like a reboot:
// they are in /run by default.
func Wipe(t testing.TB, dir string) {
	t.Helper()
	p := Plugin{Dir: dir}
	for _, d := range []string{p.RunDir(), p.CDIDir()} {
		entries, err := os.ReadDir(d)
		if err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
		for _, e := range entries {
			if err := os.RemoveAll(filepath.Join(d, e.Name())); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// ConfigFile is the configuration file.
func (p *Plugin) ConfigFile() string { return filepath.Join(p.Dir, "config.toml") }

// RunDir is the plugin's directory of links to devices.
func (p *Plugin) RunDir() string { return filepath.Join(p.Dir, "run") }

// StateDir is the plugin's state directory.
func (p *Plugin) StateDir() string { return filepath.Join(p.Dir, "state") }

// CDIDir is the plugin's directory of CDI specs.
func (p *Plugin) CDIDir() string { return filepath.Join(p.Dir, "cdi") }
