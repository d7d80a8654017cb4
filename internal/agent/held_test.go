package agent_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/generic-dp/generic-dp/internal/ledger"
	"github.com/generic-dp/generic-dp/internal/testing/kubelettest"
	"github.com/generic-dp/generic-dp/internal/testing/sysfstest"
)

// An I2C bus that is the last of its hardware has another ID, which no container gets while
// one holds the bus.
func TestHeldI2CBusLosesItsSibling(t *testing.T) {
	t.Parallel()
	n := newNode(t, "domain = \"example.com\"\n[[resource]]\nname = \"i2c\"\nmatch = { glob = \"/dev/i2c-*\", dangerous = true }\n[[resource]]\nname = \"event\"\nmatch.glob = \"/dev/event-*\"\n")
	n.options.Allow.Dangerous = true
	card := n.host.AddPCI(sysfstest.PCI{Address: "0000:00:02.0", Vendor: "8086", Device: "9a49", Class: "030000", Driver: "i915"})
	add := func(bus, adapter string) (dir string) {
		dir = bus + "/i2c-dev/" + bus
		return n.host.AddNode(card, sysfstest.Node{Name: bus, Subsystem: "i2c-dev", Dir: dir, Attrs: map[string]string{dir + "/name": adapter}})
	}
	add("i2c-5", "gmbusA")
	sibling := add("i2c-6", "gmbusB")
	n.serve()
	const a, b = "0000:00:02.0:i2c:gmbusA", "0000:00:02.0:i2c:gmbusB"
	n.untilListed("example.com/i2c", []string{a, b}, nil)
	n.kubelet.Hold(kubelettest.Request{Namespace: "d", Pod: "p", Container: "c", Resource: "example.com/i2c"}, a)
	n.host.Remove(sibling)
	for i := range 3 { // passes of the loop
		n.event()
		n.until("event", func() bool {
			events, _ := n.kubelet.Latest("example.com/event")
			return len(events.Healthy()) == i+1
		})
		n.untilListed("example.com/i2c", nil, []string{a, b})
	}
}

// An I2C bus that is no longer the only one of its hardware has another ID, too. The ID by
// which a container holds it never goes to the other bus, whichever number that has.
func TestHeldI2CBusGetsASibling(t *testing.T) {
	t.Parallel()
	const resource, a, b, single = "example.com/i2c", "0000:00:02.0:i2c:gmbusA", "0000:00:02.0:i2c:gmbusB", "0000:00:02.0:i2c"
	for _, sibling := range []string{"i2c-4", "i2c-6"} {
		t.Run(sibling, func(t *testing.T) {
			t.Parallel()
			n := newNode(t, "domain = \"example.com\"\n[[resource]]\nname = \"i2c\"\nmatch = { glob = \"/dev/i2c-*\", dangerous = true }\n")
			n.options.Allow.Dangerous = true
			card := n.host.AddPCI(sysfstest.PCI{Address: "0000:00:02.0", Vendor: "8086", Device: "9a49", Class: "030000", Driver: "i915"})
			add := func(bus, adapter string) {
				dir := bus + "/i2c-dev/" + bus
				n.host.AddNode(card, sysfstest.Node{Name: bus, Subsystem: "i2c-dev", Dir: dir, Attrs: map[string]string{dir + "/name": adapter}})
			}
			add("i2c-5", "gmbusA")
			var c clock
			agent, _ := n.serveBy(&c)
			n.untilListed(resource, []string{single}, nil)
			n.kubelet.Hold(kubelettest.Request{Namespace: "d", Pod: "p", Container: "c", Resource: resource}, single)
			add(sibling, "gmbusB")
			n.untilListed(resource, []string{b}, []string{single})
			if links, _ := filepath.Glob(filepath.Join(n.options.Paths.RunDir, "links", single, "*")); len(links) == 0 {
				t.Error("no link")
			} else if target, _ := os.Readlink(links[0]); target != "/dev/i2c-5" {
				t.Errorf("the link leads to %q", target)
			}
			n.kubelet.Remove("d", "p")
			n.eventually("both buses", func() bool {
				c.forward(time.Minute)
				agent.Reload()
				list, _ := n.kubelet.Latest(resource)
				return slices.Equal(list.Healthy(), []string{a, b})
			})
		})
	}
}

// A held device that can't be read yet after a restart is not offered by the ID that an edit has given
// it. A program that reads more of a device than its predecessor did reads all devices again.
func TestHeldDeviceThatIsReadLate(t *testing.T) {
	t.Parallel()
	const resource = "example.com/zigbee"
	n := newNode(t, zigbee)
	n.addBus()
	dir := n.host.AddUSB(stick("1-1", "AAAA1111", "ttyUSB0"))
	_, stop := n.serve()
	n.untilListed(resource, []string{stickID}, nil)
	n.kubelet.Hold(kubelettest.Request{Namespace: "lab", Pod: "p", Container: "main", Resource: resource}, stickID)
	n.configure(strings.Replace(zigbee, "container.path", "identity = \"port\"\ncontainer.path", 1))
	n.untilListed(resource, nil, []string{stickID})
	stop()
	n.forgetUSB()

	_, end := hang(t, filepath.Join(n.host.Sysfs(), dir))
	a, _ := n.serve()
	n.untilReason(a, resource, stickID, ledger.ReasonUnread)
	waiting := func() int { return strings.Count(n.log.String(), "device is not listed yet") }
	before := waiting()
	end()
	n.eventually("the other ID", func() bool {
		list, _ := n.kubelet.Latest(resource)
		if len(list.Healthy()) > 0 {
			t.Fatalf("the held device is offered as %q", list.Healthy())
		}
		return waiting() > before
	})
}

// forgetUSB removes the USB devices that were read from the saved state.
func (n *node) forgetUSB() {
	n.Helper()
	path := filepath.Join(n.options.Paths.StateDir, "state.json")
	text, err := os.ReadFile(path)
	if err != nil {
		n.Fatal(err)
	}
	state := map[string]any{}
	if err := json.Unmarshal(text, &state); err != nil {
		n.Fatal(err)
	}
	if state["usb"] == nil {
		n.Fatalf("the state has no USB device: %s", text)
	}
	delete(state, "usb")
	text, err = json.Marshal(state)
	if err == nil {
		err = os.WriteFile(path, text, 0o600)
	}
	if err != nil {
		n.Fatal(err)
	}
}

// A device that waits until a pod has ended is offered at once when the cgroup of the pod is removed.
func TestReleasedDeviceIsOfferedAtOnce(t *testing.T) {
	t.Parallel()
	const resource, other = "example.com/zigbee", "example.com/other"
	h := newHolding(t, zigbee)
	h.addBus()
	h.host.AddUSB(stick("1-1", "AAAA1111", "ttyUSB0"))
	var c clock
	a, _ := h.serveBy(&c)
	h.untilListed(resource, []string{stickID}, nil)
	if _, err := h.kubelet.Admit(t.Context(), request("p", resource), 1); err != nil {
		t.Fatal(err)
	}
	uid := h.kubelet.UID("default", "p")
	h.cgroups.Start(uid)
	h.configure(strings.Replace(zigbee, `"zigbee"`, `"other"`, 1))
	h.untilListed(resource, nil, []string{stickID})
	c.forward(2 * time.Minute) // the device may leave the old list
	h.passes(a)
	h.kubelet.Remove("default", "p")
	begin := time.Now()
	h.cgroups.End(uid)
	h.untilListed(other, []string{stickID}, nil)
	t.Logf("offered %s after the end of the pod", time.Since(begin))
}
