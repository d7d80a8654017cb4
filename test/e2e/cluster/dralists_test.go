//go:build cluster

package cluster_test

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	resourcev1 "k8s.io/api/resource/v1"

	"github.com/generic-dp/generic-dp/test/e2e/bed"
	"github.com/generic-dp/generic-dp/test/e2e/cluster"
	"github.com/generic-dp/generic-dp/test/e2e/fixture"
	"github.com/generic-dp/generic-dp/test/e2e/product"
	"github.com/generic-dp/generic-dp/test/e2e/wait"
)

const (
	numaNode = "resource.kubernetes.io/numaNode"
	// pairs has a device of two cards, of NUMA nodes 0 and 1, and a device for each other card.
	pairs = `
domain = "example.com"
api = "dra"
list_attributes = true
[[resource]]
name = "pair"
each = "pci.id"
match = { pci.id = "8086:56c0", glob = "/dev/pair*" }
container.path = "/dev/pair/"
attributes.addresses = ["${pci.address}"]
attributes.releases = { version = ["1.2", "2.0"] }
[[resource]]
name = "card"
match = { pci.id = "10ee:5000", glob = "/dev/card*" }
container.path = "/dev/card"
attributes.address = "${pci.address}"
`
	pairClass = "example.com.pair"
	cardClass = "example.com.card"
)

// exactly is a request for a device of a class that an expression selects. It names the attributes of
// the driver "own".
func exactly(name, class, expression string) string {
	expression = strings.ReplaceAll(expression, "own", fmt.Sprintf("device.attributes[%q]", draDriver))
	return fmt.Sprintf("- {name: %s, exactly: {deviceClassName: %s, selectors: [{cel: {expression: '%s'}}]}}\n", name, class, expression)
}

// lists are the attributes with lists of the only device of the pair.
func (n *draNode) lists() (map[string]resourcev1.DeviceAttribute, error) {
	list, err := n.slices()
	if err != nil {
		return nil, err
	}
	found := map[string]resourcev1.DeviceAttribute{}
	for _, s := range list {
		for _, d := range s.Spec.Devices {
			for name, a := range d.Attributes {
				isList := a.IntValues != nil || a.BoolValues != nil || a.StringValues != nil || a.VersionValues != nil
				if isList {
					found[string(name)] = a
				}
			}
		}
	}
	return found, nil
}

// Claims select by lists, and constraints of 1.37 compare them, if the cluster has the feature. When
// it is disabled, the devices stay allocatable.
func TestDRALists(t *testing.T) {
	t.Parallel()
	bed.OnEachVersion(t, runDRALists)
}

func runDRALists(t *testing.T, v bed.Version) {
	n := newDRANodeWith(t, cluster.Options{Plane: v, Kubelet: v, Gates: []string{"DRAListTypeAttributes"}}, pairs)
	n.spec.Args = append(n.spec.Args, "--listen", "127.0.0.1:9418")
	n.class(t, "example.com/pair")
	n.class(t, "example.com/card")
	for numa, bus := range []string{"3a", "3b"} {
		n.AddPCI(fixture.PCI{Address: "0000:" + bus + ":00.0", ID: "8086:56c0", NUMA: numa, Node: "pair" + bus})
	}
	for numa, bus := range []string{"5a", "5b"} {
		n.AddPCI(fixture.PCI{Address: "0000:" + bus + ":00.0", ID: "10ee:5000", NUMA: numa, Node: "card" + bus})
	}
	n.serve(t)
	n.waitDevices(t, 3)
	want := map[string]resourcev1.DeviceAttribute{
		numaNode:                          {IntValues: []int64{0, 1}},
		"resource.kubernetes.io/pcieRoot": {StringValues: []string{"pci0000:3a", "pci0000:3b"}},
		"addresses":                       {StringValues: []string{"0000:3a:00.0", "0000:3b:00.0"}},
		"releases":                        {VersionValues: []string{"1.2.0", "2.0.0"}},
	}
	got, err := n.lists()
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("lists are %v, want %v", got, want)
	}
	if status := n.status(t); strings.Contains(status, "list_attributes") {
		t.Errorf("status has a problem with lists:\n%s", status)
	}

	runs := func(name, devices string, cards ...string) {
		t.Helper()
		n.claimingPod(t, name, devices).WaitRunning(t)
		got := n.allocatedTo(t, name)
		for _, card := range cards {
			if !slices.Contains(got, draDriver+" "+card) {
				t.Errorf("%s: the claim has %q, want %s", name, got, card)
			}
		}
		n.delete(t, name)
		n.Kubectl(t, "", "delete", "resourceclaim", name)
	}
	for name, expression := range map[string]string{
		"includes":   `own.addresses.includes("0000:3b:00.0")`,
		"membership": `"0000:3a:00.0" in own.addresses`,
		// A single value is like a list of one.
		"single":   `own.resource.includes("example.com/pair")`,
		"versions": `own.releases.exists(v, v.isGreaterThan(semver("1.10.0")))`,
		"numa":     `device.attributes["resource.kubernetes.io"].numaNode.includes(1)`,
	} {
		runs(name, "requests:\n"+exactly("pair", pairClass, expression))
	}
	const (
		any   = "true"
		first = `own.address == "0000:5a:00.0"`
		last  = `own.address == "0000:5b:00.0"`
	)
	constraint := func(requests, kind string) string {
		return fmt.Sprintf("requests:\n%sconstraints:\n- {%s: %s}\n", requests, kind, numaNode)
	}
	pair := exactly("pair", pairClass, any)
	matching := func(card string) string {
		return constraint(pair+exactly("card", cardClass, card), "matchAttribute")
	}
	// All three have no NUMA node in common.
	unsatisfied := map[string]string{
		"match-all": constraint(pair+exactly("one", cardClass, first)+exactly("two", cardClass, last), "matchAttribute"),
	}
	// The scheduler of 1.36 does not compare lists (kubernetes#139332).
	if v == bed.Current {
		unsatisfied["match-first"] = matching(first)
	} else {
		// The pair shares its nodes with each card.
		unsatisfied["distinct"] = constraint(pair+exactly("card", cardClass, last), "distinctAttribute")
		runs("match-first", matching(first), "0000-5a-00--0")
		runs("match-last", matching(last), "0000-5b-00--0")
	}
	for name, devices := range unsatisfied {
		n.claimingPod(t, name, devices)
	}
	for name := range unsatisfied {
		n.wantPending(t, name)
	}
	for name := range unsatisfied {
		n.delete(t, name)
		n.Kubectl(t, "", "delete", "resourceclaim", name)
	}

	// An API server without the feature keeps the lists that it has stored, and a scheduler of 1.36
	// allocates nothing then. The program takes them back.
	n.DisableGates(t)
	wait.Until(t, moveLimit, "slices without lists", func() error {
		left, err := n.lists()
		if err == nil && len(left) > 0 {
			err = fmt.Errorf("lists: %v", left)
		}
		return err
	})
	wait.Until(t, limit, "status with the reason", func() error {
		status := n.status(t)
		if !strings.Contains(status, "list_attributes: ") || !strings.Contains(status, "DRAListTypeAttributes") {
			return fmt.Errorf("status:\n%s", status)
		}
		return nil
	})
	n.waitDevices(t, 3)
	runs("without", "requests:\n"+pair+exactly("card", cardClass, last), "0000-5b-00--0")
}

// status is the status page of the program.
func (n *draNode) status(t *testing.T) string {
	t.Helper()
	// The exit status is 1 if there are problems.
	out, _ := n.Output(t, product.Binary(t), "status", "--listen", "127.0.0.1:9418")
	return string(out)
}
