package dra_test

import (
	"strings"
	"testing"

	"github.com/generic-dp/generic-dp/internal/kubelet/dra"
	"github.com/generic-dp/generic-dp/internal/testing/kubelettest"
)

// Administrators access a device beside its holder. This takes no slot: the device neither gets a
// second holder, nor is it kept from the next one.
func TestAdminAccess(t *testing.T) {
	t.Parallel()
	b := newBed(t, kubelettest.Options{})
	b.host.list()
	net := stick("net")
	net.Moves = true
	described := stick("usb:1")
	described.Attributes = card("1").Attributes
	b.sticks.set(described, net)
	b.serve()
	b.untilDrivers(1)
	prepare := func(name, device string, isAdmin bool) error {
		text := result("one", device)
		if isAdmin {
			text = strings.Replace(text, "{", `{"adminAccess":true,`, 1)
		}
		b.api.set(claim(name), results(text))
		_, err := b.kubelet.PrepareClaim(t.Context(), dra.Driver, claim(name))
		return err
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(prepare("admin", "usb-1", true))
	must(prepare("holder", "usb-1", false))
	must(prepare("admin-2", "usb-1", true))
	if err := prepare("second", "usb-1", false); err == nil || !strings.Contains(err.Error(), "held by claim lab/holder") || strings.Contains(err.Error(), "admin") {
		t.Errorf("a second holder beside administrators: %v", err)
	}
	must(b.kubelet.UnprepareClaim(t.Context(), claim("holder").UID))
	must(prepare("second", "usb-1", false))
	if err := prepare("admin-3", "net", true); err == nil || !strings.Contains(err.Error(), "would move its network interface") {
		t.Errorf("admin access to an interface that moves: %v", err)
	}

	all, err := b.claims.Claims()
	must(err)
	for _, c := range all {
		isAdmin := strings.HasPrefix(c.Name, "admin")
		if isAdmin != (len(c.Devices()) == 0) || isAdmin != (len(c.Requests[0].Admin) == 1) {
			t.Errorf("claim %s holds %q and accesses %q", c.Name, c.Devices(), c.Requests[0].Admin)
		}
	}
	must(b.kubelet.UnprepareClaim(t.Context(), claim("admin").UID))
	if left, err := b.claims.Claims(); err != nil || len(left) != 2 {
		t.Errorf("%d claims after the end of one of three: %v", len(left), err)
	}
}
