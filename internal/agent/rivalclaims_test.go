package agent_test

import (
	"strings"
	"testing"
	"time"

	"github.com/generic-dp/generic-dp/internal/kubelet/dra"
	"github.com/generic-dp/generic-dp/internal/testing/kubeapitest"
	"github.com/generic-dp/generic-dp/internal/testing/kubelettest"
)

// byClaim makes resources of a configuration offer their devices by DRA.
func byClaim(text string, names ...string) string {
	for _, name := range names {
		text = strings.Replace(text, "name = \""+name+"\"\n", "name = \""+name+"\"\napi = \"dra\"\n", 1)
	}
	return text
}

// newClaimRivalry is a node with DRA, and a stick that has two names.
func newClaimRivalry(t *testing.T, text string) (*node, *kubeapitest.Server, *clock) {
	t.Helper()
	n, api := newDRANode(t, text)
	n.answerWithin = 3 * time.Second
	n.startWithin = time.Millisecond // the tests have no cgroups
	n.addBus()
	n.host.AddUSB(stick("1-2", "AAAA1111", "ttyUSB0"))
	c := new(clock)
	c.forward(2 * time.Minute)
	n.serveBy(c)
	return n, api, c
}

// One name is offered by DRA and the other one by a device plugin.
func TestClaimAndPluginAreRivals(t *testing.T) {
	t.Parallel()
	n, api, c := newClaimRivalry(t, byClaim(twoNames, "zigbee"))
	zigbee := dra.DeviceName(zigbeeID)
	n.untilPublished(api, map[string]string{zigbee: ""})
	n.untilListed(serialName, []string{serialID}, nil)
	later := func() {
		c.forward(2 * time.Minute)
		n.event()
	}

	// The claim comes first.
	claim := allocate(api, "claim", zigbee)
	if _, err := n.kubelet.PrepareClaim(t.Context(), dra.Driver, claim); err != nil {
		t.Fatal(err)
	}
	_, err := n.kubelet.Allocate(t.Context(), serialName, serialID)
	if err == nil || !strings.Contains(err.Error(), "held as "+zigbeeID) {
		t.Fatalf("Allocate while the claim is prepared: %v", err)
	}
	n.untilListed(serialName, nil, []string{serialID})
	later()
	if err := n.kubelet.UnprepareClaim(t.Context(), claim.UID); err != nil {
		t.Fatal(err)
	}
	// The file of the claim is gone: the device is offered without the minute between two queries.
	c.forward(time.Second)
	n.event()
	n.untilListed(serialName, []string{serialID}, nil)

	// The container comes first.
	pod := kubelettest.Request{Namespace: "default", Pod: "a", Container: "main", Resource: serialName}
	if _, err := n.kubelet.Admit(t.Context(), pod, 1); err != nil {
		t.Fatal(err)
	}
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
	if _, err := n.kubelet.PrepareClaim(t.Context(), dra.Driver, claim); err != nil {
		t.Fatal(err)
	}
}
