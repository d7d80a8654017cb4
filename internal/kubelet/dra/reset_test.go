package dra_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/generic-dp/generic-dp/cdi"
	"github.com/generic-dp/generic-dp/internal/kubelet/dra"
	"github.com/generic-dp/generic-dp/internal/testing/kubelettest"
)

// resets are the devices that were reset, in order.
type resets struct {
	mu   sync.Mutex
	list []string
	// react is called in each reset; it may be nil.
	react func() error
}

func (r *resets) reset(_ context.Context, resource, id string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.list = append(r.list, resource+"="+id)
	if r.react != nil {
		return r.react()
	}
	return nil
}

func (r *resets) on(react func() error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.react = react
}

// newResetBed is a bed whose first stick is reset.
func newResetBed(t *testing.T) (*bed, *resets) {
	t.Helper()
	b := newBed(t, kubelettest.Options{})
	first := stick("usb:1")
	first.Resets = true
	b.sticks.set(first, stick("usb:2"))
	r := &resets{}
	b.options.Reset = r.reset
	return b, r
}

// allocated makes a claim with a device.
func (b *bed) allocated(name, device string) kubelettest.ResourceClaim {
	b.Helper()
	c := claim(name)
	b.api.set(c, results(result("r", device)))
	return c
}

// tryPrepare prepares a claim, which may fail.
func (b *bed) tryPrepare(c kubelettest.ResourceClaim) error {
	b.Helper()
	_, err := b.kubelet.PrepareClaim(b.Context(), dra.Driver, c)
	return err
}

// A device is reset once, before the first answer for its claim. A repeated prepare resets nothing:
// the containers of the claim may run.
func TestResetAtFirstPrepare(t *testing.T) {
	t.Parallel()
	b, r := newResetBed(t)
	_, stop := b.serve()
	b.untilDrivers(1)
	c := b.allocated("a", "usb-1")
	// The file of the claim keeps the device from others before it is reset.
	var during cdi.Claim
	r.on(func() error {
		during, _ = b.claims.ReadClaim(c.UID)
		return nil
	})
	if err := b.tryPrepare(c); err != nil {
		t.Fatal(err)
	}
	if want := []string{"example.com/zigbee=usb:1"}; !slices.Equal(during.Unreset, want) || !slices.Equal(during.Devices(), want) {
		t.Errorf("the claim has the devices %q during the reset, of which %q are not reset; want %q", during.Devices(), during.Unreset, want)
	}
	if after, err := b.claims.ReadClaim(c.UID); err != nil || len(after.Unreset) > 0 {
		t.Errorf("after the reset %q are not reset: %v", after.Unreset, err)
	}
	stop()
	b.untilDrivers(0)
	b.serve()
	b.untilDrivers(1)
	b.host.set(podUID(c), dra.PodRunning)
	if err := b.tryPrepare(c); err != nil {
		t.Fatal(err)
	}
	other := b.allocated("b", "usb-2")
	if err := b.tryPrepare(other); err != nil {
		t.Fatal(err)
	}
	if len(r.list) != 1 {
		t.Errorf("resets %q, want one", r.list)
	}
}

// If a reset fails, the claim is not prepared, and another claim may get the device.
func TestResetFails(t *testing.T) {
	t.Parallel()
	b, r := newResetBed(t)
	b.serve()
	b.untilDrivers(1)
	r.on(func() error { return errors.New("it is stuck") })
	c := b.allocated("a", "usb-1")
	if err := b.tryPrepare(c); err == nil || !strings.Contains(err.Error(), "it is stuck") {
		t.Errorf("error %v, want the reason", err)
	}
	if files, _ := b.claims.ClaimFiles(); len(files) > 0 {
		t.Errorf("the claim is prepared: %v", files)
	}
	r.on(nil)
	other := b.allocated("b", "usb-1")
	if err := b.tryPrepare(other); err != nil {
		t.Error(err)
	}
}

// A program that ended during a reset has not reset the device.
func TestResetAfterACrash(t *testing.T) {
	t.Parallel()
	b, r := newResetBed(t)
	c := b.allocated("a", "usb-1")
	const key = "example.com/zigbee=usb:1"
	left := cdi.Claim{Namespace: c.Namespace, Name: c.Name, UID: c.UID, Unreset: []string{key},
		Requests: []cdi.Request{{Name: "r", Devices: []string{key}, Env: map[string]string{"A": "B"}}}}
	if err := b.claims.WriteClaim(left); err != nil {
		t.Fatal(err)
	}
	b.serve()
	b.untilDrivers(1)
	if err := b.tryPrepare(c); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(r.list, []string{key}) {
		t.Errorf("resets %q, want %q", r.list, key)
	}
}

// A pod with adminAccess uses the device, too. It resets nothing itself.
func TestResetBesideAdmin(t *testing.T) {
	t.Parallel()
	b, r := newResetBed(t)
	b.answer = 100 * time.Millisecond
	b.serve()
	b.untilDrivers(1)
	admin := claim("admin")
	access := strings.Replace(result("r", "usb-1"), "}", `,"adminAccess":true}`, 1)
	b.api.set(admin, results(access))
	// The time to answer also limits the read of a claim, which may take longer on a busy machine.
	b.until("the prepare with adminAccess", func() bool { return b.tryPrepare(admin) == nil })
	b.host.set(podUID(admin), dra.PodRunning)
	c := b.allocated("a", "usb-1")
	b.until("the error that names the claim with adminAccess", func() bool {
		err := b.tryPrepare(c)
		if err == nil {
			b.Fatal("the claim is prepared beside a pod with adminAccess")
		}
		return strings.Contains(err.Error(), "lab/admin has adminAccess")
	})
	if len(r.list) > 0 {
		t.Errorf("resets %q beside a pod with adminAccess", r.list)
	}
	b.host.set(podUID(admin), dra.PodEnded)
	b.until("the prepare after the end of that pod", func() bool { return b.tryPrepare(c) == nil })
}
