package matchers_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/generic-dp/generic-dp/internal/sysfstest"
)

// Disks that the host uses are reached in other ways than by their own nodes.
func TestDangerAroundDisks(t *testing.T) {
	t.Parallel()
	h := sysfstest.NewHost(t, sysfstest.HostOptions{})
	disk := func(dir, name string, minor uint32) {
		n := sysfstest.Disk(name)
		n.Major, n.Minor = 8, minor
		h.AddNode(dir, n)
	}
	usb := h.AddPCI(sysfstest.PCI{Address: "0000:00:14.0", Vendor: "8086", Device: "a36d", Class: "0c0330", Driver: "xhci_hcd"})
	h.AddRootHub(usb, 1, "5000")
	for i, name := range []string{"sda", "sdb"} {
		port := []string{"1-1", "1-2"}[i]
		dir := h.AddUSB(sysfstest.USB{Port: port, Vendor: "0781", Product: "5581", Serial: "DISK-" + name, Interfaces: []sysfstest.Interface{{Class: "08", Driver: "uas"}}})
		disk(dir+"/"+port+":1.0/host0/target0:0:0/0:0:0:0", name, uint32(16*i))
	}
	h.Mount("sda", "/", "/")

	// A disk in the network: its session is below no hardware.
	const scsi = "devices/platform/host3/session1/target3:0:0/3:0:0:0"
	disk(scsi, "sdc", 32)
	h.AddNode(scsi, sysfstest.Node{Name: "sg2", Subsystem: "scsi_generic"})
	h.Mount("sdc", "/", "/srv")

	// One disk behind two controllers, beside a controller with a disk of its own.
	const subsystem = "devices/virtual/nvme-subsystem/nvme-subsys0"
	for i, address := range []string{"0000:01:00.0", "0000:02:00.0", "0000:03:00.0"} {
		name, nqn := "nvme"+string(rune('0'+i)), "nqn.2014-08.org.example:shared"
		if i == 2 {
			nqn = "nqn.2014-08.org.example:own"
		}
		dir := h.AddPCI(sysfstest.PCI{Address: address, Vendor: "144d", Device: "a824", Class: "010802", Driver: "nvme"})
		h.AddNode(dir, sysfstest.Node{Name: name, Subsystem: "nvme", Attrs: map[string]string{"nvme/" + name + "/subsysnqn": nqn}})
	}
	h.AddNode(subsystem, sysfstest.Node{Name: "nvme0n1", Subsystem: "block", Block: true, Dir: "nvme0n1", Major: 259, Attrs: map[string]string{"subsysnqn": "nqn.2014-08.org.example:shared"}})
	h.AddNode(subsystem, sysfstest.Node{Name: "ng0n1", Subsystem: "nvme-generic", Dir: "ng0n1"})
	h.Mount("nvme0n1", "/", "/data")

	snap, opts := scanned(t, h)
	for _, s := range []story{
		{name: "the bus node of a USB disk", toml: `match = { usb = { vendor = "0781" }, glob = "/dev/bus/usb/**" }`, want: []string{
			"usb:0781:5581:DISK-sda !/dev/bus/usb/001/002 is dangerous to hand over: / is mounted from /dev/sda", "usb:0781:5581:DISK-sdb /dev/bus/usb/001/003"}},
		{name: "commands for a disk in the network", toml: `match.glob = "/dev/sg2"`, want: []string{"sg2 !/dev/sg2 is dangerous to hand over: /srv is mounted from /dev/sdc"}},
		{name: "controllers of a disk with several paths", toml: `match.subsystem = "nvme*"`, want: []string{
			"0000:01:00.0:nvme !/dev/nvme0 is dangerous to hand over: /data is mounted from /dev/nvme0n1",
			"0000:02:00.0:nvme !/dev/nvme1 is dangerous to hand over: /data is mounted from /dev/nvme0n1",
			"0000:03:00.0:nvme /dev/nvme2",
			"ng0n1 !/dev/ng0n1 is dangerous to hand over: /data is mounted from /dev/nvme0n1"}},
	} {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			var got []string
			for _, o := range s.match(t, snap, opts).Resources[0].Offers {
				got = append(got, withoutHint(say(o)))
			}
			if diff := cmp.Diff(s.want, got); diff != "" {
				t.Errorf("offers (-want +got):\n%s", diff)
			}
		})
	}
}

func withoutHint(text string) string {
	text, _, _ = strings.Cut(text, "; dangerous = true")
	return text
}
