package agent_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/generic-dp/generic-dp/internal/agent"
	"github.com/generic-dp/generic-dp/internal/status"
)

// setAttr writes an attribute as the kernel shows it from then on.
func (n *node) setAttr(dir, name, value string) {
	n.Helper()
	path := filepath.Join(n.options.Paths.Sysfs, dir, name)
	// In one step: a check may read it at any time.
	must(n, os.WriteFile(path+".new", []byte(value+"\n"), 0o644))
	must(n, os.Rename(path+".new", path))
}

// untilReason waits for the reason of a device, which the kubelet does not get.
func (n *node) untilReason(a *agent.Agent, resource, id, want string) {
	n.Helper()
	n.eventually(fmt.Sprintf("reason %q of %s", want, id), func() bool { return reasons(a, resource)[id] == want })
}

// devices are the devices of a resource in the status, by ID. While a resource moves between the APIs,
// they are the ones of the API that it had.
func devices(a *agent.Agent, resource string) map[string]status.Device {
	found := map[string]status.Device{}
	for _, r := range a.Status(context.Background()).Resources {
		if r.Name != resource {
			continue
		}
		for _, d := range r.Devices {
			found[d.ID] = d
		}
	}
	return found
}

// reasons are why devices of a resource are not healthy, by ID.
func reasons(a *agent.Agent, resource string) map[string]string {
	found := map[string]string{}
	for id, d := range devices(a, resource) {
		found[id] = d.Reason
	}
	return found
}

// served are the names of the served resources.
func served(a *agent.Agent) []string {
	var names []string
	for _, r := range a.Status(context.Background()).Resources {
		names = append(names, r.Name)
	}
	return names
}

// While an attribute is wrong, the device is Unhealthy with that reason, and keeps its
// links and CDI entries, so that the container that holds it can restart.
func TestADeviceIsUnhealthyWhileItsCheckFails(t *testing.T) {
	t.Parallel()
	for _, cdi := range []bool{false, true} {
		t.Run(fmt.Sprintf("cdi %t", cdi), func(t *testing.T) {
			t.Parallel()
			testCheckThatFails(t, cdi)
		})
	}
}

func testCheckThatFails(t *testing.T, cdi bool) {
	n := newNode(t, fmt.Sprintf("%scontainer.cdi = %t\nhealth = { attr.authorized = \"1\", interval = \"5s\" }\n", zigbee, cdi))
	dir := n.addSticks(1)
	n.setAttr(dir, "authorized", "0")
	a, _ := n.serve()
	leads := func() bool {
		return cdi && strings.Contains(n.spec("example.com/zigbee"), `"hostPath": "/dev/ttyUSB0"`) || !cdi && n.linkOf(stickID, "if00:ttyUSB") == "/dev/ttyUSB0"
	}
	const resource, failed = "example.com/zigbee", `attr authorized is "0": want "1"`
	for range 2 {
		n.untilListed(resource, nil, []string{stickID})
		n.untilReason(a, resource, stickID, failed)
		if !leads() {
			t.Error("the link of a device that fails a check is gone")
		}
		if _, err := n.kubelet.Allocate(context.Background(), resource, stickID); err == nil || !strings.Contains(err.Error(), failed) {
			t.Errorf("Allocate of a device that fails a check: %v, want %q", err, failed)
		}
		n.setAttr(dir, "authorized", "1")
		n.untilListed(resource, []string{stickID}, nil)
		if !leads() {
			t.Error("the link of a healthy device is gone")
		}
		n.setAttr(dir, "authorized", "0")
	}
}
