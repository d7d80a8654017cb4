//go:build adversary

// Package adversary attacks the built program through its listener, its configuration and
// the files that it reads, in a cgroup with the memory limit of the DaemonSet and with a fake
// kubelet. No attack ends the program, hangs it, or takes an unrelated resource away. See
// test/PROMISES.md.
package adversary

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/generic-dp/generic-dp/internal/testing/kubelettest"
	"github.com/generic-dp/generic-dp/internal/testing/sysfstest"
)

const (
	// good is a resource that no attack names.
	good       = "example.com/good"
	goodConfig = `
domain = "example.com"
[[resource]]
name = "good"
match.glob = "/dev/good"
`
	// answerTime bounds each response to the kubelet and to probes: the timeout of the
	// DaemonSet's liveness probe.
	answerTime = 5 * time.Second
	// startTime bounds the start and each reload: the limit of the DaemonSet's startup
	// probe.
	startTime = 60 * time.Second
	// stopTime is the grace period of the DaemonSet.
	stopTime = 5 * time.Second
	// pause is the time between two polls, so that they leave the CPU to the program.
	pause = 10 * time.Millisecond
)

// node is a host with a kubelet and the program.
type node struct {
	testing.TB
	dir     string // short: a socket's path has at most 107 bytes
	host    *sysfstest.Host
	kubelet *kubelettest.Kubelet
	address string // of the listener
	args    []string
	limits  string // shell commands before the program starts

	group  *cgroup
	cmd    *exec.Cmd
	exited chan error

	mu      sync.Mutex
	log     []string
	changed chan struct{}
}

// nodes counts the nodes ever made.
var nodes atomic.Int32

// newNode makes a node with the device of the good resource; nothing runs yet.
func newNode(t *testing.T) *node {
	t.Helper()
	dir := kubelettest.TempDir(t)
	// Each node has an IP address of its own: no other listener can get its port meanwhile.
	i := nodes.Add(1)
	l, err := net.Listen("tcp", fmt.Sprintf("127.1.%d.%d:0", i/250, 1+i%250))
	if err != nil {
		t.Fatal(err)
	}
	_ = l.Close()
	n := &node{TB: t, dir: dir, address: l.Addr().String(), host: sysfstest.NewHost(t, sysfstest.HostOptions{RealNodes: true}), changed: make(chan struct{})}
	n.host.AddNode("", sysfstest.Node{Name: "good", Subsystem: "misc", Major: 10, Minor: 229})
	for _, d := range []string{"config", "state", "cdi", "run"} {
		n.must(os.Mkdir(n.path(d), 0o755))
	}
	n.configure(goodConfig)
	n.kubelet = kubelettest.New(kubelettest.Options{Dir: n.path("k"), PodResources: n.path("pods.sock")})
	n.must(n.kubelet.Start())
	t.Cleanup(n.kubelet.Stop)
	return n
}

func (n *node) must(err error) {
	n.Helper()
	if err != nil {
		n.Fatal(err)
	}
}

func (n *node) path(elements ...string) string {
	return filepath.Join(append([]string{n.dir}, elements...)...)
}

func (n *node) configFile() string { return n.path("config", "config.toml") }

// configure replaces the configuration atomically, as the kubelet replaces a ConfigMap.
func (n *node) configure(text string) {
	n.Helper()
	n.must(os.WriteFile(n.path("next"), []byte(text), 0o644))
	n.must(os.Rename(n.path("next"), n.configFile()))
}

// start starts the program.
func (n *node) start() {
	n.Helper()
	n.group = newCgroup(n.TB, daemonSet)
	argv := append([]string{binary(n.TB), "serve", "--config", n.path("config"), "--dev", n.host.Dev(), "--sysfs", n.host.Sysfs(),
		"--kubelet-dir", n.path("k"), "--pod-resources", n.path("pods.sock"), "--run-dir", n.path("run"), "--state-dir", n.path("state"),
		"--cdi-dir", n.path("cdi"), "--listen", n.address}, n.args...)
	n.cmd = exec.Command("/bin/sh", append([]string{"-c", n.limits + `echo $$ > "$0" && exec "$@"`, n.group.procs()}, argv...)...)
	r, w, err := os.Pipe()
	n.must(err)
	n.cmd.Stdout, n.cmd.Stderr = w, w
	n.must(n.cmd.Start())
	_ = w.Close()
	go n.readLog(r)
	exited, cmd := make(chan error, 1), n.cmd
	n.exited = exited
	go func() { exited <- cmd.Wait() }()
	n.Cleanup(func() { _ = cmd.Process.Kill() })
}

// readLog reads the log.
func (n *node) readLog(r io.ReadCloser) {
	defer r.Close()
	lines := bufio.NewReader(r)
	for {
		line, err := lines.ReadString('\n')
		n.mu.Lock()
		n.log = append(n.log, line)
		close(n.changed)
		n.changed = make(chan struct{})
		n.mu.Unlock()
		if err != nil {
			return
		}
	}
}

// The log messages of the outcomes of a reload.
const (
	accepted = "configuration loaded"
	refused  = "configuration is broken"
)

// reload edits the configuration and returns the outcome: accepted or refused.
func (n *node) reload(text string) string {
	n.Helper()
	outcome := n.reloadAfter(func() { n.configure(text) })
	n.waitServed()
	return outcome
}

// reloadAfter returns the outcome of the reload that a change causes.
func (n *node) reloadAfter(change func()) string {
	n.Helper()
	n.waitLogged(0, "registered")
	n.mu.Lock()
	from := len(n.log)
	n.mu.Unlock()
	change()
	return n.waitLogged(from, accepted, refused)
}

// waitLogged returns the first of these texts in the log from line number from, and waits for
// it.
func (n *node) waitLogged(from int, texts ...string) string {
	n.Helper()
	deadline := time.After(startTime)
	for {
		n.mu.Lock()
		changed, lines := n.changed, n.log
		n.mu.Unlock()
		for _, line := range lines[from:] {
			for _, text := range texts {
				if strings.Contains(line, text) {
					return text
				}
			}
		}
		select {
		case <-changed:
		case err := <-n.exited:
			n.exited <- err
			n.fatal("the program ended: %v", err)
		case <-deadline:
			n.fatal("after %s the log has none of %q", startTime, texts)
		}
	}
}

// fatal ends the test with the last lines of the log, and the failure below them.
func (n *node) fatal(format string, args ...any) {
	n.Helper()
	n.mu.Lock()
	defer n.mu.Unlock()
	var text strings.Builder
	for _, line := range n.log[max(0, len(n.log)-20):] {
		fmt.Fprintf(&text, "%.300s\n", strings.TrimSpace(line))
	}
	n.Logf("last lines of the log:\n%sOOM kills: %d, peak %.1f MiB", text.String(), n.group.kills(), n.group.peak())
	n.Fatalf(format, args...)
}

// serve starts the program and waits until it serves.
func (n *node) serve() {
	n.Helper()
	n.start()
	n.waitServed()
}

// waitServed waits until the good resource is allocatable, and calls checkServes.
func (n *node) waitServed() {
	n.Helper()
	ctx, cancel := context.WithTimeout(n.Context(), startTime)
	defer cancel()
	go func() {
		select {
		case err := <-n.exited:
			n.exited <- err
			cancel()
		case <-ctx.Done():
		}
	}()
	if n.kubelet.WaitAllocatable(ctx, good, 1) != nil {
		n.fatal("%s: %+v, want 1 allocatable within %s", good, n.kubelet.Count(good), startTime)
	}
	n.checkServes()
}

// checkServes checks that the program answers the kubelet and its probes.
func (n *node) checkServes() {
	n.Helper()
	allocate := func() error {
		ctx, cancel := context.WithTimeout(n.Context(), answerTime)
		defer cancel()
		_, err := n.kubelet.Allocate(ctx, good, "good")
		return err
	}
	err := allocate()
	// On a machine that is too busy, the kubelet gets this error in time instead.
	if err != nil && strings.Contains(err.Error(), "no answer within") {
		err = poll(allocate)
	}
	if err != nil {
		n.fatal("Allocate of %s: %v", good, err)
	}
	if text, err := n.probe("/healthz"); err != nil || text != "ok\n" {
		n.fatal("/healthz: %q, %v, want \"ok\"", text, err)
	}
	if _, err := n.probe("/readyz"); err != nil { // another resource may be unready
		n.fatal("/readyz: %v", err)
	}
}

// waitReady waits until all resources are registered, and calls checkServes.
func (n *node) waitReady() {
	n.Helper()
	if err := poll(func() error {
		text, err := n.probe("/readyz")
		if err == nil && !strings.HasPrefix(text, "ok\n") {
			err = fmt.Errorf("got %q, want \"ok\"", text)
		}
		return err
	}); err != nil {
		n.fatal("/readyz, after %s: %v", startTime, err)
	}
	n.checkServes()
}

// poll calls try until it succeeds; after startTime it returns its error.
func poll(try func() error) error {
	for end := time.Now().Add(startTime); ; time.Sleep(pause) {
		if err := try(); err == nil || time.Now().After(end) {
			return err
		}
	}
}

// probe is get with the timeout of a probe. Like the kubelet, it asks again before it gives up.
func (n *node) probe(path string) (text string, err error) {
	const failureThreshold = 3
	for range failureThreshold {
		ctx, cancel := context.WithTimeout(n.Context(), answerTime)
		text, err = n.get(ctx, path)
		cancel()
		if err == nil {
			break
		}
	}
	return text, err
}

// get reads a page over a connection of its own, like a probe.
func (n *node) get(ctx context.Context, path string) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+n.address+path, nil)
	if err != nil {
		return "", err
	}
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	return string(text), err
}

// stop ends the program by SIGTERM, as the kubelet does, and checks that the kernel killed no
// process of its cgroup.
func (n *node) stop() {
	n.Helper()
	n.must(n.cmd.Process.Signal(syscall.SIGTERM))
	select {
	case err := <-n.exited:
		if err != nil {
			n.fatal("the program ended with %v, want exit code 0", err)
		}
	case <-time.After(stopTime):
		n.fatal("the program did not end within %s of SIGTERM", stopTime)
	}
	if kills := n.group.kills(); kills > 0 {
		n.fatal("%d OOM kills, want none", kills)
	}
	n.Logf("peak %.1f MiB", n.group.peak())
}

// kill ends the program with SIGKILL, and waits until the kubelet knows. Before, it would send its calls to
// the instance that was killed.
func (n *node) kill() {
	n.Helper()
	n.must(n.cmd.Process.Kill())
	<-n.exited
	ctx, cancel := context.WithTimeout(n.Context(), startTime)
	defer cancel()
	n.must(n.kubelet.WaitFor(ctx, func() bool { return len(n.kubelet.Connected(good)) == 0 }))
}

// command runs a subcommand and fails the test if it does not end.
func (n *node) command(args ...string) (string, error) {
	n.Helper()
	ctx, cancel := context.WithTimeout(n.Context(), startTime)
	defer cancel()
	out, err := exec.CommandContext(ctx, binary(n.TB), args...).CombinedOutput()
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		n.Fatalf("generic-dp %q did not end within %s", args, startTime)
	}
	return string(out), err
}

// binary is the program under test.
func binary(t testing.TB) string {
	t.Helper()
	path := os.Getenv("GENERIC_DP_BIN")
	if path == "" {
		path = "../../bin/generic-dp"
	}
	path, err := filepath.Abs(path)
	if err != nil {
		t.Fatal(err)
	}
	return path
}
