package catalog

import (
	"slices"
	"strings"

	"github.com/generic-dp/generic-dp/device"
	"github.com/generic-dp/generic-dp/pattern"
)

// kind is what an administrator calls a device. Hardware is of the first kind that has
// one of its nodes or classes.
type kind struct {
	name  string
	nodes []string // globs
	pci   []string // prefixes of classes
	usb   []string // classes of interfaces
	// resource is the name of a resource for pods, empty where hardware of this kind
	// serves the host itself. path is that of its only node in a container.
	resource, path string
	with           []companion
}

// companion is a node to inject along with hardware of a vendor, of any if it is empty.
type companion struct{ vendor, path string }

var kinds = []kind{
	{name: "hub", usb: []string{"09"}},
	{name: "bridge", pci: []string{"06"}},
	{name: "camera", nodes: []string{"/dev/video*"}, usb: []string{"0e"}, resource: "camera", path: "/dev/video0"},
	{name: "DVB receiver", nodes: []string{"/dev/dvb/*/*"}, resource: "dvb"},
	{name: "serial adapter", nodes: []string{"/dev/ttyUSB*", "/dev/ttyACM*"}, resource: "serial", path: "/dev/serial"},
	{
		name: "accelerator", pci: []string{"12"}, resource: "accelerator",
		nodes: []string{"/dev/accel/accel*", "/dev/apex_*", "/dev/hailo*", "/dev/dlb*", "/dev/dsa/*", "/dev/iax/*", "/dev/dfl-port.*", "/dev/ama_transcoder*", "/dev/sfc_char*"},
	},
	{
		name: "GPU", nodes: []string{"/dev/nvidia[0-9]*"}, resource: "gpu",
		with: []companion{{"", "/dev/nvidiactl"}, {"", "/dev/nvidia-uvm"}, {"", "/dev/nvidia-uvm-tools"}, {"", "/dev/nvidia-modeset"}},
	},
	{name: "GPU", nodes: []string{"/dev/dri/renderD*"}, resource: "gpu", with: []companion{{"1002", "/dev/kfd"}}},
	{name: "display", nodes: []string{"/dev/dri/*"}, pci: []string{"03"}},
	{
		name: "sound card", nodes: []string{"/dev/snd/*"}, pci: []string{"0401", "0403"}, usb: []string{"01"}, resource: "sound",
		with: []companion{{"", "/dev/snd/timer"}, {"", "/dev/snd/seq"}},
	},
	{name: "RDMA adapter", nodes: []string{"/dev/infiniband/*"}, resource: "rdma", with: []companion{{"", "/dev/infiniband/rdma_cm"}}},
	{name: "smart card reader", usb: []string{"0b"}, resource: "card-reader"},
	{name: "storage", pci: []string{"01"}, usb: []string{"08"}},
	{name: "network", pci: []string{"02"}, usb: []string{"02"}},
	{name: "Bluetooth", usb: []string{"e0"}},
	{name: "printer", usb: []string{"07"}, resource: "printer"},
	{name: "input", nodes: []string{"/dev/input/*"}, usb: []string{"03"}, pci: []string{"09"}},
	{name: "USB controller", pci: []string{"0c03"}},
	{name: "bus controller", pci: []string{"0c"}},
	{name: "memory", pci: []string{"05"}},
	{name: "system", pci: []string{"08", "11"}},
	{name: "serial port", pci: []string{"07"}},
	{name: "crypto", pci: []string{"10"}},
	{name: "vendor-specific", usb: []string{"ff", "fe"}, resource: "usb"},
}

// sharedKind is a kind of nodes that go by their names.
type sharedKind struct {
	name, glob, resource string
	count                int
}

// shared are nodes that many containers may have at once, or that no hardware tells
// apart.
var shared = []sharedKind{
	{"virtualization", "/dev/kvm", "kvm", 100},
	{"file systems", "/dev/fuse", "fuse", 100},
	{"tunnels", "/dev/net/tun", "tun", 100},
	{"virtual networks", "/dev/vhost-net", "vhost-net", 100},
	{"virtual sockets", "/dev/vhost-vsock", "vhost-vsock", 100},
	{"SGX enclaves", "/dev/sgx_enclave", "sgx", 100},
	{"TPM", "/dev/tpmrm0", "tpm", 64},
	{"GPIO", "/dev/gpiochip*", "gpio", 1},
	{"SPI", "/dev/spidev*", "spi", 1},
}

// matches reports whether a path fits one of some globs of the tables above.
func matches(path string, globs ...string) bool {
	return slices.ContainsFunc(globs, func(glob string) bool {
		p, err := pattern.Parse(pattern.Path, glob)
		return err == nil && p.Positive().Match(path)
	})
}

// kindOf returns the kind of hardware, nil for none.
func kindOf(h *device.Hardware) *kind {
	for i := range kinds {
		k := &kinds[i]
		if h.PCI != nil && slices.ContainsFunc(k.pci, func(class string) bool { return strings.HasPrefix(h.PCI.Class, class) }) ||
			h.USB != nil && slices.ContainsFunc(h.USB.Interfaces, func(i device.USBInterface) bool { return slices.Contains(k.usb, i.Class) }) ||
			slices.ContainsFunc(h.Nodes, func(n *device.Node) bool { return matches(n.Path, k.nodes...) }) {
			return k
		}
	}
	return nil
}

// kindName names the kind of hardware, or of a node without any, in a list.
func kindName(h *device.Hardware, n *device.Node) string {
	if h != nil {
		if k := kindOf(h); k != nil {
			return k.name
		}
		return ""
	}
	for _, s := range shared {
		if matches(n.Path, s.glob) {
			return s.name
		}
	}
	return n.Subsystem
}
