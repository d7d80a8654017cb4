// Package bed is a test node: the real kubelet, containerd and runc, isolated from the
// machine and from other tests, with pods from manifests. Any number of beds run at
// once.
//
// Everything in a bed runs in its own namespaces, see package isolate; the test runs
// outside. A bed's directory has the same path for both; for the test, /run and
// /var/lib/kubelet of the bed are at [Bed.Path]. So paths that the kubelet's flags and
// configuration cannot change need no change.
package bed

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/generic-dp/generic-dp/test/e2e/process"
	"github.com/generic-dp/generic-dp/test/e2e/product"
)

const (
	// startLimit is the timeout of programs that start in a second or two.
	startLimit = 60 * time.Second
	// podLimit is the timeout of a change of a pod, back-off included. After a prepare that
	// fails, such as one before the driver is registered, the kubelet tries again with the
	// next periodic sync of the pod, 60 to 90 s later.
	podLimit = 3 * time.Minute
	// execLimit is the timeout of a command in a container.
	execLimit = 60 * time.Second
)

// Bed is a node.
type Bed struct {
	// Node is its name, which the kubelet appends to the names of static pods.
	Node string
	// Dir is the bed's directory, with a short path since it contains sockets.
	Dir        string
	Containerd *Containerd
	Kubelet    *Kubelet

	tools  tools
	tool   string // path of the tool
	logDir string
	ns     *namespace
	cgroup string

	plugins []*product.Plugin
}

// Options are the options of a bed.
type Options struct {
	// Node is the name of the node, by default NodeName.
	Node string
	// Version is the kubelet's, by default Current.
	Version Version
	// Kubelet is merged into the kubelet's configuration, and KubeletArgs are appended
	// to its flags.
	Kubelet     map[string]any
	KubeletArgs []string
	// Boot starts the programs that must run before the kubelet.
	Boot func(*Bed)
}

// New starts a node and waits until it is ready. It is removed at the end of the test;
// the logs are shown if the test has failed.
func New(t testing.TB, o Options) *Bed {
	t.Helper()
	kubelet := o.Version.Program("kubelet")
	b := &Bed{
		Node:   cmp.Or(o.Node, NodeName),
		tools:  findTools(t, kubelet),
		logDir: process.LogDir(t),
		Dir:    newDir(t),
	}
	b.tool = filepath.Join(b.Dir, "tool")
	buildTool(t, b.tool)
	b.cgroup = filepath.Base(b.Dir)
	newCgroup(t, b.cgroup)
	b.ns = newNamespace(t, b.tool, b.logDir)

	if err := os.MkdirAll(b.manifests(), 0o755); err != nil {
		t.Fatal(err)
	}
	b.Containerd = newContainerd(t, b)
	b.Kubelet = newKubelet(t, b)
	for key, value := range o.Kubelet {
		b.Kubelet.Config[key] = value
	}
	b.Kubelet.program, b.Kubelet.args = kubelet, o.KubeletArgs
	b.Containerd.Start(t)
	b.Containerd.load(t)
	if o.Boot != nil {
		o.Boot(b)
	}
	b.Kubelet.Start(t)
	b.Kubelet.WaitReady(t)
	return b
}

// Path returns the path by which the test reaches a path of the bed.
func (b *Bed) Path(path string) string { return b.ns.path(path) }

// DevicePlugins is the test's path of the kubelet's directory of device plugins.
func (b *Bed) DevicePlugins() string { return b.Path("/var/lib/kubelet/device-plugins") }

// PluginDir is the directory of the plugin's files, see [product.Spec].
func (b *Bed) PluginDir() string { return filepath.Join(b.Dir, "plugin") }

// CDIDir is the directory of CDI specs, which the plugin writes and the runtime reads.
func (b *Bed) CDIDir() string { return filepath.Join(b.PluginDir(), "cdi") }

func (b *Bed) manifests() string { return filepath.Join(b.Dir, "manifests") }
func (b *Bed) podLogs() string   { return filepath.Join(b.Dir, "pods") }

// Plugin starts the program under test in the bed.
func (b *Bed) Plugin(t testing.TB, s product.Spec) *product.Plugin {
	t.Helper()
	s.Dir, s.LogDir, s.Start = b.PluginDir(), b.logDir, b.ns.start
	p := product.Start(t, s)
	b.plugins = append(b.plugins, p)
	return p
}

// Tool returns the path of a program built by deps.sh.
func (b *Bed) Tool(name string) string { return b.tools.path(name) }

// Start starts a program in the bed. It is killed with the bed.
func (b *Bed) Start(t testing.TB, s process.Spec) *process.Process {
	t.Helper()
	s.LogDir, s.Start = b.logDir, b.ns.start
	return process.Start(t, s)
}

// Run runs a command in the bed and fails the test if it fails.
func (b *Bed) Run(t testing.TB, argv ...string) {
	t.Helper()
	if stdout, err := b.Output(t, argv...); err != nil {
		t.Fatalf("%v\n%s", err, stdout)
	}
}

// Output runs a command in the bed and returns its standard output; an error contains
// its standard error.
func (b *Bed) Output(t testing.TB, argv ...string) (stdout []byte, err error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), argv[0], argv[1:]...)
	cmd.Dir = "/"
	err = b.Do(func() (err error) {
		stdout, err = cmd.Output()
		return err
	})
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		err = fmt.Errorf("%v: %w: %s", argv, err, exit.Stderr)
	}
	return stdout, err
}

// Do calls f on a thread inside the bed's namespaces, where its connections are made.
// Goroutines that f starts are outside.
func (b *Bed) Do(f func() error) error { return b.ns.do(f) }

// DialContext connects like a program in the bed.
func (b *Bed) DialContext(ctx context.Context, network, addr string) (conn net.Conn, err error) {
	err = b.Do(func() error {
		conn, err = (&net.Dialer{}).DialContext(ctx, network, addr)
		return err
	})
	return conn, err
}

// Listen listens on a TCP address of the bed until the end of the test.
func (b *Bed) Listen(t testing.TB, addr string) (l net.Listener) {
	t.Helper()
	err := b.Do(func() (err error) {
		l, err = net.Listen("tcp", addr)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

// Import imports the images of an archive.
func (b *Bed) Import(t testing.TB, archive string) {
	t.Helper()
	b.Run(t, b.tools.path("ctr"), "--address", b.Containerd.socket(), "--namespace", "k8s.io",
		"images", "import", "--local", "--snapshotter", "native", archive)
}

// NameImage gives the bed's image another name, such as that of an image in a page.
func (b *Bed) NameImage(t testing.TB, name string) {
	t.Helper()
	b.Run(t, b.tools.path("ctr"), "--address", b.Containerd.socket(), "--namespace", "k8s.io", "images", "tag", "--local", Image, name)
}

// ContainerdSocket is the address of the container runtime, for programs in the bed.
func (b *Bed) ContainerdSocket() string { return b.Containerd.socket() }

// Reboot simulates a reboot of the node: every process is killed, plugins included;
// links, CDI specs and /run are removed; files on disk stay. It starts nothing.
func (b *Bed) Reboot(t testing.TB) {
	t.Helper()
	b.Run(t, b.tool, "reboot")
	<-b.Kubelet.Ended()
	<-b.Containerd.Ended()
	for _, p := range b.plugins {
		<-p.Ended()
	}
	product.Wipe(t, b.PluginDir())
	hs, err := hierarchies()
	if err != nil {
		t.Fatal(err)
	}
	if err := removeCgroup(hs, b.cgroup); err != nil {
		t.Fatal(err)
	}
	if err := makeCgroup(hs, b.cgroup); err != nil {
		t.Fatal(err)
	}
}

// Mknod makes a character device node and its directory. A bed shares /dev with the
// machine; nodes below /run or the bed's directory work as well.
func (b *Bed) Mknod(t testing.TB, path string, major, minor uint32) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mknod(path, unix.S_IFCHR|0o600, int(unix.Mkdev(major, minor))); err != nil {
		t.Fatalf("mknod %s: %v", path, err)
	}
}

func writeFile(t testing.TB, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}
