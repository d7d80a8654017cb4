//go:build cluster

package dra

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/generic-dp/generic-dp/cdi"
	"github.com/generic-dp/generic-dp/internal/device"
	"github.com/generic-dp/generic-dp/internal/kubelet/kubeapi"
)

// A node reports about its own devices in claims, with the rights of the components: a loss is visible
// within seconds, entries of other drivers stay, and a restart writes nothing. The token can change
// neither the allocation nor the claims of other nodes.
func TestClusterClaimStatus(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	api := c.node("status")
	p := c.publish(api, "status")
	card := Device{
		Resource: "example.com/card",
		ID:       "0000:3b:00.1",
		Slots:    2,
		Network:  device.Network{Name: "eth1", Address: "52:54:00:12:34:56"},
	}
	p.Set([]Device{card})
	c.untilHas("status", card.ID)
	c.class("example.com/card")
	c.foreignDevice("status")
	c.claim("status", "status", []any{request("card", className("example.com/card")), request("other", "status-other")})
	c.untilBound("status")
	object := c.resourceClaim("status")
	err := p.Claims.WriteClaim(cdi.Claim{
		Namespace: "default",
		Name:      "status",
		UID:       object.Metadata.UID,
		Requests: []cdi.Request{{
			Name:    "card",
			Devices: []string{card.key()},
			Env:     map[string]string{"A": "B"},
		}},
	})
	if err != nil {
		t.Fatal(err)
	}
	p.reporter.wake()
	until := func(status, reason string) {
		t.Helper()
		began := time.Now()
		c.until(status+" "+reason, func() bool {
			for _, d := range c.resourceClaim("status").Status.Devices {
				is := d.ready() != nil && d.ready().Status == status && d.ready().Reason == reason
				if is && d.Device == card.Name() && d.ShareID != nil && d.NetworkData != nil {
					return true
				}
			}
			return false
		})
		t.Logf("%s %s after %v", status, reason, time.Since(began).Round(time.Millisecond))
	}
	until("True", "Healthy")

	// Another driver reports about its own device.
	foreign := claimPatch{
		APIVersion: "resource.k8s.io/v1",
		Kind:       "ResourceClaim",
		Metadata:   metadata{Name: "status"},
		Status: claimPatchBody{Devices: []deviceStatus{{
			Driver:     "status.example.com",
			Pool:       "status-other",
			Device:     "card",
			Conditions: []condition{{Type: ready, Status: "True", Reason: "Foreign", LastTransitionTime: "2026-01-01T00:00:00Z"}},
		}}},
	}
	path := claimsPath + "/status/status"
	if err := c.Apply(t.Context(), path, "other", foreign, nil); err != nil {
		t.Fatal(err)
	}
	card.State = Gone
	card.Since = time.Now()
	card.Network = device.Network{}
	p.Set([]Device{card})
	until("False", "Gone")
	card.State = Healthy
	p.Set([]Device{card})
	until("True", "Healthy")
	if have := c.resourceClaim("status").reported(foreign.Status.Devices[0]); have.ready() == nil || have.ready().Reason != "Foreign" {
		t.Errorf("the entry of another driver is %+v", have)
	}

	// A restart reads the claim, and writes nothing.
	version := c.resourceClaim("status").Metadata.ResourceVersion
	again := New(p.Options)
	devices, _ := p.List.Get()
	if _, err := again.reporter.report(t.Context(), devices); err != nil || len(again.reporter.done) != 1 {
		t.Errorf("report after a restart: %v, done with %d claims", err, len(again.reporter.done))
	}
	if now := c.resourceClaim("status").Metadata.ResourceVersion; now != version {
		t.Errorf("a restart wrote the claim: version %s, before %s", now, version)
	}

	own := deviceStatus{
		Driver:     Driver,
		Pool:       "status",
		Device:     card.Name(),
		ShareID:    object.Status.Allocation.Devices.Results[0].ShareID,
		Conditions: []condition{{Type: ready, Status: "False", Reason: "Forged", LastTransitionTime: "2026-01-01T00:00:00Z"}},
	}
	forged := foreign
	forged.Status.Devices = []deviceStatus{own}
	thief := c.node("status-thief")
	err = thief.Apply(t.Context(), path, Driver, forged, nil)
	if code := kubeapi.Code(err); code != http.StatusUnprocessableEntity && code != http.StatusForbidden {
		t.Errorf("the token of another node writes the status: %v", err)
	}
	forged.Status.Devices = []deviceStatus{foreign.Status.Devices[0]}
	forged.Status.Devices[0].Conditions[0].Reason = "Forged"
	if err := api.Apply(t.Context(), path, Driver, forged, nil); err == nil {
		t.Error("the token writes the status of another driver's device")
	}
	allocation := json.RawMessage(`{"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": "status"},
		"status": {"reservedFor": [{"resource": "pods", "name": "thief", "uid": "thief"}]}}`)
	err = api.Apply(t.Context(), path, Driver, allocation, nil)
	if err == nil || !strings.Contains(err.Error(), "only status.devices may be written") && !strings.Contains(err.Error(), "resourceclaims/binding") {
		t.Errorf("the token reserves a claim: %v", err)
	}
}

// foreignDevice makes a device of another driver on a node, in a pool and a class "NODE-other".
func (c *cluster) foreignDevice(node string) {
	c.t.Helper()
	name := node + "-other"
	driver := node + ".example.com"
	c.create("/apis/resource.k8s.io/v1/deviceclasses", anyObject{
		"metadata": anyObject{"name": name},
		"spec":     anyObject{"selectors": []any{anyObject{"cel": anyObject{"expression": `device.driver == "` + driver + `"`}}}},
	})
	c.create(slicesPath, anyObject{
		"metadata": anyObject{"name": name},
		"spec": anyObject{
			"driver": driver, "nodeName": node,
			"pool":    anyObject{"name": name, "generation": 1, "resourceSliceCount": 1},
			"devices": []any{anyObject{"name": "card"}},
		},
	})
}

// resourceClaim is a claim of the API server.
func (c *cluster) resourceClaim(name string) *resourceClaim {
	c.t.Helper()
	object := new(resourceClaim)
	if err := c.Get(c.t.Context(), claimsPath+"/"+name, object); err != nil {
		c.t.Fatal(err)
	}
	return object
}
