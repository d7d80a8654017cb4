package agent_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/generic-dp/generic-dp/internal/agent"
	"github.com/generic-dp/generic-dp/internal/testing/sysfstest"
)

// Multus finds a file for each present network function. Files of other plugins stay, and
// own files survive a restart if they are still true.
func TestDeviceInfo(t *testing.T) {
	t.Parallel()
	n := newNode(t, "domain = \"intel.com\"\n[[resource]]\nname = \"nic\"\nmatch.pci.class = [\"02\", \"12\"]\n[[resource]]\nname = \"vdpa\"\nmatch = { pci.class = \"02\", glob = \"/dev/vhost-vdpa-*\" }\n")
	dir := t.TempDir()
	n.options.Paths.DeviceInfoDir = dir
	write := func(name, text string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	const foreign, stale = "x.com-y-0000:01:00.0-device.json", "intel.com-old-0000:3b:02.7-device.json"
	write(foreign, `{"type":"pci","version":"1.1.0","pci":{"pci-address":"0000:01:00.0"}}`)
	write(stale, `{"type":"pci","writer":"`+n.options.Paths.RunDir+`"}`)
	vf := sysfstest.PCI{Address: "0000:3b:02.0", Vendor: "8086", Device: "154c", Class: "020000", Driver: "vfio-pci", PF: "0000:3b:00.0", IOMMUGroup: "7"}
	n.host.AddPCI(sysfstest.PCI{Address: "0000:3b:00.0", Vendor: "8086", Device: "158b", Class: "020000", Driver: "i40e", TotalVFs: 4})
	n.host.AddPCI(vf)
	gone := vf
	gone.Address, gone.VF = "0000:3b:02.1", 1
	goneDir := n.host.AddPCI(gone)
	n.host.AddPCI(sysfstest.PCI{Address: "0000:5e:00.0", Vendor: "8086", Device: "0d5c", Class: "120000"})
	_, stop := n.serve()

	files := func() []string {
		entries, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, e := range entries {
			names = append(names, e.Name())
		}
		return names
	}
	until := func(want ...string) {
		t.Helper()
		want = append(want, foreign)
		n.eventually(fmt.Sprint("files ", want), func() bool { return slices.Equal(files(), want) })
	}
	const pf, first, second = "intel.com-nic-0000:3b:00.0-device.json", "intel.com-nic-0000:3b:02.0-device.json", "intel.com-nic-0000:3b:02.1-device.json"
	until(pf, first, second)
	var info struct {
		Type, Version string
		PCI           map[string]string
	}
	text, err := os.ReadFile(filepath.Join(dir, first))
	if err != nil || json.Unmarshal(text, &info) != nil || info.Type != "pci" || info.Version != "1.1.0" || info.PCI["pci-address"] != "0000:3b:02.0" || info.PCI["pf-pci-address"] != "0000:3b:00.0" {
		t.Errorf("file of a virtual function: %s, %v", text, err)
	}
	n.host.Remove(goneDir)
	n.event()
	until(pf, first)
	stop()
	until(pf, first)

	n.configure("domain = \"intel.com\"\n[[resource]]\nname = \"nic\"\nmatch.pci.id = \"*:154c\"\n")
	_, stop = n.serve()
	until(first)
	stop()
	// On a busy machine, an instance leaves its lock behind when it ends without waiting any longer.
	n.eventually("clean", func() bool {
		removed, err := agent.Clean(n.options.Paths)
		return err == nil && slices.Contains(removed, filepath.Join(dir, first))
	})
	until()
}

// A function with a vDPA device for vhost says so.
func TestDeviceInfoOfVDPA(t *testing.T) {
	t.Parallel()
	n := newNode(t, "domain = \"intel.com\"\n[[resource]]\nname = \"vdpa\"\nmatch = { pci.class = \"02\", glob = \"/dev/vhost-vdpa-*\" }\n")
	n.options.Paths.DeviceInfoDir = t.TempDir()
	n.host.AddPCI(sysfstest.PCI{Address: "0000:65:00.0", Vendor: "15b3", Device: "101d", Class: "020000", Driver: "mlx5_core", TotalVFs: 4})
	dir := n.host.AddPCI(sysfstest.PCI{Address: "0000:65:00.2", Vendor: "15b3", Device: "101e", Class: "020000", Driver: "mlx5_core", PF: "0000:65:00.0"})
	n.host.AddNode(dir+"/vdpa0", sysfstest.Node{Name: "vhost-vdpa-0"})
	n.serve()
	const want = `{"type":"vdpa","version":"1.1.0","vdpa":{"parent-device":"vdpa0","driver":"vhost","path":"/dev/vhost-vdpa-0","pci-address":"0000:65:00.2","pf-pci-address":"0000:65:00.0"}`
	n.eventually("the file", func() bool {
		text, err := os.ReadFile(filepath.Join(n.options.Paths.DeviceInfoDir, "intel.com-vdpa-0000:65:00.2-device.json"))
		return err == nil && len(text) > len(want) && string(text[:len(want)-1]) == want[:len(want)-1]
	})
}

// Node Feature Discovery finds one file, whole and current.
func TestFeatures(t *testing.T) {
	t.Parallel()
	n := newNode(t, zigbee+"features.serial = \"${usb.serial}\"\n[[resource]]\nname = \"fuse\"\ncount = 10\nmatch.glob = \"/dev/fuse\"\n[[resource]]\nname = \"absent\"\nmatch.glob = \"/dev/absent\"\n")
	n.addNodes("fuse")
	n.addBus()
	n.host.AddUSB(stick("1-1", "AAAA1111", "ttyUSB0"))
	n.options.Paths.NFDDir = filepath.Join(t.TempDir(), "features.d")
	n.serve()
	const head, fuse = "# healthy devices by resource\n", "example.com/fuse=1\n"
	file := filepath.Join(n.options.Paths.NFDDir, "generic-dp")
	want := func(text string) {
		t.Helper()
		n.eventually("features "+text, func() bool {
			have, err := os.ReadFile(file)
			return err == nil && string(have) == text
		})
	}
	n.eventually("warning about a missing directory", func() bool {
		return strings.Contains(n.log.String(), "labels of the node can't be written")
	})
	if err := os.Mkdir(n.options.Paths.NFDDir, 0o755); err != nil {
		t.Fatal(err)
	}
	n.host.AddUSB(stick("1-2", "BBBB2222", "ttyUSB1"))
	want(head + "example.com/zigbee=2\n" + fuse + "example.com/zigbee.serial=AAAA1111_BBBB2222\n")
	n.host.RemoveUSB("1-1")
	n.host.RemoveUSB("1-2")
	want(head + fuse)
	n.host.AddUSB(stick("1-3", "AAAA1111", "ttyUSB0"))
	want(head + "example.com/zigbee=1\n" + fuse + "example.com/zigbee.serial=AAAA1111\n")
	files, err := os.ReadDir(n.options.Paths.NFDDir)
	if err != nil || len(files) != 1 {
		t.Errorf("files %v, %v", files, err)
	}
}
