package dra_test

import (
	"context"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	health "k8s.io/kubelet/pkg/apis/dra-health/v1"
	claims "k8s.io/kubelet/pkg/apis/dra/v1"

	"github.com/generic-dp/generic-dp/cdi"
	"github.com/generic-dp/generic-dp/internal/holds"
	"github.com/generic-dp/generic-dp/internal/kubelet/dra"
	"github.com/generic-dp/generic-dp/internal/testing/kubeapitest"
	"github.com/generic-dp/generic-dp/internal/testing/kubelettest"
)

func claim(name string) kubelettest.ResourceClaim {
	return kubelettest.ResourceClaim{Namespace: "lab", Name: name, UID: "uid-" + name, Pod: "pod-" + name, Container: "main"}
}

// result is one allocated device of a claim.
func result(request, device string) string {
	return `{"request":"` + request + `","driver":"` + dra.Driver + `","pool":"n1/generic-dp","device":"` + device + `"}`
}

func results(list ...string) string { return `{"results":[` + strings.Join(list, ",") + `]}` }

// A driver is registered before and after the start of the kubelet, and tells health with
// its reason, over both versions of that service.
func TestRegistration(t *testing.T) {
	t.Parallel()
	for _, former := range []bool{false, true} {
		b := newBedOf(t, kubelettest.Options{FormerHealth: former})
		s, stop := b.serveRegistered()
		b.until("status", func() bool { return s.Status().Registered })
		b.until("health", func() bool {
			h := b.kubelet.DeviceHealth(dra.Driver, "n1/generic-dp/usb-2")
			return h.GetHealth() == health.HealthStatus_HEALTHY && h.GetHealthCheckTimeoutSeconds() > 1e6
		})
		gone := stick("usb:2")
		gone.State, gone.Reason = dra.Gone, "device is gone"
		b.sticks.set(stick("usb:1"), gone)
		b.until("health after the loss", func() bool {
			h := b.kubelet.DeviceHealth(dra.Driver, "n1/generic-dp/usb-2")
			return h.GetHealth() == health.HealthStatus_UNHEALTHY && h.GetMessage() == "device is gone"
		})

		b.api.set(claim("a"), results(result("one", "usb-1")))
		if _, err := b.kubelet.PrepareClaim(t.Context(), dra.Driver, claim("a")); err != nil {
			t.Errorf("former %v: %v", former, err)
		}
		b.kubelet.Kill()
		b.until("status without a kubelet", func() bool { return !s.Status().Registered })
		must(t, b.kubelet.Start())
		b.untilDrivers(1)
		b.until("status", func() bool { return s.Status().Registered })
		stop()
		b.untilDrivers(0)
		if left, _ := os.ReadDir(b.options.Registry); len(left) > 0 {
			t.Errorf("left in the registry: %v", left)
		}
	}
}

// The registry comes later, and somebody removes the socket.
func TestSocketIsMadeAgain(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	must(t, os.Remove(b.options.Registry))
	s, _ := b.serve()
	b.until("problem", func() bool {
		return strings.Contains(s.Problem(""), "--plugins-registry: "+b.options.Registry+" does not exist")
	})
	must(t, os.Mkdir(b.options.Registry, 0o755))
	b.untilDrivers(1)
	b.until("no problem", func() bool { return s.Problem("") == "" })
	entries, err := os.ReadDir(b.options.Registry)
	if err != nil || len(entries) != 1 {
		t.Fatalf("registry: %v, %v", entries, err)
	}
	must(t, os.Remove(b.options.Registry+"/"+entries[0].Name()))
	b.until("another socket", func() bool {
		now, _ := os.ReadDir(b.options.Registry)
		return len(now) == 1 && now[0].Name() != entries[0].Name() && s.Status().Registered
	})
}

func TestPrepare(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	b.host.list()
	shared := stick("fuse")
	shared.Slots = 3
	plain := stick("plain")
	of := func(id string) dra.Device {
		d := stick(id)
		d.CDI = []string{"vendor.com/bus=all"}
		return d
	}
	b.sticks.set(of("usb:1"), of("usb:2"), shared, plain)
	b.serveRegistered()

	// All devices of a claim are one environment, which the claim's own names bring.
	c := claim("a")
	share := `{"request":"three","driver":"` + dra.Driver + `","pool":"n1/generic-dp","device":"fuse","shareID":"s1"}`
	foreign := `{"request":"four","driver":"gpu.nvidia.com","pool":"n1/generic-dp","device":"gpu-0"}`
	// The kubelet knows the request of a subrequest only.
	b.api.set(c, results(result("two", "usb-1"), result("one/small", "plain"), result("two", "usb-2"), share, foreign))
	own := func(request string) string { return cdi.Claim{UID: c.UID}.CDIName(cdi.Request{Name: request}) }
	s1 := "s1"
	want := []*claims.Device{
		{RequestNames: []string{"two"}, PoolName: "n1/generic-dp", DeviceName: "usb-1", CdiDeviceIds: []string{"example.com/zigbee=usb:1", "vendor.com/bus=all", own("two")}},
		{RequestNames: []string{"one"}, PoolName: "n1/generic-dp", DeviceName: "plain", CdiDeviceIds: []string{"example.com/zigbee=plain", own("one/small")}},
		{RequestNames: []string{"two"}, PoolName: "n1/generic-dp", DeviceName: "usb-2", CdiDeviceIds: []string{"example.com/zigbee=usb:2"}},
		{RequestNames: []string{"three"}, PoolName: "n1/generic-dp", DeviceName: "fuse", ShareId: &s1, CdiDeviceIds: []string{"example.com/zigbee=fuse", own("three")}},
	}
	for range 2 { // idempotent
		got, err := b.kubelet.PrepareClaim(t.Context(), dra.Driver, c)
		must(t, err)
		same := cmp.Comparer(func(a, b *claims.Device) bool {
			return cmp.Equal(a.RequestNames, b.RequestNames) && a.DeviceName == b.DeviceName && a.PoolName == b.PoolName && cmp.Equal(a.CdiDeviceIds, b.CdiDeviceIds) && cmp.Equal(a.ShareId, b.ShareId)
		})
		if diff := cmp.Diff(want, got, same); diff != "" {
			t.Errorf("devices: %s", diff)
		}
	}
	edits := func(want map[string]string) {
		t.Helper()
		for request, env := range want {
			if e := b.claims.Edits(own(request)); e == nil || !slices.Equal(e.Env, []string{"IDS=" + env}) {
				t.Errorf("edits of request %s: %v, want %s", request, e, env)
			}
		}
	}
	all := "usb:1,plain,usb:2,fuse"
	edits(map[string]string{"two": all, "one/small": all, "three": all})
	// But for the claim of extended resources, where each request is of another container.
	b.api.set(c, results(result("two", "usb-1"), result("one/small", "plain"), result("two", "usb-2"), share, foreign), "extended-resource-claim", "true")
	b.prepare(c)
	edits(map[string]string{"two": "usb:1,usb:2", "one/small": "plain", "three": "fuse"})

	// The scheduler gave a device away twice: the last line of defence.
	other := claim("b")
	b.api.set(other, results(result("one", "usb-2")))
	b.refuses(other, `claim lab/b: device "example.com/zigbee=usb:2": held by claim lab/a`)
	// Two shares of three are free.
	b.api.set(other, results(result("one", "fuse"), result("two", "fuse")))
	b.prepare(other)
	third := claim("c")
	b.api.set(third, results(result("one", "fuse")))
	if _, err := b.kubelet.PrepareClaim(t.Context(), dra.Driver, third); err == nil || !strings.Contains(err.Error(), "claim lab/a (") || !strings.Contains(err.Error(), ", claim lab/b (") {
		t.Errorf("a fourth of three: %v", err)
	}

	for _, uid := range []string{c.UID, c.UID, "uid-never"} {
		if err := b.kubelet.UnprepareClaim(t.Context(), uid); err != nil {
			t.Error(err)
		}
	}
	b.prepare(third)
}

// A claim does not get a card and a function of it, which exclude each other.
func TestClaimOfExclusiveDevices(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	card := stick("card")
	card.Uses = holds.Device{Places: []string{"devices/pci0000:00/0000:00:01.0"}, Exclusive: true}
	function := stick("function")
	function.Uses = holds.Device{Places: []string{"devices/pci0000:00/0000:00:01.0/0000:01:00.0"}, Exclusive: true}
	b.sticks.set(card, function)
	b.serveRegistered()
	b.api.set(claim("a"), results(result("one", "card"), result("two", "function")))
	b.refuses(claim("a"), "exclude each other")
}

func TestRefusedClaims(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	b.serveRegistered()
	c := claim("a")
	pool := strings.Replace(result("one", "usb-1"), "n1", "n2", 1)
	for what, test := range map[string]struct{ allocation, want string }{
		"no allocation":    {"", "is not allocated"},
		"nothing of ours":  {results(`{"request":"a","driver":"x.example.com","pool":"n1/generic-dp","device":"d"}`), "has no device of " + dra.Driver},
		"beside a holder":  {results(strings.Replace(result("one", "usb-1"), "{", `{"adminAccess":true,`, 1)), "adminAccess to device"},
		"another node":     {results(pool), `device "usb-1" is of pool n2/generic-dp, not of the pool of this node (n1/generic-dp)`},
		"unknown device":   {results(result("one", "usb-9")), `device "usb-9" is not offered by DRA`},
		"parameters":       {`{"config":[{"opaque":{"driver":"` + dra.Driver + `","parameters":{}}}],"results":[` + result("one", "usb-1") + `]}`, `has parameters for generic-dp.github.io, which the driver does not support: configure another resource instead`},
		"other parameters": {`{"config":[{"opaque":{"driver":"gpu.nvidia.com","parameters":{}}}],"results":[` + result("one", "usb-1") + `]}`, ""},
	} {
		b.api.set(c, test.allocation)
		_, err := b.kubelet.PrepareClaim(t.Context(), dra.Driver, c)
		switch {
		case test.want == "" && err != nil:
			t.Errorf("%s: %v", what, err)
		case test.want != "" && (err == nil || !strings.HasPrefix(err.Error(), "claim lab/a: ") || !strings.Contains(err.Error(), test.want)):
			t.Errorf("%s: %v, want %q", what, err, test.want)
		}
		b.unprepare(c)
	}
	again := c
	again.UID = "uid-other"
	b.refuses(again, "is another one now")
	b.api.remove(c)
	b.refuses(c, "can't be read")
	if left, _ := b.claims.Claims(); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

// An API server that is slow to answer delays the claim that it is asked for, and no other.
func TestSlowAPIServer(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	b.serveRegistered()
	b.api.set(claim("a"), results(result("one", "usb-1")))
	b.api.set(claim("b"), results(result("one", "usb-2")))
	answer := make(chan struct{})
	b.api.Fault(func(r *http.Request, _ kubeapitest.Object) int {
		if r.URL.Path == claimPath(claim("a")) {
			<-answer
		}
		return 0
	})
	slow := make(chan error, 1)
	go func() {
		_, err := b.kubelet.PrepareClaim(t.Context(), dra.Driver, claim("a"))
		slow <- err
	}()
	if _, err := b.kubelet.PrepareClaim(t.Context(), dra.Driver, claim("b")); err != nil {
		t.Errorf("another claim: %v", err)
	}
	close(answer)
	if err := <-slow; err != nil {
		t.Error(err)
	}
}

// A call that hangs or panics fails its own claim in time, and delays no other.
func TestPrepareAlwaysAnswers(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	b.answer = 3 * time.Second
	b.serveRegistered()
	b.api.set(claim("a"), results(result("one", "usb-1")))
	hang := make(chan struct{})
	b.sticks.setInject(func(context.Context) error { <-hang; return nil })
	b.refuses(claim("a"), "no answer within")
	b.sticks.setInject(nil)
	b.api.set(claim("b"), results(result("one", "usb-2")))
	if _, err := b.kubelet.PrepareClaim(t.Context(), dra.Driver, claim("b")); err != nil {
		t.Errorf("another claim beside a call that never ends: %v", err)
	}
	close(hang)
	b.sticks.setInject(func(ctx context.Context) error {
		<-ctx.Done()
		return ctx.Err()
	})
	began := time.Now()
	if _, err := b.kubelet.PrepareClaim(t.Context(), dra.Driver, claim("a")); err == nil || time.Since(began) > limit/2 {
		t.Errorf("a call that hangs: %v after %s", err, time.Since(began))
	}
	b.sticks.setInject(func(context.Context) error { panic("oh") })
	b.refuses(claim("a"), "oh")
	b.sticks.setInject(nil)
	b.prepare(claim("a"))
}
