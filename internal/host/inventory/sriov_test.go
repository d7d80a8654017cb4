package inventory_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/generic-dp/generic-dp/internal/device"
	"github.com/generic-dp/generic-dp/internal/host/inventory"
	"github.com/generic-dp/generic-dp/internal/host/sysfs"
	"github.com/generic-dp/generic-dp/internal/testing/sysfstest"
)

// The kernel announces a physical function only after all of its virtual functions, which may take
// seconds. A virtual function counts as one from its own event on. It stays one while it is removed:
// its links are removed before its driver.
func TestVirtualFunctionBeforeThePhysicalOneIsAnnounced(t *testing.T) {
	t.Parallel()
	h := sysfstest.New(t)
	nic := sysfstest.PCI{Address: "0000:3b:00.0", Vendor: "8086", Device: "1572", Class: "020000", Driver: "i40e", TotalVFs: 64}
	pf := h.AddPCI(nic)
	s := newScanner(h)
	update := func(events ...string) map[string]device.PCI {
		t.Helper()
		snap, err := s.Update(t.Context(), inventory.Batch{Paths: events})
		must(t, err)
		found := make(map[string]device.PCI)
		for _, hw := range snap.Hardware {
			found[hw.Name] = *hw.PCI
		}
		return found
	}
	update(h.Uevents()...)
	nic.TotalVFs = 0
	nic.PF = nic.Address
	var vfs []string
	for i, address := range []string{"0000:3b:02.0", "0000:3b:02.1"} {
		nic.Address = address
		nic.VF = i
		vfs = append(vfs, h.AddPCI(nic))
		events := h.Uevents()
		for _, p := range events {
			if !strings.HasSuffix(p, address) {
				t.Fatalf("the virtual function %s causes an event of %s", address, p)
			}
		}
		if got := update(events...)[address]; got.SRIOV != "vf" || got.PF != "0000:3b:00.0" || got.VF != i {
			t.Errorf("%s: %q of %q, number %d; want a virtual function of 0000:3b:00.0, number %d", address, got.SRIOV, got.PF, got.VF, i)
		}
	}
	h.EndVFs(pf)
	if got := update(h.Uevents()...)["0000:3b:00.0"]; got.SRIOV != "pf" {
		t.Errorf("the physical function is %q", got.SRIOV)
	}
	// Without inodes, a function cannot be recognized.
	if !sysfs.New(h.Sysfs()).HasInodes() {
		return
	}
	for _, link := range []string{pf + "/virtfn1", vfs[1] + "/physfn"} {
		must(t, os.Remove(filepath.Join(h.Sysfs(), link)))
	}
	if got := update(vfs[1])["0000:3b:02.1"]; got.SRIOV != "vf" || got.VF != 1 {
		t.Errorf("while it is removed: %q, number %d", got.SRIOV, got.VF)
	}
}
