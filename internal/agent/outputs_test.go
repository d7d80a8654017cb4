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

// everyOutput is a configuration whose devices have files of every output.
const everyOutput = followed + `
[[resource]]
name = "cdi"
match = { usb = { id = "1a86:55d4" }, glob = "/dev/ttyACM*" }
container.cdi = true
[[resource]]
name = "nic"
match.pci.id = "*:158b"
[[resource]]
name = "other-nic"
match.pci.id = "*:158c"
`

const (
	cdiStickID = "usb:1a86:55d4:CCCC3333"
	nicID      = "0000:3b:00.0"
	otherNIC   = "0000:3b:00.1"
)

// When the kubelet learns that devices are gone, no file of any output is left that refers to
// them, even if another output cannot be written for devices that appear at the same time.
func TestNoOutputOfAGoneDeviceIsLeftAtPublication(t *testing.T) {
	t.Parallel()
	// The labels of the node may be written at the same time.
	block := func(n *node, path string) {
		n.Helper()
		n.eventually("a directory in the way", func() bool {
			return os.MkdirAll(filepath.Join(path, "in", "the", "way"), 0o755) == nil
		})
	}
	faults := map[string]func(n *node){
		"no fault": func(*node) {},
		"links": func(n *node) {
			path := filepath.Join(n.options.Paths.RunDir, "links", otherID, "if00:ttyUSB")
			must(t, os.MkdirAll(filepath.Dir(path), 0o755))
			block(n, filepath.Join(filepath.Dir(path), ".new-if00:ttyUSB"))
		},
		"specs": func(n *node) { block(n, n.specFile("example.com/cdi")+".tmp") },
		"device information": func(n *node) {
			block(n, filepath.Join(n.options.Paths.DeviceInfoDir, "example.com-other-nic-"+otherNIC+"-device.json"))
		},
		"features":           func(n *node) { block(n, filepath.Join(n.options.Paths.NFDDir, ".generic-dp")) },
		"health directories": func(n *node) { block(n, filepath.Join(n.options.Paths.RunDir, "health", otherID, "healthy")) },
	}
	for name, inject := range faults {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t, everyOutput)
			n.options.Paths.DeviceInfoDir = t.TempDir()
			n.options.Paths.NFDDir = t.TempDir()
			n.addSticks(1)
			n.host.AddUSB(cdiStick("1-2", "CCCC3333", "ttyACM0"))
			nicDir := n.host.AddPCI(nic(nicID, "158b"))
			n.serve()
			n.untilListed(zigbeeName, []string{stickID}, nil)
			n.untilListed("example.com/cdi", []string{cdiStickID}, nil)
			n.untilListed("example.com/nic", []string{nicID}, nil)
			n.untilAllocatable(zigbeeName, 1)
			healthDir := n.healthDir("p")
			gone := map[string]string{zigbeeName: stickID, "example.com/cdi": cdiStickID, "example.com/nic": nicID}
			n.eventually("files of every output", func() bool {
				count := 0
				for _, id := range gone {
					count += len(n.artifacts(id, healthDir))
				}
				return count == 5
			})
			inject(n)

			n.host.AddUSB(stick("1-3", "BBBB2222", "ttyUSB1"))
			n.host.AddUSB(cdiStick("1-4", "DDDD4444", "ttyACM1"))
			n.host.AddPCI(nic(otherNIC, "158c"))
			n.host.RemoveUSB("1-1")
			n.host.RemoveUSB("1-2")
			n.host.Remove(nicDir)
			n.event()
			for resource, id := range gone {
				var left []string
				n.until("loss of "+id, func() bool {
					list, _ := n.kubelet.Latest(resource)
					if !slices.Contains(list.Unhealthy(), id) {
						return false
					}
					left = n.artifacts(id, healthDir)
					return true
				})
				left = slices.DeleteFunc(left, func(path string) bool {
					// Labels follow the list.
					return strings.HasPrefix(path, n.options.Paths.NFDDir)
				})
				if len(left) > 0 {
					t.Errorf("when the kubelet knows that %s is gone, these files are left: %q", id, left)
				}
			}
		})
	}
}

// artifacts lists the files of any output that refer to one of the devices of everyOutput.
func (n *node) artifacts(id, healthDir string) []string {
	p := n.options.Paths
	var found []string
	addIf := func(exists bool, path string) {
		if exists {
			found = append(found, path)
		}
	}
	isThere := func(path string) bool {
		_, err := os.Lstat(path)
		return err == nil
	}
	switch id {
	case stickID:
		link := filepath.Join(p.RunDir, "links", stickID, "if00:ttyUSB")
		addIf(isThere(link), link)
		addIf(healthy(healthDir) != nil, healthDir)
	case cdiStickID:
		addIf(strings.Contains(n.spec("example.com/cdi"), id), n.specFile("example.com/cdi"))
	case nicID:
		info := filepath.Join(p.DeviceInfoDir, "example.com-nic-"+nicID+"-device.json")
		addIf(isThere(info), info)
		features := filepath.Join(p.NFDDir, "generic-dp")
		text, _ := os.ReadFile(features)
		addIf(strings.Contains(string(text), "example.com/nic=1\n"), features)
	}
	return found
}

func cdiStick(port, serial, tty string) sysfstest.USB {
	s := stick(port, serial, tty)
	s.Vendor = "1a86"
	s.Product = "55d4"
	s.Interfaces[0].Class = "02"
	s.Interfaces[0].Driver = "cdc_acm"
	s.Interfaces[0].Nodes = []sysfstest.Node{{Name: tty}}
	return s
}

func nic(address, device string) sysfstest.PCI {
	return sysfstest.PCI{Address: address, Vendor: "8086", Device: device, Class: "020000", Driver: "i40e"}
}

// Multus finds a file for each present network function. Files of other plugins stay, and
// own files survive a restart if they are still true.
func TestDeviceInfo(t *testing.T) {
	t.Parallel()
	n := newNode(t, "domain = \"intel.com\"\n[[resource]]\nname = \"nic\"\nmatch.pci.class = [\"02\", \"12\"]\n[[resource]]\nname = \"vdpa\"\nmatch = { pci.class = \"02\", glob = \"/dev/vhost-vdpa-*\" }\n")
	dir := t.TempDir()
	n.options.Paths.DeviceInfoDir = dir
	write := func(name, text string) {
		must(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
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
		must(t, err)
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
	n.addSticks(1)
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
	n.untilLogged("labels of the node can't be written")
	must(t, os.Mkdir(n.options.Paths.NFDDir, 0o755))
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

// A directory of labels that does not answer delays neither the state nor the end of the program.
func TestFeaturesThatHang(t *testing.T) {
	t.Parallel()
	n := newNode(t, zigbee)
	n.addSticks(1)
	n.options.Paths.NFDDir = t.TempDir()
	_, end := hang(t, n.options.Paths.NFDDir)
	defer end()
	_, stop := n.serve()
	n.untilListed("example.com/zigbee", []string{stickID}, nil)
	n.untilLogged("labels of the node can't be written")
	n.host.AddUSB(stick("1-2", "BBBB2222", "ttyUSB1"))
	n.eventually("state", func() bool {
		text, _ := os.ReadFile(filepath.Join(n.options.Paths.StateDir, "state.json"))
		return strings.Contains(string(text), otherID)
	})
	stop()
	if strings.Contains(n.log.String(), "stopped without waiting") {
		t.Error("the end waits for the labels")
	}
}
