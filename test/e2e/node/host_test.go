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

// number is a device number. Those of serial adapters have no driver behind them
// on a machine without adapters: to open one fails with ENXIO where the device
// cgroup allows it, with EPERM where not.
type number struct{ major, minor uint32 }

// common are the nodes without which programs and containers do not start.
var common = map[string]number{
	"null": {1, 3}, "zero": {1, 5}, "full": {1, 7}, "random": {1, 8}, "urandom": {1, 9}, "kmsg": {1, 11}, "tty": {5, 0},
}

// hardware gives a bed a /dev of its own, in which kubelet, runtime and program
// find the nodes of made-up devices. It stays over a reboot, as hardware does.
func hardware(t testing.TB, b *bed.Bed) *fixture.Host {
	t.Helper()
	// A file system of its own, since that of the bed's directory may not let
	// anybody open device nodes.
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

// sysfs is the program's path of the made-up /sys.
func (n *node) sysfs() string { return filepath.Join(n.Dir, "host", "sys") }

// mknod makes a node that belongs to no hardware, with a number of its own that
// no driver serves.
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

// stick is an adapter with what is expected of it.
type stick struct{ fixture.Stick }

// id is the ID that the program is to give it: serial numbers go along with the
// thing, wherever it is plugged in.
func (s stick) id() string { return "usb:" + s.ID + ":" + s.Serial }

// number is that of its node, wherever it is plugged in.
func (s stick) number() (n number) {
	n.major = 188
	fmt.Sscanf(s.TTY, "ttyUSB%d", &n.minor)
	return n
}
