package inventory

import (
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

const loopEvent = "add@/devices/virtual/block/loop9\x00ACTION=add\x00DEVPATH=/devices/virtual/block/loop9\x00SUBSYSTEM=block\x00" +
	"MAJOR=7\x00MINOR=9\x00DEVNAME=loop9\x00DEVTYPE=disk\x00SEQNUM=4242\x00"

func TestParseUevent(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, msg string
		want      uevent
		ok        bool
	}{
		{"a kernel event", loopEvent, uevent{"add", "/devices/virtual/block/loop9", "block"}, true},
		{"no subsystem", "change@/devices/x\x00ACTION=change\x00DEVPATH=/devices/x\x00SEQNUM=1\x00", uevent{"change", "/devices/x", ""}, true},
		{"what a device says of itself", "add@/devices/x\x00NAME=\"\xff\"\x00SEQNUM=1\x00", uevent{"add", "/devices/x", ""}, true},
		{"only the head", "add@/devices/x\x00", uevent{}, false},
		{"no number", "add@/devices/x\x00SEQNUM=one\x00", uevent{}, false},
		{"cut in a value", loopEvent[:len(loopEvent)-40], uevent{}, false},
		{"cut in the number", loopEvent[:len(loopEvent)-2], uevent{}, false},
		{"cut in the head", loopEvent[:12], uevent{}, false},
		{"empty", "", uevent{}, false},
		{"from udev", "libudev\x00\xfe\xed\xca\xfe(\x00\x00\x00ACTION=add\x00", uevent{}, false},
		{"no action", "@/devices/x\x00SEQNUM=1\x00", uevent{}, false},
		{"no path", "add@\x00SEQNUM=1\x00", uevent{}, false},
		{"the root", "add@/\x00SEQNUM=1\x00", uevent{}, false},
		{"a relative path", "add@devices/x\x00SEQNUM=1\x00", uevent{}, false},
		{"a path that is no text", "add@/devices/\xff\x00SEQNUM=1\x00", uevent{}, false},
		{"two actions", "add@/devices/x\x00ACTION=remove\x00DEVPATH=/devices/x\x00SEQNUM=1\x00", uevent{}, false},
		{"two paths", "add@/devices/x\x00ACTION=add\x00DEVPATH=/devices/y\x00SEQNUM=1\x00", uevent{}, false},
	} {
		if got, ok := parseUevent([]byte(c.msg)); got != c.want || ok != c.ok {
			t.Errorf("%s: %+v, %v; want %+v, %v", c.name, got, ok, c.want, c.ok)
		}
	}
}

func TestUeventsThatMatter(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		path, subsystem string
		want            bool
	}{
		{"/devices/pci0000:00/0000:00:14.0/usb1/1-2", "usb", true},
		{"/devices/pci0000:00/0000:00:02.0", "pci", true},
		{"/devices/virtual/misc/fuse", "misc", true},
		{"/devices/pci0000:00/0000:00:03.0/virtio2/net/eth0", "net", true},
		{"/devices/virtual/net/veth0/queues/rx-0", "queues", false},
		{"/devices/virtual/bdi/7:9", "bdi", false},
		{"/devices/LNXSYSTM:00/PNP0C0A:00/power_supply/BAT0", "power_supply", false},
		{"/module/ftdi_sio", "module", true},
		{"/bus/usb/drivers/ftdi_sio", "drivers", false},
		{"/kernel/slab/kmalloc-64/cgroup/kmalloc-64(1:x)", "slab", false},
		{"/devices", "", false},
	} {
		if got := (uevent{"add", c.path, c.subsystem}).isRelevant(); got != c.want {
			t.Errorf("%s (%s): %v; want %v", c.path, c.subsystem, got, c.want)
		}
	}
}

func FuzzParseKernelEvent(f *testing.F) {
	f.Add([]byte(loopEvent))
	for cut := range len(loopEvent) {
		f.Add([]byte(loopEvent[:cut]))
	}
	f.Add([]byte("libudev\x00\xfe\xed\xca\xfe"))
	f.Add([]byte("add@/\xff\xfe\x00SUBSYSTEM=\xff\x00=\x00\x00"))
	f.Fuzz(func(t *testing.T, msg []byte) {
		u, ok := parseUevent(msg)
		if !ok {
			if u != (uevent{}) {
				t.Errorf("both a value and a refusal: %+v", u)
			}
			return
		}
		if u.action == "" || len(u.devpath) < 2 || u.devpath[0] != '/' || strings.ContainsRune(u.devpath+u.action+u.subsystem, 0) {
			t.Errorf("not an event: %+v", u)
		}
		if !strings.HasPrefix(string(msg), u.action+"@"+u.devpath+"\x00") {
			t.Errorf("%+v is not what the message starts with", u)
		}
	})
}

func TestInitialUserNamespace(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]bool{
		"         0          0 4294967295\n":                              true,
		"         0       1000          1\n":                              false,
		"         0     100000      65536\n":                              false,
		"         0       1000          1\n         1     100000 65536\n": false,
	} {
		if got := isInitialUserNamespace(text); got != want {
			t.Errorf("%q: %v; want %v", text, got, want)
		}
	}
}

// A message of a process to the kernel's group is no event, whatever its content.
func TestForgedEventIsIgnored(t *testing.T) {
	t.Parallel()
	s, err := openUevents()
	if err != nil {
		t.Skipf("no netlink here: %v", err)
	}
	defer s.Close()
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_KOBJECT_UEVENT)
	must(t, err)
	defer unix.Close(fd)
	forged := []byte("add@/devices/forged\x00ACTION=add\x00DEVPATH=/devices/forged\x00SUBSYSTEM=usb\x00SEQNUM=1\x00")
	if err := unix.Sendto(fd, forged, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Groups: kernelGroup}); err != nil {
		t.Skipf("sending to the group is refused here: %v", err)
	}
	if err := os.WriteFile("/sys/devices/virtual/mem/null/uevent", []byte("change"), 0); err != nil {
		t.Skipf("asking the kernel for an event is refused here: %v", err)
	}
	for {
		path, err := s.next()
		must(t, err)
		if path == "devices/forged" {
			t.Fatal("the forged event was taken for one of the kernel's")
		}
		if path == "devices/virtual/mem/null" {
			return
		}
	}
}
