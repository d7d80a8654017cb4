// Package conformance_test tests the program under test against the kubelet's own tests
// of device plugins, and beyond: the kubelet's device manager runs inside the test, the
// program next to it, on a host whose devices the test makes. The comment of a case
// names the kubelet's test that it follows.
package conformance_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/generic-dp/generic-dp/test/e2e/devicemanager"
	"github.com/generic-dp/generic-dp/test/e2e/fixture"
	"github.com/generic-dp/generic-dp/test/e2e/product"
	"github.com/generic-dp/generic-dp/test/e2e/wait"
)

func TestMain(m *testing.M) { os.Exit(devicemanager.Main(m)) }

const limit = devicemanager.Limit

// port is the resource of ports, the nodes /dev/port*: nodes without hardware, which
// are listed at once.
const port = "example.com/port"

const domain = `domain = "example.com"
`

const ports = domain + onlyPorts

const onlyPorts = `
[[resource]]
name = "port"
match.glob = "/dev/port*"
`

// stick is the resource of sticks, USB serial adapters.
const stick = "example.com/stick"

const sticks = domain + onlySticks

const onlySticks = `
[[resource]]
name = "stick"
match = { usb = { id = "10c4:ea60" }, glob = "/dev/ttyUSB*" }
container.path = "/dev/stick"
container.env.STICK_SERIAL = "${usb.serial}"
`

const both = domain + onlyPorts + onlySticks

// usbStick is a stick whose ID contains its serial number.
func usbStick(usbPort, serial, tty string) fixture.Stick {
	return fixture.Stick{Port: usbPort, ID: "10c4:ea60", Serial: serial, TTY: tty}
}

const (
	stickA = "usb:10c4:ea60:AAAA1111"
	stickB = "usb:10c4:ea60:BBBB2222"
	// stickKey names the node of a stick.
	stickKey = "if00:ttyUSB"
)

// count is short for a [devicemanager.Count].
func count(capacity, allocatable int64) devicemanager.Count {
	return devicemanager.Count{Capacity: capacity, Allocatable: allocatable}
}

// node is a Kubernetes node: a kubelet and a host.
type node struct {
	*devicemanager.Manager
	*fixture.Host
	t testing.TB
}

func newNode(t testing.TB, o devicemanager.Options) *node {
	t.Helper()
	return &node{devicemanager.Start(t, o), fixture.New(t), t}
}

// serve starts the program on the node.
func (n *node) serve(config string) *product.Plugin {
	n.t.Helper()
	return n.serveAs(product.Spec{Config: config})
}

func (n *node) serveAs(s product.Spec) *product.Plugin {
	n.t.Helper()
	s.Args = append(n.Args(), s.Args...)
	return n.Plugin(n.t, s)
}

// admit admits a pod, which must succeed.
func (n *node) admit(pod *v1.Pod) *v1.Pod {
	n.t.Helper()
	if err := n.Admit(pod); err != nil {
		n.t.Fatalf("pod %s: %v", pod.Name, err)
	}
	return pod
}

// admission is the result of a running Admit.
type admission chan error

func (n *node) startAdmit(pod *v1.Pod) admission {
	a := make(admission, 1)
	go func() { a <- n.Admit(pod) }()
	return a
}

func (a admission) result(t testing.TB) error {
	t.Helper()
	select {
	case err := <-a:
		return err
	case <-time.After(limit):
		t.Fatal("the kubelet is stuck in an admission")
		return nil
	}
}

// refuse admits a pod, which must fail for a reason.
func (n *node) wantRefused(pod *v1.Pod, reason string) {
	n.t.Helper()
	if err := n.Admit(pod); err == nil {
		n.t.Fatalf("pod %s was admitted with %v, want an error with %q", pod.Name, n.Devices(pod, "main", port), reason)
	} else if !strings.Contains(err.Error(), reason) {
		n.t.Errorf("pod %s: %v, want an error with %q", pod.Name, err, reason)
	}
}

// holds checks the devices of the container main of a pod.
func (n *node) wantHeld(pod *v1.Pod, resource string, ids ...string) {
	n.t.Helper()
	if got := n.Devices(pod, "main", resource); !slices.Equal(got, ids) {
		n.t.Errorf("pod %s holds %v, want %v", pod.Name, got, ids)
	}
}

// injected describes the run options of the container main, which the runtime gets at
// its start.
func (n *node) injected(pod *v1.Pod) string {
	n.t.Helper()
	o := n.RunOptions(n.t, pod, "main")
	return fmt.Sprint("devices ", o.Devices, " mounts ", o.Mounts, " env ", o.Envs, " annotations ", o.Annotations, " cdi ", o.CDIDevices)
}

// freeze stops the program until SIGCONT. Its threads stop one by one.
func freeze(t testing.TB, p *product.Plugin) {
	t.Helper()
	p.Signal(t, syscall.SIGSTOP)
	eventually(t, "stopped threads", func() error {
		threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", p.Pid()))
		if err != nil || len(threads) == 0 {
			return fmt.Errorf("no threads: %v", err)
		}
		for _, thread := range threads {
			stat, err := os.ReadFile(thread)
			if err != nil {
				return err
			}
			// "7 (name) T ...", where the name may contain anything.
			if rest := string(stat[strings.LastIndexByte(string(stat), ')'):]); !strings.HasPrefix(rest, ") T") {
				return fmt.Errorf("%s", stat)
			}
		}
		return nil
	})
}

// sockets lists the program's sockets in the kubelet's directory.
func sockets(t testing.TB) []string {
	t.Helper()
	found, err := filepath.Glob(devicemanager.Dir + "gdp-*")
	must(t, err)
	return found
}

// linkOf returns the target of the link of a stick; empty if there is none.
func linkOf(p *product.Plugin, id string) string {
	target, err := os.Readlink(filepath.Join(p.RunDir(), "links", id, stickKey))
	if err != nil {
		return ""
	}
	return target
}

// wantLink checks the target of the link of a stick; empty is no link.
func wantLink(t testing.TB, p *product.Plugin, id, want string) {
	t.Helper()
	if got := linkOf(p, id); got != want {
		t.Errorf("link of %s leads to %q, want %q", id, got, want)
	}
}

// specOf returns the node of each device in the CDI specs of the program, by qualified
// name. A device without exactly one node has "".
func specOf(t testing.TB, p *product.Plugin) map[string]string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(p.CDIDir(), "*.json"))
	must(t, err)
	found := map[string]string{}
	for _, file := range files {
		var spec struct {
			Kind    string
			Devices []struct {
				Name           string
				ContainerEdits struct {
					DeviceNodes []struct{ Path, HostPath string }
				}
			}
		}
		text, err := os.ReadFile(file)
		must(t, err)
		if err := json.Unmarshal(text, &spec); err != nil {
			t.Fatalf("%s: %v\n%s", file, err, text)
		}
		for _, d := range spec.Devices {
			name := spec.Kind + "=" + d.Name
			found[name] = ""
			if nodes := d.ContainerEdits.DeviceNodes; len(nodes) == 1 {
				found[name] = nodes[0].HostPath + " at " + nodes[0].Path
			}
		}
	}
	return found
}

// eventually waits for a condition with the default timeout.
func eventually(t testing.TB, what string, check func() error) {
	t.Helper()
	wait.Until(t, limit, what, check)
}

// must ends the test after an error of its own steps.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
