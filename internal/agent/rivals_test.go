package agent_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/generic-dp/generic-dp/internal/agent"
	"github.com/generic-dp/generic-dp/internal/device"
	"github.com/generic-dp/generic-dp/internal/testing/kubelettest"
)

// twoNames offers a stick by two names, of which containers hold one at a time.
const twoNames = `
domain = "example.com"
[[resource]]
name = "zigbee"
match = { usb = { id = "10c4:ea60" }, glob = "/dev/ttyUSB*" }
shared = "exclusive"
[[resource]]
name = "serial"
match.glob = "/dev/ttyUSB*"
each = "node"
shared = "exclusive"
`

const (
	zigbeeName = "example.com/zigbee"
	serialName = "example.com/serial"
)

// The IDs of the stick by its two names.
var (
	zigbeeID = device.SharedID(zigbeeName, stickID)
	serialID = device.SharedID(serialName, stickID+":if00:ttyUSB")
)

// rivalry is a node with a stick that has two names, whose kubelet knows its pods.
type rivalry struct {
	*holding
	clock *clock
	agent *agent.Agent
	stop  func()
}

func newRivalry(t *testing.T, text string) *rivalry {
	t.Helper()
	r := &rivalry{holding: newHolding(t, text), clock: new(clock)}
	r.host.AddBus()
	r.host.AddUSB(stick("1-2", "AAAA1111", "ttyUSB0"))
	// A kubelet that has just started may lack pods.
	r.clock.forward(2 * time.Minute)
	r.agent, r.stop = r.serveBy(r.clock)
	return r
}

// request is the request of a pod for one device.
func request(pod, resource string) kubelettest.Request {
	return kubelettest.Request{Namespace: "default", Pod: pod, Container: "main", Resource: resource}
}

// ends ends a pod and its processes.
func (r *rivalry) ends(pod, uid string) {
	r.Helper()
	r.cgroups.End(uid)
	r.kubelet.Remove("default", pod)
}

// later moves the clock, and has the kubelet asked again.
func (r *rivalry) later(by time.Duration) {
	r.Helper()
	r.clock.forward(by)
	r.event()
}

// refuses asks for a device as a kubelet with an older list does, which must fail because of its
// rival. It may first fail for another reason: a device that was plugged in settles first.
func (r *rivalry) refuses(resource, id, rival string) {
	r.Helper()
	r.eventually("an error that names "+rival, func() bool {
		_, err := r.kubelet.Allocate(r.Context(), resource, id)
		if err == nil {
			r.Fatalf("%s was allocated while %s may be held", id, rival)
		}
		return strings.Contains(err.Error(), "held as "+rival)
	})
}

// listed waits until both names have the given health.
func (r *rivalry) listed(zigbee, serial bool) {
	r.Helper()
	for _, c := range []struct {
		resource, id string
		isHealthy    bool
	}{{zigbeeName, zigbeeID, zigbee}, {serialName, serialID, serial}} {
		if c.isHealthy {
			r.untilListed(c.resource, []string{c.id}, nil)
		} else {
			r.untilListed(c.resource, nil, []string{c.id})
		}
	}
}

// Of two names of one stick, containers hold one at a time. The other one is unhealthy meanwhile.
func TestExclusiveDeviceHasOneHolder(t *testing.T) {
	t.Parallel()
	r := newRivalry(t, twoNames)
	r.listed(true, true)
	uid := r.runs("a", zigbeeName)
	r.refuses(serialName, serialID, zigbeeID)
	r.listed(true, false)
	r.later(5 * time.Minute)
	r.refuses(serialName, serialID, zigbeeID)
	r.ends("a", uid)
	r.later(5 * time.Minute)
	r.listed(true, true)
	r.runs("b", serialName)
	r.refuses(zigbeeName, zigbeeID, serialID)
	r.listed(false, true)
}

// Calls for both names at the same time: at most one succeeds.
func TestConcurrentCallsForRivals(t *testing.T) {
	t.Parallel()
	r := newRivalry(t, twoNames)
	r.listed(true, true)
	successes := 0
	for range 20 {
		var calls sync.WaitGroup
		errs := make([]error, 2)
		for i, c := range [][2]string{{zigbeeName, zigbeeID}, {serialName, serialID}} {
			calls.Go(func() {
				_, errs[i] = r.kubelet.Allocate(r.Context(), c[0], c[1])
			})
		}
		calls.Wait()
		if errs[0] == nil && errs[1] == nil {
			t.Fatal("both calls succeeded")
		}
		if errs[0] == nil || errs[1] == nil {
			successes++
		}
		r.later(5 * time.Minute)
		r.listed(true, true)
	}
	if successes < 20 {
		t.Errorf("%d of 20 times one of two calls succeeded, want always", successes)
	}
}

// A restart forgets no grant, whether the kubelet answers or not.
func TestGrantSurvivesARestart(t *testing.T) {
	t.Parallel()
	r := newRivalry(t, twoNames)
	r.listed(true, true)
	if _, err := r.kubelet.Allocate(r.Context(), zigbeeName, zigbeeID); err != nil {
		t.Fatal(err)
	}
	r.stop()
	r.kubelet.RefusePods(fmt.Errorf("overloaded"))
	registrations := r.kubelet.Registrations(serialName)
	r.agent, r.stop = r.serveBy(r.clock)
	r.until("registration", func() bool { return r.kubelet.Registrations(serialName) > registrations })
	r.listed(true, false)
	r.refuses(serialName, serialID, zigbeeID)
}

// The configuration changes while a pod holds the stick.
func TestEditToExclusiveAndBack(t *testing.T) {
	t.Parallel()
	r := newRivalry(t, zigbee)
	r.untilListed(zigbeeName, []string{stickID}, nil)
	uid := r.runs("a", zigbeeName)
	r.configure(twoNames)
	r.untilListed(zigbeeName, nil, []string{stickID})
	r.later(5 * time.Minute)
	r.later(5 * time.Minute)
	for _, c := range [][2]string{{zigbeeName, zigbeeID}, {serialName, serialID}} {
		if _, err := r.kubelet.Allocate(r.Context(), c[0], c[1]); err == nil {
			t.Fatalf("%s was allocated while the pod runs", c[1])
		}
	}
	r.ends("a", uid)
	r.untilOffered(r.agent, r.clock, serialName, serialID)
	uid = r.runs("b", serialName)
	r.configure(zigbee)
	r.untilListed(serialName, nil, []string{serialID})
	r.later(5 * time.Minute)
	if _, err := r.kubelet.Allocate(r.Context(), zigbeeName, stickID); err == nil {
		t.Fatal("the stick was allocated while the pod runs")
	}
	r.ends("b", uid)
	r.untilOffered(r.agent, r.clock, zigbeeName, stickID)
}
