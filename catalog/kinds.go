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
	// with are companions of hardware of a vendor, of any if it is empty.
	with   []string
	vendor string
}

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
	{name: "GPU", nodes: []string{"/dev/dri/renderD*"}, resource: "gpu", vendor: "1002", with: []string{"/dev/kfd"}},
	{name: "display", nodes: []string{"/dev/dri/*"}, pci: []string{"03"}},
	{
		name: "sound card", nodes: []string{"/dev/snd/*"}, pci: []string{"0401", "0403"}, usb: []string{"01"}, resource: "sound",
		with: []string{"/dev/snd/timer", "/dev/snd/seq"},
	},
	{name: "RDMA adapter", nodes: []string{"/dev/infiniband/*"}, resource: "rdma", with: []string{"/dev/infiniband/rdma_cm"}},
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
	with                 []string // companions
	note                 string
}

// shared are nodes that many containers may have at once, or that no hardware tells
// apart.
var shared = []sharedKind{
	{name: "virtualization", glob: "/dev/kvm", resource: "kvm", count: 100},
	{name: "file systems", glob: "/dev/fuse", resource: "fuse", count: 100},
	{name: "tunnels", glob: "/dev/net/tun", resource: "tun", count: 100},
	{name: "virtual networks", glob: "/dev/vhost-net", resource: "vhost-net", count: 100},
	{name: "virtual sockets", glob: "/dev/vhost-vsock", resource: "vhost-vsock", count: 100},
	{name: "SGX enclaves", glob: "/dev/sgx_enclave", resource: "sgx", count: 100},
	{name: "TPM", glob: "/dev/tpmrm0", resource: "tpm", count: 64},
	{name: "GPIO", glob: "/dev/gpiochip*", resource: "gpio", count: 1},
	{name: "SPI", glob: "/dev/spidev*", resource: "spi", count: 1},
	{
		name: "NVIDIA GPU", glob: "/dev/nvidia[0-9]*", resource: "nvidia-gpu", count: 1,
		with: []string{"/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools", "/dev/nvidia-modeset"},
		note: "Programs need the driver's libraries too, which CDI brings: examples/configs/nvidia-cdi.toml.",
	},
}

// matches reports whether a path fits one of some globs of the tables above.
func matches(path string, globs ...string) bool {
	return slices.ContainsFunc(globs, func(glob string) bool {
		p, err := pattern.Parse(pattern.Path, glob)
		return err == nil && p.Match(path)
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
