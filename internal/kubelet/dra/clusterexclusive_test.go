//go:build cluster

package dra

import (
	"fmt"
	"testing"
	"time"

	"github.com/generic-dp/generic-dp/internal/device"
)

// The scheduler allocates a hub or the devices below it, by counters. All slots of the hub can be
// allocated once one is.
func TestClusterExclusiveDevices(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	p := c.publish(c.node("exclusive"), "exclusive")
	hub := at("hub", "usb1/1-2")
	hub.Slots = 2
	p.Set([]Device{hub, at("one", "usb1/1-2/1-2.1"), at("two", "usb1/1-2/1-2.2"), at("free", "usb2/2-1")})
	c.untilHas("exclusive", "hub", "one", "two", "free")
	var all []slice // the counters follow the devices
	c.until("published with counters", func() bool {
		all = c.slices("exclusive")
		return len(all) == 2
	})
	if len(all) != 2 || len(all[0].Spec.SharedCounters)+len(all[1].Spec.SharedCounters) != 1 {
		t.Fatalf("slices are %+v: want one with devices and one with counters", all)
	}
	c.class("example.com/r")
	class := device.ClassName("example.com/r")
	claim := func(name, id string) {
		t.Helper()
		c.claim("exclusive", name, []any{request("r", class, fmt.Sprintf("device.attributes[%q].id == %q", Driver, id))})
	}
	remove := func(name string) {
		t.Helper()
		for _, path := range []string{"/api/v1/namespaces/default/pods/" + name + "?gracePeriodSeconds=0", claimsPath + "/" + name} {
			if err := c.Delete(t.Context(), path); err != nil {
				t.Fatal(err)
			}
		}
	}
	waits := func(name string) {
		t.Helper()
		<-time.After(2 * time.Second)
		if bound, _ := c.podState(name); bound {
			t.Fatalf("%s is bound", name)
		}
	}
	claim("port-one", "one")
	c.untilBound("port-one")
	claim("whole-hub", "hub")
	waits("whole-hub")
	claim("port-two", "two")
	claim("other-hub", "free")
	c.untilBound("port-two", "other-hub")
	remove("port-one")
	waits("whole-hub")
	remove("port-two")
	c.untilBound("whole-hub")
	claim("port-again", "one")
	claim("second-slot", "hub")
	c.untilBound("second-slot")
	waits("port-again")
	remove("whole-hub")
	waits("port-again")
	remove("second-slot")
	c.untilBound("port-again")
}
