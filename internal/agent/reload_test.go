package agent_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/generic-dp/generic-dp/config"
	"github.com/generic-dp/generic-dp/internal/agent"
	"github.com/generic-dp/generic-dp/internal/testing/sysfstest"
)

// messages describes what the kubelet has received of a resource.
func (n *node) messages(resource string) string {
	_, lists := n.kubelet.Latest(resource)
	return fmt.Sprint(lists, " lists, sockets ", n.kubelet.Connected(resource), ", registrations ", n.kubelet.Registrations(resource))
}

// A new configuration may refer to another directory, whose manually made nodes only
// inotify announces.
func TestReloadWatchesOtherDirectories(t *testing.T) {
	t.Parallel()
	n := newNode(t, parts("r"))
	n.addNodes("r-a", "by-hand/s-a")
	n.serve()
	n.untilListed("example.com/r", []string{"r-a"}, nil)
	n.configure(parts("r") + "[[resource]]\nname = \"s\"\nmatch.glob = \"/dev/by-hand/*\"\n")
	n.untilListed("example.com/s", []string{"by-hand:s-a"}, nil)
	n.addNodes("by-hand/s-b")
	n.untilListed("example.com/s", []string{"by-hand:s-a", "by-hand:s-b"}, nil)
}

// A configuration is the first to use network interfaces, which were not scanned before:
// no event triggers a scan.
func TestReloadScansInterfaces(t *testing.T) {
	t.Parallel()
	n := newNode(t, parts("r"))
	n.addNodes("r-a")
	card := n.host.AddPCI(sysfstest.PCI{Address: "0000:03:00.0", Vendor: "8086", Device: "1533", Class: "020000", Driver: "igb"})
	n.host.AddNet(card, sysfstest.Net{Name: "eth1"})
	n.serve()
	n.untilListed("example.com/r", []string{"r-a"}, nil)
	net := `[[resource]]
name = "net"
match.net.name = "eth*"
container.env.NAME = "${net.name}"
container.path = "/dev/x/"
`
	n.configure(parts("r") + net)
	n.untilListed("example.com/net", []string{"0000:03:00.0"}, nil)
	n.configure(parts("r"))
	n.untilAllocatable("example.com/net", 0)
	n.configure(parts("r") + net)
	n.untilListed("example.com/net", []string{"0000:03:00.0"}, nil)
}

// A broken file changes nothing and is logged once with each problem; so is its
// replacement.
func TestBrokenEditChangesNothing(t *testing.T) {
	t.Parallel()
	n := newNode(t, parts("r"))
	n.addNodes("r-a")
	a, _ := n.serve()
	n.untilListed("example.com/r", []string{"r-a"}, nil)
	first, before := a.Config(), n.messages("example.com/r")

	const broken = "domain = \"example.com\"\n[[resource]]\nnaem = \"r\"\ncount = 0\n"
	n.configure(broken)
	n.eventually("the problems", func() bool { return a.Config().Broken != nil })
	n.configure(broken + "# again\n")
	a.Reload()
	n.eventually("every problem in the log with its position, and again on request", func() bool {
		log := n.log.String()
		return strings.Count(log, `unknown key \"naem\"`) == 2 && strings.Count(log, "count") >= 2 && strings.Count(log, ".toml:3:1") == 2
	})
	if got := a.Config(); got.Hash != first.Hash || !got.Loaded.Equal(first.Loaded) || got.Broken == nil {
		t.Errorf("configuration %+v, want that of before and why it is not the one on disk", got)
	}
	if err := a.Ready(); err != nil {
		t.Errorf("not ready with the last good configuration: %v", err)
	}
	n.configure(parts("r"))
	n.eventually("order", func() bool { return a.Config().Broken == nil })
	if !strings.Contains(n.log.String(), "valid again") {
		t.Error("the log does not say that the configuration is valid again")
	}
	n.configure(parts("r")) // touched
	a.Reload()
	n.untilLogged("has not changed")
	if got := n.messages("example.com/r"); got != before {
		t.Errorf("the kubelet got %s, want %s", got, before)
	}
}

// A resource that never had a device ends at once, and may return at any time: two
// sockets of one name never exist at once.
func TestResourceEndsAndComesBack(t *testing.T) {
	t.Parallel()
	const always = "example.com/always"
	n := newNode(t, parts("always register = \"always\"", "stays"))
	n.addNodes("stays-a")
	a, _ := n.serve()
	for i := range 20 {
		n.until("registration", func() bool { return n.kubelet.Registrations(always) == i+1 && len(n.kubelet.Connected(always)) == 1 })
		n.configure(parts("stays"))
		a.Reload()
		if i%2 == 0 {
			n.until("its end", func() bool { return len(n.kubelet.Connected(always)) == 0 })
		} else { // it is wanted again before the kubelet has released it
			n.eventually("the new configuration", func() bool { return strings.Count(n.log.String(), "no longer offered") == i+1 })
		}
		n.configure(parts("always register = \"always\"", "stays"))
		a.Reload()
	}
	n.until("registration", func() bool { return len(n.kubelet.Connected(always)) == 1 })
}

// A spec that can't be written makes only the devices Unhealthy that its file lacks.
func TestOneCDISpecThatCannotBeWritten(t *testing.T) {
	t.Parallel()
	n := newNode(t, parts("r container.cdi = true", "s container.cdi = true"))
	n.addNodes("r-a", "s-a")
	must(t, os.MkdirAll(filepath.Join(n.specFile("example.com/s"), "full"), 0o700))
	n.serve()
	n.untilListed("example.com/r", []string{"r-a"}, nil)
	n.untilListed("example.com/s", nil, []string{"s-a"})
	// Now the temporary file of r: what the file has stays Healthy.
	must(t, os.MkdirAll(filepath.Join(n.specFile("example.com/r")+".tmp", "full"), 0o700))
	n.addNodes("r-b")
	n.untilListed("example.com/r", []string{"r-a"}, []string{"r-b"})
}

// A configuration that the program did not survive three times is tried again after ten minutes. That it is
// tried on request is a test of killed programs.
func TestTriedAgain(t *testing.T) {
	t.Parallel()
	n := newNode(t, parts("r"))
	n.addNodes("r-a")
	_, stop := n.serve()
	n.untilListed("example.com/r", []string{"r-a"}, nil)
	stop()
	text := parts("r count = 2")
	n.configure(text)
	hash := config.Hash([]config.File{{Name: "config.toml", Data: []byte(text)}})
	lastTry := time.Now().Add(5*time.Second - 10*time.Minute)
	mark := fmt.Sprintf(`{"hash":%q,"tries":3,"last":%q}`, hash, lastTry.Format(time.RFC3339Nano))
	must(t, os.WriteFile(filepath.Join(n.options.Paths.StateDir, "config-trial.json"), []byte(mark), 0o600))
	a, _ := n.serve()
	n.until("the second registration", func() bool { return n.kubelet.Registrations("example.com/r") == 2 })
	if !strings.Contains(n.log.String(), "(3 times)") {
		t.Error("the log does not say why another configuration is served")
	}
	n.untilListed("example.com/r", []string{"r-a", "r-a::1"}, nil)
	if err := a.Config().Broken; err != nil {
		t.Errorf("broken: %v", err)
	}
}

// Without a writable state directory only the state is lost: that is logged once, and a
// problem while it lasts.
func TestUnwritableStateDirectory(t *testing.T) {
	t.Parallel()
	n := newNode(t, parts("r"))
	n.addNodes("r-a")
	file := filepath.Join(t.TempDir(), "file")
	must(t, os.WriteFile(file, nil, 0o600))
	n.options.Paths.StateDir = filepath.Join(file, "state")
	a, _ := n.serve()
	n.untilListed("example.com/r", []string{"r-a"}, nil)
	n.addNodes("r-b")
	n.untilListed("example.com/r", []string{"r-a", "r-b"}, nil)
	subjects := func() string {
		var list []string
		for _, p := range a.Status(t.Context()).Problems {
			list = append(list, p.Subject)
		}
		return strings.Join(list, ", ")
	}
	n.eventually("both problems", func() bool { return subjects() == "last good configuration, state" })
	if got := strings.Count(n.log.String(), "level=WARN"); got != 2 {
		t.Errorf("%d warnings, want one for each", got)
	}
	n.configure(parts("r count = 2"))
	n.untilListed("example.com/r", []string{"r-a", "r-a::1", "r-b", "r-b::1"}, nil)
	if log := n.log.String(); strings.Contains(log, `hint=""`) || strings.Contains(log, "--state-dir: --state-dir") {
		t.Errorf("want a hint, and the flag once:\n%s", log)
	}
	must(t, os.Remove(file))
	n.addNodes("r-c")
	n.eventually("the end of the problems", func() bool { return subjects() == "" })
	if _, err := os.Stat(filepath.Join(n.options.Paths.StateDir, "last-good-config.json")); err != nil {
		t.Error(err)
	}
}

// An instance that ends before it serves has not died of its configuration.
func TestExitBeforeServing(t *testing.T) {
	t.Parallel()
	n := newNode(t, parts("r"))
	n.addNodes("r-0")
	const r = "example.com/r"
	_, stop := n.serve()
	n.untilListed(r, []string{"r-0"}, nil)
	stop()
	n.configure(parts("r count = 2"))
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for range 100 { // most of them end before the loop begins
		a, err := agent.New(n.options)
		must(t, err)
		must(t, a.Run(ended))
	}
	n.serve()
	n.untilListed(r, []string{"r-0", "r-0::1"}, nil)
}

// hangingLog blocks the record of a loaded configuration.
type hangingLog struct {
	slog.Handler
	reached, hang chan struct{}
}

func (h hangingLog) Handle(ctx context.Context, r slog.Record) error {
	if r.Message == "configuration loaded" {
		close(h.reached)
		<-h.hang
	}
	return h.Handler.Handle(ctx, r)
}

func (h hangingLog) WithAttrs(attrs []slog.Attr) slog.Handler {
	h.Handler = h.Handler.WithAttrs(attrs)
	return h
}

// A pass that hangs ends the program with an error.
func TestStuckPass(t *testing.T) {
	t.Parallel()
	n := newNode(t, parts("r"))
	n.addNodes("r-a")
	log := hangingLog{n.options.Log.Handler(), make(chan struct{}), make(chan struct{})}
	n.options.Log = slog.New(log)
	a, err := agent.New(n.options)
	must(t, err)
	// Other passes of a busy machine may not take so long.
	a.SetStuckAfter(3 * time.Second)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- a.Run(ctx)
	}()
	n.untilListed("example.com/r", []string{"r-a"}, nil)
	n.configure(parts("r count = 2"))
	select {
	case err := <-ended:
		if err == nil || !strings.Contains(err.Error(), "stuck in one pass") {
			t.Errorf("Run: %v, want an error about the stuck pass", err)
		}
	case <-time.After(limit):
		t.Error("a loop that hangs in a reload does not end the program")
	}
	// The rest of the program must not write to the test's directories when it has ended.
	cancel()
	close(log.hang)
	n.eventually("the end", func() bool {
		return len(n.kubelet.Connected("example.com/r")) == 0
	})
}

// Every kind of edit is noticed.
func TestEditsAreNoticed(t *testing.T) {
	t.Parallel()
	write := func(t *testing.T, path, text string) {
		t.Helper()
		must(t, os.MkdirAll(filepath.Dir(path), 0o755))
		must(t, os.WriteFile(path, []byte(text), 0o600))
	}
	// mount makes a ConfigMap's next version as the kubelet does (k8s.io/kubernetes,
	// pkg/volume/util, AtomicWriter).
	mount := func(t *testing.T, dir, version, text string) {
		t.Helper()
		write(t, filepath.Join(dir, version, "config.toml"), text)
		old, _ := os.Readlink(filepath.Join(dir, "..data"))
		must(t, os.Symlink(version, filepath.Join(dir, "..data_tmp")))
		must(t, os.Rename(filepath.Join(dir, "..data_tmp"), filepath.Join(dir, "..data")))
		if old == "" {
			must(t, os.Symlink("..data/config.toml", filepath.Join(dir, "config.toml")))
		} else {
			must(t, os.RemoveAll(filepath.Join(dir, old)))
		}
	}
	for name, tc := range map[string]struct {
		config string // below the directory of the test
		first  func(t *testing.T, dir, text string)
		next   func(t *testing.T, dir, text string)
	}{
		"written in place": {
			config: "config.toml",
			first:  func(t *testing.T, dir, text string) { write(t, dir+"/config.toml", text) },
			next:   func(t *testing.T, dir, text string) { write(t, dir+"/config.toml", text) },
		},
		"a link on the way is swapped": {
			config: "config.toml",
			first: func(t *testing.T, dir, text string) {
				write(t, dir+"/a/real.toml", text)
				must(t, os.Mkdir(dir+"/way", 0o755))
				must(t, os.Symlink(dir+"/a", dir+"/way/link"))
				must(t, os.Symlink("way/link/real.toml", dir+"/config.toml"))
			},
			next: func(t *testing.T, dir, text string) {
				write(t, dir+"/b/real.toml", text)
				must(t, os.Symlink(dir+"/b", dir+"/way/new"))
				must(t, os.Rename(dir+"/way/new", dir+"/way/link"))
			},
		},
		"file in a ConfigMap": {
			config: "mount/config.toml",
			first:  func(t *testing.T, dir, text string) { mount(t, dir+"/mount", "..1", text) },
			next:   func(t *testing.T, dir, text string) { mount(t, dir+"/mount", "..2", text) },
		},
		"a file is added and one removed": {
			config: "conf.d",
			first:  func(t *testing.T, dir, text string) { write(t, dir+"/conf.d/first.toml", text) },
			next: func(t *testing.T, dir, text string) {
				write(t, dir+"/conf.d/.hidden.new", text)
				must(t, os.Rename(dir+"/conf.d/.hidden.new", dir+"/conf.d/second.toml"))
				must(t, os.Remove(dir+"/conf.d/first.toml"))
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t, "")
			n.addNodes("r-a")
			dir := t.TempDir()
			n.options.Config = filepath.Join(dir, tc.config)
			tc.first(t, dir, parts("r"))
			_, stop := n.serve()
			n.untilListed("example.com/r", []string{"r-a"}, nil)
			tc.next(t, dir, parts("r count = 2"))
			n.untilListed("example.com/r", []string{"r-a", "r-a::1"}, nil)
			if n := n.kubelet.Registrations("example.com/r"); n != 1 {
				t.Errorf("%d registrations, want 1", n)
			}
			if log := n.log.String(); strings.Contains(log, "level=ERROR") || strings.Count(log, "configuration loaded") != 1 {
				t.Error("want one new configuration and no problem in the log")
			}
			stop()
		})
	}
}
