package agent_test

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/generic-dp/generic-dp/agent"
)

const stickID = "usb:10c4:ea60:AAAA1111"

// setAttr writes an attribute as the kernel shows it from then on.
func (n *node) setAttr(dir, name, value string) {
	n.Helper()
	path := filepath.Join(n.options.Paths.Sysfs, dir, name)
	// In one step: a check may read it at any time.
	if err := os.WriteFile(path+".new", []byte(value+"\n"), 0o600); err != nil {
		n.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		n.Fatal(err)
	}
}

// reasons are why devices of a resource are not healthy, by ID.
func reasons(a *agent.Agent, resource string) map[string]string {
	found := map[string]string{}
	for _, e := range a.Entries(resource) {
		found[e.Offer.ID] = e.Reason
	}
	return found
}

// An attribute turns, and turns back: the device is Unhealthy with that reason,
// keeps what leads to it, so that a container that holds it can restart, and is
// Healthy again by itself.
func TestADeviceIsUnhealthyWhileItsCheckFails(t *testing.T) {
	t.Parallel()
	for _, cdi := range []bool{false, true} {
		config := zigbee + `health.attr.authorized = "1"` + "\n" + `health.interval = "5s"` + "\n"
		if cdi {
			config += "container.cdi = true\n"
		}
		n := newNode(t, config)
		n.addBus()
		dir := n.host.AddUSB(stick("1-1", "AAAA1111", "ttyUSB0"))
		n.setAttr(dir, "authorized", "0")
		a, _ := n.serve()
		leads := func() bool {
			spec, _ := os.ReadFile(filepath.Join(n.options.Paths.CDIDir, "generic-dp_example.com_zigbee.json"))
			return cdi && strings.Contains(string(spec), `"hostPath": "/dev/ttyUSB0"`) || !cdi && n.linkOf(stickID, "if00:ttyUSB") == "/dev/ttyUSB0"
		}
		const failed = `attr authorized is "0": want "1"`
		for range 2 {
			n.untilListed("example.com/zigbee", nil, []string{stickID})
			n.until("the reason", func() bool { return reasons(a, "example.com/zigbee")[stickID] == failed })
			if !leads() {
				t.Errorf("cdi %t: nothing leads to a device that fails a check", cdi)
			}
			_, err := n.kubelet.Allocate(context.Background(), "example.com/zigbee", stickID)
			if err == nil || !strings.Contains(err.Error(), failed) {
				t.Errorf("cdi %t: Allocate of a device that fails a check: %v, want %q", cdi, err, failed)
			}
			n.setAttr(dir, "authorized", "1")
			n.untilListed("example.com/zigbee", []string{stickID}, nil)
			if !leads() {
				t.Errorf("cdi %t: nothing leads to a device that is healthy", cdi)
			}
			n.setAttr(dir, "authorized", "0")
		}
	}
}

// The first list waits for the first results, which come at once: no update of
// the program takes devices away for a moment.
func TestTheFirstListHasResults(t *testing.T) {
	t.Parallel()
	n := newNode(t, zigbee+"health.open = true\n")
	n.addBus()
	for _, port := range []string{"1", "2", "3"} {
		n.host.AddUSB(stick("1-"+port, strings.Repeat(port, 8), "ttyUSB"+port))
	}
	n.serve()
	const resource = "example.com/zigbee"
	all := []string{"usb:10c4:ea60:11111111", "usb:10c4:ea60:22222222", "usb:10c4:ea60:33333333"}
	n.untilListed(resource, all, nil)
	if list, lists := n.kubelet.Latest(resource); lists != 1 {
		t.Errorf("list %d has every result, want the first: %v", lists, list)
	}
}

// A check that does not answer keeps nobody waiting: other devices of the
// resource, which pass, are listed at once.
func TestACheckThatHangsKeepsNobodyWaiting(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, port, err := net.SplitHostPort(l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	// The serial number of one is the address of the listener; that of the
	// other is one of those for documentation, which no network leads to.
	n := newNode(t, zigbee+`health.tcp = "${usb.serial}:`+port+"\"\n")
	n.addBus()
	n.host.AddUSB(stick("1-1", "127.0.0.1", "ttyUSB0"))
	n.host.AddUSB(stick("1-2", "192.0.2.1", "ttyUSB1"))
	a, _ := n.serve()
	const resource = "example.com/zigbee"
	n.until("the device that passes", func() bool {
		list, _ := n.kubelet.Latest(resource)
		return len(list.Healthy()) == 1 && len(list.Unhealthy()) == 1
	})
	healthy := slices.IndexFunc(a.Entries(resource), func(e struct{}) bool { return true })
	_ = healthy
}
