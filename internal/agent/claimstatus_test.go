package agent_test

import (
	"encoding/json"
	"testing"

	"github.com/generic-dp/generic-dp/internal/kubelet/dra"
	"github.com/generic-dp/generic-dp/internal/testing/sysfstest"
)

// A claim shows the network interface of its device with the name in the container, and keeps it while
// the host does not see the interface.
func TestClaimShowsItsInterface(t *testing.T) {
	t.Parallel()
	n, api := newDRANode(t, `domain = "example.com"
[[resource]]
name = "port"
api = "dra"
match.net.name = "eth*"
container.net_name = "lan0"
`)
	n.options.Allow.Net = true
	card := n.host.AddPCI(sysfstest.PCI{Address: "0000:03:00.0", Vendor: "8086", Device: "1533", Class: "020000", Driver: "igb"})
	n.host.AddNet(card, sysfstest.Net{Name: "eth1"})
	n.serve()
	name := dra.DeviceName("0000:03:00.0")
	n.untilPublished(api, map[string]string{name: ""})
	n.until("registration", func() bool { return n.kubelet.Drivers(dra.Driver) == 1 })
	if _, err := n.kubelet.PrepareClaim(t.Context(), dra.Driver, allocate(api, "a", name)); err != nil {
		t.Fatal(err)
	}
	// status is the condition and the network data of the only device of the claim, as JSON.
	status := func() string {
		text, err := json.Marshal(api.Objects(claimObjects)[claimObjects+"/a"])
		var claim struct {
			Status struct {
				Devices []struct {
					Conditions  []struct{ Status, Reason string }
					NetworkData json.RawMessage
				}
			}
		}
		if err == nil {
			err = json.Unmarshal(text, &claim)
		}
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range claim.Status.Devices {
			return d.Conditions[0].Status + " " + d.Conditions[0].Reason + " " + string(d.NetworkData)
		}
		return ""
	}
	const network = `{"hardwareAddress":"02:00:00:00:00:01","interfaceName":"lan0"}`
	n.eventually("the interface in the claim", func() bool { return status() == "True Healthy "+network })
	n.host.Remove(card)
	n.event()
	n.eventually("the loss in the claim", func() bool { return status() == "False Gone "+network })
}
