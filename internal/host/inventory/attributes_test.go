package inventory_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/generic-dp/generic-dp/internal/host/inventory"
	"github.com/generic-dp/generic-dp/internal/testing/sysfstest"
)

func writeAttr(t *testing.T, tree sysfstest.Tree, file, text string) {
	t.Helper()
	name := filepath.Join(tree.Sysfs(), file)
	must(t, os.MkdirAll(filepath.Dir(name), 0o755))
	must(t, os.WriteFile(name, []byte(text), 0o644))
}

// The values of one snapshot do not change, and the next one reads again.
func TestAttributes(t *testing.T) {
	t.Parallel()
	h := sysfstest.New(t)
	card := h.AddPCI(sysfstest.PCI{Address: "0000:03:00.0", Vendor: "1002", Device: "740f", Class: "038000", Driver: "amdgpu"})
	writeAttr(t, h.Tree, card+"/rom2/VBNV", "113-D67301-063\n")
	s := newScanner(h)
	if _, err := s.Scan(t.Context()); err != nil {
		t.Fatal(err)
	}
	check := func(a *inventory.Attributes, name, want string) {
		t.Helper()
		if values, _ := a.Attr(card, name, time.Now().Add(time.Hour)); strings.Join(values, " ") != want || (values != nil) != (want != "") {
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

// The values of a search that is cut off are not known, until another one has the time.
func TestSearchForAttributesIsBounded(t *testing.T) {
	t.Parallel()
	h := sysfstest.New(t)
	writeAttr(t, h.Tree, "devices/platform/a/b/x", "on\n")
	a := newScanner(h).Attributes()
	if values, unread := a.Attr("devices/platform/a", "*/x", time.Now()); values != nil || !unread {
		t.Errorf("%q, unread %t; want none, unread", values, unread)
	}
	if n := len(a.UnreadHardware()); n > 0 {
		t.Errorf("%d unread devices: a scan would be repeated for nothing", n)
	}
	values, _ := a.Attr("devices/platform/a", "*/x", time.Now().Add(time.Hour))
	if len(values) > 0 && values[0] != "on" { // on a busy machine, the read of the value may take too long
		t.Errorf("%q", values)
	}
}
