package agent

import (
	"bytes"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"
)

// Of two instances with one run directory, each names the other one, and the later one says how long it has
// waited.
func TestInstancesNameEachOther(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	var firstLog, secondLog bytes.Buffer
	first := newPeers(Options{
		Paths:  Paths{RunDir: dir},
		Listen: "127.0.0.1:1",
		Log:    slog.New(slog.NewTextHandler(&firstLog, nil)),
	})
	second := newPeers(Options{
		Paths:  Paths{RunDir: dir},
		Listen: "127.0.0.1:2",
		Log:    slog.New(slog.NewTextHandler(&secondLog, nil)),
	})
	now := time.Now()
	lock, isHeld, err := takeLock(dir)
	if err != nil || !isHeld {
		t.Fatalf("lock: %t, %v", isHeld, err)
	}
	defer lock.Close()
	first.holds(lock, now)
	first.reportWaiting()
	if firstLog.Len() > 0 {
		t.Errorf("an instance that is alone logs %s", &firstLog)
	}
	if got := errServing(Paths{RunDir: dir}).Error(); !strings.Contains(got, fmt.Sprintf("PID %d on ", first.own.PID)) {
		t.Errorf("error %q lacks the PID", got)
	}

	second.waits(now)
	first.reportWaiting()
	first.reportWaiting() // logged once
	second.holds(lock, now.Add(90*time.Second))
	first.reportWaiting()
	for _, c := range []struct {
		log  *bytes.Buffer
		want []string
	}{
		{&firstLog, []string{"another instance uses the same run directory, and waits for this one to end", "listen=127.0.0.1:2"}},
		{&secondLog, []string{"waiting for it to end", "listen=127.0.0.1:1"}},
		{&secondLog, []string{"this instance writes links, specs and state now", "waited_seconds=90", "listen=127.0.0.1:1"}},
	} {
		pid := fmt.Sprintf("pid=%d", first.own.PID)
		found := 0
		for line := range strings.Lines(c.log.String()) {
			if !slices.ContainsFunc(append(c.want, pid), func(want string) bool { return !strings.Contains(line, want) }) {
				found++
			}
		}
		if found != 1 {
			t.Errorf("%d lines with %q and %s in\n%s", found, c.want, pid, c.log)
		}
	}
	if present(dir + "/" + waitingName) {
		t.Error("the file of the waiting instance stays")
	}
}

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
	want := fmt.Sprintf("uid 1000 cannot write %s/run/generic-dp (--run-dir), %s/state (--state-dir) and /proc/kubelet (--kubelet-dir)\n  hint: serve runs as root, ", dir, dir)
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
