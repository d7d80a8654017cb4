package agent_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/generic-dp/generic-dp/internal/agent"
	"github.com/generic-dp/generic-dp/internal/testing/kubelettest"
)

// A device goes and another one gets its name; the first comes back under another name:
// it keeps its ID, and its link leads to it or does not exist.
func TestLinkFollowsTheDevice(t *testing.T) {
	t.Parallel()
	n := newNode(t, zigbee)
	n.addBus()
	n.host.AddUSB(stick("1-1", "AAAA1111", "ttyUSB0"))
	n.serve()
	const a, b, key = stickID, otherID, "if00:ttyUSB"
	n.untilListed("example.com/zigbee", []string{a}, nil)
	if got := n.linkOf(a, key); got != "/dev/ttyUSB0" {
		t.Fatalf("link of the first leads to %q, want /dev/ttyUSB0", got)
	}
	n.host.RemoveUSB("1-1")
	n.untilListed("example.com/zigbee", nil, []string{a})
	if got := n.linkOf(a, key); got != "" {
		t.Fatalf("link of the device that is gone still leads to %q", got)
	}
	n.host.AddUSB(stick("1-2", "BBBB2222", "ttyUSB0"))
	n.untilListed("example.com/zigbee", []string{b}, []string{a})
	if got := n.linkOf(a, key); got != "" {
		t.Fatalf("link of the device that is gone leads to the other one: %q", got)
	}
	if _, err := n.kubelet.Allocate(context.Background(), "example.com/zigbee", a); err == nil || !strings.Contains(err.Error(), a) {
		t.Errorf("Allocate of a device that is gone: %v, want an error that names it", err)
	}
	n.host.AddUSB(stick("1-3", "AAAA1111", "ttyUSB1"))
	n.untilListed("example.com/zigbee", []string{a, b}, nil)
	if got := n.linkOf(a, key); got != "/dev/ttyUSB1" {
		t.Errorf("link of the device that is back leads to %q, want /dev/ttyUSB1", got)
	}
	resp, err := n.kubelet.Allocate(context.Background(), "example.com/zigbee", a)
	if err != nil {
		t.Fatal(err)
	}
	r := resp.GetContainerResponses()[0]
	if d := r.GetDevices()[0]; d.GetContainerPath() != "/dev/zigbee" || !strings.HasSuffix(d.GetHostPath(), "/links/"+a+"/"+key) {
		t.Errorf("Allocate injects %v, want the link at /dev/zigbee", d)
	}
	if got := r.GetEnvs()["SERIAL"]; got != "AAAA1111" {
		t.Errorf("env SERIAL is %q, want AAAA1111", got)
	}
}

func TestCDISpecFollowsTheDevice(t *testing.T) {
	t.Parallel()
	n := newNode(t, zigbee+"container.cdi = true\n")
	n.addBus()
	n.host.AddUSB(stick("1-1", "AAAA1111", "ttyUSB0"))
	_, stop := n.serve()
	const a = stickID
	n.untilListed("example.com/zigbee", []string{a}, nil)
	spec := func() string {
		return n.spec("example.com/zigbee")
	}
	if got := spec(); !strings.Contains(got, `"hostPath": "/dev/ttyUSB0"`) {
		t.Fatalf("spec lacks the node:\n%s", got)
	}
	resp, err := n.kubelet.Allocate(context.Background(), "example.com/zigbee", a)
	if err != nil {
		t.Fatal(err)
	}
	r := resp.GetContainerResponses()[0]
	if len(r.GetDevices()) != 0 || len(r.GetCdiDevices()) != 1 || r.GetCdiDevices()[0].GetName() != "example.com/zigbee="+a {
		t.Errorf("Allocate gives %v, want the qualified name alone", r)
	}
	n.host.RemoveUSB("1-1")
	n.untilListed("example.com/zigbee", nil, []string{a})
	if got := spec(); got != "" {
		t.Errorf("spec still has the device that is gone:\n%s", got)
	}
	n.host.AddUSB(stick("1-1", "AAAA1111", "ttyUSB7"))
	n.untilListed("example.com/zigbee", []string{a}, nil)
	stop()
	if got := spec(); !strings.Contains(got, `"hostPath": "/dev/ttyUSB7"`) {
		t.Errorf("spec after the end lacks the node: containers could not restart:\n%s", got)
	}
}

// A device that is gone is listed after a restart, too.
func TestRestartRemembers(t *testing.T) {
	t.Parallel()
	n := newNode(t, zigbee)
	n.addBus()
	n.host.AddUSB(stick("1-1", "AAAA1111", "ttyUSB0"))
	const a = stickID
	_, stop := n.serve()
	n.untilListed("example.com/zigbee", []string{a}, nil)
	stop()
	sockets, err := filepath.Glob(filepath.Join(n.options.Paths.KubeletDir, "gdp-*"))
	if err != nil || len(sockets) > 0 {
		t.Errorf("sockets after the end: %v, %v", sockets, err)
	}
	if got := n.linkOf(a, "if00:ttyUSB"); got != "/dev/ttyUSB0" {
		t.Errorf("link after the end leads to %q, want /dev/ttyUSB0", got)
	}
	n.host.RemoveUSB("1-1")
	n.serve()
	n.untilListed("example.com/zigbee", nil, []string{a})
	if got := n.linkOf(a, "if00:ttyUSB"); got != "" {
		t.Errorf("link of a device that went meanwhile leads to %q", got)
	}
}

// A held device is listed although the state was lost and the device is gone.
func TestHeldDeviceIsListedWithoutState(t *testing.T) {
	t.Parallel()
	n := newNode(t, zigbee+"register = \"always\"\n")
	n.addBus()
	n.host.AddUSB(stick("1-2", "BBBB2222", "ttyUSB0"))
	const a, b = stickID, otherID
	n.kubelet.Hold(kubelettest.Request{Namespace: "default", Pod: "p", Container: "c", Resource: "example.com/zigbee"}, a)
	n.serve()
	n.untilListed("example.com/zigbee", []string{b}, []string{a})
	n.host.AddUSB(stick("1-1", "AAAA1111", "ttyUSB1"))
	n.untilListed("example.com/zigbee", []string{a, b}, nil)
}

func TestNewNamesTheFlag(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for flag, change := range map[string]func(*agent.Options){
		"--run-dir: mkdir":                           func(o *agent.Options) { o.Paths.RunDir = filepath.Join(file, "run") },
		"--run-dir: \"run\" is not an absolute path": func(o *agent.Options) { o.Paths.RunDir = "run" },
		"--listen": func(o *agent.Options) { o.Listen = "256.0.0.1:1" },
	} {
		n := newNode(t, zigbee)
		change(&n.options)
		if _, err := agent.New(n.Context(), n.options); err == nil || !strings.Contains(err.Error(), flag) {
			t.Errorf("New: %v, want an error that names %s", err, flag)
		}
	}
}

func TestReadyWithoutDevices(t *testing.T) {
	t.Parallel()
	n := newNode(t, zigbee)
	a, _ := n.serve()
	select {
	case <-a.Settled():
	case <-time.After(limit):
		t.Fatal("never settled")
	}
	if err := a.Ready(); err != nil {
		t.Errorf("a node without the hardware is not ready: %v", err)
	}
	if got := n.kubelet.Resources(); len(got) != 0 {
		t.Errorf("registered %v without a device", got)
	}
}
