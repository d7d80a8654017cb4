package inventory_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/generic-dp/generic-dp/internal/host/inventory"
	"github.com/generic-dp/generic-dp/internal/testing/sysfstest"
)

func writeAttr(t *testing.T, tree sysfstest.Tree, file, text string) {
	t.Helper()
	name := filepath.Join(tree.Sysfs(), file)
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// The values of one snapshot do not change, and the next one reads again.
func TestAttributes(t *testing.T) {
	t.Parallel()
	h := sysfstest.NewHost(t, sysfstest.HostOptions{})
	card := h.AddPCI(sysfstest.PCI{Address: "0000:03:00.0", Vendor: "1002", Device: "740f", Class: "038000", Driver: "amdgpu"})
	writeAttr(t, h.Tree, card+"/rom2/VBNV", "113-D67301-063\n")
	s := inventory.New(inventory.Options{Sysfs: h.Sysfs(), Dev: h.Dev()})
	if _, err := s.Scan(t.Context()); err != nil {
		t.Fatal(err)
	}
	check := func(a *inventory.Attributes, name, want string) {
		t.Helper()
		if values, _ := a.Attr(card, name, new(1000)); strings.Join(values, " ") != want || (values != nil) != (want != "") {
			t.Errorf("%s = %q; want %q", name, values, want)
		}
	}
	a := s.Attributes()
	check(a, "rom*/VBNV", "113-D67301-063")
	check(a, "missing", "")
	check(a, "../0000:03:00.0/vendor", "")
	if got := a.Driver(card); got != "amdgpu" {
		t.Errorf("Driver = %q", got)
	}
	if got := a.Driver("devices/pci0000:00"); got != "" {
		t.Errorf("Driver of a host bridge = %q", got)
	}
	writeAttr(t, h.Tree, card+"/rom2/VBNV", "another\n")
	writeAttr(t, h.Tree, card+"/missing", "there\n")
	check(a, "rom*/VBNV", "113-D67301-063")
	check(a, "missing", "")
	next := s.Attributes()
	writeAttr(t, h.Tree, card+"/rom3/VBNV", "third\n")
	check(next, "rom*/VBNV", "another third")
	check(next, "missing", "there")
	if p := append(a.Problems(), next.Problems()...); len(p) > 0 || len(a.UnreadHardware())+len(next.UnreadHardware()) > 0 {
		t.Errorf("problems %v, unread %v", p, a.UnreadHardware())
	}
}

// The cost of a search does not depend on whether it was made before, and one that uses the
// budget up has no answer. The next caller with a budget gets one.
func TestBudgetOfAttributes(t *testing.T) {
	t.Parallel()
	h := sysfstest.NewHost(t, sysfstest.HostOptions{})
	const dir = "devices/platform/a"
	for i := range 20 {
		writeAttr(t, h.Tree, fmt.Sprintf("%s/%d/x", dir, i), "on\n")
	}
	scanner := inventory.New(inventory.Options{Sysfs: h.Sysfs(), Dev: h.Dev()})
	// On a busy machine, a read may take too long. Then it has the last value, which it has from here on.
	for isUnread := true; isUnread; {
		entries := 10_000
		_, isUnread = scanner.Attributes().Attr(dir, "*/x", &entries)
	}
	a := scanner.Attributes()
	small := 30
	values, unread := a.Attr(dir, "*/x", &small)
	if values != nil || !unread || small != 0 {
		t.Errorf("with 30 entries: %q, unread %t, %d left; want none, unread, 0", values, unread, small)
	}
	var costs []int
	for range 2 {
		entries := 10_000
		values, unread = a.Attr(dir, "*/x", &entries)
		if len(values) != 20 || unread {
			t.Errorf("%d values, unread %t; want 20", len(values), unread)
		}
		costs = append(costs, 10_000-entries)
	}
	if costs[0] != costs[1] || costs[0] < 40 {
		t.Errorf("costs of %d, want twice the same above 40", costs)
	}
	small = 30
	_, unread = a.Attr(dir, "*/x", &small)
	if !unread || small != 0 {
		t.Errorf("known, with 30 entries: unread %t, %d left", unread, small)
	}
	if n := len(a.UnreadHardware()); n > 0 {
		t.Errorf("%d unread devices: a scan would be repeated for nothing", n)
	}
}
