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
		if values, _ := a.Attr(card, name); strings.Join(values, " ") != want || (values != nil) != (want != "") {
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

// A search that is cut off is a problem, and its values are not known.
func TestSearchForAttributesIsBounded(t *testing.T) {
	t.Parallel()
	h := sysfstest.NewHost(t, sysfstest.HostOptions{})
	const dir = "devices/platform/a"
	for i := range 5000 {
		if err := os.MkdirAll(filepath.Join(h.Sysfs(), dir, fmt.Sprint(i)), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	a := inventory.New(inventory.Options{Sysfs: h.Sysfs(), Dev: h.Dev()}).Attributes()
	for range 2 {
		if values, unread := a.Attr(dir, "*/x"); values != nil || !unread {
			t.Errorf("%q, unread %t; want none, unread", values, unread)
		}
	}
	if p := a.Problems(); len(p) != 1 || !strings.Contains(p[0].Reason, "too many directories") {
		t.Errorf("problems %v", p)
	}
}
