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

// allocated are the devices of a claim by request.
func (c *cluster) allocated(claim string) map[string]string {
	c.t.Helper()
	var object struct {
		Status struct {
			Allocation struct {
				Devices struct {
					Results []struct{ Request, Driver, Device string }
				}
			}
		}
	}
	if err := c.Get(c.t.Context(), claimsPath+"/"+claim, &object); err != nil {
		c.t.Fatal(err)
	}
	out := map[string]string{}
	for _, r := range object.Status.Allocation.Devices.Results {
		out[r.Request] = r.Device
	}
	return out
}

func (c *cluster) untilBound(pods ...string) {
	c.t.Helper()
	for _, name := range pods {
		c.until(name+" bound", func() bool { bound, _ := c.podState(name); return bound })
	}
}

func stick(id, serial string, numa int) Device {
	return Device{
		Resource:   "example.com/stick",
		ID:         id,
		Slots:      1,
		Attributes: map[string]device.Typed{"serial": {Text: serial}},
		NUMA:       []int{numa},
	}
}

// Claims select by attributes, and align with another driver's devices.
func TestClusterClaims(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	p := c.publish(c.node("claims"), "claims")
	sticks := []Device{stick("a", "A1", 0), stick("b", "B2", 1), stick("c", "C3", 0), stick("d", "D4", 1)}
	p.Set(sticks)
	c.untilHas("claims", "a", "b", "c", "d")
	c.class("example.com/stick")
	class := className("example.com/stick")

	c.claim("claims", "by-serial", []any{request("r", class, `device.attributes["generic-dp.github.io"].serial == "B2"`)})
	c.untilBound("by-serial")
	if got := c.allocated("by-serial"); got["r"] != "b" {
		t.Errorf("a claim for serial B2 got %v", got)
	}

	c.create("/apis/resource.k8s.io/v1/deviceclasses", anyObject{
		"metadata": anyObject{"name": "other"},
		"spec":     anyObject{"selectors": []any{anyObject{"cel": anyObject{"expression": `device.driver == "other.example.com"`}}}},
	})
	c.create(slicesPath, anyObject{
		"metadata": anyObject{"name": "other"},
		"spec": anyObject{
			"driver": "other.example.com", "nodeName": "claims",
			"pool":    anyObject{"name": "other", "generation": 1, "resourceSliceCount": 1},
			"devices": []any{anyObject{"name": "card", "attributes": anyObject{numaNode: anyObject{"int": 1}}}},
		},
	})
	c.claim("claims", "aligned", []any{request("card", "other"), request("stick", class)}, anyObject{"matchAttribute": numaNode})
	c.untilBound("aligned")
	if got := c.allocated("aligned"); got["card"] != "card" || got["stick"] != "d" {
		t.Errorf("the claim with a card on NUMA node 1 got %v, want stick d", got)
	}

	// What is left serves an extended resource, but not while it is unhealthy.
	sticks[0].State = Settling
	sticks[2].State = Unhealthy
	p.Set(sticks)
	c.until("tainted", func() bool {
		list := c.slices("claims")[0].Spec.Devices
		return len(list[0].Taints) == 1 && len(list[2].Taints) == 1
	})
	c.pod("claims", "unchanged", anyObject{"limits": anyObject{"example.com/stick": "1"}}, nil)
	<-time.After(2 * time.Second)
	if bound, _ := c.podState("unchanged"); bound {
		t.Error("a pod got an unhealthy device")
	}
	sticks[0].State = Healthy
	p.Set(sticks)
	c.untilBound("unchanged")
}

func TestClusterSlots(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	p := c.publish(c.node("slots"), "slots")
	p.Set([]Device{{Resource: "example.com/Shared_one", ID: "fuse", Slots: 3}})
	c.untilHas("slots", "fuse")
	c.class("example.com/Shared_one")
	class := className("example.com/Shared_one")
	c.claim("slots", "first", []any{request("r", class)})
	c.claim("slots", "two", []any{request("r", class), request("s", class)})
	c.untilBound("first", "two")
	c.claim("slots", "fourth", []any{request("r", class)})
	<-time.After(2 * time.Second)
	if bound, _ := c.podState("fourth"); bound {
		t.Error("four requests hold a device with three slots")
	}
	p.Set([]Device{{Resource: "example.com/Shared_one", ID: "fuse", Slots: 4}})
	c.untilBound("fourth")
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
		c.claim("eviction", id, []any{request("r", className("example.com/held"), fmt.Sprintf("device.attributes[%q].id == %q", Driver, id))})
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
