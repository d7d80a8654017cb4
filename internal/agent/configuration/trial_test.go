package configuration_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
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

// start reads the configuration, as a program does that begins. Without exit, the program dies.
func (n *node) start() (*configuration.Reader, configuration.Reading) {
	n.Helper()
	return n.read(true)
}

// exit ends a program that has served a reading for an hour.
func (n *node) exit(r *configuration.Reader, got configuration.Reading, isLate bool) {
	n.Helper()
	var trial configuration.Trial
	now := time.Unix(0, 0)
	trial.Serve(got)
	trial.Follow(now, isLate)
	trial.Follow(now.Add(time.Hour), isLate)
	if err := r.End(&trial); err != nil {
		n.Fatal(err)
	}
	r.Wait()
}

// serve serves what is on disk, and exits.
func (n *node) serve(isLate bool) {
	n.Helper()
	r, got := n.start()
	n.exit(r, got, isLate)
}

func (n *node) read(owns bool) (*configuration.Reader, configuration.Reading) {
	n.Helper()
	r, first, err := configuration.New(configuration.Options{
		Path:     n.path,
		StateDir: n.stateDir,
		Owns:     owns,
		Check:    func(files []config.File) (*config.Config, error) { return config.Parse(files...) },
		Log:      slog.New(slog.DiscardHandler),
	})
	if err != nil {
		n.Fatal(err)
	}
	return r, first
}

func (n *node) write(text string) {
	n.Helper()
	if err := os.WriteFile(n.path, []byte(text), 0o600); err != nil {
		n.Fatal(err)
	}
}

// untilMarked waits until the mark on disk has a number of tries.
func (n *node) untilMarked(tries int) {
	n.Helper()
	want := fmt.Sprintf(`"tries":%d`, tries)
	tick := time.NewTicker(5 * time.Millisecond) // the write is not awaited
	defer tick.Stop()
	for range 1000 {
		text, err := os.ReadFile(filepath.Join(n.stateDir, "config-trial.json"))
		if strings.Contains(string(text), want) || tries == 0 && errors.Is(err, fs.ErrNotExist) {
			return
		}
		<-tick.C
	}
	n.Fatalf("no mark with %d tries", tries)
}

// On a node without a last good configuration, a configuration that kills the program is tried three
// times. Then nothing is served until it is edited, or for ten minutes.
func TestDeadlyFirstConfiguration(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	const deadly = "[[resource]]\nname = \"example.com/x\"\nmatch.glob = \"/dev/x\"\n"
	n.write(deadly)
	for tries := range 3 {
		_, got := n.start()
		if len(got.Config.Resources) != 1 {
			t.Fatal("the configuration is not tried")
		}
		n.untilMarked(tries + 1)
	}
	_, got := n.start()
	if len(got.Config.Resources) != 0 || got.Until.IsZero() {
		t.Errorf("the fourth start serves %d resources, with the error %v", len(got.Config.Resources), got.Err)
	}
	n.write(deadly + "# edited\n")
	r, got := n.start()
	if len(got.Config.Resources) != 1 || got.Err != nil {
		t.Errorf("after an edit, %d resources are served, with the error %v", len(got.Config.Resources), got.Err)
	}
	n.untilMarked(1)
	// Once its lists are published, power failures do not count.
	var trial configuration.Trial
	trial.Serve(got)
	now := time.Unix(0, 0)
	good, _ := trial.Follow(now, false)
	if err := r.Keep(good); err != nil {
		t.Fatal(err)
	}
	for range 5 {
		n.untilMarked(0)
		_, got = n.start()
		if len(got.Config.Resources) != 1 {
			t.Fatal("nothing is served after power failures")
		}
	}
}

// An instance that waits for another one neither counts its configuration nor changes the count of the
// other one. When it takes over, it finds that the other one did not survive the same configuration.
func TestTakeover(t *testing.T) {
	t.Parallel()
	const good = "[[resource]]\nname = \"example.com/good\"\nmatch.glob = \"/dev/x\"\n"
	const deadly = good + "[[resource]]\nname = \"example.com/deadly\"\nmatch.glob = \"/dev/x\"\n"
	n := newNode(t)
	n.write(good)
	n.serve(false)
	markPath := filepath.Join(n.stateDir, "config-trial.json")
	n.write(deadly)
	for tries := range 4 {
		waiting, _ := n.read(false)
		if text, _ := os.ReadFile(markPath); tries == 0 && len(text) > 0 {
			t.Errorf("before the takeover, the mark is %s", text)
		}
		got := waiting.Own()
		isTried := got.Err == nil && len(got.Config.Resources) == 2
		isRefused := !got.Until.IsZero() && len(got.Config.Resources) == 1
		if tries < 3 && !isTried || tries == 3 && !isRefused {
			t.Fatalf("after %d tries, %d resources are served, with the error %v", tries, len(got.Config.Resources), got.Err)
		}
	}
}

// A configuration that was never matched in time does not become the last good one, however long it is
// served, and is not tried again after three starts.
func TestLateConfigurationIsNeverGood(t *testing.T) {
	t.Parallel()
	const good = "[[resource]]\nname = \"example.com/good\"\nmatch.glob = \"/dev/x\"\n"
	const slow = good + "[[resource]]\nname = \"example.com/slow\"\nmatch.glob = \"/dev/x\"\n"
	n := newNode(t)
	n.write(good)
	n.serve(false)
	n.write(slow)
	for range 3 {
		n.serve(true)
	}

	_, got := n.start()
	if got.Until.IsZero() || len(got.Config.Resources) != 1 {
		t.Errorf("the next start serves %d resources, with the error %v on disk; want the last good one", len(got.Config.Resources), got.Err)
	}
	// Matched in time at last, it is good.
	n.write(slow + "# edited\n")
	n.serve(true)
	n.write(slow + "# edited again\n")
	n.serve(false)
	_, got = n.start()
	if got.Err != nil || len(got.Config.Resources) != 2 {
		t.Errorf("the last start serves %d resources, with the error %v", len(got.Config.Resources), got.Err)
	}
}

// Only a death counts as a failed try: normal exits before the lists are published are none, and neither is a
// text that comes back after broken edits.
func TestNormalExits(t *testing.T) {
	t.Parallel()
	const good = "[[resource]]\nname = \"example.com/good\"\nmatch.glob = \"/dev/x\"\n"
	const next = good + "[[resource]]\nname = \"example.com/next\"\nmatch.glob = \"/dev/x\"\n"
	n := newNode(t)
	n.write(good)
	n.serve(false)
	for i := range 4 {
		n.write(next)
		r, got := n.start()
		if got.Err != nil {
			t.Fatalf("after %d normal exits: %v", i, got.Err)
		}
		ctx, exit := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- r.Run(ctx) }()
		for _, text := range []string{"broken", next, "broken", next, "broken", next} {
			n.write(text)
			r.Request()
			<-r.Readings()
		}
		exit()
		if err := <-ended; err != nil {
			t.Fatal(err)
		}
		if err := r.End(&configuration.Trial{}); err != nil {
			t.Fatal(err)
		}
		r.Wait()
	}
}

// A suspect configuration is tried again after ten minutes, whatever the clock was at its last try.
func TestClockSetBack(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.write("[[resource]]\nname = \"example.com/deadly\"\nmatch.glob = \"/dev/x\"\n")
	_, got := n.start()
	n.untilMarked(1)
	hash := got.Config.Hash
	later := time.Now().Add(24 * time.Hour).Format(time.RFC3339)
	mark := fmt.Sprintf(`{"hash":%q,"tries":3,"last":%q}`, hash, later)
	if err := os.WriteFile(filepath.Join(n.stateDir, "config-trial.json"), []byte(mark), 0o600); err != nil {
		t.Fatal(err)
	}
	_, got = n.start()
	if latest := time.Now().Add(time.Hour); got.Until.IsZero() || got.Until.After(latest) {
		t.Errorf("it is tried again at %v, want a time before %v", got.Until, latest)
	}
}
