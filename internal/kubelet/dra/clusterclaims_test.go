//go:build cluster

package dra

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/generic-dp/generic-dp/internal/device"
)

const claimsPath = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims"

// claim creates a claim of requests, and a pod for the node that uses it.
func (c *cluster) claim(node, name string, requests []any, constraints ...any) {
	c.t.Helper()
	c.create(claimsPath, anyObject{
		"metadata": anyObject{"name": name},
		"spec":     anyObject{"devices": anyObject{"requests": requests, "constraints": constraints}},
	})
	c.pod(node, name, anyObject{"claims": []any{anyObject{"name": "devices"}}},
		[]any{anyObject{"name": "devices", "resourceClaimName": name}})
}

func (c *cluster) pod(node, name string, resources anyObject, claims []any) {
	c.t.Helper()
	c.create("/api/v1/namespaces/default/pods", anyObject{
		"metadata": anyObject{"name": name},
		"spec": anyObject{
			"nodeSelector":   anyObject{"kubernetes.io/hostname": node},
			"tolerations":    []any{anyObject{"operator": "Exists"}},
			"containers":     []any{anyObject{"name": "c", "image": "none", "resources": resources}},
			"resourceClaims": claims,
		},
	})
}

func request(name, class string, selectors ...string) anyObject {
	list := []any{}
	for _, s := range selectors {
		list = append(list, anyObject{"cel": anyObject{"expression": s}})
	}
	return anyObject{"name": name, "exactly": anyObject{"deviceClassName": class, "selectors": list}}
}

// podState is whether a pod is bound to a node, and whether it is being deleted.
func (c *cluster) podState(name string) (bound, deleted bool) {
	c.t.Helper()
	var pod struct {
		Metadata struct{ DeletionTimestamp string }
		Spec     struct{ NodeName string }
	}
	if err := c.Get(c.t.Context(), "/api/v1/namespaces/default/pods/"+name, &pod); err != nil {
		return false, true
	}
	return pod.Spec.NodeName != "", pod.Metadata.DeletionTimestamp != ""
}

func (c *cluster) untilBound(pods ...string) {
	c.t.Helper()
	for _, name := range pods {
		c.until(name+" bound", func() bool { bound, _ := c.podState(name); return bound })
	}
}

// A pod with a claim is deleted when the grace of its device is over.
func TestClusterEviction(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	p := c.publish(c.node("eviction"), "eviction")
	held := []Device{{Resource: "example.com/held", ID: "stays", Slots: 1}, {Resource: "example.com/held", ID: "goes", Slots: 1}}
	p.Set(held)
	c.untilHas("eviction", "stays", "goes")
	c.class("example.com/held")
	for _, id := range []string{"stays", "goes"} {
		c.claim("eviction", id, []any{request("r", device.ClassName("example.com/held"), fmt.Sprintf("device.attributes[%q].id == %q", Driver, id))})
		c.untilBound(id)
	}
	held = slices.Clone(held)
	const grace = 3 * time.Second
	for i := range held {
		held[i].State, held[i].Since, held[i].EvictAfter = Gone, time.Now(), grace
	}
	held[0].EvictAfter = -1
	p.Set(held)
	c.until("evicted", func() bool { _, deleted := c.podState("goes"); return deleted })
	late := time.Since(held[1].Since) - grace
	t.Logf("the pod was deleted %v after its grace", late.Round(time.Millisecond))
	if late < 0 || late > time.Second {
		t.Errorf("the pod was deleted %v after its grace, want at most 1 s", late)
	}
	if _, deleted := c.podState("stays"); deleted {
		t.Error("a pod was deleted that no grace was set for")
	}
}
