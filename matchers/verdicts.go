package matchers

import (
	"cmp"
	"fmt"
	"strings"
)

// effect says what a container can do with a dangerous node: the end of a sentence that
// starts with "it".
type effect string

const (
	memory     effect = "reads and writes the memory of the host"
	storage    effect = "commands storage"
	controller effect = "commands a storage controller"
	flash      effect = "is flash memory, which holds firmware"
	firmware   effect = "commands firmware"
	processor  effect = "commands the CPU"
	hypervisor effect = "commands the hypervisor"
	dma        effect = "grants a device without an IOMMU, whose DMA reaches all memory"
	agents     effect = "is a channel between the hypervisor and agents of the host"
	secure     effect = "serves the secure world of the CPU"
	typing     effect = "creates input devices, which type on the console of the host"
	input      effect = "reads and injects input of the host"
	console    effect = "is the console of the host"
	kernelLog  effect = "reads and forges the log of the kernel"
	traffic    effect = "reads all data of a USB bus, such as keystrokes and files"
	reset      effect = "resets the host"
	chips      effect = "commands chips of the board, of graphics cards or of monitors"
	ports      effect = "switches off every device below a USB hub"
	radios     effect = "switches off the radios of the host"
	forging    effect = "creates devices of the host"
	network    effect = "commands a network interface, which may be the host's own"
	keys       effect = "uses the keys of the host, such as the keys of its disks"
	// unclear is for a number whose driver makes devices of both kinds, as long as sysfs has no
	// entry.
	unclear effect = "may be a dangerous device that appears later"
	// unreviewed has no classes: it is the default for misc devices, see isUnreviewed.
	unreviewed effect = "is a misc device without hardware that is not known to be harmless"
)

// class is a kind of character node. device or driver may be empty, but not both.
type class struct {
	// device is the entry of sysfs for the number of such a node: "SUBSYSTEM NAME". NAME may be a
	// pattern. The kernel's driver chooses both.
	device string
	// driver is the driver of the major number in /proc/devices and the minor number, as a
	// pattern. It is for numbers without an entry in sysfs: some drivers make no device, and some
	// modules are loaded when the node is opened.
	driver string
	// source proves the verdict. It is shown in VERDICTS.md.
	source string // in the kernel, Linux 6.12 unless noted
}

// verdict is one effect with the classes that have it.
type verdict struct {
	effect  effect
	classes []class
}

// dangerous are the character nodes that grant access to the host. With such a node, root in a
// container without any capability can read or change the software or firmware of the host, read its
// secrets, or stop it. Every block device also grants access. The numbers are from
// Documentation/admin-guide/devices.txt. VERDICTS.md has the same list.
var dangerous = []verdict{
	{effect: memory, classes: []class{
		{"mem mem", "mem 1", "drivers/char/mem.c"},
		{"mem kmem", "mem 2", "drivers/char/mem.c, until Linux 5.12"},
		{"mem port", "mem 4", "drivers/char/mem.c: I/O ports"},
		{"mem oldmem", "mem 12", "drivers/char/mem.c, in older kernels"},
		{"misc crash", "misc 190", "drivers/char/crash.c of Red Hat"},
		{"misc snapshot", "misc 231", "kernel/power/user.c: the image of hibernation"},
		{"misc hpet", "misc 228", "drivers/char/hpet.c: hpet_mmap"},
		{"misc vmmon", "misc 165", "VMware's: runs a monitor beside the kernel"},
		{"misc vboxdrv*", "", "VirtualBox's: loads code into the kernel"},
		{"misc opal-prd", "", "arch/powerpc/platforms/powernv/opal-prd.c"},
		{"dax *", "dax *", "drivers/dax/device.c: persistent memory"},
		{"nd *", "ndctl *", "drivers/nvdimm/bus.c: labels and firmware of DIMMs"},
		{"nd *", "dimmctl *", "drivers/nvdimm/bus.c"},
		{"cxl mem*", "cxl *", "drivers/cxl/core/memdev.c"},
		{"firewire *", "firewire *", "drivers/firewire/core-cdev.c: requests to any address of the bus"},
		{"bcm2708_vcio vcio", "vcio *", "drivers/char/broadcom/vcio.c of Raspberry Pi, in older kernels: the firmware allocates and runs code in memory"},
		{"misc vcio*", "", "drivers/char/broadcom/vcio.c of Raspberry Pi"},
		{"vc-mem *", "vc-mem *", "drivers/char/broadcom/vc_mem.c of Raspberry Pi: all memory of the VideoCore"},
		{"rpivid-hevcmem *", "rpivid-* *", "drivers/char/broadcom/rpivid-mem.c of Raspberry Pi: registers of a decoder with DMA"},
		{"rpivid-intcmem *", "", "drivers/char/broadcom/rpivid-mem.c of Raspberry Pi"},
		{"rpivid-h264mem *", "", "drivers/char/broadcom/rpivid-mem.c of Raspberry Pi"},
		{"rpivid-vp9mem *", "", "drivers/char/broadcom/rpivid-mem.c of Raspberry Pi"},
	}},
	{effect: storage, classes: []class{
		{"scsi_generic *", "sg *", "drivers/scsi/sg.c"},
		{"bsg *", "bsg *", "block/bsg.c: SCSI, SAS, UFS, mpi3mr"},
		{"raw *", "raw *", "drivers/char/raw.c, until Linux 5.13"},
		{"nvme *", "nvme *", "drivers/nvme/host/core.c"},
		{"nvme-generic *", "nvme-generic *", "drivers/nvme/host/core.c"},
		{"misc nvme-fabrics", "", "drivers/nvme/host/fabrics.c"},
		{"mmc_rpmb *", "rpmb *", "drivers/mmc/core/block.c"},
		{"ublk-char *", "ublk-char *", "drivers/block/ublk_drv.c"},
		{"misc ublk-control", "", "drivers/block/ublk_drv.c"},
		{"misc loop-control", "misc 237", "drivers/block/loop.c"},
		{"misc pktcdvd", "", "drivers/block/pktcdvd.c"},
		{"misc device-mapper", "misc 236", "drivers/md/dm-ioctl.c"},
		{"misc btrfs-control", "misc 234", "fs/btrfs/super.c"},
		{"misc autofs", "misc 235", "fs/autofs/dev-ioctl.c"},
		{"bcachefs *", "bcachefs* *", "fs/bcachefs/chardev.c"},
		{"misc zfs", "misc 249", "module/os/linux/zfs/zfs_ioctl_os.c of OpenZFS"},
	}},
	{effect: controller, classes: []class{
		{"misc mptctl", "misc 220", "drivers/message/fusion/mptctl.c"},
		{"misc mpt[23]ctl", "misc 22[12]", "drivers/scsi/mpt3sas/mpt3sas_ctl.c"},
		{"misc megadev*", "", "drivers/scsi/megaraid/megaraid_mm.c"},
		{"", "megadev* *", "drivers/scsi/megaraid.c"},
		{"", "megaraid_sas_ioctl *", "drivers/scsi/megaraid/megaraid_sas_base.c"},
		{"", "aac *", "drivers/scsi/aacraid/linit.c"},
		{"", "tw[ael] *", "drivers/scsi/3w-9xxx.c, 3w-xxxx.c, 3w-sas.c"},
		{"pmcsas *", "pmcsas *", "drivers/scsi/pmcraid.c"},
		{"dpt_i2o *", "dpti* *", "drivers/scsi/dpt_i2o.c, in older kernels"},
		{"misc i2octl", "misc 166", "drivers/message/i2o, in older kernels"},
		{"switchtec *", "switchtec *", "drivers/pci/switch/switchtec.c: PCIe switches"},
	}},
	{effect: flash, classes: []class{
		{"mtd *", "mtd *", "drivers/mtd/mtdchar.c"},
		{"ubi *", "ubi* *", "drivers/mtd/ubi/cdev.c"},
		{"misc ubi_ctrl", "", "drivers/mtd/ubi/cdev.c"},
		{"misc nvram", "misc 144", "drivers/char/nvram.c: settings of the BIOS"},
	}},
	{effect: firmware, classes: []class{
		{"ipmi *", "ipmidev *", "drivers/char/ipmi/ipmi_devintf.c: the BMC"},
		{"iLO *", "hpilo *", "drivers/misc/hpilo.c: the BMC of HPE"},
		{"mei *", "mei *", "drivers/misc/mei/main.c: the management engine"},
		{"misc efi_capsule_loader", "", "drivers/firmware/efi/capsule-loader.c"},
		{"misc efi_test", "", "drivers/firmware/efi/test/efi_test.c: variables"},
		{"misc toshiba", "misc 181", "drivers/char/toshiba.c: calls of the BIOS"},
		{"misc wmi!*", "", "drivers/platform/x86/dell/dell-smbios-wmi.c"},
		{"fwctl *", "fwctl *", "drivers/fwctl/main.c, since Linux 6.15"},
		{"misc sev", "", "drivers/crypto/ccp/sev-dev.c: resets the platform and its keys; the kernel only requires write access"},
		{"", "mt*_pciconf* *", "mst_pciconf of Nvidia's firmware tools: configuration space and firmware of network cards"},
		{"", "mt*_pci_cr* *", "mst_pci of Nvidia's firmware tools: registers of network cards"},
		{"misc cros_*", "", "drivers/platform/chrome/cros_ec_chardev.c: the embedded controller"},
		{"chromeos *", "cros_ec *", "drivers/mfd/cros_ec_dev.c, until Linux 5.3"},
		{"misc papr-*", "", "arch/powerpc/platforms/pseries: papr-sysparm.c, papr-vpd.c, papr-indices.c, papr-platform-dump.c"},
	}},
	{effect: processor, classes: []class{
		{"msr *", "cpu/msr *", "arch/x86/kernel/msr.c"},
		{"misc microcode", "misc 184", "arch/x86/kernel/cpu/microcode/core.c, in older kernels"},
		{"misc isst_interface", "", "drivers/platform/x86/intel/speed_select_if"},
		{"misc hsmp*", "", "drivers/platform/x86/amd/hsmp"},
	}},
	{effect: hypervisor, classes: []class{
		{"misc xen!*", "", "drivers/xen: privcmd, gntdev, gntalloc, evtchn, xenbus"},
		{"misc vmcp", "", "drivers/s390/char/vmcp.c"},
		{"misc vmci", "", "drivers/misc/vmw_vmci/vmci_host.c"},
		{"misc nitro_enclaves", "", "drivers/virt/nitro_enclaves/ne_misc_dev.c: takes CPUs and memory"},
	}},
	{effect: dma, classes: []class{
		{"vfio noiommu-*", "", "drivers/vfio/group.c"},
		{"vfio-dev noiommu-*", "", "drivers/vfio/device_cdev.c"},
		{"uio *", "uio *", "drivers/uio/uio.c"},
	}},
	{effect: agents, classes: []class{
		{"virtio-ports *", "virtio-portsdev *", "drivers/char/virtio_console.c: requests to qemu-guest-agent, with passwords"},
		{"misc vmbus!hv_*", "", "drivers/hv/hv_utils_transport.c: addresses, snapshots and files of the host"},
	}},
	{effect: secure, classes: []class{
		{"tee teepriv*", "", "drivers/tee/tee_core.c: storage and applications of the secure world"},
	}},
	{effect: keys, classes: []class{
		{"tpm *", "misc 224", "drivers/char/tpm/tpm-dev.c: also clears the TPM and its lockout"},
		{"tpmrm *", "tpm *", "drivers/char/tpm/tpmrm-dev.c: keys without a password need no more than the node"},
	}},
	{effect: typing, classes: []class{
		{"misc uinput", "misc 223", "drivers/input/misc/uinput.c: a new keyboard is connected to the console (drivers/tty/vt/keyboard.c) and to SysRq"},
		{"misc uhid", "misc 239", "drivers/hid/uhid.c"},
		{"misc userio", "misc 240", "drivers/input/serio/userio.c"},
		{"misc vhci", "misc 137", "drivers/bluetooth/hci_vhci.c: a Bluetooth controller with a keyboard behind it"},
	}},
	{effect: input, classes: []class{
		{"input mice", "", "drivers/input/mousedev.c: all pointers of the host"},
		{"input mouse*", "", "drivers/input/mousedev.c"},
		{"misc psaux", "misc 1", "drivers/input/mousedev.c"},
	}},
	{effect: console, classes: []class{
		{"tty console", "/dev/* 1", "drivers/tty/tty_io.c"},
		{"tty tty[0-9]*", "", "drivers/tty/vt/vt_ioctl.c: text, keys and keymaps of a virtual terminal"},
		{"tty hvc*", "", "drivers/tty/hvc/hvc_console.c: the console of a virtual machine"},
		{"vc vcs*", "vcs *", "drivers/tty/vt/vc_screen.c: the text on the screen"},
	}},
	{effect: kernelLog, classes: []class{
		{"mem kmsg", "mem 11", "kernel/printk/printk.c: devkmsg_read, devkmsg_write"},
		{"tty ttyprintk", "/dev/* 3", "drivers/char/ttyprintk.c: forges it"},
	}},
	{effect: traffic, classes: []class{
		{"usbmon *", "usbmon *", "drivers/usb/mon/mon_bin.c"},
	}},
	{effect: reset, classes: []class{
		{"watchdog *", "watchdog *", "drivers/watchdog/watchdog_dev.c: the host is reset when an opened watchdog is not written to"},
		{"misc watchdog*", "misc 130", "drivers/watchdog/watchdog_dev.c, and older drivers"},
		{"misc temperature", "misc 131", "drivers/watchdog/pcwd_pci.c"},
	}},
	{effect: chips, classes: []class{
		{"drm_dp_aux_dev *", "aux *", "drivers/gpu/drm/display/drm_dp_aux_dev.c: registers of monitors"},
	}},
	{effect: radios, classes: []class{
		{"misc rfkill", "misc 242", "net/rfkill/core.c: no capability is needed"},
	}},
	{effect: forging, classes: []class{
		{"misc cuse", "misc 203", "fs/fuse/cuse.c"},
		{"misc uleds", "", "drivers/leds/uleds.c"},
		{"vduse *", "vduse *", "drivers/vdpa/vdpa_user/vduse_dev.c: disks and network interfaces"},
	}},
	{effect: unclear, classes: []class{
		{"", "hidraw *", "drivers/hid/hidraw.c"},
		{"", "i2c *", "drivers/i2c/i2c-dev.c"},
	}},
}

// harmless are the reviewed classes that are not dangerous, by reason. A class that is not listed
// anywhere is harmless, except for misc devices without hardware.
var harmless = []struct {
	reason  string
	classes []class
}{
	{"the data of the container itself", []class{
		{"mem null", "mem [35789]", "drivers/char/mem.c: also zero, full, random, urandom"},
		{"misc fuse", "misc 229", "fs/fuse/dev.c: mounting needs a capability"},
		{"misc tun", "misc 200", "drivers/net/tun.c: needs CAP_NET_ADMIN in the pod's own network namespace"},
		{"misc userfaultfd", "", "fs/userfaultfd.c"},
		{"misc udmabuf", "", "drivers/dma-buf/udmabuf.c"},
		{"misc ntsync", "", "drivers/misc/ntsync.c"},
		{"misc vsock", "", "net/vmw_vsock/af_vsock.c: the number of the own context"},
		{"misc binder", "", "drivers/android/binder.c, also hwbinder and vndbinder"},
		{"misc hwbinder", "", "drivers/android/binder.c"},
		{"misc vndbinder", "", "drivers/android/binder.c"},
		{"misc ashmem", "", "drivers/staging/android/ashmem.c, until Linux 5.17"},
		{"misc ion", "", "drivers/staging/android/ion, until Linux 5.10: buffers"},
	}},
	{"virtual machines that the container runs", []class{
		{"misc kvm", "misc 232", "virt/kvm/kvm_main.c"},
		{"misc vhost-net", "misc 238", "drivers/vhost/net.c"},
		{"misc vhost-vsock", "misc 241", "drivers/vhost/vsock.c"},
		{"misc sev-guest", "", "drivers/virt/coco/sev-guest: reports"},
		{"misc tdx_guest", "", "drivers/virt/coco/tdx-guest: reports"},
		{"misc sgx_*", "", "arch/x86/kernel/cpu/sgx: enclaves"},
		{"misc vboxuser", "", "drivers/virt/vboxguest/vboxguest_linux.c: the part for any user"},
	}},
	{"a device behind an IOMMU, or one with an interface for users", []class{
		{"misc vfio", "misc 196", "drivers/vfio/vfio_main.c: nothing without a group"},
		{"misc iommu", "", "drivers/iommu/iommufd/main.c"},
		{"misc rdma_cm", "", "drivers/infiniband/core/ucma.c"},
		{"infiniband_mad *", "infiniband_mad *", "drivers/infiniband/core/user_mad.c: packets that manage an InfiniBand network, where its keys permit that; nothing of the host"},
		{"misc xlnk", "", "the link driver of Intel's VPUs, out of tree"},
	}},
	{"random numbers, clocks and settings that end with the process", []class{
		{"misc hw_random", "misc 183", "drivers/char/hw_random/core.c"},
		{"misc rtc", "misc 135", "drivers/char/rtc.c: setting it needs CAP_SYS_TIME"},
		{"misc cpu_dma_latency", "", "kernel/power/qos.c"},
	}},
	{"data and functions of the device itself", []class{
		{"tee tee[0-9]*", "", "drivers/tee/tee_core.c: clients of the secure world"},
		{"graphics fb*", "fb *", "drivers/video/fbdev/core/fb_chrdev.c: the picture of a display, as with its DRM node"},
		{"input js*", "input [0-9]", "drivers/input/joydev.c: game controllers"},
		{"cpuid *", "cpu/cpuid *", "arch/x86/kernel/cpuid.c: read-only"},
		{"scsi_tape *", "st *", "drivers/scsi/st.c: media that no host runs from"},
		{"spidev *", "spi *", "drivers/spi/spidev.c: chips that no other driver has"},
		{"gpio *", "gpiochip *", "drivers/gpio/gpiolib-cdev.c: lines that no driver has"},
	}},
}

// VerdictsTable returns the verdicts as the table of VERDICTS.md, in Markdown. A test compares
// the file with it.
func VerdictsTable() string {
	var page strings.Builder
	page.WriteString("| verdict | reason | subsystem and name in sysfs, or driver and minor number; source |\n|---|---|---|\n")
	// Rules come first in the table, as in danger.
	for _, r := range rules() {
		fmt.Fprintf(&page, "| dangerous | %s | `%s`, if it is %s (%s) |\n", r.effect, r.device, r.which, r.source)
	}
	for _, v := range dangerous {
		fmt.Fprintf(&page, "| dangerous | %s | %s |\n", v.effect, listed(v.classes))
	}
	fmt.Fprintf(&page, "| dangerous | %s | `misc *` without a PCI, USB or platform device (drivers/char/misc.c) |\n",
		unreviewed)
	for _, v := range harmless {
		fmt.Fprintf(&page, "| harmless | %s | %s |\n", v.reason, listed(v.classes))
	}
	return page.String()
}

// listed formats classes for a cell of the table. A class without an entry in sysfs is named by
// its driver.
func listed(classes []class) string {
	cells := make([]string, 0, len(classes))
	for _, c := range classes {
		cells = append(cells, fmt.Sprintf("`%s` (%s)", cmp.Or(c.device, c.driver), c.source))
	}
	return strings.Join(cells, "; ")
}
