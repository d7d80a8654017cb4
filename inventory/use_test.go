package inventory_test

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/generic-dp/generic-dp/device"
	"github.com/generic-dp/generic-dp/internal/sysfstest"
	"github.com/generic-dp/generic-dp/inventory"
)

// uses are the reasons of the nodes and interfaces that have one, by path.
func uses(s *device.Snapshot, attrs *inventory.Attributes) map[string]string {
	use := make(map[string]string)
	for _, n := range slices.Concat(s.Nodes, s.Nets) {
		if why := attrs.InUse(n); why != "" {
			use[n.Path] = why
		}
	}
	return use
}

func TestUse(t *testing.T) {
	t.Parallel()

	mounts := func(lines ...string) string { return strings.Join(lines, "\n") + "\n" }
	for _, test := range []struct {
		name, first, own, swaps string
		change                  func(h *sysfstest.Host, dirs map[string]string)
		want                    map[string]string
	}{
		{name: "nothing"},
		{
			name:  "a partition is mounted",
			first: mounts("36 35 8:1 / /boot rw,noatime shared:1 - ext4 /dev/sda1 rw"),
			want:  map[string]string{"/dev/sda": "/boot is mounted from /dev/sda1", "/dev/sda1": "/boot is mounted from /dev/sda1", "/dev/by-hand": "/boot is mounted from /dev/sda1"},
		},
		{
			name:  "a whole disk is mounted",
			first: mounts("36 35 8:0 / /srv rw - xfs /dev/sda rw"),
			want: map[string]string{
				"/dev/sda": "/srv is mounted from /dev/sda", "/dev/sda1": "/srv is mounted from /dev/sda", "/dev/sda2": "/srv is mounted from /dev/sda",
				"/dev/by-hand": "/srv is mounted from /dev/sda",
			},
		},
		{
			name: "the shortest path of a whole file system tells most",
			first: mounts(
				`36 35 8:16 /sub /a rw - ext4 /dev/sdb rw`, `37 35 8:16 / /var/lib/kubelet rw - ext4 /dev/sdb rw`, `38 35 8:16 / /var\040x rw - ext4 /dev/sdb rw`,
				`39 35 0:22 / /sys rw - sysfs sysfs rw`, `half a line`, `40 35 8:32 / /x rw`,
			),
			own:  mounts(`36 35 8:16 / / rw - ext4 /dev/sdb rw`),
			want: map[string]string{"/dev/sdb": "/var x is mounted from /dev/sdb"},
		},
		{
			name: "a container that sees no more than what is mounted into it",
			own:  mounts(`900 899 0:50 / / rw - overlay overlay rw,lowerdir=/x`, `901 900 8:16 /var/lib/kubelet/pods/x/etc-hosts /etc/hosts rw - ext4 /dev/sdb rw`),
			want: map[string]string{"/dev/sdb": "a file system is mounted from /dev/sdb"},
		},
		{
			name: "file systems with a number of their own", first: mounts(`36 35 0:40 /@ /home rw - btrfs /dev/sdb rw`, `37 35 0:41 / /data rw - bcachefs /dev/sda2:/dev/sdc rw`),
			want: map[string]string{
				"/dev/sdb":  "a file system is mounted from /dev/sdb",
				"/dev/sda2": "/data is mounted from /dev/sda2", "/dev/sda": "/data is mounted from /dev/sda2", "/dev/sdc": "/data is mounted from /dev/sdc",
			},
		},
		{
			name: "all devices of a btrfs", first: mounts(`36 35 0:40 / /home rw - btrfs /dev/mapper/x rw`),
			change: func(h *sysfstest.Host, dirs map[string]string) { h.Link("fs/btrfs/3b1b1c1e/devices/sdc", dirs["sdc"]) },
			want:   map[string]string{"/dev/sdc": "a btrfs file system is mounted from /dev/sdc"},
		},
		{
			name: "swap", swaps: "Filename\t\t\t\tType\t\tSize\n/dev/sda2                               partition\t8388604\n/swap\\040file file 1\n",
			want: map[string]string{"/dev/sda": "/dev/sda2 is swap space", "/dev/sda2": "/dev/sda2 is swap space"},
		},
		{
			name:   "a part of another device",
			change: func(h *sysfstest.Host, dirs map[string]string) { h.Hold(dirs["sdc"], dirs["dm-0"]) },
			want:   map[string]string{"/dev/sdc": "/dev/sdc is part of dm-0"},
		},
		{
			name: "each partition has its own reason", first: mounts(`36 35 8:2 / / rw - ext4 /dev/root rw`), swaps: "Filename\n/dev/sda1 partition\n",
			want: map[string]string{
				"/dev/sda": "/dev/sda1 is swap space", "/dev/sda1": "/dev/sda1 is swap space", "/dev/by-hand": "/dev/sda1 is swap space", "/dev/sda2": "/ is mounted from /dev/sda2",
			},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			h := sysfstest.NewHost(t, sysfstest.HostOptions{})
			ctrl := h.AddPCI(sysfstest.PCI{Address: "0000:00:17.0", Vendor: "8086", Device: "a182", Class: "010601"})
			dirs := make(map[string]string)
			for i, n := range []sysfstest.Node{sysfstest.Disk("sda"), sysfstest.Partition("sda", "sda1"), sysfstest.Partition("sda", "sda2"), sysfstest.Disk("sdb"), sysfstest.Disk("sdc")} {
				n.Major, n.Minor = 8, []uint32{0, 1, 2, 16, 32}[i]
				dirs[n.Name] = h.AddNode(ctrl+"/host0", n)
			}
			dirs["dm-0"] = h.AddNode("", sysfstest.Node{Name: "dm-0", Subsystem: "block", Block: true, Major: 253})
			// A copy that somebody made of sda1, and a character device of its number.
			if err := os.WriteFile(h.Dev()+"/by-hand", []byte("block 8:1\n"), 0o644); err != nil {
				t.Fatal(err)
			}
			h.AddNode("", sysfstest.Node{Name: "vcs1", Subsystem: "vc", Major: 8, Minor: 16})
			for file, text := range map[string]string{"1/mountinfo": test.first, "self/mountinfo": test.own, "swaps": test.swaps} {
				if text != "" {
					h.WriteProc(file, text)
				}
			}
			if test.change != nil {
				test.change(h, dirs)
			}
			snap, attrs := look(t, h.Tree)
			noProblems(t, snap)
			if test.want == nil {
				test.want = map[string]string{}
			}
			if diff := cmp.Diff(test.want, uses(snap, attrs)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// What can't be read of /proc is said, but for what others have not read either.
func TestUnreadableProc(t *testing.T) {
	t.Parallel()
	h := sysfstest.NewHost(t, sysfstest.HostOptions{})
	h.AddNode("", sysfstest.Node{Name: "sdb", Subsystem: "block", Block: true, Major: 8, Minor: 16})
	h.WriteProc("1/mountinfo/x", "")
	h.WriteProc("self/mountinfo", "36 35 8:16 / /srv rw - ext4 /dev/sdb rw\n")
	snap, attrs := look(t, h.Tree)
	if diff := cmp.Diff(map[string]string{"/dev/sdb": "/srv is mounted from /dev/sdb"}, uses(snap, attrs)); diff != "" {
		t.Error(diff)
	}
	if err := os.Remove(h.Proc() + "/self/mountinfo"); err != nil {
		t.Fatal(err)
	}
	h.WriteProc("self/mountinfo/x", "")
	if problems := attrs.Problems(); len(problems) > 0 {
		t.Errorf("one table is enough: %v", problems)
	}
	snap, attrs = look(t, h.Tree)
	if problems := attrs.Problems(); len(problems) > 0 {
		t.Errorf("nobody has asked: %v", problems)
	}
	uses(snap, attrs)
	want := []device.Problem{{Subject: "/proc/self/mountinfo", Reason: "read: is a directory"}}
	if diff := cmp.Diff(want, attrs.Problems()); diff != "" {
		t.Error(diff)
	}
}

// The disk that this host runs from is in use, if it is one.
func TestUseOnThisHost(t *testing.T) {
	t.Parallel()
	table, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Skip(err)
	}
	s := inventory.New(inventory.Options{})
	snap, err := s.Scan(t.Context())
	if err != nil {
		t.Skip(err)
	}
	used := uses(snap, s.Attributes())
	for line := range strings.Lines(string(table)) {
		f := strings.Fields(line)
		for _, n := range snap.Nodes {
			if n.Type == device.BlockNode && "/dev/"+n.Kernel == f[len(f)-2] && f[4] == "/" && !strings.HasPrefix(f[2], "0:") && used[n.Path] != "/ is mounted from "+n.Path {
				t.Errorf("%s: %q; mounted: %s", n.Path, used[n.Path], line)
			}
		}
	}
}
