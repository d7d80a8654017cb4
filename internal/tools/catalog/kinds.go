package catalog

import (
	"slices"
	"strings"

	"github.com/generic-dp/generic-dp/internal/device"
	"github.com/generic-dp/generic-dp/internal/pattern"
)

// kind is a kind of hardware, as an administrator calls it, and the resource for it in a
// starter configuration.
type kind struct {
	name  string
	nodes []string // globs
	pci   []string // prefixes of classes
	usb   []string // classes of interfaces
	// resource is the name of the resource, empty if such hardware serves the host itself;
	// path is the container path of a device's only node.
	resource, path string
	// with are companions of hardware of a vendor, of any if it is empty.
	with   []string
	vendor string
}

// nodeKind is likewise a kind of nodes without hardware.
type nodeKind struct {
	name, glob, resource string

	with  []string
	count int    // containers that share it
	note  string // about the resource
}

// kinds are the kinds of hardware: the first with one of its nodes or classes applies.
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

// nodeKinds are the nodes that many containers may share, or that have no hardware to tell
// them apart.
var nodeKinds = []nodeKind{
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

// matches reports whether a path matches one of the globs.
func matches(path string, globs ...string) bool {
	return slices.ContainsFunc(globs, func(glob string) bool {
		p, err := pattern.Parse(pattern.Path, glob)
		return err == nil && p.Match(path)
	})
}

// kindOf returns the kind of hardware, the zero kind if unknown.
func kindOf(h *device.Hardware) kind {
	for _, k := range kinds {
		if h.PCI != nil && slices.ContainsFunc(k.pci, func(class string) bool { return strings.HasPrefix(h.PCI.Class, class) }) ||
			h.USB != nil && slices.ContainsFunc(h.USB.Interfaces, func(i device.USBInterface) bool { return slices.Contains(k.usb, i.Class) }) ||
			len(nodesOf(h, k.nodes)) > 0 {
			return k
		}
	}
	return kind{}
}

// kindOfNode returns the kind of a node without hardware.
func kindOfNode(n *device.Node) nodeKind {
	for _, k := range nodeKinds {
		if matches(n.Path, k.glob) {
			return k
		}
	}
	return nodeKind{name: n.Subsystem, resource: slug(strings.ToLower(strings.TrimRight(n.Kernel, "0123456789")))}
}
