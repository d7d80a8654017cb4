package agent_test

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/generic-dp/generic-dp/internal/agent"
	"github.com/generic-dp/generic-dp/internal/testing/sysfstest"
)

const bySerial = `
domain = "example.com"
[[resource]]
name = "stick-${usb.serial}"
names = { stick-BBBB2222 = "second" }
match = { usb = { id = "10c4:ea60" }, glob = "/dev/ttyUSB*" }
container.cdi = true
`

// A resource with a derived name starts with its first device. It lists the device while
// that is gone, over a restart too, and ends with it.
func TestDerivedNames(t *testing.T) {
	t.Parallel()
	const first, second, idA, idB = "example.com/stick-AAAA1111", "example.com/second", stickID, otherID
	n := newNode(t, bySerial)
	n.host.AddBus()
	var c clock
	a, stop := n.serveBy(&c)
	<-a.Settled()
	if got := served(a); len(got) != 0 {
		t.Errorf("resources %v before there is a device", got)
	}
	n.host.AddUSB(stick("1-1", "AAAA1111", "ttyUSB0"))
	n.untilListed(first, []string{idA}, nil)
	n.host.AddUSB(stick("1-2", "BBBB2222", "ttyUSB1"))
	n.untilListed(second, []string{idB}, nil)
	if got := served(a); !slices.Equal(got, []string{second, first}) {
		t.Errorf("resources %v", got)
	}
	resp, err := n.kubelet.Allocate(context.Background(), second, idB)
	if err != nil || resp.GetContainerResponses()[0].GetCdiDevices()[0].GetName() != second+"="+idB || n.spec(second) == "" {
		t.Errorf("Allocate: %v, %v; spec:\n%s", resp, err, n.spec(second))
	}

	n.host.RemoveUSB("1-2")
	n.untilListed(second, nil, []string{idB})
	if got := reasons(a, second)[idB]; got != "device is gone" {
		t.Errorf("reason %q, want that it is gone", got)
	}
	stop()
	a, _ = n.serveBy(&c)
	n.until("the second registration", func() bool { return n.kubelet.Registrations(first) == 2 })
	n.eventually("the device that is gone", func() bool { return reasons(a, second)[idB] == "device is gone" })
	c.forward(5 * time.Minute)
	a.Reload()
	n.untilLogged("has not changed")
	if got := reasons(a, second)[idB]; got != "device is gone" {
		t.Errorf("reason %q after 5 of 10 minutes, want that it is gone", got)
	}
	n.host.AddUSB(stick("1-2", "BBBB2222", "ttyUSB1"))
	n.untilListed(second, []string{idB}, nil)

	n.host.RemoveUSB("1-2")
	n.untilListed(second, nil, []string{idB})
	c.forward(time.Hour)
	a.Reload()
	n.until("the end of the resource", func() bool { return len(n.kubelet.Connected(second)) == 0 })
	n.eventually("the other one alone", func() bool { return slices.Equal(served(a), []string{first}) })
	n.host.AddUSB(stick("1-2", "BBBB2222", "ttyUSB1"))
	n.untilAllocatable(second, 1)
}

// A resource is retired while its when does not hold, and another one with its name
// replaces it.
func TestWhen(t *testing.T) {
	t.Parallel()
	const resource = "example.com/r"
	n := newNode(t, `
domain = "example.com"
[[resource]]
name = "r"
when.exists = "/dev/flag*"
match.glob = "/dev/r-*"
container.env.WHICH = "flagged"
[[resource]]
name = "r"
when.exists = "!/dev/flag*"
match.glob = "/dev/r-*"
container.env.WHICH = "plain"
[[resource]]
name = "only"
when.exists = "/dev/flag*"
match.glob = "/dev/only-*"
`)
	n.addNodes("r-a", "only-a")
	a, _ := n.serve()
	which := func() string {
		resp, err := n.kubelet.Allocate(context.Background(), resource, "r-a")
		if err != nil {
			return err.Error()
		}
		return resp.GetContainerResponses()[0].GetEnvs()["WHICH"]
	}
	n.untilListed(resource, []string{"r-a"}, nil)
	n.untilAllocatable(resource, 1)
	if got := which(); got != "plain" {
		t.Errorf("without the flag: %s", got)
	}
	if got := n.kubelet.Resources(); !slices.Equal(got, []string{resource}) {
		t.Errorf("registered %v, want the active one", got)
	}
	before := n.messages(resource)
	flag := n.host.AddNode("", sysfstest.Node{Name: "flag0", Subsystem: "misc"})
	n.untilListed("example.com/only", []string{"only-a"}, nil)
	if got := which(); got != "flagged" {
		t.Errorf("with the flag: %s", got)
	}
	n.host.Remove(flag)
	n.untilListed("example.com/only", nil, []string{"only-a"})
	if got := reasons(a, "example.com/only")["only-a"]; !strings.Contains(got, "its when does not hold") {
		t.Errorf("reason %q", got)
	}
	if got := which(); got != "plain" {
		t.Errorf("without the flag again: %s", got)
	}
	if got := n.messages(resource); got != before {
		t.Errorf("the kubelet got %s, want %s", got, before)
	}
}

// A configuration that --allow does not permit is not served, neither after an edit nor
// as a last good copy from before.
func TestAllow(t *testing.T) {
	t.Parallel()
	mounts := parts("r") + "with = [{ path = \"/run/vendor/x\", container_path = \"/x\", optional = true }]\n"
	n := newNode(t, parts("r"))
	n.addNodes("r-a")
	a, stop := n.serve()
	n.untilListed("example.com/r", []string{"r-a"}, nil)
	n.configure(mounts)
	n.eventually("the problem", func() bool { return a.Config().Broken != nil })
	if err := a.Config().Broken; !strings.Contains(err.Error(), "--allow") {
		t.Errorf("%v, want a problem that names --allow", err)
	}
	stop()
	n.options.Allow.Mounts = []string{"/run/vendor"}
	a, stop = n.serve()
	if err := a.Config().Broken; err != nil {
		t.Errorf("with --allow: %v", err)
	}
	<-a.Settled()
	n.untilListed("example.com/r", []string{"r-a"}, nil)
	stop()
	n.options.Allow.Mounts = nil
	if _, err := agent.New(n.options); err == nil || !strings.Contains(err.Error(), "--allow") {
		t.Errorf("New: %v, want a problem that names --allow", err)
	}
}

// A held resource whose name the template matches may be another plugin's.
func TestForeignResourceIsNotServed(t *testing.T) {
	t.Parallel()
	n := newNode(t, "domain = \"example.com\"\n[[resource]]\nname = \"${kernel}\"\nmatch.glob = \"/dev/r-*\"\n")
	n.addNodes("r-a")
	n.kubelet.Hold(request("p", "example.com/gpu"), "GPU-1")
	a, _ := n.serve()
	n.untilListed("example.com/r-a", []string{"r-a"}, nil)
	n.passes(a)
	n.addNodes("r-b")
	n.untilListed("example.com/r-b", []string{"r-b"}, nil)
	if got := served(a); !slices.Equal(got, []string{"example.com/r-a", "example.com/r-b"}) {
		t.Errorf("serves %v", got)
	}
}

// A CDI device of the host has another ID after an edit of identity. It is not offered by that
// ID while a container holds it by the first one.
func TestHeldCDIDeviceAfterAnEditOfIdentity(t *testing.T) {
	t.Parallel()
	const resource = "example.com/gpu"
	text := "domain = \"example.com\"\n[[resource]]\nname = \"gpu\"\nmatch.cdi_device = \"vendor.com/gpu=*\"\n"
	n := newNode(t, text)
	dir := t.TempDir()
	n.options.Paths.SpecDirs = []string{dir}
	n.options.Allow.CDI = []string{"vendor.com/*"}
	n.addNodes("gpu0")
	spec := `{"cdiVersion": "0.6.0", "kind": "vendor.com/gpu", "devices": [{"name": "GPU-0", "containerEdits": {"deviceNodes": [{"path": "/dev/gpu0"}]}}]}`
	must(t, os.WriteFile(filepath.Join(dir, "vendor.json"), []byte(spec), 0o600))
	var c clock
	a, _ := n.serveBy(&c)
	n.untilListed(resource, []string{"cdi:vendor.com:gpu:GPU-0"}, nil)
	n.kubelet.Hold(request("p", resource), "cdi:vendor.com:gpu:GPU-0")
	n.configure(text + "identity = \"name\"\n")
	n.untilListed(resource, nil, []string{"cdi:vendor.com:gpu:GPU-0"})
	n.kubelet.Remove("default", "p")
	n.untilOffered(a, &c, resource, "GPU-0")
}
