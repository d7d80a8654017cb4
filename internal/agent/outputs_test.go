package agent_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

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
	block := func(path string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Join(path, "in", "the", "way"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	faults := map[string]func(n *node){
		"no fault": func(*node) {},
		"links": func(n *node) {
			path := filepath.Join(n.options.Paths.RunDir, "links", otherID, "if00:ttyUSB")
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				t.Fatal(err)
			}
			block(filepath.Join(filepath.Dir(path), ".new-if00:ttyUSB"))
		},
		"specs": func(n *node) { block(n.specFile("example.com/cdi") + ".tmp") },
		"device information": func(n *node) {
			block(filepath.Join(n.options.Paths.DeviceInfoDir, "example.com-other-nic-"+otherNIC+"-device.json"))
		},
		"features":           func(n *node) { block(filepath.Join(n.options.Paths.NFDDir, ".generic-dp")) },
		"health directories": func(n *node) { block(filepath.Join(n.options.Paths.RunDir, "health", otherID, "healthy")) },
	}
	for name, inject := range faults {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t, everyOutput)
			n.options.Paths.DeviceInfoDir = t.TempDir()
			n.options.Paths.NFDDir = t.TempDir()
			n.addBus()
			n.host.AddUSB(stick("1-1", "AAAA1111", "ttyUSB0"))
			n.host.AddUSB(cdiStick("1-2", "CCCC3333", "ttyACM0"))
			nicDir := n.host.AddPCI(nic(nicID, "158b"))
			n.serve()
			n.untilListed(zigbees, []string{stickID}, nil)
			n.untilListed("example.com/cdi", []string{cdiStickID}, nil)
			n.untilListed("example.com/nic", []string{nicID}, nil)
			n.until("registration", func() bool { return n.kubelet.Count(zigbees).Allocatable == 1 })
			healthDir := n.healthDir("p")
			gone := map[string]string{zigbees: stickID, "example.com/cdi": cdiStickID, "example.com/nic": nicID}
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

func (n *node) specFile(kind string) string {
	w := n.options.Paths.SpecWriter()
	return filepath.Join(w.Dir, w.FileName(kind))
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
