package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/generic-dp/generic-dp/internal/testing/kubelettest"
	"github.com/generic-dp/generic-dp/test/e2e/vm/wire"
)

const (
	pluginDir    = "/var/lib/kubelet/device-plugins"
	podResources = "/var/lib/kubelet/pod-resources/kubelet.sock"
)

// callLimit is the timeout of calls to the program under test.
const callLimit = 20 * time.Second

// Guest is the service that the test calls, from many goroutines.
type Guest struct {
	names *names

	mu      sync.Mutex
	program *program
	kubelet *kubelettest.Kubelet
	history *history
	cancel  context.CancelFunc
}

// Ping returns at once.
func (g *Guest) Ping(wire.None, *wire.None) error { return nil }

// Load loads the modules of a set.
func (g *Guest) Load(set string, _ *wire.None) error { return loadModules("/modules/" + set) }

// Serve starts the program under test, and a kubelet for it unless one is kept.
func (g *Guest) Serve(s wire.Serve, _ *wire.None) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.program != nil {
		return errors.New("the program runs already")
	}
	if !s.Keep {
		g.endKubelet()
		for _, dir := range []string{"/run/generic-dp", "/var/lib/generic-dp", "/run/cdi", pluginDir, logFile} {
			if err := os.RemoveAll(dir); err != nil {
				return err
			}
		}
	}
	// The DaemonSet's host paths are made by the kubelet.
	for _, dir := range []string{"/run/generic-dp", "/var/lib/generic-dp", "/run/cdi"} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	if g.kubelet == nil {
		g.kubelet = kubelettest.New(kubelettest.Options{Dir: pluginDir, PodResources: podResources})
		if err := g.kubelet.Start(); err != nil {
			return err
		}
		ctx, cancel := context.WithCancel(context.Background())
		g.history, g.cancel = newHistory(g.kubelet), cancel
		go g.history.run(ctx)
	}
	var err error
	g.program, err = startProgram(s.Config)
	return err
}

func (g *Guest) endKubelet() {
	if g.kubelet != nil {
		g.cancel()
		g.kubelet.Stop()
		g.kubelet = nil
	}
}

// Stop ends the program under test with a signal, gracefully with SIGTERM.
func (g *Guest) Stop(sig syscall.Signal, _ *wire.None) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.program == nil {
		return nil
	}
	state, err := g.program.stop(sig)
	g.program = nil
	if err == nil && sig == syscall.SIGTERM && !state.Success() {
		err = fmt.Errorf("the program ended with %v", state)
	}
	return err
}

// Log returns the log of the program under test.
func (g *Guest) Log(_ wire.None, text *string) error {
	b, err := os.ReadFile(logFile)
	*text = string(b)
	return err
}

// Run runs another process of the program under test.
func (g *Guest) Run(r wire.Run, out *wire.Output) error {
	ctx, cancel := context.WithTimeout(context.Background(), callLimit)
	defer cancel()
	cmd := exec.CommandContext(ctx, "/proc/self/exe", append([]string{"confine", underTest}, r.Args...)...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	*out = wire.Output{Stdout: stdout.String(), Stderr: stderr.String()}
	if err != nil {
		return fmt.Errorf("%s: %w: %s", strings.Join(r.Args, " "), err, stderr.String())
	}
	return nil
}

// State returns /status.json. net/http would double the size of this program.
func (g *Guest) State(_ wire.None, state *string) error {
	conn, err := net.Dial("tcp", "127.0.0.1:9418")
	if err != nil {
		return err
	}
	defer conn.Close()
	if _, err := fmt.Fprint(conn, "GET /status.json HTTP/1.0\r\nHost: localhost\r\n\r\n"); err != nil {
		return err
	}
	answer, err := io.ReadAll(conn)
	if err != nil {
		return err
	}
	head, body, ok := strings.Cut(string(answer), "\r\n\r\n")
	if !ok || !strings.Contains(head, " 200 ") {
		return fmt.Errorf("/status.json answers %q", head)
	}
	*state = body
	return nil
}

// Usage returns the resource usage of the program under test.
func (g *Guest) Usage(_ wire.None, u *wire.Usage) error {
	g.mu.Lock()
	p := g.program
	g.mu.Unlock()
	if p == nil {
		return errors.New("the program does not run")
	}
	var err error
	*u, err = p.usage()
	return err
}

// Wait waits for a list.
func (g *Guest) Wait(w wire.Want, got *wire.Got) error {
	var err error
	got.List, err = g.lists().wait(w)
	if err != nil || !w.Allocate {
		return err
	}
	return g.Allocate(wire.Allocate{Resource: w.Resource, IDs: w.Healthy}, &got.Answer)
}

// Lists returns all lists of a resource, oldest first.
func (g *Guest) Lists(resource string, lists *[]wire.List) error {
	*lists, _ = g.lists().of(resource)
	return nil
}

func (g *Guest) lists() *history {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.history
}

// Allocate calls the plugin, and resolves the nodes of the response.
func (g *Guest) Allocate(a wire.Allocate, answer *wire.Answer) error {
	ctx, cancel := context.WithTimeout(context.Background(), callLimit)
	defer cancel()
	g.mu.Lock()
	kubelet := g.kubelet
	g.mu.Unlock()
	resp, err := kubelet.Allocate(ctx, a.Resource, a.IDs...)
	if err != nil {
		return err
	}
	if len(resp.GetContainerResponses()) != 1 {
		return fmt.Errorf("%q: the response is for %d containers, want 1", a.Resource, len(resp.GetContainerResponses()))
	}
	if a.Pod != "" {
		kubelet.Hold(kubelettest.Request{Namespace: "default", Pod: a.Pod, Container: "main", Resource: a.Resource}, a.IDs...)
	}
	c := resp.GetContainerResponses()[0]
	answer.Env = c.GetEnvs()
	for _, d := range c.GetDevices() {
		n, err := resolve(d)
		if err != nil {
			return err
		}
		answer.Nodes = append(answer.Nodes, n)
	}
	slices.SortFunc(answer.Nodes, func(a, b wire.Node) int { return cmp.Compare(a.Container, b.Container) })
	return nil
}

// resolve resolves a node like a container runtime.
func resolve(d *v1beta1.DeviceSpec) (wire.Node, error) {
	n := wire.Node{Container: d.GetContainerPath(), Host: d.GetHostPath(), Permissions: d.GetPermissions()}
	var err error
	if n.Path, err = filepath.EvalSymlinks(n.Host); err != nil {
		return n, err
	}
	var st unix.Stat_t
	if err := unix.Stat(n.Path, &st); err != nil {
		return n, fmt.Errorf("%s: %w", n.Path, err)
	}
	if kind := st.Mode & unix.S_IFMT; kind != unix.S_IFCHR && kind != unix.S_IFBLK {
		return n, fmt.Errorf("%s is no device node", n.Path)
	}
	n.Number = fmt.Sprintf("%d:%d", unix.Major(st.Rdev), unix.Minor(st.Rdev))
	return n, nil
}

// Links returns the links that follow devices.
func (g *Guest) Links(_ wire.None, links *map[string]wire.Link) error {
	*links = readLinks()
	return nil
}

// Appeared returns when a name appeared in /dev.
func (g *Guest) Appeared(a wire.Appeared, at *time.Time) error {
	var err error
	*at, err = g.names.take(a.Name)
	return err
}

// Files waits for names, and returns the existing ones.
func (g *Guest) Files(f wire.Files, have *[]string) error {
	return poll(f.Within, func() error {
		found, err := filepath.Glob(f.Glob)
		if err != nil {
			return err
		}
		*have = []string{}
		for _, path := range found {
			*have = append(*have, filepath.Base(path))
		}
		if f.Within == 0 || slices.Equal(*have, f.Want) {
			return nil
		}
		return fmt.Errorf("%s: not %q within %v: %q", f.Glob, f.Want, f.Within, *have)
	})
}

// Write writes to a file of sysfs.
func (g *Guest) Write(w wire.Write, _ *wire.None) error {
	f, err := os.OpenFile(w.Path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(w.Text)
	return errors.Join(err, f.Close())
}
