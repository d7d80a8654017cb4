package node_test

import (
	"fmt"
	"testing"

	"github.com/generic-dp/generic-dp/test/e2e/fixture"
)

// number is a device number. Numbers of serial adapters have no driver on a machine
// without adapters: to open one fails with ENXIO if the device cgroup permits it, and
// with EPERM otherwise.
type number struct{ major, minor uint32 }

// mknod makes a node without hardware, with a unique number that no driver serves.
func (n *node) mknod(t testing.TB, name string, minor uint32) number {
	t.Helper()
	n.Bed.Mknod(t, n.Path("/dev/"+name), 188, minor)
	return number{188, minor}
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
