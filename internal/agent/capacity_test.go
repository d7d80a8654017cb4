package agent_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/generic-dp/generic-dp/internal/kubelet/dra"
	"github.com/generic-dp/generic-dp/internal/testing/kubeapitest"
	"github.com/generic-dp/generic-dp/internal/testing/kubelettest"
)

// allocateShare makes a claim with a part of a device.
func allocateShare(api *kubeapitest.Server, name, device, bandwidth string) kubelettest.ResourceClaim {
	c := allocate(api, name, device)
	result := kubeapitest.Object{
		"request":          "r",
		"driver":           dra.Driver,
		"pool":             "n1/generic-dp",
		"device":           device,
		"shareID":          "share-" + name,
		"consumedCapacity": kubeapitest.Object{"bandwidth": bandwidth, "slots": "1"},
	}
	api.Put("/apis/resource.k8s.io/v1/namespaces/lab/resourceclaims/"+name, kubeapitest.Object{
		"metadata": kubeapitest.Object{"name": name, "uid": c.UID},
		"status":   kubeapitest.Object{"allocation": kubeapitest.Object{"devices": kubeapitest.Object{"results": []any{result}}}},
	})
	return c
}

// Each claim finds its own part of a capacity in its environment, as a plain number, and claims
// together never hold more than the device has.
func TestEachClaimHasItsAmount(t *testing.T) {
	t.Parallel()
	n, api := newDRANode(t, `
domain = "example.com"
[[resource]]
name = "nic"
api = "dra"
count = 8
match.virtual = "nic"
when.node_name = "n1"
capacity.bandwidth = { value = "10G", default = "1G" }
container.env.BANDWIDTH = "${capacity.bandwidth}"
`)
	n.serve()
	const name = "virtual-example--com-nic-nic"
	n.untilPublished(api, map[string]string{name: ""})
	env := func(claim, amount string) (string, error) {
		devices, err := n.kubelet.PrepareClaim(t.Context(), dra.Driver, allocateShare(api, claim, name, amount))
		if err != nil {
			return "", err
		}
		ids := devices[0].GetCdiDeviceIds()
		edits := n.edits(ids[len(ids)-1])
		i := slices.IndexFunc(edits.Env, func(e string) bool { return strings.HasPrefix(e, "BANDWIDTH=") })
		if i < 0 {
			t.Fatalf("claim %s: no BANDWIDTH in %q", claim, edits.Env)
		}
		return edits.Env[i], nil
	}
	for _, tc := range []struct{ claim, amount, want string }{
		{"a", "7500M", "BANDWIDTH=7500000000"},
		{"b", "2G", "BANDWIDTH=2000000000"},
		{"c", "0.5", "BANDWIDTH=0.5"},
	} {
		got, err := env(tc.claim, tc.amount)
		if got != tc.want || err != nil {
			t.Errorf("claim %s: %q, %v; want %q", tc.claim, got, err, tc.want)
		}
	}
	if got, err := env("d", "500M"); err == nil || !strings.Contains(err.Error(), "held by claim lab/a") {
		t.Errorf("a claim for half a bit more than there is: %q, %v", got, err)
	}
}
