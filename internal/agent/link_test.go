package agent_test

import (
	"context"
	"strings"
	"testing"

	"github.com/generic-dp/generic-dp/internal/testing/sysfstest"
)

// Virtual functions follow the carrier of their physical function, whatever they are bound to.
func TestVirtualFunctionsFollowTheCarrier(t *testing.T) {
	t.Parallel()
	n := newNode(t, `
domain = "example.com"
[[resource]]
name = "vf"
match.pci.sriov = "vf"
container.env.VF = "${pci.address}"
health = { link = true, interval = "5s" }
`)
	card := n.host.AddPCI(sysfstest.PCI{Address: "0000:3b:00.0", Vendor: "8086", Device: "1572", Class: "020000", TotalVFs: 8})
	n.host.AddNet(card, sysfstest.Net{Name: "ens1f0"})
	other := n.host.AddPCI(sysfstest.PCI{Address: "0000:3b:00.1", Vendor: "8086", Device: "1572", Class: "020000", TotalVFs: 8})
	n.host.AddNet(other, sysfstest.Net{Name: "ens1f1"})
	virtual := func(address, pf string) {
		n.host.AddPCI(sysfstest.PCI{Address: address, Vendor: "8086", Device: "154c", Class: "020000", PF: pf, VF: 0})
	}
	virtual("0000:3b:02.0", "0000:3b:00.0")
	virtual("0000:3b:0a.0", "0000:3b:00.1")
	n.setAttr(card, "net/ens1f0/carrier", "1")
	n.setAttr(other, "net/ens1f1/carrier", "0")
	a, _ := n.serve()
	const resource, plugged, unplugged = "example.com/vf", "0000:3b:02.0", "0000:3b:0a.0"
	const reason = "link of physical function 0000:3b:00.1: no carrier"
	n.untilListed(resource, []string{plugged}, []string{unplugged})
	n.untilReason(a, resource, unplugged, reason)
	if _, err := n.kubelet.Allocate(context.Background(), resource, unplugged); err == nil || !strings.Contains(err.Error(), reason) {
		t.Errorf("Allocate of a function without a carrier: %v, want %q", err, reason)
	}
	n.setAttr(other, "net/ens1f1/carrier", "1")
	n.untilListed(resource, []string{plugged, unplugged}, nil)
}
