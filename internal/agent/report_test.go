package agent

import (
	"log/slog"
	"testing"
)

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
