package node_test

import (
	"os"
	"testing"

	"github.com/generic-dp/generic-dp/test/e2e/bed"
	"github.com/generic-dp/generic-dp/test/e2e/fixture"
)

const resetConfig = `
[[resource]]
name = "fpga"
match = { pci.id = "8086:56c0", glob = "/dev/fpga*" }
container.path = "/dev/fpga"
container.reset = "pci"
`

// TestReset resets a function before each start of a container, and shows why one does not start.
// The kubelet announces each start, and tries again after an error.
func TestReset(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	function := fixture.PCI{Address: "0000:3b:00.0", ID: "8086:56c0", NUMA: -1, Node: "fpga0"}
	n.AddPCI(function)
	attribute := n.AllowReset(function.Address)
	n.serve(t, resetConfig, "--allow", "reset")
	n.Kubelet.WaitAllocatable(t, "example.com/fpga", 1)
	pod := n.run(t, bed.Workload("mine", "example.com/fpga", 1))
	if _, found := pod.Report(t, "main").Node("/dev/fpga"); !found {
		t.Error("the container does not have its node")
	}
	wantReset(t, attribute)
	restart(t, pod, 1)
	wantReset(t, attribute)

	// The container waits, and the pod's status names the device and the reason.
	if err := os.Remove(attribute); err != nil {
		t.Fatal(err)
	}
	pod.Kill(t, "main")
	message := waitStuck(t, pod, `device "0000:3b:00.0" was not reset: `)
	t.Logf("the container waits: %s", message)
	n.AllowReset(function.Address)
	pod.WaitRunning(t)
	wantReset(t, attribute)
	n.wantAllocations(t, "example.com/fpga", 1)
}

// wantReset checks that a function was reset, and makes it look as before.
func wantReset(t *testing.T, attribute string) {
	t.Helper()
	text, err := os.ReadFile(attribute)
	if err != nil || string(text) != "1" {
		t.Errorf("reset has %q, %v; want 1", text, err)
	}
	if err := os.Truncate(attribute, 0); err != nil {
		t.Fatal(err)
	}
}
