package inventory_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/generic-dp/generic-dp/internal/device"
	"github.com/generic-dp/generic-dp/internal/host/inventory"
	"github.com/generic-dp/generic-dp/internal/testing/sysfstest"
)

var update = flag.Bool("update", false, "write the golden files")

// scan scans a host.
func scan(t testing.TB, tree sysfstest.Tree) *device.Snapshot {
	t.Helper()
	snap, _ := look(t, tree)
	return snap
}

func look(t testing.TB, tree sysfstest.Tree) (*device.Snapshot, *inventory.Attributes) {
	t.Helper()
	snap, s := sysfstest.Scan(t, inventory.Options{Sysfs: tree.Sysfs(), Dev: tree.Dev()})
	return snap, s.Attributes()
}

// noProblems fails the test if the scan has problems.
func noProblems(t testing.TB, snap *device.Snapshot) {
	t.Helper()
	for _, p := range snap.Problems {
		t.Errorf("problem: %s: %s", p.Subject, p.Reason)
	}
}

// dump formats a snapshot for people, one line per item.
func dump(s *device.Snapshot, attrs *inventory.Attributes) string {
	var b strings.Builder
	for _, h := range s.Hardware {
		fmt.Fprintf(&b, "%s %s\n  path %s\n  numa %d", h.Bus, h.Name, h.Path, h.NUMA)
		if h.Parent != nil {
			fmt.Fprintf(&b, ", below %s", h.Parent.Name)
		}
		b.WriteString("\n")
		if p := h.PCI; p != nil {
			fmt.Fprintf(&b, "  id %s:%s, subsystem %s:%s, class %s, revision %s, driver %q, iommu group %q, sriov %s",
				p.Vendor, p.Device, p.SubVendor, p.SubDevice, p.Class, p.Revision, p.Driver, p.IOMMUGroup, p.SRIOV)
			if p.VF >= 0 {
				fmt.Fprintf(&b, " %d of %s", p.VF, p.PF)
			}
			if p.VFIO {
				b.WriteString(", by vfio")
			}
			b.WriteString("\n")
		}
		if u := h.USB; u != nil {
			fmt.Fprintf(&b, "  id %s:%s, serial %q, class %s, speed %s, controller %s, chain %q\n  %q %q\n",
				u.Vendor, u.Product, u.Serial, u.Class, u.Speed, u.Controller, u.Chain, u.Manufacturer, u.ProductName)
			for _, i := range u.Interfaces {
				fmt.Fprintf(&b, "  interface %d, class %s, driver %q\n", i.Number, i.Class, i.Driver)
			}
		}
		if m := h.MDev; m != nil {
			fmt.Fprintf(&b, "  type %s %q, iommu group %q\n", m.Type, m.Name, m.IOMMUGroup)
		}
		for _, n := range h.Nodes {
			fmt.Fprintf(&b, "  node %s\n", n.Path)
		}
		for _, n := range h.Nets {
			fmt.Fprintf(&b, "  interface %s\n", n.Path)
		}
	}
	b.WriteString("\n")
	for _, n := range slices.Concat(s.Nodes, s.Nets) {
		fmt.Fprintf(&b, "%s %c", n.Path, n.Type)
		if n.Net == nil {
			fmt.Fprintf(&b, " %d:%d", n.Major, n.Minor)
		} else {
			fmt.Fprintf(&b, " %s, driver %q", n.Net.Type, n.Net.Driver)
		}
		if n.SysPath != "" {
			fmt.Fprintf(&b, " %s %s", n.Subsystem, n.Kernel)
		}
		if n.Hardware != nil {
			fmt.Fprintf(&b, " of %s", n.Hardware.Name)
		}
		if n.Interface >= 0 {
			fmt.Fprintf(&b, ", interface %d", n.Interface)
		}
		if n.Index >= 0 {
			fmt.Fprintf(&b, ", index %d", n.Index)
		}
		if why := attrs.InUse(n); why != "" {
			fmt.Fprintf(&b, ", in use: %s", why)
		}
		b.WriteString("\n")
	}
	for _, l := range s.Links {
		fmt.Fprintf(&b, "%s -> %s\n", l.Path, l.Node.Path)
	}
	for _, d := range s.Dirs {
		fmt.Fprintf(&b, "%s/\n", d)
	}
	return b.String()
}

func machines(t testing.TB) []string {
	t.Helper()
	files, err := filepath.Glob("../../../testdata/machines/*.txtar")
	if err != nil || len(files) < 4 {
		t.Fatalf("machines: %q, %v", files, err)
	}
	return files
}

func TestMachines(t *testing.T) {
	t.Parallel()
	for _, file := range machines(t) {
		name := strings.TrimSuffix(filepath.Base(file), ".txtar")
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tree := sysfstest.Load(t, file)
			snap, attrs := look(t, tree)
			noProblems(t, snap)
			got := dump(snap, attrs)
			golden := filepath.Join("testdata", name+".golden")
			if *update {
				must(t, os.WriteFile(golden, []byte(got), 0o644))
			}
			want, err := os.ReadFile(golden)
			must(t, err)
			equal(t, "go test -update writes it anew", string(want), got)
			equal(t, "a second scan differs", snap, scan(t, tree))
		})
	}
}
