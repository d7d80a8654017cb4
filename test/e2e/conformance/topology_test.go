package conformance_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	api "k8s.io/kubelet/pkg/apis/podresources/v1"

	"github.com/generic-dp/generic-dp/test/e2e/devicemanager"
	"github.com/generic-dp/generic-dp/test/e2e/fixture"
)

// card is the resource of accelerators, PCI functions with a node each.
const card = "example.com/card"

const accelerators = `
domain = "example.com"
[[resource]]
name = "card"
match = { pci = { id = "8086:56c0" }, glob = "/dev/card*" }
`

func pciCard(bus string, numa int) fixture.PCI {
	return fixture.PCI{Address: "0000:" + bus + ":00.0", ID: "8086:56c0", NUMA: numa, Node: "card" + bus}
}

// cards are the IDs of cards.
func cards(buses ...string) []string {
	var ids []string
	for _, bus := range buses {
		ids = append(ids, "0000:"+bus+":00.0")
	}
	return ids
}

// hardware returns the addresses of the cards with held slots.
func hardware(held [][]string) []string {
	var found []string
	for _, id := range slices.Concat(held...) {
		found = append(found, id[:len("0000:3a:00.0")])
	}
	slices.Sort(found)
	return slices.Compact(found)
}

// waitAll waits until a resource has at least a number of slots and all are free.
func (n *node) waitAll(resource string, devices int64) {
	n.t.Helper()
	eventually(n.t, "all of "+resource, func() error {
		if c := n.Count(resource); c.Capacity < devices || c.Allocatable != c.Capacity {
			return fmt.Errorf("got %v, want at least %d, all free", c, devices)
		}
		return nil
	})
}

// hintsOf returns the hints for a container that requests size devices: the NUMA nodes
// of each, with a "!" after preferred ones.
func (n *node) hintsOf(resource string, size int64) []string {
	n.t.Helper()
	var hints []string
	for _, h := range n.Hints(n.t, devicemanager.Pod("hint", resource, size), "main")[resource] {
		text := strings.Trim(fmt.Sprint(h.NUMANodeAffinity.GetBits()), "[]")
		if h.Preferred {
			text += "!"
		}
		hints = append(hints, text)
	}
	slices.Sort(hints)
	return hints
}

// cm/devicemanager/topology_hints_test.go: TestGetTopologyHints
func TestNUMANodeOfADeviceIsHinted(t *testing.T) {
	n := newNode(t, devicemanager.Options{NUMANodes: []int{0, 1}, Policy: "single-numa-node"})
	n.AddPCI(pciCard("3a", 1))
	n.serve(accelerators)
	n.WaitCount(t, card, count(1, 1))
	if got := n.hintsOf(card, 1); !slices.Equal(got, []string{"1!"}) {
		t.Errorf("hints: %q, want NUMA node 1 alone", got)
	}
	n.wantHeld(n.admit(devicemanager.Pod("aligned", card, 1)), card, cards("3a")...)
}

// cm/devicemanager/topology_hints_test.go: device without topology has no hint. With a
// NUMA node of -1, strict policies would reject every pod.
func TestUnknownNUMANodeGivesNoHint(t *testing.T) {
	n := newNode(t, devicemanager.Options{NUMANodes: []int{0, 1}, Policy: "single-numa-node"})
	n.AddPCI(pciCard("3a", -1))
	n.serve(accelerators)
	n.WaitCount(t, card, count(1, 1))
	if hints, ok := n.Hints(t, devicemanager.Pod("hint", card, 1), "main")[card]; !ok || hints != nil {
		t.Errorf("hints: %v, want no preference", hints)
	}
	n.wantHeld(n.admit(devicemanager.Pod("anywhere", card, 1)), card, cards("3a")...)
}

// e2e_node/podresources_test.go: GetAllocatableResources, with topology and across
// a kubelet restart
func TestAllocatableResourcesShowNUMANodes(t *testing.T) {
	n := newNode(t, devicemanager.Options{NUMANodes: []int{0, 1}, Policy: "restricted"})
	n.AddPCI(pciCard("3a", 1))
	n.AddPCI(pciCard("3b", -1))
	n.serve(accelerators)
	for _, when := range []string{"at first", "after a kubelet restart"} {
		n.WaitCount(t, card, count(2, 2))
		r, err := podResources(t).GetAllocatableResources(context.Background(), &api.AllocatableResourcesRequest{})
		must(t, err)
		var got []string
		for _, d := range r.Devices {
			text := strings.Join(d.DeviceIds, " ")
			for _, numa := range d.GetTopology().GetNodes() {
				text += fmt.Sprint(" on ", numa.ID)
			}
			got = append(got, text)
		}
		slices.Sort(got)
		if want := []string{"0000:3a:00.0 on 1", "0000:3b:00.0"}; !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", when, got, want)
		}
		n.Restart(t)
	}
}
