package agent_test

import (
	"errors"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/generic-dp/generic-dp/internal/kubelet/dra"
	"github.com/generic-dp/generic-dp/internal/testing/kubeapitest"
	"github.com/generic-dp/generic-dp/internal/testing/kubelettest"
)

// reserve reserves an allocated claim for pods with these UIDs, and for no others.
func reserve(api *kubeapitest.Server, claim string, uids ...string) {
	path := claimObject(claim)
	object := api.Objects(filepath.Dir(path))[path]
	status := maps.Clone(object["status"].(kubeapitest.Object))
	reserved := []any{}
	for _, uid := range uids {
		reserved = append(reserved, kubeapitest.Object{"resource": "pods", "name": uid, "uid": uid})
	}
	status["reservedFor"] = reserved
	api.Put(path, kubeapitest.Object{"metadata": object["metadata"], "status": status})
}

// serveClaims serves by DRA on a host with visible cgroups, until it offers a device.
func (n *node) serveClaims(api *kubeapitest.Server, id string) *kubelettest.Cgroups {
	n.Helper()
	n.answerWithin = 3 * time.Second // a prepare that must succeed may be slow on a busy machine
	n.startWithin = time.Millisecond
	cgroups := kubelettest.NewCgroups(n)
	n.options.Paths.Cgroup = cgroups.Dir()
	var c clock
	c.forward(time.Hour) // the kubelet knows its pods
	n.serveBy(&c)
	n.untilPublished(api, map[string]string{dra.DeviceName(id): ""})
	n.untilDriver()
	return cgroups
}

// A pod that joins a shared claim after its preparation keeps the device: the kubelet does not
// announce it, but its cgroup shows it.
func TestPodJoinsASharedClaim(t *testing.T) {
	t.Parallel()
	n, api := newDRANode(t, zigbeeDRA)
	n.addSticks(1)
	cgroups := n.serveClaims(api, stickID)
	shared := allocate(api, "shared", dra.DeviceName(stickID))
	reserve(api, "shared", "first")
	n.prepare(shared)
	cgroups.Start("first")
	reserve(api, "shared", "first", "second")
	cgroups.Start("second")
	specs := n.options.Paths.SpecWriter()
	n.eventually("the pod that joined", func() bool {
		c, err := specs.ReadClaim(shared.UID)
		return err == nil && slices.Equal(c.Pods, []string{"first", "second"})
	})

	// Both are deleted with --force. Only the second one has hung containers.
	api.Delete(claimObject("shared"))
	n.kubelet.Remove("lab", shared.Pod)
	cgroups.End("first")
	must(t, n.kubelet.UnprepareClaim(t.Context(), shared.UID))
	next := allocate(api, "next", dra.DeviceName(stickID))
	_, err := n.kubelet.PrepareClaim(t.Context(), dra.Driver, next)
	if err == nil || !strings.Contains(err.Error(), "processes of its pod second still run") {
		t.Errorf("the device of a pod that joined its claim: %v", err)
	}
	cgroups.End("second")
	n.prepare(next)
}

// A claim that the kubelet has forgotten does not keep its slot only because another claim has
// another slot of the same device.
func TestForgottenClaimFreesItsSlot(t *testing.T) {
	t.Parallel()
	n, api := newDRANode(t, "api = \"dra\"\n"+parts("seat count = 2"))
	n.addNodes("seat-0")
	n.serveClaims(api, "seat-0")
	prepare := func(name string) error {
		c := allocate(api, name, dra.DeviceName("seat-0"))
		reserve(api, name, "uid-of-"+name)
		_, err := n.kubelet.PrepareClaim(t.Context(), dra.Driver, c)
		return err
	}
	must(t, errors.Join(prepare("lost"), prepare("other")))
	if err := prepare("third"); err == nil {
		t.Error("a device with two slots has three holders")
	}
	api.Delete(claimObject("lost"))
	n.kubelet.Remove("lab", "pod-lost")
	if err := prepare("next"); err != nil {
		t.Error(err)
	}
}

// byClaim makes resources of a configuration offer their devices by DRA.
func byClaim(text string, names ...string) string {
	for _, name := range names {
		text = strings.Replace(text, "name = \""+name+"\"\n", "name = \""+name+"\"\napi = \"dra\"\n", 1)
	}
	return text
}

// One name is offered by DRA and the other one by a device plugin.
func TestClaimAndPluginAreRivals(t *testing.T) {
	t.Parallel()
	n, api := newDRANode(t, byClaim(twoNames, "zigbee"))
	n.answerWithin = 3 * time.Second
	n.startWithin = time.Millisecond // this test has no cgroups
	n.addSticks(1)
	var c clock
	c.forward(2 * time.Minute)
	n.serveBy(&c)
	zigbee := dra.DeviceName(zigbeeID)
	n.untilPublished(api, map[string]string{zigbee: ""})
	n.untilListed(serialName, []string{serialID}, nil)
	later := func() {
		c.forward(2 * time.Minute)
		n.event()
	}

	// The claim comes first.
	claim := allocate(api, "claim", zigbee)
	n.prepare(claim)
	_, err := n.kubelet.Allocate(t.Context(), serialName, serialID)
	if err == nil || !strings.Contains(err.Error(), "held as "+zigbeeID) {
		t.Fatalf("Allocate while the claim is prepared: %v", err)
	}
	n.untilListed(serialName, nil, []string{serialID})
	later()
	must(t, n.kubelet.UnprepareClaim(t.Context(), claim.UID))
	// The file of the claim is gone: the device is offered without the minute between two queries.
	c.forward(time.Second)
	n.event()
	n.untilListed(serialName, []string{serialID}, nil)

	// The container comes first.
	_, err = n.kubelet.Admit(t.Context(), request("a", serialName), 1)
	must(t, err)
	_, err = n.kubelet.PrepareClaim(t.Context(), dra.Driver, claim)
	if err == nil || !strings.Contains(err.Error(), "held as "+serialID) {
		t.Fatalf("the claim while the container runs: %v", err)
	}
	n.untilPublished(api, map[string]string{zigbee: "NoSchedule"})
	later()
	later()
	if _, err = n.kubelet.PrepareClaim(t.Context(), dra.Driver, claim); err == nil {
		t.Fatal("the claim is prepared while the container runs")
	}
	n.kubelet.Remove("default", "a")
	n.eventually("the device of DRA has no taint", func() bool {
		later()
		return published(api)[zigbee] == ""
	})
	n.prepare(claim)
}
