//go:build cluster

package dra

import (
	"fmt"
	"strings"
	"testing"
)

// A cluster without the feature gate DRAListTypeAttributes, which is off by default, gets all devices
// and allocates them. The package cluster has a test with the feature gate.
func TestClusterWithoutLists(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	api := c.node("listless")
	// The rights of the node permit the question about lists, which stores nothing.
	question := newNodeSlices(nil, "listless").listQuestion()
	question.Spec.Devices[0].Attributes[listName] = attribute{Int: new(int64)}
	if err := api.Create(t.Context(), slicesPath+"?dryRun=All", question, nil); err != nil {
		t.Errorf("the question without a list: %v", err)
	}
	if stored := c.slices("listless"); len(stored) > 0 {
		t.Errorf("the question is stored: %v", stored)
	}
	p := c.publish(api, "listless")
	p.Set(append(listed("list"), devices("single")...))
	all := c.untilHas("listless", "list", "single")
	if got := values(t, all); got != singleValues {
		t.Errorf("attributes %s, want %s", got, singleValues)
	}
	c.until("reported", func() bool { return strings.Contains(p.ListProblem(), "DRAListTypeAttributes") })
	for _, id := range []string{"", "list", "single"} {
		if p.Problem(id) != "" {
			t.Errorf("problem of %q: %s, want none", id, p.Problem(id))
		}
	}
	c.class("example.com/a")
	selector := fmt.Sprintf(`"serial" in device.attributes[%[1]q] && device.attributes[%[1]q].serial == "A1"`, Driver)
	c.claim("listless", "of-listless", []any{request("r", className("example.com/a"), selector)})
	c.untilBound("of-listless")
	if got := c.allocated("of-listless"); got["r"] != "list" {
		t.Errorf("the claim got %v, want the device list", got)
	}
}
