// Package node_test tests the promises of the README to users of a node: real pods of a
// real kubelet and runtime, with devices of a fake machine.
package node_test

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/generic-dp/generic-dp/test/e2e/bed"
	"github.com/generic-dp/generic-dp/test/e2e/fixture"
	"github.com/generic-dp/generic-dp/test/e2e/inspect"
	"github.com/generic-dp/generic-dp/test/e2e/product"
	"github.com/generic-dp/generic-dp/test/e2e/wait"
)

// limit is the timeout of the program and the kubelet, on a busy machine.
const limit = 30 * time.Second

// zigbee is the resource of most tests, of USB serial adapters.
const zigbee = "example.com/zigbee"

// domain is the head of every configuration.
const domain = `domain = "example.com"
`

// zigbees selects USB serial adapters.
const zigbees = `
[[resource]]
name = "zigbee"
match = { usb = { id = "10c4:ea60" }, glob = "/dev/ttyUSB*" }
container.path = "/dev/zigbee"
container.env.ZIGBEE_SERIAL = "${usb.serial}"
`

// injections are the configurations of each kind of injection, by link or CDI name.
var injections = map[string]string{"link": "", "cdi": "container.cdi = true\n"}

// node is a bed with hardware and the program under test.
type node struct {
	*bed.Bed
	*fixture.Host
	plugin *product.Plugin
	served time.Time // start of the program
}

func newNode(t testing.TB) *node {
	t.Helper()
	b := bed.New(t, bed.Options{})
	return &node{Bed: b, Host: b.Hardware(t)}
}

// serve starts the program, with additional flags.
func (n *node) serve(t testing.TB, config string, args ...string) {
	t.Helper()
	n.served = time.Now()
	n.plugin = n.Plugin(t, product.Spec{
		Config: domain + config,
		Args:   append([]string{"--sysfs", n.Sysfs(), "--log-level", "debug", "--node-name", "bed"}, args...),
	})
}

// run starts a pod and waits until it runs.
func (n *node) run(t testing.TB, pod *v1.Pod) *bed.Pod {
	t.Helper()
	p := n.StartPod(t, pod)
	p.WaitRunning(t)
	return p
}

// refused starts a pod, waits until the kubelet has rejected it and checks the reason.
func (n *node) refused(t testing.TB, pod *v1.Pod, why ...string) *bed.Pod {
	t.Helper()
	p := n.StartPod(t, pod)
	status := p.WaitFailed(t).Status
	if status.Reason != "UnexpectedAdmissionError" {
		t.Errorf("pod %s: reason %q, message %q, want UnexpectedAdmissionError", pod.Name, status.Reason, status.Message)
	}
	for _, text := range why {
		if !strings.Contains(status.Message, text) {
			t.Errorf("pod %s: message %q, want %q in it", pod.Name, status.Message, text)
		}
	}
	t.Logf("pod %s: %s, %s: %s", pod.Name, status.Phase, status.Reason, status.Message)
	return p
}

// held returns the IDs of held devices of a resource, each with "pod/container".
func (n *node) held(t testing.TB, resource string) map[string]string {
	t.Helper()
	var held map[string]string
	wait.Until(t, limit, "list of held devices", func() (err error) { // the kubelet limits the rate
		held, err = n.Kubelet.Held(t.Context(), resource)
		return err
	})
	return held
}

// wantHeld checks the holders of a resource.
func (n *node) wantHeld(t testing.TB, resource string, want map[string]string) {
	t.Helper()
	if got := n.held(t, resource); !maps.Equal(got, want) {
		t.Errorf("holders of %s: %v, want %v", resource, got, want)
	}
}

// waitHeld waits for the holders, which the kubelet lists some time after its start.
func (n *node) waitHeld(t testing.TB, resource string, want map[string]string) {
	t.Helper()
	wait.Until(t, limit, "holders of "+resource, func() error {
		got, err := n.Kubelet.Held(t.Context(), resource)
		if err == nil && !maps.Equal(got, want) {
			err = fmt.Errorf("%v, want %v", got, want)
		}
		return err
	})
}

// wantAllocations checks the number of the kubelet's Allocate calls for a resource since
// its start.
func (n *node) wantAllocations(t testing.TB, resource string, want int) {
	t.Helper()
	page, err := n.Kubelet.Get(t.Context(), "/metrics")
	must(t, err)
	got := 0
	name := fmt.Sprintf("kubelet_device_plugin_alloc_duration_seconds_count{resource_name=%q} ", resource)
	for line := range strings.Lines(string(page)) {
		if value, ok := strings.CutPrefix(line, name); ok {
			if got, err = strconv.Atoi(strings.TrimSpace(value)); err != nil {
				t.Fatal(err)
			}
		}
	}
	if got != want {
		t.Errorf("%s: %d calls of Allocate since the start of the kubelet, want %d", resource, got, want)
	}
}

// wantNode checks the device node of a container at a path.
func wantNode(t testing.TB, r inspect.Report, path string, want number) {
	t.Helper()
	got, ok := r.Node(path)
	if !ok || got.Type != "c" || got.Major != want.major || got.Minor != want.minor {
		t.Errorf("%s: got %+v, want c %d:%d", path, got, want.major, want.minor)
	}
}

// restart kills a container and waits for its n-th restart.
func restart(t testing.TB, p *bed.Pod, n int32) inspect.Report {
	t.Helper()
	p.Kill(t, "main")
	p.WaitRestarted(t, "main", n)
	return p.Inspect(t, "main", "/dev")
}

// waitStuck waits until the container of a pod failed to start, and returns the
// kubelet's message.
func waitStuck(t testing.TB, p *bed.Pod, why string) (message string) {
	t.Helper()
	p.Wait(t, "waiting", func(pod *v1.Pod) error {
		if len(pod.Status.ContainerStatuses) == 0 {
			return errors.New("no status of its container")
		}
		w := pod.Status.ContainerStatuses[0].State.Waiting
		if w == nil || !strings.Contains(w.Message, why) {
			return fmt.Errorf("no start has failed for %q", why)
		}
		message = w.Reason + ": " + w.Message
		return nil
	})
	return message
}

// klogTime is the time in the header of a klog line: "I1120 19:47:30.123456".
var klogTime = regexp.MustCompile(`^[IWE](\d{4} \d{2}:\d{2}:\d{2}\.\d{6}) `)

// logged returns the time of the kubelet's first log line with all texts after a given
// time. It is more precise than polling.
func (n *node) logged(t testing.TB, after time.Time, texts ...string) time.Time {
	t.Helper()
	var at time.Time
	wait.Until(t, limit, fmt.Sprintf("%q in the log of the kubelet", texts), func() error {
		for line := range strings.Lines(n.Kubelet.Log()) {
			head := klogTime.FindStringSubmatch(line)
			if head == nil || slices.ContainsFunc(texts, func(s string) bool { return !strings.Contains(line, s) }) {
				continue
			}
			short, err := time.ParseInLocation("0102 15:04:05.000000", head[1], time.Local)
			if err != nil {
				return err
			}
			if at = short.AddDate(after.Year(), 0, 0); at.Before(after.Truncate(time.Microsecond)) {
				continue
			}
			return nil
		}
		return errors.New("not in the log")
	})
	return at
}

// listed returns when the kubelet received a list with n healthy devices.
func (n *node) listed(t testing.TB, after time.Time, resource string, healthy int) time.Time {
	t.Helper()
	return n.logged(t, after, "Processed device updates for resource",
		fmt.Sprintf("resourceName=%q", resource), fmt.Sprintf("healthyCount=%d", healthy))
}

// must ends the test after an error of its own steps.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
