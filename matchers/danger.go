package matchers

import (
	"cmp"
	"fmt"
	"path"
	"slices"

	"github.com/generic-dp/generic-dp/internal/device"
)

// The effects of dangerous nodes, for reasons.
const (
	memory     = "reads and writes the memory of the host"
	storage    = "commands storage"
	controller = "commands a storage controller"
	flash      = "is flash memory, which holds firmware"
	firmware   = "commands firmware"
	processor  = "commands the CPU"
	hypervisor = "commands the hypervisor"
	dma        = "gives a device without IOMMU, whose DMA reaches all memory"
)

// class is a kind of character node.
type class struct {
	is string // its effect
	// device is what sysfs knows by the number of such a node, "SUBSYSTEM NAME", a pattern.
	device string
	// driver is the major number's driver in /proc/devices and the minor number, likewise,
	// for numbers that sysfs does not know: of drivers that make no device, and of modules
	// that are loaded when the node is opened.
	driver string
}

// dangerous are the character nodes that give access to the host: root in a container,
// without any capability, reads or changes the software or firmware of the host with
// them. So is every block device. The list is based on kernel sources, those of Linux
// 6.12 unless noted, and on Documentation/admin-guide/devices.txt.
//
// Reviewed, and not dangerous: cpuid, which is read-only; tapes, media that no host
// runs from; TPMs, which hold keys and measurements; KVM, vhost, SEV and TDX, which
// serve guests; VFIO and iommufd, as long as there is an IOMMU; I²C, SPI and GPIO,
// whose flash memory is below mtd.
var dangerous = []class{
	{memory, "mem mem", "mem 1"},          // drivers/char/mem.c
	{memory, "mem kmem", "mem 2"},         // the same, until Linux 5.12
	{memory, "mem port", "mem 4"},         // the same: I/O ports
	{memory, "mem oldmem", "mem 12"},      // the same, in older kernels
	{memory, "misc crash", "misc 190"},    // drivers/char/crash.c of Red Hat
	{memory, "misc snapshot", "misc 231"}, // kernel/power/user.c: the image of hibernation
	{memory, "misc hpet", "misc 228"},     // drivers/char/hpet.c: hpet_mmap
	{memory, "misc vmmon", "misc 165"},    // VMware's: runs a monitor beside the kernel
	{memory, "misc vboxdrv*", ""},         // VirtualBox's: loads code into the kernel
	{memory, "misc opal-prd", ""},         // arch/powerpc/platforms/powernv/opal-prd.c
	{memory, "dax *", "dax *"},            // drivers/dax/device.c: persistent memory
	{memory, "nd *", "ndctl *"},           // drivers/nvdimm/bus.c: labels and firmware of DIMMs
	{memory, "nd *", "dimmctl *"},         // the same
	{memory, "cxl mem*", "cxl *"},         // drivers/cxl/core/memdev.c
	{memory, "firewire *", "firewire *"},  // drivers/firewire/core-cdev.c: requests to any address of the bus

	{storage, "scsi_generic *", "sg *"},           // drivers/scsi/sg.c
	{storage, "bsg *", "bsg *"},                   // block/bsg.c: SCSI, SAS, UFS, mpi3mr
	{storage, "raw *", "raw *"},                   // drivers/char/raw.c, until Linux 5.13
	{storage, "nvme *", "nvme *"},                 // drivers/nvme/host/core.c
	{storage, "nvme-generic *", "nvme-generic *"}, // the same
	{storage, "misc nvme-fabrics", ""},            // drivers/nvme/host/fabrics.c
	{storage, "mmc_rpmb *", "rpmb *"},             // drivers/mmc/core/block.c
	{storage, "ublk-char *", "ublk-char *"},       // drivers/block/ublk_drv.c
	{storage, "misc ublk-control", ""},            // the same
	{storage, "misc loop-control", "misc 237"},    // drivers/block/loop.c
	{storage, "misc pktcdvd", ""},                 // drivers/block/pktcdvd.c
	{storage, "misc device-mapper", "misc 236"},   // drivers/md/dm-ioctl.c
	{storage, "misc btrfs-control", "misc 234"},   // fs/btrfs/super.c
	{storage, "misc autofs", "misc 235"},          // fs/autofs/dev-ioctl.c
	{storage, "bcachefs *", "bcachefs* *"},        // fs/bcachefs/chardev.c
	{storage, "misc zfs", "misc 249"},             // module/os/linux/zfs/zfs_ioctl_os.c of OpenZFS

	{controller, "misc mptctl", "misc 220"},        // drivers/message/fusion/mptctl.c
	{controller, "misc mpt[23]ctl", "misc 22[12]"}, // drivers/scsi/mpt3sas/mpt3sas_ctl.c
	{controller, "misc megadev*", ""},              // drivers/scsi/megaraid/megaraid_mm.c
	{controller, "", "megadev* *"},                 // drivers/scsi/megaraid.c
	{controller, "", "megaraid_sas_ioctl *"},       // drivers/scsi/megaraid/megaraid_sas_base.c
	{controller, "", "aac *"},                      // drivers/scsi/aacraid/linit.c
	{controller, "", "tw[ael] *"},                  // drivers/scsi/3w-9xxx.c, 3w-xxxx.c, 3w-sas.c
	{controller, "pmcsas *", "pmcsas *"},           // drivers/scsi/pmcraid.c
	{controller, "dpt_i2o *", "dpti* *"},           // drivers/scsi/dpt_i2o.c, in older kernels
	{controller, "misc i2octl", "misc 166"},        // drivers/message/i2o, in older kernels
	{controller, "switchtec *", "switchtec *"},     // drivers/pci/switch/switchtec.c: PCIe switches

	{flash, "mtd *", "mtd *"},         // drivers/mtd/mtdchar.c
	{flash, "ubi *", "ubi* *"},        // drivers/mtd/ubi/cdev.c
	{flash, "misc ubi_ctrl", ""},      // the same
	{flash, "misc nvram", "misc 144"}, // drivers/char/nvram.c: settings of the BIOS

	{firmware, "ipmi *", "ipmidev *"},         // drivers/char/ipmi/ipmi_devintf.c: the BMC
	{firmware, "iLO *", "hpilo *"},            // drivers/misc/hpilo.c: the BMC of HPE
	{firmware, "mei *", "mei *"},              // drivers/misc/mei/main.c: the management engine
	{firmware, "misc efi_capsule_loader", ""}, // drivers/firmware/efi/capsule-loader.c
	{firmware, "misc efi_test", ""},           // drivers/firmware/efi/test/efi_test.c: variables
	{firmware, "misc toshiba", "misc 181"},    // drivers/char/toshiba.c: calls of the BIOS
	{firmware, "misc wmi!*", ""},              // drivers/platform/x86/dell/dell-smbios-wmi.c
	{firmware, "fwctl *", "fwctl *"},          // drivers/fwctl/main.c

	{processor, "msr *", "cpu/msr *"},         // arch/x86/kernel/msr.c
	{processor, "misc microcode", "misc 184"}, // arch/x86/kernel/cpu/microcode/core.c, in older kernels
	{processor, "misc isst_interface", ""},    // drivers/platform/x86/intel/speed_select_if
	{processor, "misc hsmp*", ""},             // drivers/platform/x86/amd/hsmp

	{hypervisor, "misc xen!*", ""}, // drivers/xen: privcmd, gntdev, gntalloc, evtchn, xenbus
	{hypervisor, "misc vmcp", ""},  // drivers/s390/char/vmcp.c

	{dma, "vfio noiommu-*", ""},     // drivers/vfio/group.c
	{dma, "vfio-dev noiommu-*", ""}, // drivers/vfio/device_cdev.c
	{dma, "uio *", "uio *"},         // drivers/uio/uio.c
}

// number is a device number.
type number struct {
	kind         device.NodeType
	major, minor uint32
}

func numberOf(n *device.Node) number { return number{n.Type, n.Major, n.Minor} }

// newNumberIndex indexes the nodes in sysfs by number: a copy made by hand has the same
// device.
func newNumberIndex(snap *device.Snapshot) map[number]*device.Node {
	nodes := make(map[number]*device.Node, len(snap.Nodes))
	for _, n := range snap.Nodes {
		if n.SysPath != "" {
			nodes[numberOf(n)] = n
		}
	}
	return nodes
}

// danger returns why a node gives a container access to the host, "" if it does not. It
// judges the kernel's device with the number, not the name of the node.
func (b *builder) danger(n *device.Node) string {
	switch n.Type {
	case device.BlockNode:
		return "it is a block device"
	case device.CharNode:
	default:
		return ""
	}
	known := n
	if n.SysPath == "" {
		known = b.byNumber()[numberOf(n)]
	}
	if known == nil {
		return b.unknownDanger(n)
	}
	if disk := usbDisk(known); disk != "" {
		return "it " + storage + " (USB device of " + disk + ")"
	}
	return dangerOf(known.Subsystem+" "+path.Base(known.SysPath), func(c class) string { return c.device })
}

// fixedDrivers are the drivers of fixed major numbers, which may be loaded when a node of
// theirs is opened (Documentation/admin-guide/devices.txt).
var fixedDrivers = map[uint32]string{1: "mem", 10: "misc", 21: "sg", 90: "mtd", 162: "raw", 202: "cpu/msr"}

// unknownDanger judges a node without an entry in sysfs.
func (b *builder) unknownDanger(n *device.Node) string {
	driver := cmp.Or(b.Host.CharDriver(n.Major), fixedDrivers[n.Major])
	return dangerOf(fmt.Sprintf("%s %d", driver, n.Minor), func(c class) string { return c.driver })
}

// dangerOf returns why a device with this name in a column of dangerous is dangerous.
func dangerOf(name string, column func(class) string) string {
	for _, c := range dangerous {
		if ok, _ := path.Match(column(c), name); ok {
			return "it " + c.is + " (" + name + ")"
		}
	}
	return ""
}

// massStorage is the class of USB interfaces that have disks.
const massStorage = "08"

// usbDisk names the disk of a USB device with the bus node n, through which a container
// can detach the driver and command the disk. A device without a disk may be about to
// get one.
func usbDisk(n *device.Node) string {
	h := n.Hardware
	if h == nil || h.USB == nil || n.SysPath != h.Path {
		return ""
	}
	for _, disk := range h.Nodes {
		if disk.Type == device.BlockNode {
			return disk.Path
		}
	}
	if slices.ContainsFunc(h.USB.Interfaces, func(i device.USBInterface) bool { return i.Class == massStorage }) {
		return "mass storage"
	}
	return ""
}

// cdiDanger returns the dangerous node of a CDI device of the host, and why.
func (b *builder) cdiDanger(d *device.CDIDevice) string {
	for _, n := range d.Nodes {
		node := &device.Node{Path: n.Path, Type: n.Type, Major: n.Major, Minor: n.Minor}
		if n.Type == 0 {
			node = b.at(n.Path)
		}
		if node == nil {
			continue
		}
		if why := b.danger(node); why != "" {
			return n.Path + ": " + why
		}
	}
	return ""
}

// permits reports whether something that is dangerous, or is not if why is empty, may be
// injected; a problem says where to permit it.
func (b *builder) permits(what, why string, permitted bool, match string) bool {
	ok := why == "" || permitted && b.Allow.Dangerous
	if !ok {
		b.problem("%s is dangerous: %s: want dangerous = true in %s, and --allow=dangerous", what, why, match)
	}
	return ok
}
