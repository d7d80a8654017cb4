package process

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// logsEnv names a directory that keeps the logs of all tests. Without it only failed
// tests show theirs.
const logsEnv = "GENERIC_DP_E2E_LOGS"

// tail is how much of each log a failing test shows.
const tail = 60

// LogDir returns a new directory for the log files of a test, whose ends are shown if
// the test fails. Call it before programs start, so that it is removed last.
func LogDir(t testing.TB) string {
	t.Helper()
	dir := t.TempDir()
	if root := os.Getenv(logsEnv); root != "" {
		name := regexp.MustCompile(`[^A-Za-z0-9_.-]+`).ReplaceAllString(t.Name(), "_")
		if err := os.MkdirAll(filepath.Join(root, name), 0o755); err != nil {
			t.Fatal(err)
		}
		// Repeated runs of a test keep separate logs.
		kept, err := os.MkdirTemp(filepath.Join(root, name), "")
		if err != nil {
			t.Fatal(err)
		}
		dir = kept
	}
	t.Cleanup(func() {
		if t.Failed() {
			show(t, dir)
		}
	})
	return dir
}

// show prints the end of each log.
func show(t testing.TB, dir string) {
	files, _ := filepath.Glob(filepath.Join(dir, "*.log"))
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Log(err)
			continue
		}
		lines := strings.Split(strings.TrimSpace(string(text)), "\n")
		skipped := max(0, len(lines)-tail)
		t.Logf("=== %s (%d lines before these)\n%s", filepath.Base(file), skipped, strings.Join(lines[skipped:], "\n"))
	}
}
