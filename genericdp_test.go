package genericdp_test

import (
	"context"
	"errors"
	"flag"
	"go/ast"
	"go/format"
	"go/parser"
	"go/token"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	genericdp "github.com/generic-dp/generic-dp"
	"github.com/generic-dp/generic-dp/internal/testing/kubelettest"
	"github.com/generic-dp/generic-dp/internal/testing/sysfstest"
)

var update = flag.Bool("update", false, "write testdata/api.golden")

// limit is the timeout of everything that a test waits for.
const limit = 20 * time.Second

// instance is an instance with a host and a kubelet of its own.
type instance struct {
	kubelet *kubelettest.Kubelet
	options genericdp.Options
	settled chan struct{}
	cancel  context.CancelFunc
	ended   chan error
}

// start starts an instance that offers /dev/NAME as RESOURCE.
func start(t *testing.T, resource, name string) *instance {
	t.Helper()
	host := sysfstest.New(t)
	host.AddNode("", sysfstest.Node{Name: name, Subsystem: "misc"})
	dir := kubelettest.TempDir(t)
	i := &instance{settled: make(chan struct{}), ended: make(chan error, 1)}
	o := genericdp.DefaultOptions()
	o.ConfigText = []byte("[[resource]]\nname = \"" + resource + "\"\nmatch.glob = \"/dev/" + name + "\"\n")
	o.Sysfs = host.Sysfs()
	o.Dev = host.Dev()
	o.Cgroup = ""
	o.KubeletDir = filepath.Join(dir, "kubelet")
	o.PodResources = filepath.Join(dir, "pods.sock")
	o.RunDir = filepath.Join(dir, "run")
	o.StateDir = filepath.Join(dir, "state")
	o.CDIDir = filepath.Join(dir, "cdi")
	o.Listen = ""
	o.Log = slog.New(slog.NewTextHandler(t.Output(), nil))
	o.Settled = func() { close(i.settled) }
	i.options = o
	i.kubelet = kubelettest.New(kubelettest.Options{Dir: o.KubeletDir, PodResources: o.PodResources})
	if err := i.kubelet.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(i.kubelet.Stop)
	ctx, cancel := context.WithCancel(context.Background())
	i.cancel = cancel
	go func() { i.ended <- genericdp.Run(ctx, o) }()
	return i
}

// stop ends the instance.
func (i *instance) stop(t *testing.T) {
	t.Helper()
	i.cancel()
	if err := <-i.ended; err != nil {
		t.Errorf("Run: %v", err)
	}
}

// await waits until the kubelet has n allocatable devices.
func (i *instance) await(t *testing.T, resource string, n int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	err := i.kubelet.WaitFor(ctx, func() bool { return i.kubelet.Count(resource).Allocatable == n })
	if err != nil {
		t.Fatalf("%s: %v", resource, err)
	}
}

// Two instances in one process serve their own devices to their own kubelets, and one ends without the
// other.
func TestTwoInstances(t *testing.T) {
	t.Parallel()
	a := start(t, "example.com/a", "a0")
	b := start(t, "example.com/b", "b0")
	a.await(t, "example.com/a", 1)
	b.await(t, "example.com/b", 1)
	<-a.settled
	<-b.settled
	if n := a.kubelet.Count("example.com/b").Capacity + b.kubelet.Count("example.com/a").Capacity; n != 0 {
		t.Errorf("%d devices of an instance are at the kubelet of the other", n)
	}
	a.stop(t)
	if _, err := b.kubelet.Allocate(t.Context(), "example.com/b", "b0"); err != nil {
		t.Errorf("Allocate after the end of the other instance: %v", err)
	}
	b.stop(t)
}

// A value of Reload reads the file again. A closed channel does nothing.
func TestReload(t *testing.T) {
	t.Parallel()
	reload := make(chan struct{})
	logged := make(chan string, 100)
	o := genericdp.DefaultOptions()
	dir := kubelettest.TempDir(t)
	host := sysfstest.New(t)
	o.Config = filepath.Join(dir, "config.toml")
	if err := os.WriteFile(o.Config, []byte("[[resource]]\nname = \"example.com/a\"\nmatch.glob = \"/dev/a*\"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	o.Sysfs = host.Sysfs()
	o.Dev = host.Dev()
	o.KubeletDir = filepath.Join(dir, "kubelet")
	o.RunDir = filepath.Join(dir, "run")
	o.StateDir = filepath.Join(dir, "state")
	o.CDIDir = filepath.Join(dir, "cdi")
	o.Listen = ""
	o.Reload = reload
	o.Log = slog.New(slog.NewTextHandler(lines(logged), nil))
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- genericdp.Run(ctx, o) }()
	reload <- struct{}{}
	deadline := time.After(limit)
	for found := false; !found; {
		select {
		case line := <-logged:
			found = strings.Contains(line, "configuration has not changed")
		case <-deadline:
			t.Fatal("the configuration was not read again")
		}
	}
	close(reload)
	cancel()
	if err := <-ended; err != nil {
		t.Errorf("Run: %v", err)
	}
}

// lines is a writer that sends lines, and drops them when nobody reads.
type lines chan<- string

func (l lines) Write(p []byte) (int, error) {
	select {
	case l <- string(p):
	default:
	}
	return len(p), nil
}

// Options that cannot work are an error before anything is made.
func TestRunRefuses(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, tc := range []struct {
		name string
		edit func(*genericdp.Options)
		want string
	}{
		{"zero options", func(o *genericdp.Options) { *o = genericdp.Options{} }, "--config must not be empty"},
		{"a word of Allow", func(o *genericdp.Options) { o.Allow = []string{"hook"} }, `--allow: "hook"`},
		{"a privilege", func(o *genericdp.Options) {
			o.ConfigText = []byte("[[resource]]\nname = \"example.com/a\"\nmatch = { glob = \"/dev/a\", dangerous = true }\n")
		}, "dangerous in --allow"},
		{"a domain", func(o *genericdp.Options) { o.Domains = []string{"other.example"} }, "is not one of --domains"},
		{"no host", func(o *genericdp.Options) { o.Sysfs = "" }, "--sysfs must not be empty"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			o := genericdp.DefaultOptions()
			o.ConfigText = []byte("[[resource]]\nname = \"example.com/a\"\nmatch.glob = \"/dev/a\"\n")
			run := filepath.Join(dir, strings.ReplaceAll(tc.name, " ", "-"))
			o.KubeletDir = filepath.Join(run, "kubelet")
			o.RunDir = filepath.Join(run, "run")
			o.StateDir = filepath.Join(run, "state")
			o.CDIDir = filepath.Join(run, "cdi")
			o.Listen = ""
			tc.edit(&o)
			ctx, cancel := context.WithTimeout(t.Context(), limit)
			defer cancel()
			err := genericdp.Run(ctx, o)
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("Run: %v, want %q in it", err, tc.want)
			}
		})
	}
}

func TestCheck(t *testing.T) {
	t.Parallel()
	const valid = "domain = \"example.com\"\n[[resource]]\nname = \"a\"\nmatch.glob = \"/dev/a\"\n"
	if err := genericdp.Check([]byte(valid)); err != nil {
		t.Errorf("a valid text: %v", err)
	}
	const want = "config.toml:5:1: resource 1 (\"a\"): unknown key \"cuont\"\n  hint: did you mean \"count\"?"
	err := genericdp.Check([]byte(valid + "cuont = 2\n"))
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("%v, want %s", err, want)
	}
	if genericdp.Check([]byte("[[resource")) == nil {
		t.Error("a text that is not TOML has no problem")
	}
}

// The exported names are an API: CHANGELOG.md says what a change to them means. The golden file shows a
// change in review.
func TestAPI(t *testing.T) {
	t.Parallel()
	var text strings.Builder
	for _, name := range []string{"genericdp.go", "options.go"} {
		set := token.NewFileSet()
		file, err := parser.ParseFile(set, name, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		ast.FileExports(file)
		for _, d := range file.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				d.Body = nil
			case *ast.GenDecl:
				if d.Tok == token.IMPORT {
					continue
				}
			}
			if err := format.Node(&text, set, d); err != nil {
				t.Fatal(err)
			}
			text.WriteString("\n")
		}
	}
	// Empty lines stand for comments.
	lines := regexp.MustCompile(`\n\s*\n`).ReplaceAllString(text.String(), "\n")
	aligned, err := format.Source([]byte(lines))
	if err != nil {
		t.Fatal(err)
	}
	got := string(aligned)
	if *update {
		if err := os.WriteFile("testdata/api.golden", []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile("testdata/api.golden")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("the API differs from testdata/api.golden, see -update (-want +got):\n%s", diff)
	}
	entries, err := filepath.Glob("*.go")
	if err != nil || len(entries) != 4 {
		t.Errorf("the root package has the files %q, %v: the test reads two of them, and two are tests", entries, errors.Join(err))
	}
}

func TestVersion(t *testing.T) {
	t.Parallel()
	if v := genericdp.Version(); v == "" || genericdp.DefaultOptions().Version != v {
		t.Errorf("version %q", v)
	}
}
