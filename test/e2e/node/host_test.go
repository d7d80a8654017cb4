package node_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/generic-dp/generic-dp/test/e2e/bed"
	"github.com/generic-dp/generic-dp/test/e2e/fixture"
)

// number is a device number. Numbers of serial adapters have no driver on a machine
// without adapters: to open one fails with ENXIO if the device cgroup permits it, and
// with EPERM otherwise.
type number struct{ major, minor uint32 }

// common are the nodes required to start programs and containers.
var common = map[string]number{
	"null": {1, 3}, "zero": {1, 5}, "full": {1, 7}, "random": {1, 8}, "urandom": {1, 9}, "kmsg": {1, 11}, "tty": {5, 0},
}

// hardware gives a bed its own /dev, in which kubelet, runtime and program find the
// nodes of fake devices. Like hardware, it survives a reboot.
func hardware(t testing.TB, b *bed.Bed) *fixture.Host {
	t.Helper()
	// A separate file system, since that of the bed's directory may be mounted nodev.
	dev := filepath.Join(b.Dir, "host", "dev")
	if err := os.MkdirAll(dev, 0o755); err != nil {
		t.Fatal(err)
	}
	b.Run(t, "mount", "-t", "tmpfs", "-o", "mode=0755", "dev", dev)
	b.Run(t, "mkdir", filepath.Join(dev, "pts"))
	b.Run(t, "mount", "--bind", "/dev/pts", filepath.Join(dev, "pts"))
	b.Run(t, "mount", "--rbind", dev, "/dev")
	for name, n := range common {
		b.Mknod(t, b.Path("/dev/"+name), n.major, n.minor)
		if err := unix.Chmod(b.Path("/dev/"+name), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	for name, target := range map[string]string{"ptmx": "pts/ptmx", "fd": "/proc/self/fd"} {
		if err := os.Symlink(target, b.Path("/dev/"+name)); err != nil {
			t.Fatal(err)
		}
	}
	return fixture.At(t, b.Path(filepath.Join(b.Dir, "host")))
}

// sysfs is the program's path of the fake /sys.
func (n *node) sysfs() string { return filepath.Join(n.Dir, "host", "sys") }

// mknod makes a node without hardware, with a unique number that no driver serves.
func (n *node) mknod(t testing.TB, name string, minor uint32) number {
	t.Helper()
	n.Bed.Mknod(t, n.Path("/dev/"+name), 188, minor)
	return number{188, minor}
}

// numberOf is the number of a node on the host.
func (n *node) numberOf(t testing.TB, name string) number {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Stat(n.Path("/dev/"+name), &st); err != nil {
		t.Fatal(err)
	}
	return number{unix.Major(st.Rdev), unix.Minor(st.Rdev)}
}

// adapter is a USB serial adapter that is ttyUSB<tty>.
func adapter(port, serial string, tty uint32) stick {
	return stick{fixture.Stick{Port: port, ID: "10c4:ea60", Serial: serial, TTY: fmt.Sprintf("ttyUSB%d", tty)}}
}

// stick is an adapter with its expected ID and number.
type stick struct{ fixture.Stick }

// id is its expected ID: a serial number is independent of the port.
func (s stick) id() string { return "usb:" + s.ID + ":" + s.Serial }

// number is the number of its node, in any port.
func (s stick) number() (n number) {
	n.major = 188
	fmt.Sscanf(s.TTY, "ttyUSB%d", &n.minor)
	return n
}
