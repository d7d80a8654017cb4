package agent_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/generic-dp/generic-dp/internal/agent"
	"github.com/generic-dp/generic-dp/internal/testing/kubelettest"
	"github.com/generic-dp/generic-dp/internal/testing/sysfstest"
)

// limit is the timeout of everything that a test waits for.
const limit = 20 * time.Second

// node is one Kubernetes node: a host whose devices come and go, a kubelet,
// and what an instance leaves behind.
type node struct {
	testing.TB
	host    *sysfstest.Host
	kubelet *kubelettest.Kubelet
	options agent.Options
	log     *logBuffer
	// answerWithin is how long a prepare may wait; 0 is the default.
	answerWithin time.Duration
	// startWithin is how long a pod may need to start after a prepare; 0 is the default.
	startWithin time.Duration
	// registersSlowly makes the kubelet take its time to register device plugins.
	registersSlowly atomic.Bool
}

func newNode(t testing.TB, text string) *node {
	t.Helper()
	dir := kubelettest.TempDir(t)
	n := &node{TB: t, host: sysfstest.New(t), log: &logBuffer{}}
	n.options = agent.Options{
		Config: filepath.Join(dir, "config.toml"),
		Paths: agent.Paths{
			KubeletDir: filepath.Join(dir, "kubelet"), PodResources: filepath.Join(dir, "pods.sock"),
			Sysfs: n.host.Sysfs(), Dev: n.host.Dev(),
			RunDir: filepath.Join(dir, "run"), StateDir: filepath.Join(dir, "state"), CDIDir: filepath.Join(dir, "cdi"),
		},
		Log: slog.New(slog.NewTextHandler(n.log, &slog.HandlerOptions{Level: slog.LevelDebug})),
	}
	n.configure(text)
	n.kubelet = kubelettest.New(kubelettest.Options{Dir: n.options.Paths.KubeletDir, PodResources: n.options.Paths.PodResources})
	must(t, n.kubelet.Start())
	t.Cleanup(n.kubelet.Stop)
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(n.log.String())
		}
	})
	return n
}

// configure replaces the configuration at once: on a busy machine a file that is written in
// place would be read while it is empty.
func (n *node) configure(text string) {
	n.Helper()
	next := n.options.Config + ".next"
	must(n, errors.Join(os.WriteFile(next, []byte(text), 0o600), os.Rename(next, n.options.Config)))
}

// serve starts an instance; stop ends it as SIGTERM does.
func (n *node) serve() (a *agent.Agent, stop func()) {
	n.Helper()
	return n.start(n.options)
}

func (n *node) start(o agent.Options) (a *agent.Agent, stop func()) {
	n.Helper()
	a, err := agent.New(o)
	must(n, err)
	a.SetAnswerWithin(n.answerWithin)
	a.SetStartWithin(n.startWithin)
	return a, n.run(a)
}

func (n *node) run(a *agent.Agent) (stop func()) {
	n.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- a.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			n.Errorf("Run: %v", err)
		}
	})
	n.Cleanup(stop)
	return stop
}

// until waits for a condition on what the kubelet knows.
func (n *node) until(what string, condition func() bool) {
	n.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	if err := n.kubelet.WaitFor(ctx, condition); err != nil {
		n.Fatalf("%s: %v", what, err)
	}
}

func (n *node) untilListed(resource string, healthy, unhealthy []string) {
	n.Helper()
	n.until("list of "+resource, func() bool {
		list, _ := n.kubelet.Latest(resource)
		return slices.Equal(list.Healthy(), healthy) && slices.Equal(list.Unhealthy(), unhealthy)
	})
}

// untilAllocatable waits until the kubelet can allocate that many devices of a resource, which is registered
// then.
func (n *node) untilAllocatable(resource string, count int) {
	n.Helper()
	n.until("allocatable devices of "+resource, func() bool { return n.kubelet.Count(resource).Allocatable == count })
}

// addSticks makes a bus with the stick of stickID, and the one of otherID if count is 2. It returns
// the directory of the first one.
func (n *node) addSticks(count int) string {
	n.Helper()
	n.host.AddBus()
	dir := n.host.AddUSB(stick("1-1", "AAAA1111", "ttyUSB0"))
	if count == 2 {
		n.host.AddUSB(stick("1-2", "BBBB2222", "ttyUSB1"))
	}
	return dir
}

func (n *node) linkOf(id, key string) string {
	target, err := os.Readlink(filepath.Join(n.options.Paths.RunDir, "links", id, key))
	if err != nil {
		return ""
	}
	return target
}

// spec is the text of the CDI spec of a resource, empty for none.
func (n *node) spec(kind string) string {
	n.Helper()
	data, _ := os.ReadFile(n.specFile(kind))
	return string(data)
}

// specFile is the path of the CDI spec of a resource.
func (n *node) specFile(kind string) string {
	w := n.options.Paths.SpecWriter()
	return filepath.Join(w.Dir, w.FileName(kind))
}

type logBuffer struct {
	mu  sync.Mutex
	log strings.Builder
}

func (b *logBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.log.Write(p)
}

func (b *logBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.log.String()
}

const zigbee = `
domain = "example.com"
[[resource]]
name = "zigbee"
match = { usb = { id = "10c4:ea60" }, glob = "/dev/ttyUSB*" }
container.path = "/dev/zigbee"
container.env.SERIAL = "${usb.serial}"
`

// The IDs of two sticks.
const stickID, otherID = "usb:10c4:ea60:AAAA1111", "usb:10c4:ea60:BBBB2222"

func stick(port, serial, tty string) sysfstest.USB {
	return sysfstest.USB{
		Port: port, Vendor: "10c4", Product: "ea60", Serial: serial,
		Interfaces: []sysfstest.Interface{{Number: 0, Class: "ff", Driver: "cp210x", Nodes: []sysfstest.Node{sysfstest.SerialPort(tty, 0)}}},
	}
}

// parts is a configuration with a resource for each name, of the nodes with that prefix;
// after a space in a name follow further keys.
func parts(names ...string) string {
	var b strings.Builder
	b.WriteString("domain = \"example.com\"\n")
	for _, name := range names {
		name, keys, _ := strings.Cut(name, " ")
		fmt.Fprintf(&b, "[[resource]]\nname = %q\nmatch.glob = \"/dev/%s-*\"\n%s\n", name, name, keys)
	}
	return b.String()
}

func (n *node) addNodes(names ...string) {
	n.Helper()
	for _, name := range names {
		n.host.AddNode("", sysfstest.Node{Name: name, Subsystem: "misc"})
	}
}

// eventually waits for a condition of which the kubelet gets no message.
func (n *node) eventually(what string, condition func() bool) {
	n.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(limit); !condition(); <-tick.C {
		if time.Now().After(deadline) {
			n.Fatalf("%s: not within %s", what, limit)
		}
	}
}

// passes waits until the loop of an instance has run a pass.
func (n *node) passes(a *agent.Agent) {
	n.Helper()
	read := func() int { return strings.Count(n.log.String(), "configuration has not changed") }
	for range 2 { // the second one begins when the first one has ended
		before := read()
		n.eventually("a pass", func() bool {
			a.Reload() // it may be read together with an edit
			return read() > before
		})
	}
}

func (n *node) event() {
	n.Helper()
	n.addNodes("event-" + strings.ReplaceAll(time.Now().Format("05.000000"), ".", "-"))
}

// clock is the real one, which a test can advance.
type clock struct{ ahead atomic.Int64 }

func (c *clock) now() time.Time           { return time.Now().Add(time.Duration(c.ahead.Load())) }
func (c *clock) forward(by time.Duration) { c.ahead.Add(int64(by)) }

func (n *node) serveBy(c *clock) (a *agent.Agent, stop func()) {
	n.Helper()
	o := n.options
	o.Now = c.now
	return n.start(o)
}

// untilOffered moves the clock until exactly these devices of a resource are Healthy.
func (n *node) untilOffered(a *agent.Agent, c *clock, resource string, ids ...string) {
	n.Helper()
	n.eventually("offer of "+resource, func() bool {
		c.forward(time.Minute)
		a.Reload()
		list, _ := n.kubelet.Latest(resource)
		return slices.Equal(list.Healthy(), ids)
	})
}

// untilLogged waits for a text in the log.
func (n *node) untilLogged(text string) {
	n.Helper()
	n.eventually(text, func() bool { return strings.Contains(n.log.String(), text) })
}

// must ends the test after an error of its own steps.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
