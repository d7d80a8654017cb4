package catalog

import (
	"slices"
	"strings"

	"github.com/generic-dp/generic-dp/internal/device"
)

// kind is a kind of hardware, as an administrator calls it, and the resource for it in a
// starter configuration. The zero kind is unknown.
type kind struct {
	name string
	// Hardware is of this kind if it has one of the nodes (globs), or one of the PCI classes
	// (prefixes), or an interface with one of the USB classes or drivers.
	nodes      []string
	pciClasses []string
	usbClasses []string
	drivers    []string
	// words restrict the kind for platform devices, which have no class: one of the words is
	// part of the name of the device or of its driver. Without words, its nodes are enough.
	words []string
	// resource is the name of the resource; empty if such hardware serves the host itself.
	resource string
	// path is the container path of a device's only node.
	path string
	// together are further nodes that a device needs: its ports are no devices of their own.
	together []string
	// with are companions of hardware of a vendor; of any hardware if vendor is empty.
	with   []string
	vendor string
}

// serialNodes are the ports of USB serial adapters, of usb-serial and cdc_acm.
var serialNodes = []string{"/dev/ttyUSB*", "/dev/ttyACM*"}

// videoNodes are the nodes of video4linux: cameras, codecs and image processors.
var videoNodes = []string{"/dev/video*"}

// mediaNodes configure the pipeline of a camera (Documentation/userspace-api/media).
var mediaNodes = []string{"/dev/media*", "/dev/v4l-subdev*"}

// soundNodes are the nodes of ALSA.
var soundNodes = []string{"/dev/snd/*"}

// kinds are the kinds of hardware: the first that applies is the kind of a device. The classes
// come from include/linux/pci_ids.h and include/uapi/linux/usb/ch9.h.
var kinds = []kind{
	{
		// USB_CLASS_HUB. Its bus node powers off the ports below it.
		name:       "hub",
		usbClasses: []string{"09"},
	},
	{
		// PCI_BASE_CLASS_BRIDGE: between buses, and to the host itself.
		name:       "bridge",
		pciClasses: []string{"06"},
	},
	{
		// The ports of a modem are one device: one has the commands, another one the position,
		// and data goes through cdc-wdm or wwan.
		name:     "modem",
		nodes:    []string{"/dev/cdc-wdm*", "/dev/wwan*"},
		drivers:  []string{"option", "sierra", "qcserial", "qmi_wwan", "cdc_mbim", "huawei_cdc_ncm", "sierra_net", "hso"},
		resource: "modem",
		together: serialNodes,
	},
	{
		// Frontend, demux and dvr of an adapter work together: all nodes are one device, with the
		// analog nodes of a hybrid tuner, which has one tuner for both.
		name:     "DVB receiver",
		nodes:    []string{"/dev/dvb/*/*"},
		resource: "dvb",
		together: []string{"/dev/video*", "/dev/vbi*", "/dev/radio*", "/dev/media*", "/dev/snd/*"},
	},
	{
		// Codecs of a SoC have the same nodes as cameras, but pods request them for another
		// purpose, and programs find them by their format.
		name:  "video codec",
		nodes: videoNodes,
		words: []string{"codec", "vpu", "vdec", "venc", "decoder", "encoder", "jpeg", "hantro", "cedrus", "coda", "hevc"},
	},
	{
		// Image processors convert what a camera of the board has captured.
		name:  "image processor",
		nodes: videoNodes,
		words: []string{"isp", "rga", "scaler", "pxp"},
	},
	{
		name:       "camera",
		nodes:      videoNodes,
		usbClasses: []string{"0e"},
		words:      []string{"csi", "camera", "camss", "unicam", "cif", "cfe", "rkisp", "mipi"},
		resource:   "camera",
		path:       "/dev/video0",
	},
	{
		// A port has no class of its own: usb-serial drivers are for devices of class ff.
		name:     "serial adapter",
		nodes:    serialNodes,
		resource: "serial",
		path:     "/dev/serial",
	},
	{
		// PCI_BASE_CLASS_ACCELERATOR, and the nodes of drivers outside of subsystem accel.
		name:       "accelerator",
		pciClasses: []string{"12"},
		resource:   "accelerator",
		nodes: []string{
			"/dev/accel/accel*", "/dev/apex_*", "/dev/hailo*", "/dev/dlb*", "/dev/dsa/*", "/dev/iax/*",
			"/dev/dfl-port.*", "/dev/ama_transcoder*", "/dev/sfc_char*",
		},
		// AMD's GPUs without displays have this class.
		vendor: "1002",
		with:   []string{"/dev/kfd"},
	},
	{
		// The node for rendering is enough for pods; card nodes also control displays. The
		// runtime of AMD also needs the node that all GPUs share.
		name:     "GPU",
		nodes:    []string{"/dev/dri/renderD*"},
		resource: "gpu",
		vendor:   "1002",
		with:     []string{"/dev/kfd"},
	},
	{
		// A controller without a node for rendering, such as the console of a server.
		name:  "display",
		nodes: []string{"/dev/dri/*"},
	},
	{
		// PCI_CLASS_MULTIMEDIA_AUDIO and PCI_CLASS_MULTIMEDIA_HD_AUDIO, USB_CLASS_AUDIO.
		name:       "sound card",
		nodes:      soundNodes,
		pciClasses: []string{"0401", "0403"},
		usbClasses: []string{"01"},
		resource:   "sound",
		with:       []string{"/dev/snd/timer", "/dev/snd/seq"},
	},
	{
		// Its connections need the manager, which all adapters share.
		name:     "RDMA adapter",
		nodes:    []string{"/dev/infiniband/*"},
		resource: "rdma",
		with:     []string{"/dev/infiniband/rdma_cm"},
	},
	{
		// USB_CLASS_CSCID. The daemon pcscd uses the bus node, without a driver.
		name:       "smart card reader",
		usbClasses: []string{"0b"},
		resource:   "card-reader",
	},
	{
		// PCI_BASE_CLASS_STORAGE and USB_CLASS_MASS_STORAGE.
		name:       "storage",
		pciClasses: []string{"01"},
		usbClasses: []string{"08"},
	},
	{
		// Most Ethernet and Wi-Fi adapters on USB have the class "vendor-specific": isKind also
		// knows them by their interfaces.
		name:       networkKind,
		pciClasses: []string{"02"},
		usbClasses: []string{"02"},
	},
	{
		// USB_CLASS_WIRELESS_CONTROLLER.
		name:       "Bluetooth",
		usbClasses: []string{"e0"},
		drivers:    []string{"btusb", "ath3k", "bfusb", "bpa10x", "bcm203x"},
	},
	{
		// USB_CLASS_PRINTER. The driver usblp has a node for it.
		name:       "printer",
		nodes:      []string{"/dev/usb/lp*"},
		usbClasses: []string{"07"},
		resource:   "printer",
	},
	{
		// PCI_BASE_CLASS_INPUT and USB_CLASS_HID.
		name:       "input",
		nodes:      []string{"/dev/input/*"},
		usbClasses: []string{"03"},
		pciClasses: []string{"09"},
	},
	{
		// PCI_CLASS_SERIAL_USB. VFIO gives a whole controller to a virtual machine.
		name:       "USB controller",
		pciClasses: []string{"0c03"},
	},
	{
		// PCI_BASE_CLASS_SERIAL: SMBus, SPI and others.
		name:       "bus controller",
		pciClasses: []string{"0c"},
	},
	{
		// PCI_BASE_CLASS_MEMORY.
		name:       "memory",
		pciClasses: []string{"05"},
	},
	{
		// PCI_BASE_CLASS_SYSTEM, and signal processing, which is the class of the power
		// management in most chipsets.
		name:       "system",
		pciClasses: []string{"08", "11"},
	},
	// The subclasses of 07 in include/linux/pci_ids.h and in pci.ids.
	{
		name:       "serial port",
		pciClasses: []string{"0700", "0702"},
		nodes:      platformSerial,
	},
	{
		// PCI_CLASS_COMMUNICATION_PARALLEL.
		name:       "parallel port",
		pciClasses: []string{"0701"},
	},
	{
		name:       "modem",
		pciClasses: []string{"0703"},
	},
	{
		// The rest of PCI_BASE_CLASS_COMMUNICATION: 0780 is the management engine, not
		// a serial port.
		name:       "communication",
		pciClasses: []string{"07"},
	},
	{
		// PCI_BASE_CLASS_CRYPT.
		name:       "crypto",
		pciClasses: []string{"10"},
	},
	// Parts of a board, which have no class.
	{
		name:  "GPIO",
		nodes: []string{gpioNodes},
	},
	{
		name:  "SPI bus",
		nodes: []string{"/dev/spidev*"},
	},
	{
		name:  "I2C bus",
		nodes: []string{"/dev/i2c-*"},
	},
	{
		// A container that opens it and dies reboots the node.
		name:  "watchdog",
		nodes: []string{"/dev/watchdog*"},
	},
	{
		name:  "clock",
		nodes: []string{"/dev/rtc*"},
	},
	{
		name:  "sensor",
		nodes: []string{"/dev/iio:device*"},
	},
	{
		// The BMC of a server.
		name:  "management controller",
		nodes: []string{"/dev/ipmi*"},
	},
	{
		name:  "disk",
		nodes: []string{"/dev/sd*", "/dev/vd*", "/dev/xvd*", "/dev/dasd*", "/dev/mmcblk*", "/dev/mtd*"},
	},
	{
		// USB_CLASS_VENDOR_SPEC and USB_CLASS_APP_SPEC: dongles that programs open through
		// the bus node.
		name:       "vendor-specific",
		usbClasses: []string{"ff", "fe"},
		resource:   "usb",
	},
}

// networkKind is the kind of hardware with network interfaces.
const networkKind = "network"

// platformSerial are the serial ports of a board (Documentation/admin-guide/devices.txt).
var platformSerial = []string{
	"/dev/ttyS*", "/dev/ttyAMA*", "/dev/ttymxc*", "/dev/ttyTHS*", "/dev/ttyPS*", "/dev/ttyLP*", "/dev/ttySTM*",
	"/dev/ttyMSM*", "/dev/ttyHS*", "/dev/ttyO*", "/dev/ttySC*", "/dev/ttySAC*", "/dev/ttyUL*",
}

// The vendors of display controllers for the consoles of servers, which are no GPUs even if
// they have no driver: ASPEED and Matrox.
var consoleVendors = []string{"1a03", "102b"}

// kindOf returns the kind of hardware, and the zero kind if it is unknown.
func (c *Catalog) kindOf(h *device.Hardware) kind {
	if h.MDev != nil {
		return kind{name: "mediated device"}
	}
	if h.IsPartition() {
		return c.kindOf(h.Parent)
	}
	for _, k := range kinds {
		if c.isKind(h, &k) {
			return k
		}
	}
	// PCI_BASE_CLASS_DISPLAY. All GPUs and the displays of consoles have it.
	isDisplay := h.PCI != nil && strings.HasPrefix(h.PCI.Class, "03")
	switch {
	case isDisplay && slices.Contains(consoleVendors, h.PCI.Vendor):
		return kind{name: "display"}
	case isDisplay: // with a driver that has no DRM nodes, such as vfio-pci
		return kind{name: "GPU"}
	}
	return kind{}
}

// isKind reports whether hardware is of a kind. A class is assigned by the manufacturer, and nodes
// are created by a driver: either is enough.
func (c *Catalog) isKind(h *device.Hardware, k *kind) bool {
	switch {
	case h.PCI != nil && hasPrefix(h.PCI.Class, k.pciClasses):
		return true
	case h.USB != nil && k.hasInterface(h.USB):
		return true
	case k.name == networkKind && len(h.Nets) > 0:
		return true
	case !c.hasNode(h, k.nodes):
		return false
	case len(k.words) == 0:
		return true
	case h.Bus == device.PlatformBus:
		return c.hasWord(h, k.words)
	}
	// On other buses, the nodes of video4linux belong to cameras.
	return len(k.usbClasses) > 0
}

// hasInterface reports whether an interface of a USB device is of the kind.
func (k *kind) hasInterface(u *device.USB) bool {
	for _, i := range u.Interfaces {
		if slices.Contains(k.usbClasses, i.Class) || slices.Contains(k.drivers, i.Driver) {
			return true
		}
	}
	return false
}

// hasWord reports whether the name of a platform device or of its driver has one of some
// words: "bcm2835-codec", "fe801000.csi", "rkisp1".
func (c *Catalog) hasWord(h *device.Hardware, words []string) bool {
	name := strings.ToLower(h.Name + " " + c.host.Driver(h.Path))
	isSeparator := func(r rune) bool { return strings.ContainsRune(" .-_:", r) }
	for _, part := range strings.FieldsFunc(name, isSeparator) {
		// Drivers have the generation of the hardware at the end: "csi2", "isp1".
		if slices.Contains(words, stem(part)) {
			return true
		}
	}
	return false
}

// hasPrefix reports whether a text starts with one of some prefixes. Classes have the base
// class first, then the subclass and the programming interface.
func hasPrefix(s string, prefixes []string) bool {
	for _, prefix := range prefixes {
		if strings.HasPrefix(s, prefix) {
			return true
		}
	}
	return false
}

// nodeKind is a kind of nodes that many containers may share, or that have no hardware to
// distinguish them. Its nodes are selected by their path.
type nodeKind struct {
	name     string
	glob     string
	resource string
	// each is set if nodes differ in what is connected to them: each one is a resource.
	each  bool
	with  []string
	count int    // containers that share it
	note  string // about the resource
}

// Each opening of a shared node is independent of the others: a virtual machine, a connection
// of a file system, or an interface in the network namespace of the container. count only keeps
// the kubelet from refusing pods.
var nodeKinds = []nodeKind{
	{
		name:     "virtualization",
		glob:     "/dev/kvm",
		resource: "kvm",
		count:    100,
	},
	{
		name:     "file systems",
		glob:     "/dev/fuse",
		resource: "fuse",
		count:    100,
	},
	{
		name:     "tunnels",
		glob:     "/dev/net/tun",
		resource: "tun",
		count:    100,
	},
	{
		name:     "virtual networks",
		glob:     "/dev/vhost-net",
		resource: "vhost-net",
		count:    100,
	},
	{
		name:     "virtual sockets",
		glob:     "/dev/vhost-vsock",
		resource: "vhost-vsock",
		count:    100,
	},
	{
		name:     "SGX enclaves",
		glob:     "/dev/sgx_enclave",
		resource: "sgx",
		count:    100,
	},
	{
		name:     "TPM",
		glob:     "/dev/tpmrm0",
		resource: "tpm",
		count:    64,
	},
	{
		name:     "GPIO",
		glob:     gpioNodes,
		resource: "gpio",
		each:     true,
	},
	{
		name:     "SPI",
		glob:     "/dev/spidev*",
		resource: "spi",
		each:     true,
	},
	{
		name:     "NVIDIA GPU",
		glob:     "/dev/nvidia[0-9]*",
		resource: "nvidia-gpu",
		with:     []string{"/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools", "/dev/nvidia-modeset"},
		note:     "Programs need the driver's libraries too, which CDI brings: examples/configs/nvidia-cdi.toml.",
	},
}

const (
	gpioNodes     = "/dev/gpiochip*"
	gpioSubsystem = "gpio"
)

// kindOfNode returns the kind of a node without hardware. The kind of an unknown node has the name
// of its subsystem, and a resource with the name of the node.
func (c *Catalog) kindOfNode(n *device.Node) nodeKind {
	for _, k := range nodeKinds {
		if c.matches(n.Path, k.glob) {
			return k
		}
	}
	// The subsystem is what the kernel calls the kind of a node.
	name := n.Subsystem
	switch {
	case n.Net != nil:
		name = networkKind
	case c.matches(n.Path, platformSerial...):
		name = "serial port"
	}
	return nodeKind{
		name:     name,
		resource: slug(strings.ToLower(stem(n.Kernel))),
	}
}

// isChipset reports whether a GPIO chip belongs to the chipset of a PC: its lines are wired
// on the board, to the power button or the lid, and pods have no use for them. The ACPI
// tables name it after its manufacturer: "INT34C5:00", "AMDI0030:00".
func isChipset(h *device.Hardware) bool {
	if h == nil {
		return false
	}
	if h.Bus != device.PlatformBus {
		return h.PCI != nil
	}
	// Only ACPI names have a colon and a number after the identifier.
	isACPI := strings.Contains(h.Name, ":")
	isOfPC := hasPrefix(h.Name, []string{"INT", "AMD"})
	return isACPI && isOfPC
}

// isDisplaySound reports whether a function is the sound of a graphics card, for its HDMI
// connectors. It is a function of the same card.
func (c *Catalog) isDisplaySound(h *device.Hardware) bool {
	if h.PCI == nil || !strings.HasPrefix(h.PCI.Class, "0403") {
		return false
	}
	// PCI_CLASS_MULTIMEDIA_HD_AUDIO. The sound of a board is in a slot of its own.
	slot := pciSlot(h.PCI.Address)
	return slices.ContainsFunc(c.snap.Hardware, func(o *device.Hardware) bool {
		isDisplay := o.PCI != nil && strings.HasPrefix(o.PCI.Class, "03")
		return isDisplay && pciSlot(o.PCI.Address) == slot
	})
}

// pciSlot returns an address without the function: "0000:3b:00" of "0000:3b:00.1".
func pciSlot(address string) string {
	slot, _, _ := strings.Cut(address, ".")
	return slot
}

// isSibling reports whether a function belongs to the IOMMU group of a function of another model
// that comes first, like the sound of a GPU that is bound to VFIO. The resource of the first
// function already injects the whole group.
func (c *Catalog) isSibling(h *device.Hardware) bool {
	if h.PCI == nil || !h.PCI.VFIO {
		return false
	}
	for _, other := range c.snap.Hardware {
		if other.PCI == nil || !other.PCI.VFIO || other.PCI.IOMMUGroup != h.PCI.IOMMUGroup {
			continue
		}
		// Functions of one model are one group of the starter configuration anyway.
		isOther := attribute(other, "pci.id") != attribute(h, "pci.id")
		if isOther && other.PCI.Address < h.PCI.Address {
			return true
		}
	}
	return false
}
