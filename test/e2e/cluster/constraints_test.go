//go:build cluster

package cluster_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	resourcev1 "k8s.io/api/resource/v1"

	"github.com/generic-dp/generic-dp/test/e2e/bed"
	"github.com/generic-dp/generic-dp/test/e2e/cluster"
	"github.com/generic-dp/generic-dp/test/e2e/fixture"
	"github.com/generic-dp/generic-dp/test/e2e/sample"
	"github.com/generic-dp/generic-dp/test/e2e/wait"
)

const (
	fpgas = `
domain = "example.com"
api = "dra"
[[resource]]
name = "fpga"
match = { pci.id = "8086:56c0", glob = "/dev/fpga*" }
container.path = "/dev/fpga"
container.env.FPGA = "${id}"
`
	otherDriver = "other.example.com"
	// others are a class and a slice of the other driver, with a device of each NUMA node.
	others = `
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {name: other}
spec: {selectors: [{cel: {expression: device.driver == "` + otherDriver + `"}}]}
---
apiVersion: resource.k8s.io/v1
kind: ResourceSlice
metadata: {name: other}
spec:
  driver: ` + otherDriver + `
  nodeName: ` + bed.NodeName + `
  pool: {name: other, generation: 1, resourceSliceCount: 1}
  devices:
  - {name: numa-0, attributes: {resource.kubernetes.io/numaNode: {int: 0}}}
  - {name: numa-1, attributes: {resource.kubernetes.io/numaNode: {int: 1}}}
`
	numaOne = `device.attributes["resource.kubernetes.io"].numaNode == 1`
)

// bothDrivers are the devices of a claim: one of each driver, whose NUMA nodes a constraint compares.
// The other driver's device is of NUMA node 1.
func bothDrivers(constraint string) string {
	return fmt.Sprintf(`
requests:
- name: fpga
  exactly: {deviceClassName: example.com.fpga}
- name: other
  exactly: {deviceClassName: other, selectors: [{cel: {expression: '%s'}}]}
constraints:
- {requests: [fpga, other], %s: resource.kubernetes.io/numaNode}
`, numaOne, constraint)
}

// allocatedTo returns the devices of a claim, as "DRIVER DEVICE", sorted.
func (n *draNode) allocatedTo(t *testing.T, claim string) (devices []string) {
	t.Helper()
	c, err := cluster.Get[resourcev1.ResourceClaim](n.Cluster, "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims/"+claim)
	if err != nil {
		t.Fatal(err)
	}
	if c.Status.Allocation == nil {
		t.Fatalf("claim %s is not allocated", claim)
	}
	for _, r := range c.Status.Allocation.Devices.Results {
		devices = append(devices, r.Driver+" "+r.Device)
	}
	slices.Sort(devices)
	return devices
}

// A constraint of a claim compares attributes of devices of this driver and of another one. Such a
// claim is prepared by both: a pod starts when the slower driver has prepared it, too.
func TestDRAConstraints(t *testing.T) {
	t.Parallel()
	bed.OnVersions(t, runDRAConstraints)
}

func runDRAConstraints(t *testing.T, v bed.Version) {
	n := newDRANode(t, v, fpgas)
	n.class(t, "example.com/fpga")
	other := &sample.Driver{Name: otherDriver}
	other.Start(t, n.Path("/var/lib/kubelet/plugins_registry"))
	n.Kubectl(t, others, "apply", "-f", "-")
	for numa, bus := range []string{"3a", "3b"} {
		n.AddPCI(fixture.PCI{Address: "0000:" + bus + ":00.0", ID: "8086:56c0", NUMA: numa, Node: "fpga" + bus})
	}
	n.serve(t)
	// The devices of the other driver have no taints.
	n.waitDevices(t, 4)

	for constraint, fpga := range map[string]string{"matchAttribute": "0000:3b:00.0", "distinctAttribute": "0000:3a:00.0"} {
		name := map[string]string{"matchAttribute": "same", "distinctAttribute": "distinct"}[constraint]
		pod := n.claimingPod(t, name, bothDrivers(constraint))
		pod.WaitRunning(t)
		if have := pod.Report(t, "main").Env["FPGA"]; have != fpga {
			t.Errorf("%s: the container has the FPGA %q, want %s", constraint, have, fpga)
		}
		want := []string{draDriver + " " + map[string]string{"0000:3a:00.0": "0000-3a-00--0", "0000:3b:00.0": "0000-3b-00--0"}[fpga], otherDriver + " numa-1"}
		if have := n.allocatedTo(t, name); !slices.Equal(have, want) {
			t.Errorf("%s: the claim has %q, want %q", constraint, have, want)
		}
		n.delete(t, name)
		n.Kubectl(t, "", "delete", "resourceclaim", name)
	}
	if left := other.Prepared(); len(left) > 0 {
		t.Errorf("the other driver has the claims %q after their pods, want none", left)
	}

	// The other driver fails once, after this driver has prepared the claim.
	other.Fail(errors.New("not yet"))
	pod := n.claimingPod(t, "late", bothDrivers("matchAttribute"))
	wait.Until(t, moveLimit, "event of the failure", func() error {
		events := n.Kubectl(t, "", "get", "events", "-o", "jsonpath={.items[*].message}")
		if !strings.Contains(events, "ResourceClaim late: not yet") {
			return fmt.Errorf("events: %s", events)
		}
		return nil
	})
	other.Fail(nil)
	pod.WaitRunning(t)
	if have := pod.Report(t, "main").Env["FPGA"]; have != "0000:3b:00.0" {
		t.Errorf("after the failure the container has the FPGA %q, want 0000:3b:00.0", have)
	}
}
