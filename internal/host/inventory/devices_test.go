package inventory_test

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jaypipes/ghw"
	"golang.org/x/sys/unix"

	"github.com/generic-dp/generic-dp/internal/device"
	"github.com/generic-dp/generic-dp/internal/host/inventory"
	"github.com/generic-dp/generic-dp/internal/testing/sysfstest"
)

func findHardware(s *device.Snapshot, name string) *device.Hardware {
	for _, h := range s.Hardware {
		if h.Name == name {
			return h
		}
	}
	return nil
}

// replace makes an attribute unreadable (by a directory in its place) or, with absent,
// removes it.
func replace(t *testing.T, tree sysfstest.Tree, attr string, absent bool) {
	t.Helper()
	file := filepath.Join(tree.Sysfs(), attr)
	must(t, os.Remove(file))
	if absent {
		return
	}
	must(t, os.Mkdir(file, 0o755))
}

const server = "../../../testdata/machines/server-two-socket.txtar"
const desktop = "../../../testdata/machines/desktop-xhci.txtar"
const nics = "../../../testdata/machines/sriov-nics.txtar"

// A function without identifiers is one, and affects no other.
func TestPCIWithoutModalias(t *testing.T) {
	t.Parallel()
	const nic = "devices/pci0000:17/0000:17:00.0/0000:18:00.0"
	for reason, damage := range map[string]func(tree sysfstest.Tree){
		`modalias: "" has no identifiers`: func(tree sysfstest.Tree) { replace(t, tree, nic+"/modalias", true) },
		`modalias: "pci:" has no identifiers`: func(tree sysfstest.Tree) {
			replace(t, tree, nic+"/modalias", true)
			must(t, os.WriteFile(filepath.Join(tree.Sysfs(), nic, "modalias"), []byte("pci:\n"), 0o644))
		},
		"modalias: is a directory": func(tree sysfstest.Tree) { replace(t, tree, nic+"/modalias", false) },
	} {
		tree := sysfstest.Load(t, server)
		want := scan(t, tree)
		damage(tree)
		got := scan(t, tree)
		want.Problems = []device.Problem{{Subject: nic, Reason: reason}}
		p := findHardware(want, "0000:18:00.0").PCI
		p.Vendor, p.Device, p.SubVendor, p.SubDevice, p.Class = "", "", "", "", ""
		equal(t, reason, want, got)
	}
}

func TestPCIAddressUnknownToGHW(t *testing.T) {
	t.Parallel()
	h := sysfstest.New(t)
	h.AddPCI(sysfstest.PCI{
		Address: "20000:00:01.0", Vendor: "144d", Device: "a822", Class: "010802",
		Nodes: []sysfstest.Node{{Name: "nvme0", Subsystem: "nvme"}},
	})
	h.AddPCI(sysfstest.PCI{Address: "0000:00:02.0", Vendor: "8086", Device: "3e92", Class: "030000", Driver: "i915"})
	snap := scan(t, h.Tree)
	noProblems(t, snap)
	odd, card := findHardware(snap, "20000:00:01.0"), findHardware(snap, "0000:00:02.0")
	if odd == nil || odd.PCI.Vendor != "144d" || len(odd.Nodes) != 1 {
		t.Errorf("the odd one: %+v", odd)
	}
	if card == nil || card.PCI.Driver != "i915" {
		t.Errorf("the other: %+v", card)
	}
}

func TestUnreadableAttributesDegradeTheirDevice(t *testing.T) {
	t.Parallel()
	tree := sysfstest.Load(t, desktop)
	want := scan(t, tree)
	const hub = "devices/pci0000:00/0000:00:14.0/usb1/1-2"
	replace(t, tree, hub+"/1-2.1/speed", false)
	replace(t, tree, hub+"/1-2.3/1-2.3:1.0/ttyUSB1/port_number", false)
	replace(t, tree, "devices/pci0000:00/0000:00:02.0/numa_node", false)
	got := scan(t, tree)
	wantProblems := []device.Problem{
		{Subject: "devices/pci0000:00/0000:00:02.0", Reason: "numa_node: is a directory"},
		{Subject: hub + "/1-2.1", Reason: "speed: is a directory"},
		{Subject: hub + "/1-2.3/1-2.3:1.0/ttyUSB1", Reason: "port_number: is a directory"},
	}
	equal(t, "result", wantProblems, got.Problems)
	findHardware(want, "1-2.1").USB.Speed = ""
	findNode(t, want, "/dev/ttyUSB1").Index = -1
	want.Problems = wantProblems
	equal(t, "more than the attributes is missing", want, got)
}

// A device that is removed while it is read is left out with its nodes: they are not
// attributed to its hub.
func TestDeviceGoesDuringTheScan(t *testing.T) {
	t.Parallel()
	const stick = "devices/pci0000:00/0000:00:14.0/usb1/1-2/1-2.1"
	for _, c := range []struct {
		name string
		gone string // below sys
	}{
		{"the whole directory", stick},
		{"idVendor, which goes first", stick + "/idVendor"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			tree := sysfstest.Load(t, desktop)
			must(t, os.RemoveAll(filepath.Join(tree.Sysfs(), c.gone)))
			snap := scan(t, tree)
			if findHardware(snap, "1-2.1") != nil {
				t.Error("the device is still there")
			}
			for _, n := range snap.Nodes {
				if strings.HasPrefix(n.SysPath, stick) {
					t.Errorf("%s is still there, of %v", n.Path, n.Hardware)
				}
			}
			for _, l := range snap.Links {
				if l.Node.Path == "/dev/ttyUSB0" {
					t.Errorf("%s is still there", l.Path)
				}
			}
		})
	}
}

// A function in a reset, or of a failing driver, is not gone: it is unread, and a problem.
func TestFunctionOnItsBusIsNotGone(t *testing.T) {
	t.Parallel()
	tree := sysfstest.Load(t, server)
	const function = "devices/pci0000:3a/0000:3a:00.0/0000:3b:00.0"
	modalias := filepath.Join(tree.Sysfs(), function, "modalias")
	text, err := os.ReadFile(modalias)
	must(t, err)
	o := inventory.Options{Sysfs: tree.Sysfs(), Dev: tree.Dev()}
	s := inventory.New(o)
	want := updated(t, s, inventory.Batch{All: true})
	if err := errors.Join(os.Remove(modalias), unix.Mknod(modalias, unix.S_IFSOCK|0o600, 0)); err != nil { // to open it gives ENXIO
		t.Fatal(err)
	}
	event := inventory.Batch{Paths: []string{function}}
	for _, s := range []*inventory.Scanner{s, inventory.New(o)} {
		snap, err := s.Update(t.Context(), event)
		must(t, err)
		// On a busy machine, a read of another function may be too slow.
		if !slices.Contains(snap.UnreadHardware, device.UnreadHardware{Path: function}) {
			t.Errorf("unread: %v", snap.UnreadHardware)
		}
		problem := device.Problem{Subject: function, Reason: "modalias: no such device or address, although it is on its bus"}
		if !slices.Contains(snap.Problems, problem) {
			t.Errorf("problems: %v", snap.Problems)
		}
		if p := findHardware(snap, "0000:3b:02.0").PCI; p.PF != "0000:3b:00.0" || p.VF != 0 {
			t.Errorf("its virtual function: %+v", p)
		}
	}
	must(t, errors.Join(os.Remove(modalias), os.WriteFile(modalias, text, 0o644)))
	equal(t, "once it can be read", want, updated(t, s, inventory.Batch{}))
}

// What lies elsewhere in sysfs, and leads to an unread function only, is nobody else's; the
// devices below one stay as they are.
func TestNodesOfUnreadFunctions(t *testing.T) {
	t.Parallel()
	h := sysfstest.New(t)
	one := 1
	card := sysfstest.PCI{Address: "0000:01:00.0", Vendor: "10de", Device: "1eb8", Class: "030200", Driver: "vfio-pci", IOMMUGroup: "12"}
	gpu := h.AddPCI(card)
	card.Address = "0000:01:00.1"
	h.AddPCI(card)
	h.AddNode("", sysfstest.Node{Name: "vfio/12", Subsystem: "vfio"})
	disk := h.AddPCI(sysfstest.PCI{Address: "0000:02:00.0", Vendor: "144d", Device: "a808", Class: "010802", Driver: "nvme"})
	namespace := h.AddNode("", sysfstest.Node{Name: "nvme0n1", Subsystem: "block", Dir: "nvme-subsystem/nvme-subsys0/nvme0n1", Block: true})
	must(t, os.Symlink("../../../../"+disk+"/nvme/nvme0", filepath.Join(h.Sysfs(), filepath.Dir(namespace), "nvme0")))
	controller := h.AddPCI(sysfstest.PCI{Address: "0000:00:14.0", Vendor: "8086", Device: "a36d", Class: "0c0330", Driver: "xhci_hcd", NUMA: &one})
	h.AddRootHub(controller, 1, "480")
	s := newScanner(h)
	paths := func(snap *device.Snapshot) (all []string) {
		for _, n := range snap.Nodes {
			all = append(all, n.Path)
		}
		return all
	}
	before := updated(t, s, inventory.Batch{All: true})
	if got := paths(before); !slices.Contains(got, "/dev/vfio/12") || !slices.Contains(got, "/dev/nvme0n1") {
		t.Fatal(got)
	}
	for _, dir := range []string{gpu, disk, controller} {
		modalias := filepath.Join(h.Sysfs(), dir, "modalias")
		must(t, errors.Join(os.Remove(modalias), unix.Mknod(modalias, unix.S_IFSOCK|0o600, 0)))
	}
	snap, err := s.Scan(t.Context())
	must(t, err)
	if got := paths(snap); slices.Contains(got, "/dev/vfio/12") || slices.Contains(got, "/dev/nvme0n1") || len(snap.UnreadHardware) != 3 {
		t.Errorf("nodes %v, unread %v", got, snap.UnreadHardware)
	}
	if hub := findHardware(snap, "usb1"); hub == nil || hub.NUMA != 1 {
		t.Errorf("the hub below an unread controller: %+v", hub)
	}
}

func TestDeviceMissingOnItsBus(t *testing.T) {
	t.Parallel()
	tree := sysfstest.Load(t, desktop)
	must(t, os.Remove(filepath.Join(tree.Sysfs(), "bus/usb/devices/1-5")))
	snap := scan(t, tree)
	var subjects []string
	for _, p := range snap.Problems {
		subjects = append(subjects, p.Subject)
	}
	want := []string{"/dev/bus/usb/001/006", "/dev/media0", "/dev/snd/controlC1", "/dev/snd/pcmC1D0c", "/dev/video0", "/dev/video1"}
	equal(t, "result", want, subjects)
	for _, n := range snap.Nodes {
		if strings.Contains(n.SysPath, "/1-5") {
			t.Errorf("%s is there, of %v", n.Path, n.Hardware)
		}
	}
}

// A scan fails if a bus or the interfaces can't be listed, for example for want of a file descriptor.
func TestUnlistable(t *testing.T) {
	t.Parallel()
	for list, machine := range map[string]string{"bus/usb/devices": desktop, "bus/pci/devices": desktop, "class/net": nics} {
		t.Run(list, func(t *testing.T) {
			t.Parallel()
			tree := sysfstest.Load(t, machine)
			want, s := sysfstest.Scan(t, inventory.Options{Sysfs: tree.Sysfs(), Dev: tree.Dev()})
			dir := filepath.Join(tree.Sysfs(), list)
			must(t, os.Rename(dir, dir+".away"))
			must(t, os.WriteFile(dir, nil, 0o644))
			if _, err := s.Scan(t.Context()); err == nil || !strings.Contains(err.Error(), list) {
				t.Errorf("scan: %v; want an error about the list", err)
			}
			must(t, errors.Join(os.Remove(dir), os.Rename(dir+".away", dir)))
			snap, err := s.Scan(t.Context())
			must(t, err)
			equal(t, "interfaces", len(want.Nets), len(snap.Nets))
		})
	}
}

// A bus that may not be read, as under a rule of systemd or AppArmor, affects its own devices only.
func TestForbiddenBus(t *testing.T) {
	t.Parallel()
	if os.Geteuid() == 0 {
		// Root may read every directory.
		nobody := exec.Command("/proc/self/exe", "-test.run=^TestForbiddenBus$")
		const uid = 65534
		nobody.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
		dir := t.TempDir()
		must(t, errors.Join(os.Chown(filepath.Dir(dir), uid, uid), os.Chown(dir, uid, uid)))
		nobody.Env = append(os.Environ(), "TMPDIR="+dir)
		if out, err := nobody.CombinedOutput(); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
		return
	}
	h := sysfstest.New(t)
	h.AddPCI(sysfstest.PCI{
		Address: "0000:03:00.0", Vendor: "1002", Device: "740f", Class: "038000",
		Nodes: []sysfstest.Node{{Name: "dri/card0", Subsystem: "drm"}},
	})
	h.AddRootHub("devices/platform/usb", 1, "480")
	h.AddUSB(serialStick(0, 0))
	bus := filepath.Join(h.Sysfs(), "bus/usb/devices")
	must(t, os.Chmod(bus, 0))
	snap := scan(t, h.Tree)
	must(t, os.Chmod(bus, 0o755)) // so that it can be removed
	isReported := slices.ContainsFunc(snap.Problems, func(p device.Problem) bool { return p.Subject == "bus/usb/devices" })
	if !isReported {
		t.Errorf("problems: %+v; want one of the bus", snap.Problems)
	}
	if findNode(t, snap, "/dev/dri/card0").Hardware == nil {
		t.Error("the graphics card has lost its node")
	}
}

// The numbers of virtual functions are those of the links, not of the
// addresses.
func TestVirtualFunctionNumbers(t *testing.T) {
	t.Parallel()
	h := sysfstest.New(t)
	fn := sysfstest.PCI{Vendor: "8086", Device: "154c", Class: "020000"}
	pf := fn
	pf.Address, pf.TotalVFs = "0000:3b:00.0", 64
	h.AddPCI(pf)
	for address, number := range map[string]int{"0000:3b:02.1": 7, "0000:3b:02.2": 10} {
		vf := fn
		vf.Address, vf.PF, vf.VF = address, pf.Address, number
		h.AddPCI(vf)
	}
	snap := scan(t, h.Tree)
	noProblems(t, snap)
	if p := findHardware(snap, pf.Address).PCI; p.SRIOV != "pf" || p.PF != "" || p.VF != -1 {
		t.Errorf("physical function: %+v", p)
	}
	if p := findHardware(snap, "0000:3b:02.2").PCI; p.SRIOV != "vf" || p.PF != pf.Address || p.VF != 10 {
		t.Errorf("virtual function: %+v", p)
	}
}

// The PCI functions of a snapshot are those of ghw's list.
func TestPCIComesFromGHW(t *testing.T) {
	t.Parallel()
	for _, file := range []string{server, "../../../testdata/machines/qemu-q35-nodes.txtar", nics} {
		tree := sysfstest.Load(t, file)
		info, err := ghw.PCI(ghw.WithPathOverrides(ghw.PathOverrides{"/sys": tree.Sysfs()}), ghw.WithLogger(slog.New(slog.DiscardHandler)))
		must(t, err)
		var got, want []string
		for _, d := range info.Devices {
			want = append(want, fmt.Sprint(d.Address, d.Vendor.ID, d.Product.ID, d.Class.ID+d.Subclass.ID+d.ProgrammingInterface.ID, d.Revision, d.Driver, d.IOMMUGroup))
		}
		for _, h := range scan(t, tree).Hardware {
			if p := h.PCI; p != nil {
				got = append(got, fmt.Sprint(p.Address, p.Vendor, p.Device, p.Class, "0x"+p.Revision, p.Driver, p.IOMMUGroup))
			}
		}
		slices.Sort(got)
		equal(t, "result", want, got)
	}
}

// A sub-function owns what is below it, and goes by its number, not by the kernel's name.
func TestSubFunctions(t *testing.T) {
	t.Parallel()
	h := sysfstest.New(t)
	one := 1
	nic := sysfstest.PCI{Address: "0000:06:00.0", Vendor: "15b3", Device: "101d", Class: "020000", Driver: "mlx5_core", IOMMUGroup: "7", NUMA: &one, TotalVFs: 8}
	pf := h.AddPCI(nic)
	h.AddNet(pf, sysfstest.Net{Name: "enp6s0f0np0"})
	for i, number := range []int{88, 1} {
		own := h.AddSubFunction(pf, sysfstest.SubFunction{
			Name: fmt.Sprint("mlx5_core.sf.", 4+i), Number: number, Driver: "mlx5_core.sf",
			Nodes: []sysfstest.Node{{Name: fmt.Sprint("infiniband/uverbs", 1+i), Subsystem: "infiniband_verbs"}},
		})
		h.AddNet(own, sysfstest.Net{Name: fmt.Sprint("enp6s0f0s", number)})
	}
	// No sub-functions: another kind of part, and a part of a non-PCI device.
	h.AddSubFunction(pf, sysfstest.SubFunction{Name: "mlx5_core.eth.0"})
	h.AddSubFunction("devices/platform/soc", sysfstest.SubFunction{Name: "x.sf.0"})
	snap := scan(t, h.Tree)
	noProblems(t, snap)
	if got := len(snap.Hardware); got != 3 {
		t.Errorf("%d devices; want 3", got)
	}
	sf := findHardware(snap, "mlx5_core.sf.4")
	want := &device.PCI{
		Address: "mlx5_core.sf.4", Vendor: "15b3", Device: "101d", SubVendor: "0000", SubDevice: "0000", Class: "020000", Revision: "00",
		Driver: "mlx5_core.sf", SRIOV: "sf", PF: "0000:06:00.0", VF: 88,
	}
	if diff := cmp.Diff(want, sf.PCI); diff != "" || sf.NUMA != 1 || sf.Parent != findHardware(snap, "0000:06:00.0") {
		t.Error(diff, sf.NUMA, sf.Parent)
	}
	if len(sf.Nodes) != 1 || sf.Nodes[0].Path != "/dev/infiniband/uverbs1" || len(sf.Nets) != 1 || sf.Nets[0].Path != "enp6s0f0s88" {
		t.Errorf("nodes %v, interfaces %v", sf.Nodes, sf.Nets)
	}
	if id := device.NodeID(sf.Nets[0], device.PortForm); id != "sf:0000:06:00.0:88:net" {
		t.Error(id)
	}
	if nets := sf.Parent.Nets; len(sf.Parent.Nodes) != 0 || len(nets) != 1 || nets[0].Path != "enp6s0f0np0" {
		t.Errorf("of the physical function: nodes %v, interfaces %v", sf.Parent.Nodes, nets)
	}
}

// A mediated device owns its nodes and interfaces, not its parent function, which does
// not count as bound to VFIO for that.
func TestMDev(t *testing.T) {
	t.Parallel()
	h := sysfstest.New(t)
	one := 1
	gpu := h.AddPCI(sysfstest.PCI{
		Address: "0000:3b:00.0", Vendor: "10de", Device: "1eb8", Class: "030200", Driver: "nvidia", IOMMUGroup: "40", NUMA: &one,
		Nodes: []sysfstest.Node{{Name: "dri/card0", Subsystem: "drm"}},
	})
	const uuid = "83b8f4f2-509f-382f-3c1e-e6bfe0fa1001"
	own := h.AddMDev(gpu, sysfstest.MDev{
		UUID: uuid, Type: "nvidia-222", Name: "GRID T4-1B", IOMMUGroup: "112",
		Nodes: []sysfstest.Node{{Name: "vfio/devices/vfio0", Subsystem: "vfio-dev"}},
	})
	// The kernel's sample has no parent device, and a type without a name.
	h.AddMDev("devices/virtual/mtty/mtty", sysfstest.MDev{UUID: "83b8f4f2-509f-382f-3c1e-e6bfe0fa1002", Type: "mtty-1", IOMMUGroup: "113"})
	h.AddMDev(gpu, sysfstest.MDev{UUID: "83b8f4f2-509f-382f-3c1e-e6bfe0fa1003", Type: "nvidia-222", Name: "GRID T4-1B"})
	for _, group := range []string{"112", "113", "40"} {
		h.AddNode("", sysfstest.Node{Name: "vfio/" + group, Subsystem: "vfio"})
	}
	snap := scan(t, h.Tree)
	noProblems(t, snap)
	m := findHardware(snap, uuid)
	if m == nil || m.Bus != device.MDevBus || m.Path != own || m.NUMA != 1 || m.Parent != findHardware(snap, "0000:3b:00.0") {
		t.Fatalf("%+v", m)
	}
	equal(t, "result", &device.MDev{UUID: uuid, Type: "nvidia-222", Name: "GRID T4-1B", IOMMUGroup: "112"}, m.MDev)
	for name, want := range map[string][]string{
		uuid:                                   {"/dev/vfio/112", "/dev/vfio/devices/vfio0"},
		"83b8f4f2-509f-382f-3c1e-e6bfe0fa1002": {"/dev/vfio/113"},
		"83b8f4f2-509f-382f-3c1e-e6bfe0fa1003": nil,
		"0000:3b:00.0":                         {"/dev/dri/card0", "/dev/vfio/40"},
	} {
		var got []string
		for _, n := range findHardware(snap, name).Nodes {
			got = append(got, n.Path)
		}
		equal(t, name, want, got)
	}
	if h := findHardware(snap, "83b8f4f2-509f-382f-3c1e-e6bfe0fa1002"); h.Parent != nil || h.NUMA != -1 || h.MDev.Name != "" {
		t.Errorf("the sample: %+v", h)
	}
}

// newScanner returns a scanner of a host.
func newScanner(h interface {
	Sysfs() string
	Dev() string
}) *inventory.Scanner {
	return inventory.New(inventory.Options{Sysfs: h.Sysfs(), Dev: h.Dev()})
}

// must ends the test after an error of its own steps.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// equal reports how a result differs from the expected one.
func equal(t testing.TB, what string, want, got any, opts ...cmp.Option) {
	t.Helper()
	if diff := cmp.Diff(want, got, opts...); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}
