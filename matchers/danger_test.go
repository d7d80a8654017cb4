package matchers_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/generic-dp/generic-dp/config"
	"github.com/generic-dp/generic-dp/internal/device"
	"github.com/generic-dp/generic-dp/internal/testing/sysfstest"
	"github.com/generic-dp/generic-dp/matchers"
)

// refused is the end of the reason of a dangerous device.
const refused = ": it requires dangerous = true in its match, and dangerous in --allow (in the chart: allow)"

// judged are the reasons of the nodes of a host, by path; empty if not dangerous.
func judged(t *testing.T, h *sysfstest.Host, toml string) map[string]string {
	t.Helper()
	snap, opts := scanned(t, h)
	reasons := map[string]string{}
	for _, o := range matchers.Match(parse(t, toml), snap, nil, opts).Resources[0].Offers {
		for _, n := range o.Nodes {
			reasons[n.HostPath] = ""
		}
		for problem := range strings.SplitSeq(o.Problem, refused) {
			if node, why, ok := strings.Cut(strings.TrimPrefix(problem, "; "), " is dangerous: "); ok {
				reasons[node] = why
			}
		}
	}
	return reasons
}

const everyNode = `match.glob = "/dev/**"` + "\neach = \"node\""

// Nodes are judged by the kernel's device with their number, not by name.
func TestDangerousClasses(t *testing.T) {
	t.Parallel()
	const (
		memory     = "it reads and writes the memory of the host (%s)"
		storage    = "it commands storage (%s)"
		controller = "it commands a storage controller (%s)"
		flash      = "it is flash memory, which holds firmware (%s)"
		firmware   = "it commands firmware (%s)"
		processor  = "it commands the CPU (%s)"
		hypervisor = "it commands the hypervisor (%s)"
		dma        = "it grants a device without an IOMMU, whose DMA reaches all memory (%s)"
		agents     = "it is a channel between the hypervisor and agents of the host (%s)"
		secure     = "it serves the secure world of the CPU (%s)"
		typing     = "it creates input devices, which type on the console of the host (%s)"
		input      = "it reads and injects input of the host (%s)"
		console    = "it is the console of the host (%s)"
		kernelLog  = "it reads and forges the log of the kernel (%s)"
		traffic    = "it reads all data of a USB bus, such as keystrokes and files (%s)"
		reset      = "it resets the host (%s)"
		chips      = "it commands chips of the board, of graphics cards or of monitors (%s)"
		radios     = "it switches off the radios of the host (%s)"
		forging    = "it creates devices of the host (%s)"
		keys       = "it uses the keys of the host, such as the keys of its disks (%s)"
	)
	h := sysfstest.New(t)
	want := map[string]string{}
	for path := range judged(t, h, everyNode) {
		want[path] = "" // present on every host
	}
	for is, devices := range map[string][]string{
		memory: {"mem mem", "mem kmem", "mem port", "mem oldmem", "misc crash", "misc snapshot", "misc hpet", "misc vmmon", "misc vboxdrvu", "misc opal-prd",
			"bcm2708_vcio vcio", "misc vcio", "misc vcio_gencmd", "vc-mem vc-mem", "rpivid-hevcmem rpivid-hevcmem", "rpivid-intcmem rpivid-intcmem",
			"dax dax0.0", "nd ndctl0", "nd nmem0", "cxl mem0", "firewire fw0"},
		storage: {"scsi_generic sg0", "bsg 6:0:1:0", "bsg mpi3mrctl0", "raw raw1", "nvme nvme0", "nvme-generic ng0n1", "misc nvme-fabrics", "mmc_rpmb mmcblk0rpmb",
			"ublk-char ublkc0", "misc ublk-control", "misc loop-control", "misc pktcdvd", "misc device-mapper", "misc btrfs-control", "misc autofs", "bcachefs bcachefs-ctl", "misc zfs"},
		controller: {"misc mptctl", "misc mpt2ctl", "misc mpt3ctl", "misc megadev0", "pmcsas pmcsas0", "dpt_i2o dpti0", "misc i2octl", "switchtec switchtec0"},
		flash:      {"mtd mtd0", "mtd mtd0ro", "ubi ubi0", "ubi ubi0_1", "misc ubi_ctrl", "misc nvram"},
		firmware: {"ipmi ipmi0", "iLO hpilo!d0ccb0", "mei mei0", "misc efi_capsule_loader", "misc efi_test", "misc toshiba", "misc wmi!dell-smbios", "fwctl fwctl0",
			"misc cros_ec", "chromeos cros_ec", "misc papr-vpd", "misc papr-sysparm"},
		processor:  {"msr msr0", "misc microcode", "misc isst_interface", "misc hsmp"},
		hypervisor: {"misc xen!privcmd", "misc xen!gntdev", "misc xen!xenbus", "misc vmcp", "misc vmci"},
		dma:        {"vfio noiommu-0", "vfio-dev noiommu-vfio0", "uio uio0"},
		agents:     {"virtio-ports vport0p1", "misc vmbus!hv_kvp", "misc vmbus!hv_fcopy"},
		secure:     {"tee teepriv0"},
		typing:     {"misc uinput", "misc uhid", "misc userio", "misc vhci"},
		input:      {"input mice", "input mouse0", "misc psaux"},
		console:    {"tty hvc0", "tty console", "tty tty0", "tty tty1", "vc vcs", "vc vcsa1", "vc vcsu2"},
		kernelLog:  {"mem kmsg", "tty ttyprintk"},
		traffic:    {"usbmon usbmon0"},
		reset:      {"watchdog watchdog0", "misc watchdog"},
		chips:      {"drm_dp_aux_dev drm_dp_aux0"},
		radios:     {"misc rfkill"},
		forging:    {"misc cuse", "vduse control", "vduse disk0"},
		keys:       {"tpm tpm0", "tpmrm tpmrm0"},
		"": {"mem null", "misc fuse", "misc tun", "misc kvm", "misc vhost-net", "misc vfio", "misc iommu", "misc sgx_enclave", "cpuid cpu0",
			"scsi_tape nst0", "scsi_changer sch0", "vfio 12", "vfio-dev vfio3", "rtc rtc0", "i2c-dev i2c-0", "spidev spidev0.0", "gpio gpiochip0", "hidraw hidraw0",
			"graphics fb0", "input js0", "tee tee0", "tty tty", "tty ptmx", "tty ttyS0", "tty ttyAMA0", "infiniband_mad umad0", "vchiq vchiq",
			"cxl afu0.0m", "drm renderD128", "tty ttyUSB0", "infiniband_verbs uverbs0", "kfd kfd"},
	} {
		for _, d := range devices {
			subsystem, name, _ := strings.Cut(d, " ")
			node := fmt.Sprintf("node%d", len(want))
			h.AddNode("", sysfstest.Node{Name: node, Subsystem: subsystem, Dir: subsystem + "/" + name})
			want["/dev/"+node] = ""
			if is != "" {
				want["/dev/"+node] = fmt.Sprintf(is, d)
			}
		}
	}
	h.AddNode("", sysfstest.Node{Name: "zvol", Subsystem: "block", Block: true, Major: 230})
	h.AddNode("", sysfstest.Node{Name: "boot", Subsystem: "block", Block: true, Major: 179, Minor: 8, Dir: "mmc0/block/mmcblk0/mmcblk0boot0"})
	want["/dev/zvol"], want["/dev/boot"] = "it is a block device", "it is a block device"
	equal(t, "result", want, judged(t, h, everyNode))
}

// A node made by hand is the kernel's device with its number; without an entry in sysfs
// it is judged by the driver of its major number.
func TestDangerByNumber(t *testing.T) {
	t.Parallel()
	h := sysfstest.New(t)
	h.AddNode("devices/platform/host0", sysfstest.Node{Name: "sg0", Subsystem: "scsi_generic", Major: 21})
	h.AddNode("", sysfstest.Node{Name: "fuse", Subsystem: "misc", Major: 10, Minor: 229})
	h.WriteProc("devices", "Character devices:\n 10 misc\n195 nvidia-frontend\n241 megaraid_sas_ioctl\n242 aac\n243 twa\n244 ubi1\n245 bcachefs-ctl\n247 mt4119_pciconf0\n\nBlock devices:\n195 sd\n")
	want := map[string]string{}
	for path := range judged(t, h, everyNode) {
		want[path] = ""
	}
	const commands, control = "it commands storage (%s)", "it commands a storage controller (%s)"
	want["/dev/sg0"] = fmt.Sprintf(commands, "scsi_generic sg0")
	for node, is := range map[string][2]string{
		"char 21:0":   {commands, "scsi_generic sg0"},
		"char 21:1":   {commands, "sg 1"}, // a disk added later
		"block 259:7": {"it is a block device"},
		"char 10:229": {}, "char 10:200": {}, "char 10:232": {}, "char 13:0": {}, "char 13:31": {},
		"char 10:223": {"it creates input devices, which type on the console of the host (%s)", "misc 223"},
		"char 10:130": {"it resets the host (%s)", "misc 130"},
		"char 10:57":  {"it is a misc device without hardware that is not known to be harmless (%s)", "misc 57"},
		"char 1:11":   {"it reads and forges the log of the kernel (%s)", "mem 11"},
		"char 7:3":    {"it is the console of the host (%s)", "vcs 3"},
		"char 89:9":   {"it may be a dangerous device that appears later (%s)", "i2c 9"}, "char 195:0": {}, "char 189:1": {}, "char 246:0": {},
		"char 1:1":    {"it reads and writes the memory of the host (%s)", "mem 1"},
		"char 1:5":    {},
		"char 202:0":  {"it commands the CPU (%s)", "cpu/msr 0"},
		"char 90:0":   {"it is flash memory, which holds firmware (%s)", "mtd 0"},
		"char 10:236": {commands, "misc 236"},
		"char 10:237": {commands, "misc 237"},
		"char 10:221": {control, "misc 221"},
		"char 241:0":  {control, "megaraid_sas_ioctl 0"},
		"char 242:0":  {control, "aac 0"},
		"char 243:3":  {control, "twa 3"},
		"char 244:1":  {"it is flash memory, which holds firmware (%s)", "ubi1 1"},
		"char 245:0":  {commands, "bcachefs-ctl 0"},
		"char 247:0":  {"it commands firmware (%s)", "mt4119_pciconf0 0"},
		"char 10:224": {"it uses the keys of the host, such as the keys of its disks (%s)", "misc 224"},
	} {
		name := "hand-" + strings.NewReplacer(" ", "-", ":", "-").Replace(node)
		if err := os.WriteFile(filepath.Join(h.Dev(), name), []byte(node+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		want["/dev/"+name] = is[0]
		if is[1] != "" {
			want["/dev/"+name] = fmt.Sprintf(is[0], is[1])
		}
	}
	equal(t, "result", want, judged(t, h, everyNode))
}

// The bus node of a USB disk commands the disk in place of its driver. The bus node of a
// hub switches off the devices below it.
func TestDangerOfUSBDisks(t *testing.T) {
	t.Parallel()
	h := sysfstest.New(t)
	h.AddBus()
	h.AddUSB(sysfstest.USB{Port: "1-1", Vendor: "05e3", Product: "0608", Serial: "HUB", Class: "09"})
	disk := h.AddUSB(sysfstest.USB{Port: "1-1.1", Vendor: "0781", Product: "5581", Serial: "DISK", Interfaces: []sysfstest.Interface{{Class: "ff", Driver: "ums-realtek"}}})
	h.AddNode(disk+"/1-1.1:1.0/host0/target0:0:0/0:0:0:0", sysfstest.Disk("sda"))
	h.AddUSB(sysfstest.USB{Port: "1-1.2", Vendor: "0781", Product: "5581", Serial: "COMING", Interfaces: []sysfstest.Interface{{Class: "08"}}})
	h.AddUSB(sysfstest.USB{Port: "1-1.3", Vendor: "10c4", Product: "ea60", Serial: "SERIAL", Interfaces: []sysfstest.Interface{{Class: "ff", Driver: "cp210x"}}})
	nic := h.AddUSB(sysfstest.USB{Port: "1-1.4", Vendor: "0bda", Product: "8153", Serial: "NIC", Interfaces: []sysfstest.Interface{{Class: "ff", Driver: "r8152"}}})
	h.AddNet(nic+"/1-1.4:1.0", sysfstest.Net{Name: "eth7"})
	can := h.AddUSB(sysfstest.USB{Port: "1-1.5", Vendor: "1d50", Product: "606f", Serial: "CAN", Interfaces: []sysfstest.Interface{{Class: "ff", Driver: "gs_usb"}}})
	h.AddNet(can+"/1-1.5:1.0", sysfstest.Net{Name: "can0", Type: 280})
	const commands = "it commands storage (USB device of "
	want := map[string]string{
		"/dev/bus/usb/001/002": "it switches off every device below a USB hub (USB hub 1-1)", "/dev/bus/usb/001/005": "",
		"/dev/bus/usb/001/006": "it commands a network interface, which may be the host's own (USB device of a network interface)", "/dev/bus/usb/001/007": "",
		"/dev/bus/usb/001/003": commands + "/dev/sda)", "/dev/bus/usb/001/004": commands + "mass storage)",
	}
	equal(t, "result", want, judged(t, h, `match = { usb = {}, glob = "/dev/bus/**" }`))
}

// dangerous = true permits a dangerous device, its companions and its CDI devices.
func TestDangerAllowed(t *testing.T) {
	t.Parallel()
	const (
		mem   = "is dangerous: it reads and writes the memory of the host (mem mem)"
		block = "is dangerous: it is a block device"
		along = ": it requires dangerous = true in the match of its device, and dangerous in --allow (in the chart: allow)"
	)
	allowed := func(o *matchers.Options) { o.Allow.Dangerous = true }
	cdiOf := func(nodes ...device.CDINode) func(o *matchers.Options) {
		return func(o *matchers.Options) { o.CDIDevices = []device.CDIDevice{{Name: "a/b=c", Nodes: nodes}} }
	}
	both := func(all ...func(o *matchers.Options)) func(o *matchers.Options) {
		return func(o *matchers.Options) {
			for _, f := range all {
				f(o)
			}
		}
	}
	tell(t, []story{
		{name: "refused", toml: `match.subsystem = "mem"`, want: []string{"x: mem !/dev/mem " + mem + refused, "x: null /dev/null"}},
		{name: "disks", toml: `match.glob = "/dev/sd*"`, want: []string{
			"x: 0000:00:17.0:sd !/dev/sda " + block + refused, "x: 0000:00:17.0:sd.1 !/dev/sdb " + block + refused, "x: 0000:00:17.0:sd1 !/dev/sda1 " + block + refused}},
		{name: "hardware as a whole", toml: `match.pci = { class = "0106" }` + "\nexclude.glob = \"/dev/{sg*,sda*}\"", want: []string{"x: 0000:00:17.0 !/dev/sdb " + block + refused}},
		{name: "wanted", toml: `match = { glob = "/dev/sda", dangerous = true }`, opts: allowed, want: []string{"x: 0000:00:17.0:sd /dev/sda"}},
		{name: "wanted and not allowed", toml: `match = { glob = "/dev/mem", dangerous = true }`, want: []string{"x: mem !/dev/mem " + mem + refused}},
		{name: "allowed and not wanted", toml: `match.glob = "/dev/mem"`, opts: allowed, want: []string{"x: mem !/dev/mem " + mem + refused}},
		{name: "wanted by another match", toml: `match = [{ glob = "/dev/sda", dangerous = true }, { glob = "/dev/sdb" }]`, opts: allowed,
			want: []string{"x: 0000:00:17.0:sd /dev/sda", "x: 0000:00:17.0:sd.1 !/dev/sdb " + block + refused}},

		{name: "a companion", toml: "match.glob = \"/dev/fuse\"\nwith = [{ path = \"/dev/sd?\" }]", opts: allowed,
			want: []string{"x: fuse /dev/fuse !companion /dev/sda " + block + along + "; companion /dev/sdb " + block + along}},
		{name: "a companion by a pattern with a variable", toml: "match = { virtual = [{ name = \"v\", vars = { x = \"m\", y = \"*\" } }] }\nwhen.node_name = \"*\"\nwith = [{ path = \"/dev/${var:x}e?\" }, { path = \"/dev/s${var:y}?\" }]", opts: allowed,
			want: []string{"x: virtual:example.com:x:v !companion /dev/mem " + mem + along + "; companion /dev/s*? is missing: nothing matches"}},
		{name: "a mount by a pattern with a variable", toml: "match = { virtual = [{ name = \"v\", vars = { x = \"y\" } }] }\nwhen.node_name = \"*\"\nwith = [{ path = \"/{opt,etc}/${var:x}*\" }]",
			opts: func(o *matchers.Options) { host(o).glob = files("/opt/y1", "/etc/y1") },
			want: []string{"x: virtual:example.com:x:v mount /opt/y1>/opt/y1 !mount /etc/y1 requires mount:/etc/y1 or a directory above it in --allow (in the chart: allow)"}},
		{name: "a companion, wanted", toml: "match = { glob = \"/dev/fuse\", dangerous = true }\nwith = [{ path = \"/dev/sda\" }]", opts: allowed, want: []string{"x: fuse /dev/fuse +/dev/sda"}},
		{name: "a companion, wanted and not allowed", toml: "match = { glob = \"/dev/fuse\", dangerous = true }\nwith = [{ path = \"/dev/sda\" }]",
			want: []string{"x: fuse /dev/fuse !companion /dev/sda " + block + along}},
		{name: "a companion of hardware without nodes", toml: "match = { pci = { class = \"0c03\" }, dangerous = true }\nwith = [{ path = \"/dev/mem\" }]", opts: allowed, want: []string{"x: 0000:00:14.0 +/dev/mem"}},
		{name: "a companion of a mount", toml: "match = { glob = \"/opt/*\", dangerous = true }\nwith = [{ path = \"/dev/mem\" }]",
			opts: both(allowed, func(o *matchers.Options) { host(o).glob = files("/opt/a") }), want: []string{"x: path:opt:a +/dev/mem mount /opt/a>/opt/a"}},
		{name: "a companion of a virtual device", toml: "match = { virtual = [\"v\"], dangerous = true }\nwhen.node_name = \"*\"\nwith = [{ path = \"/dev/mem\" }]", opts: allowed, want: []string{"x: virtual:example.com:x:v +/dev/mem"}},
		{name: "a companion of a pool", toml: "each = \"all\"\nmatch = [{ glob = \"/dev/fuse\" }, { pci = { class = \"0c03\" }, dangerous = true }]\ncontainer.cdi = true\nwith = [{ path = \"/dev/mem\" }]", opts: allowed,
			want: []string{"x: all:example.com:x /dev/fuse +/dev/mem"}},

		{name: "a CDI device", toml: `match.cdi_device = "a/b=c"`, opts: both(allowed, cdiOf(device.CDINode{Path: "/dev/null"}, device.CDINode{Path: "/dev/sda", Common: true})),
			want: []string{"x: cdi:a:b:c !CDI device a/b=c is dangerous: /dev/sda: it is a block device" + refused}},
		{name: "a CDI device by number", toml: `match.cdi_device = "a/b=c"`, opts: cdiOf(device.CDINode{Path: "/dev/null", Type: device.CharNode, Major: 1, Minor: 1}),
			want: []string{"x: cdi:a:b:c !CDI device a/b=c is dangerous: /dev/null: it reads and writes the memory of the host (mem mem)" + refused}},
		{name: "a CDI device that is harmless", toml: `match.cdi_device = "a/b=c"`, opts: cdiOf(device.CDINode{Path: "/dev/mem", Type: device.CharNode, Major: 1, Minor: 3}, device.CDINode{Path: "/run/gone"}),
			want: []string{"x: cdi:a:b:c cdi a/b=c"}},
		{name: "a CDI device, wanted", toml: `match = { cdi_device = "a/b=c", dangerous = true }`, opts: both(allowed, cdiOf(device.CDINode{Path: "/dev/sda"})), want: []string{"x: cdi:a:b:c cdi a/b=c"}},
	})
}

// Recordings without /proc/devices have the fixed numbers.
func TestDangerWithoutProc(t *testing.T) {
	t.Parallel()
	snap := &device.Snapshot{Nodes: []*device.Node{{Path: "/dev/x", Type: device.CharNode, Major: 1, Minor: 1, Kernel: "x", Interface: -1, Index: -1}}}
	offers := matchers.Match(parse(t, `match.glob = "/dev/x"`), snap, nil, matchers.Options{Host: &fakeHost{}, Allow: config.Allow{}}).Resources[0].Offers
	if want := "/dev/x is dangerous: it reads and writes the memory of the host (mem 1)" + refused; len(offers) != 1 || offers[0].Problem != want {
		t.Errorf("%+v; want %q", offers, want)
	}
}
