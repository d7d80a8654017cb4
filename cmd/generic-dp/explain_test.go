package main

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/generic-dp/generic-dp/config"
	"github.com/generic-dp/generic-dp/internal/testing/sysfstest"
	"github.com/generic-dp/generic-dp/internal/tools/catalog"
)

// On every machine, each example is explained as it is matched: a resource has a reason
// exactly if something is missing, and the devices that are offered.
func TestExplainAgreesWithMatching(t *testing.T) {
	t.Parallel()
	examples, err := filepath.Glob("../../examples/configs/*.toml")
	if err != nil || len(examples) == 0 {
		t.Fatalf("examples: %v, %v", examples, err)
	}
	offers, reasons := 0, 0
	for _, machine := range recordings(t) {
		_, host := recorded(t, machine)
		for _, example := range examples {
			cfg, err := config.Load(example)
			if err != nil {
				t.Fatal(err)
			}
			view := host.With(cfg)
			for i, e := range view.Explain(cfg, nil, nil) {
				offered := 0
				for _, m := range view.Matched.Resources {
					if m.Resource == &cfg.Resources[i] {
						offered += len(m.Offers)
					}
				}
				selected := 0
				for _, m := range e.Matches {
					selected += len(m.Selected)
				}
				switch {
				case len(e.Offered) != offered:
					t.Errorf("%s: %s: %s: explained are %d devices, offered %d", machine, example, e.Resource, len(e.Offered), offered)
				case offered == 0 && e.Reason == "":
					t.Errorf("%s: %s: %s: no device, and no reason", machine, example, e.Resource)
				case offered > 0 && selected == 0:
					t.Errorf("%s: %s: %s offers %d devices, and no match is said to select anything: %+v", machine, example, e.Resource, offered, e.Matches)
				}
				offers += offered
				if e.Reason != "" {
					reasons++
				}
			}
		}
	}
	if offers < 100 || reasons < 100 {
		t.Errorf("%d offers and %d reasons: want hundreds", offers, reasons)
	}
}

// A device is explained by each resource of all examples without contradiction: it is
// offered by those that are said to, and by no other.
func TestExplainEveryDevice(t *testing.T) {
	t.Parallel()
	examples, err := filepath.Glob("../../examples/configs/*.toml")
	if err != nil {
		t.Fatal(err)
	}
	all := &config.Config{}
	for _, example := range examples {
		cfg, err := config.Load(example)
		if err != nil {
			t.Fatal(err)
		}
		all.Resources = append(all.Resources, cfg.Resources...)
	}
	explained := 0
	for _, machine := range recordings(t) {
		_, host := recorded(t, machine)
		view := host.With(all)
		hardware := catalog.New(view.Snapshot, view.Host(), nil)
		for _, d := range hardware.List(view.Matched, view.Matched) {
			if d.Bus == "" || len(d.Nodes) == 0 {
				continue
			}
			found, err := hardware.Find(view.Forms, d.Nodes[0])
			if err != nil {
				t.Fatal(err)
			}
			offered := map[string]bool{}
			for _, o := range d.Offers {
				offered[o.ID] = true
			}
			for _, e := range view.Explain(all, found.Hardware, nil) {
				for _, id := range e.Offered {
					if explained++; !offered[id] {
						t.Errorf("%s: %s: %s is said to offer %s: want one of %v", machine, d.Name, e.Resource, id, d.Offers)
					}
				}
				if len(e.Offered) == 0 && e.Reason == "" {
					t.Errorf("%s: %s: %s does not offer it, and no reason", machine, d.Name, e.Resource)
				}
			}
		}
	}
	if explained < 50 {
		t.Errorf("%d devices are offered: want dozens", explained)
	}
}

// A value that has characters of patterns is its own nearest value, until it is escaped.
func TestExplainEscapes(t *testing.T) {
	t.Parallel()
	h := sysfstest.NewHost(t, sysfstest.HostOptions{})
	h.AddPCI(sysfstest.PCI{Address: "0000:00:14.0", Vendor: "8086", Device: "a36d", Class: "0c0330", Driver: "xhci_hcd"})
	h.AddRootHub("devices/pci0000:00/0000:00:14.0", 1, "480")
	h.AddUSB(sysfstest.USB{Port: "1-1", Vendor: "046d", Product: "082d", ProductName: `Büro "links" [1080p]`})
	file := filepath.Join(t.TempDir(), "config.toml")
	devices := func(name string) string {
		place(t, file, "domain = \"example.com\"\n[[resource]]\nname = \"camera\"\nmatch.usb = { vendor = \"046d\", product_name = '"+name+"' }\n")
		return command(t, "devices", "--config", file, "--sysfs", h.Sysfs(), "--dev", h.Dev(), "--state-dir", t.TempDir())
	}
	const escaped = `Büro "links" \[1080p\]`
	if got := devices(`Büro "links" [1080p]`); !strings.Contains(got, ": with its wildcards escaped it is "+escaped+"\n") {
		t.Errorf("as it is written:\n%s", got)
	}
	if got := devices(escaped); !strings.Contains(got, "usb:046d:082d") {
		t.Errorf("escaped:\n%s", got)
	}
}
