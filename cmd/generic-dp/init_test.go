package main

import (
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/generic-dp/generic-dp/config"
	"github.com/generic-dp/generic-dp/internal/agent"
	"github.com/generic-dp/generic-dp/internal/device"
	"github.com/generic-dp/generic-dp/internal/testing/sysfstest"
	"github.com/generic-dp/generic-dp/internal/tools/catalog"
	"github.com/generic-dp/generic-dp/internal/tools/cli"
)

// On every recorded machine, init and devices --all hold what they promise.
func TestEveryMachine(t *testing.T) {
	t.Parallel()
	for _, machine := range recordings(t) {
		t.Run(filepath.Base(machine), func(t *testing.T) {
			t.Parallel()
			f, view := recorded(t, machine)
			all := catalog.New(view.Snapshot, view.Host(), nil)
			initIsOffered(t, f, view, all)
			initOfEveryDevice(t, f, view, all)
			allFits(t, view, all)
		})
	}
}

// initIsOffered checks that a machine offers every device of what init writes for it, also by try.
func initIsOffered(t *testing.T, f *flags, view *agent.View, all *catalog.Catalog) {
	t.Helper()
	text, err := f.starterOfHost(view, all, "example.com")
	if err != nil && strings.Contains(err.Error(), "this host has no device that pods may want") {
		return // a host for storage alone
	}
	must(t, err)
	namesOnlyOffered(t, view, text)
	file := filepath.Join(t.TempDir(), "config.toml")
	place(t, file, text)
	args := []string{"--config", file, "--allow=all", "--sysfs", f.paths.Sysfs, "--dev", f.paths.Dev, "--state-dir", f.paths.StateDir}
	tried := command(t, append([]string{"try"}, args...)...)
	listed := command(t, append([]string{"devices"}, args...)...)
	if strings.Contains(tried, "is rejected") || strings.Contains(tried, "allocatable") || strings.Contains(listed, "Unhealthy") {
		t.Errorf("%s\n%s\n%s", tried, listed, text)
	}
}

// initOfEveryDevice checks that what init writes for one device, by any of its names, offers that
// device, or says why none can be offered.
func initOfEveryDevice(t *testing.T, f *flags, view *agent.View, all *catalog.Catalog) {
	t.Helper()
	names := map[string]string{} // the path that must be offered, by name
	for _, h := range view.Snapshot.Hardware {
		if !h.IsRootHub() {
			names[h.Name] = h.Path
		}
	}
	for _, n := range slices.Concat(view.Snapshot.Nodes, view.Snapshot.Nets) {
		names[n.Path] = n.Path
	}
	for name, want := range names {
		text, err := f.starterOfDevice(view, all, "example.com", name)
		if err != nil && strings.Contains(err.Error(), " cannot be offered: ") {
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		cfg, err := parseText(text)
		must(t, err)
		namesOnlyOffered(t, view, text)
		offers := view.With(cfg).Matched.Resources[0].Offers
		others := 0
		for _, o := range offers {
			isNode := slices.ContainsFunc(o.Nodes, func(n device.OfferedNode) bool { return n.HostPath == want })
			isNet := slices.ContainsFunc(o.Nets, func(n device.OfferedNet) bool { return n.HostName == want })
			if o.Hardware != want && !isNode && !isNet {
				others++
			}
		}
		if len(offers) == 0 || others > 0 {
			t.Errorf("init %s offers %d devices, %d of them others:\n%s", name, len(offers), others, text)
		}
	}
}

// namesOnlyOffered checks that the comment above a resource names no node that the resource does not offer.
func namesOnlyOffered(t *testing.T, view *agent.View, text string) {
	t.Helper()
	cfg, err := parseText(text)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range view.With(cfg).Matched.Resources {
		offered := map[string]bool{}
		for _, o := range m.Offers {
			for _, n := range o.Nodes {
				offered[n.HostPath] = true
			}
		}
		_, name, _ := strings.Cut(m.Name, "/")
		before, _, _ := strings.Cut(text, "\n[[resource]]\nname = "+strconv.Quote(name)+"\n")
		comment := before[strings.LastIndex(before, "\n\n"):]
		for _, word := range strings.Fields(comment) {
			if strings.HasPrefix(word, "/dev/") && !offered[word] {
				t.Errorf("the comment names %s, which the resource does not offer:%s", word, comment)
			}
		}
	}
}

// allFits checks that devices --all fits the narrowest common terminal.
func allFits(t *testing.T, view *agent.View, all *catalog.Catalog) {
	t.Helper()
	var text strings.Builder
	must(t, listAll(all, view).Table(&text, false))
	for line := range strings.Lines(text.String()) {
		if utf8.RuneCountInString(line)-1 > cli.Columns {
			t.Errorf("%d columns: %s", utf8.RuneCountInString(line)-1, line)
		}
	}
}

// Names that a device or a pod makes up stay comments and strings.
func TestInitOfHostileNames(t *testing.T) {
	t.Parallel()
	h := sysfstest.New(t)
	h.AddPCI(sysfstest.PCI{Address: "0000:00:14.0", Vendor: "8086", Device: "a36d", Class: "0c0330", Driver: "xhci_hcd"})
	h.AddRootHub("devices/pci0000:00/0000:00:14.0", 1, "480")
	const evil = "x\n[[resource]]\nname = \"evil\"\nmatch.glob = \"/dev/mem\"\n#\x1b[2J\u202e"
	h.AddUSB(sysfstest.USB{
		Port: "1-1", Vendor: "10c4", Product: "ea60", Serial: `"` + evil, Manufacturer: evil, ProductName: evil,
		Interfaces: []sysfstest.Interface{{Class: "ff", Driver: "cp210x", Nodes: []sysfstest.Node{sysfstest.SerialPort("ttyUSB0", 0)}}},
	})
	h.AddNode("", sysfstest.Node{Name: "gpiochip0\n[[resource]]\n", Subsystem: "gpio", Major: 254, Minor: 1})
	host := []string{"--sysfs", h.Sysfs(), "--dev", h.Dev(), "--state-dir", t.TempDir()}
	for _, args := range [][]string{{"init"}, {"init", "/dev/ttyUSB0"}, {"init", "1-1"}} {
		text := command(t, append(args, host...)...)
		cfg, err := config.Parse(config.File{Name: "c.toml", Data: []byte(text)})
		if err != nil {
			t.Fatalf("%v: %v\n%s", args, err, text)
		}
		for _, r := range cfg.Resources {
			if r.Name != "example.com/serial" && r.Name != "example.com/gpio" {
				t.Errorf("%v: resource %q\n%s", args, r.Name, text)
			}
		}
		if strings.ContainsAny(text, "\x1b\u202e") {
			t.Errorf("%v prints %q", args, text)
		}
	}
}
