package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/generic-dp/generic-dp/config"
	"github.com/generic-dp/generic-dp/internal/agent"
	"github.com/generic-dp/generic-dp/internal/testing/sysfstest"
	"github.com/generic-dp/generic-dp/internal/tools/catalog"
)

// story is an example and a machine on which it is served. The stories are in examples/testdata.
type story struct{ example, machine string }

func stories(t *testing.T) (all []story) {
	t.Helper()
	files, err := filepath.Glob("../../examples/testdata/*.txt")
	must(t, err)
	value := regexp.MustCompile(`(?m)^(config|machine): *(\S+)$`)
	for _, file := range files {
		text, err := os.ReadFile(file)
		must(t, err)
		var s story
		for _, m := range value.FindAllStringSubmatch(string(text), 2) {
			if m[1] == "config" {
				s.example = "../../examples/configs/" + m[2]
			} else {
				s.machine = "../../testdata/machines/" + m[2] + ".txtar"
			}
		}
		all = append(all, s)
	}
	if len(all) < 40 {
		t.Fatalf("%d stories, want dozens", len(all))
	}
	return all
}

// Each example is explained as it is matched: a resource has a reason exactly if something is
// missing, and the devices that are offered. A device is explained without contradiction: it is
// offered by the resources that are said to offer it, and by no other.
func TestExplainAgreesWithMatching(t *testing.T) {
	t.Parallel()
	for _, s := range stories(t) {
		t.Run(filepath.Base(s.example)+" on "+filepath.Base(s.machine), func(t *testing.T) {
			t.Parallel()
			_, host := recorded(t, s.machine)
			files, _, err := config.Read(s.example)
			must(t, err)
			cfg, err := config.Parse(files...)
			must(t, err)
			view := host.With(cfg)
			explainResources(t, cfg, view)
			explainDevices(t, cfg, view)
		})
	}
}

func explainResources(t *testing.T, cfg *config.Config, view *agent.View) {
	t.Helper()
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
			t.Errorf("%s: explained are %d devices, offered %d", e.Resource, len(e.Offered), offered)
		case offered == 0 && e.Reason == "":
			t.Errorf("%s: no device, and no reason", e.Resource)
		case offered > 0 && selected == 0:
			t.Errorf("%s offers %d devices, and no match is said to select anything: %+v", e.Resource, offered, e.Matches)
		}
	}
}

func explainDevices(t *testing.T, cfg *config.Config, view *agent.View) {
	t.Helper()
	hardware := catalog.New(view.Snapshot, view.Host(), nil)
	for _, d := range hardware.List(view.Matched, view.Matched) {
		if d.Bus == "" || len(d.Nodes) == 0 {
			continue
		}
		found, err := hardware.Find(view.Forms, d.Nodes[0])
		must(t, err)
		offered := map[string]bool{}
		for _, o := range d.Offers {
			offered[o.ID] = true
		}
		for _, e := range view.Explain(cfg, found.Hardware, nil) {
			for _, id := range e.Offered {
				if !offered[id] {
					t.Errorf("%s: %s is said to offer %s: want one of %v", d.Name, e.Resource, id, d.Offers)
				}
			}
			if len(e.Offered) == 0 && e.Reason == "" {
				t.Errorf("%s: %s does not offer it, and no reason", d.Name, e.Resource)
			}
		}
	}
}

// A value that has characters of patterns is its own nearest value, until it is escaped.
func TestExplainEscapes(t *testing.T) {
	t.Parallel()
	h := sysfstest.New(t)
	h.AddPCI(sysfstest.PCI{Address: "0000:00:14.0", Vendor: "8086", Device: "a36d", Class: "0c0330", Driver: "xhci_hcd"})
	h.AddRootHub("devices/pci0000:00/0000:00:14.0", 1, "480")
	h.AddUSB(sysfstest.USB{Port: "1-1", Vendor: "046d", Product: "082d", ProductName: `Büro "links" [1080p]`})
	file := filepath.Join(t.TempDir(), "config.toml")
	devices := func(name string) string {
		place(t, file, "domain = \"example.com\"\n[[resource]]\nname = \"camera\"\nmatch.usb = { id = \"046d:*\", product_name = '"+name+"' }\n")
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

// A function that comes with another one, since VFIO gives whole IOMMU groups.
func TestExplainGroupMembers(t *testing.T) {
	t.Parallel()
	config := t.TempDir() + "/config.toml"
	place(t, config, "[[resource]]\nname = \"example.com/fc\"\nmatch = { pci.id = \"1077:2281\", vfio = true }\n")
	nodes := t.TempDir() + "/config.toml"
	place(t, nodes, "[[resource]]\nname = \"example.com/fc\"\nmatch = { pci.address = \"0000:af:00.*\", glob = \"/dev/vfio/**\" }\n")
	own := command(t, "explain", "0000:af:00.1", "--config", nodes, "--sysfs", "../../testdata/machines/kubevirt-host.txtar")
	if !strings.Contains(own, "example.com/fc: offers it\n  0000:af:00.1\n") {
		t.Errorf("a function with its own device:\n%s", own)
	}
	for subject, want := range map[string]string{
		"0002:01:00.0": "example.com/fc: offers it\n",
		"0002:01:00.1": "example.com/fc: offers it: as a part of 0002:01:00.0: both are in IOMMU group 57\n",
		"/dev/vfio/57": "    pci.id               \"1077:2281\"          1 left\n",
		"fc":           "example.com/fc: offers 1 device: IOMMU group 57 with 2 functions is one device\n",
	} {
		out := command(t, "explain", subject, "--config", config, "--sysfs", "testdata/machines/iommu-group.txtar")
		if !strings.Contains(out, want) {
			t.Errorf("explain %s: %s\nwant %q", subject, out, want)
		}
	}
}
