package configuration_test

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/generic-dp/generic-dp/config"
	"github.com/generic-dp/generic-dp/internal/agent/configuration"
)

// node has a configuration and a state directory.
type node struct {
	testing.TB
	path     string
	stateDir string
}

func newNode(t *testing.T) *node {
	dir := t.TempDir()
	return &node{
		TB:       t,
		path:     filepath.Join(dir, "config.toml"),
		stateDir: filepath.Join(dir, "state"),
	}
}

// start reads the configuration, as a program does that begins. Without End, the program dies.
func (n *node) start() (*configuration.Reader, *config.Config) {
	n.Helper()
	r, cfg, err := configuration.New(configuration.Options{
		Path:     n.path,
		StateDir: n.stateDir,
		Owns:     true,
		Check:    func(files []config.File) (*config.Config, error) { return config.Parse(files...) },
		Hint:     func(err error) error { return err },
		Log:      slog.New(slog.DiscardHandler),
	})
	if err != nil {
		n.Fatal(err)
	}
	return r, cfg
}

func (n *node) write(text string) {
	n.Helper()
	if err := os.WriteFile(n.path, []byte(text), 0o600); err != nil {
		n.Fatal(err)
	}
}

// On a node without a last good configuration, a configuration that kills the program before its lists
// are published is tried three times. Then nothing is served until it is edited, or for ten minutes.
func TestDeadlyFirstConfiguration(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	// The mark is written beside the start. Without tries, it is removed.
	waitMark := func(tries int) {
		t.Helper()
		for deadline := time.Now().Add(20 * time.Second); ; runtime.Gosched() {
			text, err := os.ReadFile(filepath.Join(n.stateDir, "config-trial.json"))
			isMarked := strings.Contains(string(text), fmt.Sprintf(`"tries":%d`, tries))
			if isMarked || tries == 0 && errors.Is(err, fs.ErrNotExist) {
				return
			}
			if time.Now().After(deadline) {
				t.Fatalf("mark %q, want %d tries", text, tries)
			}
		}
	}
	const deadly = "[[resource]]\nname = \"example.com/x\"\nmatch.glob = \"/dev/x\"\n"
	n.write(deadly)
	for tries := range 3 {
		if _, cfg := n.start(); len(cfg.Resources) != 1 {
			t.Fatal("the configuration is not tried")
		}
		waitMark(tries + 1)
	}
	r, cfg := n.start()
	var suspect *configuration.SuspectError
	if len(cfg.Resources) != 0 || !errors.As(r.Last().Err, &suspect) {
		t.Errorf("the fourth start serves %d resources, with the error %v", len(cfg.Resources), r.Last().Err)
	}
	n.write(deadly + "# edited\n")
	r, cfg = n.start()
	if len(cfg.Resources) != 1 || r.Last().Err != nil {
		t.Errorf("after an edit, %d resources are served, with the error %v", len(cfg.Resources), r.Last().Err)
	}
	// Its lists are published: what kills the program from now on is not the configuration.
	waitMark(1)
	now := time.Now()
	r.Trial.Serve(r.Last(), now)
	r.Trial.Follow(now, true, false)
	waitMark(0)
	if err := r.Trial.End(false); err != nil {
		t.Error(err)
	}
}

// A configuration that was never matched in time does not become the last good one, however long it is
// served, and is not the first one tried at the next start.
func TestLateConfigurationIsNeverGood(t *testing.T) {
	t.Parallel()
	const good = "[[resource]]\nname = \"example.com/good\"\nmatch.glob = \"/dev/x\"\n"
	const slow = good + "[[resource]]\nname = \"example.com/slow\"\nmatch.glob = \"/dev/x\"\n"
	n := newNode(t)
	// serve serves what is on disk for an hour, and exits.
	serve := func(isLate bool) {
		t.Helper()
		r, _ := n.start()
		now := time.Unix(0, 0)
		r.Trial.Serve(r.Last(), now)
		r.Trial.Follow(now, true, isLate)
		r.Trial.Follow(now.Add(time.Hour), true, isLate)
		if err := r.Trial.End(true); err != nil {
			t.Fatal(err)
		}
	}
	n.write(good)
	serve(false)
	n.write(slow)
	serve(true)

	r, cfg := n.start()
	var suspect *configuration.SuspectError
	if !errors.As(r.Last().Err, &suspect) || len(cfg.Resources) != 1 {
		t.Errorf("the next start serves %d resources, with the error %v on disk; want the last good one", len(cfg.Resources), r.Last().Err)
	}
	// Matched in time at last, it is good.
	n.write(slow + "# edited\n")
	serve(true)
	n.write(slow + "# edited again\n")
	serve(false)
	r, cfg = n.start()
	if r.Last().Err != nil || len(cfg.Resources) != 2 {
		t.Errorf("the last start serves %d resources, with the error %v", len(cfg.Resources), r.Last().Err)
	}
}
