package output_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/generic-dp/generic-dp/internal/device"
	"github.com/generic-dp/generic-dp/internal/output"
)

// A device whose outputs fail in every pass was lost in the first of them.
func TestHoldAfterFailures(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	now := time.Unix(1_000_000, 0)
	h := output.Health{
		Dir:   filepath.Join(dir, "health"),
		Local: func(host string) string { return host },
		Now:   func() time.Time { return now },
		Hold:  40 * time.Second,
	}
	h.Restore(nil, false)
	node := filepath.Join(dir, "ttyUSB0")
	must(t, os.WriteFile(node, nil, 0o600))
	offer := device.Offer{ID: dongle, HealthDir: "/run/device", Nodes: []device.OfferedNode{{HostPath: node}}}
	pass := func(after time.Duration, fails bool) {
		t.Helper()
		now = now.Add(after)
		devices := []output.Device{{Offer: &offer, Present: true, Works: !fails}}
		_, err := h.Withdraw(devices, func(string) bool { return true })
		must(t, err)
		must(t, h.Show())
		isShown := false
		if _, err := os.Stat(filepath.Join(h.Dir, dongle, "healthy")); err == nil {
			isShown = true
		}
		if isShown == fails {
			t.Errorf("%v later: shown %t, although it fails: %t", after, isShown, fails)
		}
	}
	pass(0, false)
	pass(time.Second, true)
	pass(30*time.Second, true)
	pass(11*time.Second, false)
}
