package agent

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"
)

// Without root, the error names everything that is missing.
func TestNotRoot(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	p := Paths{
		RunDir:     dir + "/run/generic-dp",
		StateDir:   dir + "/state",
		KubeletDir: "/proc/kubelet",
		CDIDir:     "",
	}
	isWritable := func(path string) bool { return path != dir }
	lacking := p.lacking(func(path string) bool { return isWritable(path) && path != "/proc" })
	got := errNotRoot(1000, lacking).Error()
	want := fmt.Sprintf("uid 1000 cannot write %s/run/generic-dp (--run-dir), %s/state (--state-dir), /proc/kubelet (--kubelet-dir)\n  hint: serve runs as root, ", dir, dir)
	if !strings.HasPrefix(got, want) {
		t.Errorf("error %q, want %q", got, want)
	}
	if all := p.lacking(func(string) bool { return true }); len(all) != 0 {
		t.Errorf("with writable directories: %q", all)
	}
}

// A device that pods cannot use is a warning, unless that was requested or ends within milliseconds.
func TestLevelOfUnhealthy(t *testing.T) {
	t.Parallel()
	for reason, want := range map[string]slog.Level{
		"device is gone":        slog.LevelWarn,
		"/dev/sda is read-only": slog.LevelWarn,
		"settling":              slog.LevelInfo,
		"health check pending":  slog.LevelDebug,
		"resource was removed from the configuration": slog.LevelInfo,
	} {
		if got := levelOf(reason); got != want {
			t.Errorf("level of %q is %s, want %s", reason, got, want)
		}
	}
}
