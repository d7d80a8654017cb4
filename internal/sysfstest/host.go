package sysfstest

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/generic-dp/generic-dp/inventory"
	"github.com/generic-dp/generic-dp/machine"
)

// HostOptions say how a Host is made.
type HostOptions struct {
	// Dir is where it is made; empty is a directory of the test.
	Dir string
	// RealNodes makes device nodes with mknod(2) instead of files that stand
	// for them. The test is skipped where that is refused.
	RealNodes bool
}

// Host is a host whose devices come and go. Its methods keep the directories
// of devices, the links of buses and device numbers, and the nodes in step,
// in the order of the kernel: a node is the last thing to appear and the
// first to go. They may be called by any goroutine; what fails fails the test.
type Host struct {
	Tree
	t    testing.TB
	real bool

	mu      sync.Mutex
	made    map[string][]string // what to remove with a directory, first to last
	minors  uint32              // given out of ownMajor
	temps   int
	devnum  map[int]int // last one by USB bus
	uevents []string
}

// ownMajor is the major number of nodes that do not say theirs, one of those
// for local use (Documentation/admin-guide/devices.txt).
const ownMajor = 240

// NewHost returns a host without devices.
func NewHost(t testing.TB, o HostOptions) *Host {
	t.Helper()
	if o.Dir == "" {
		o.Dir = t.TempDir()
	}
	h := &Host{Tree: Tree{Root: o.Dir}, t: t, real: o.RealNodes, made: make(map[string][]string), devnum: make(map[int]int)}
	if err := machine.Unpack(h.Root, []byte("-- sys/devices/ --\n")); err != nil {
		t.Fatal(err)
	}
	if h.real {
		if err := os.Remove(filepath.Join(h.Dev(), inventory.RecordingMarker)); err != nil {
			t.Fatal(err)
		}
		probe := filepath.Join(h.Root, "probe")
		if err := unix.Mknod(probe, unix.S_IFCHR|0o600, int(unix.Mkdev(1, 3))); err != nil {
			t.Skipf("making device nodes is refused here: %v", err)
		}
		h.check(os.Remove(probe))
	}
	return h
}

// Node is a device node below a device.
type Node struct {
	// Name is its path below /dev, "ttyUSB0", "dri/renderD128".
	Name      string
	Subsystem string
	// Dir is its directory below the device's; empty is the usual
	// "<subsystem>/<last element of Name>".
	Dir   string
	Block bool
	// Major and Minor; if both are 0 a pair of its own is given.
	Major, Minor uint32
	// Attrs are attributes, named relative to the device's directory.
	Attrs map[string]string
}

// SerialPort is a port of a USB serial adapter: "ttyUSB0", port 0.
func SerialPort(name string, port int) Node {
	var minor uint32
	fmt.Sscanf(name, "ttyUSB%d", &minor)
	return Node{
		Name: name, Subsystem: "tty", Dir: name + "/tty/" + name, Major: 188, Minor: minor,
		Attrs: map[string]string{name + "/port_number": fmt.Sprint(port)},
	}
}

// Video is a video4linux node: "video0", index 0.
func Video(name string, index int) Node {
	var minor uint32
	fmt.Sscanf(name, "video%d", &minor)
	return Node{
		Name: name, Subsystem: "video4linux", Major: 81, Minor: minor,
		Attrs: map[string]string{"video4linux/" + name + "/index": fmt.Sprint(index)},
	}
}

// AddNode makes a node below the device directory dir and returns its own
// directory; an empty dir is that of virtual devices.
func (h *Host) AddNode(dir string, n Node) string {
	h.t.Helper()
	h.mu.Lock()
	defer h.mu.Unlock()
	if dir == "" {
		dir = "devices/virtual"
	}
	return h.addNode(dir, n)
}

// AddLink makes a symbolic link below /dev: "serial/by-id/x", "../../ttyUSB0".
func (h *Host) AddLink(name, target string) {
	h.t.Helper()
	link := filepath.Join(h.Dev(), name)
	h.check(os.MkdirAll(filepath.Dir(link), 0o755))
	h.check(os.Symlink(target, link))
}

// Bind binds a device, which is named by its directory, to a driver in place of
// the one it has; an empty one only unbinds it.
func (h *Host) Bind(bus, dir, driver string) {
	h.t.Helper()
	h.mu.Lock()
	defer h.mu.Unlock()
	if err := os.Remove(filepath.Join(h.Sysfs(), dir, "driver")); err != nil && !errors.Is(err, fs.ErrNotExist) {
		h.check(err)
	}
	h.bind(bus, dir, driver)
	h.uevents = append(h.uevents, dir)
}

// Uevents returns the directories of the devices that the kernel would have
// announced since the last call, in its order.
func (h *Host) Uevents() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	uevents := h.uevents
	h.uevents = nil
	return uevents
}

// Remove removes a device, which is named by its directory, and all below it.
func (h *Host) Remove(dir string) {
	h.t.Helper()
	h.mu.Lock()
	defer h.mu.Unlock()
	var dirs []string
	for d := range h.made {
		if d == dir || strings.HasPrefix(d, dir+"/") {
			dirs = append(dirs, d)
		}
	}
	slices.Sort(dirs)
	for _, d := range slices.Backward(dirs) {
		for _, f := range h.made[d] {
			h.check(os.Remove(filepath.Join(h.Root, f)))
		}
		delete(h.made, d)
		h.uevents = append(h.uevents, d)
		// The kernel takes this attribute away before the strings of a device,
		// which a reader relies on.
		if err := os.Remove(filepath.Join(h.Sysfs(), d, "idVendor")); err != nil && !errors.Is(err, fs.ErrNotExist) {
			h.check(err)
		}
	}
	h.check(os.RemoveAll(filepath.Join(h.Sysfs(), dir)))
}

func (h *Host) addNode(dir string, n Node) string {
	h.t.Helper()
	if n.Dir == "" {
		n.Dir = path.Join(n.Subsystem, path.Base(n.Name))
	}
	if n.Major == 0 && n.Minor == 0 {
		h.minors++
		n.Major, n.Minor = ownMajor, h.minors
	}
	own := path.Join(dir, n.Dir)
	h.uevents = append(h.uevents, own)
	h.attrs(dir, n.Attrs)
	class := "class/" + n.Subsystem
	if n.Subsystem == "usb" {
		class = "bus/usb"
	}
	h.link(own+"/subsystem", class)
	uevent := fmt.Sprintf("MAJOR=%d\nMINOR=%d\nDEVNAME=%s\n", n.Major, n.Minor, n.Name)
	if n.Subsystem == "usb" {
		uevent += "DEVTYPE=usb_device\n"
	}
	h.attrs(own, map[string]string{"uevent": uevent})
	kind := "char"
	if n.Block {
		kind = "block"
	}
	number := fmt.Sprintf("%d:%d", n.Major, n.Minor)
	link := "dev/" + kind + "/" + number
	h.link(link, own)
	h.made[own] = append([]string{"dev/" + n.Name, "sys/" + link}, h.made[own]...)

	node := filepath.Join(h.Dev(), n.Name)
	h.check(os.MkdirAll(filepath.Dir(node), 0o755))
	if h.real {
		mode := uint32(unix.S_IFCHR | 0o660)
		if n.Block {
			mode = unix.S_IFBLK | 0o660
		}
		h.check(unix.Mknod(node, mode, int(unix.Mkdev(n.Major, n.Minor))))
		return own
	}
	// It appears with its content, as a node does with its number.
	h.temps++
	temp := filepath.Join(h.Root, fmt.Sprintf("node.%d", h.temps))
	h.check(os.WriteFile(temp, []byte(kind+" "+number+"\n"), 0o644))
	h.check(os.Rename(temp, node))
	return own
}

// attrs writes attributes of a device; values get their newline.
func (h *Host) attrs(dir string, values map[string]string) {
	h.t.Helper()
	for name, value := range values {
		if value == "" {
			continue
		}
		file := filepath.Join(h.Sysfs(), dir, name)
		h.check(os.MkdirAll(filepath.Dir(file), 0o755))
		h.check(os.WriteFile(file, []byte(strings.TrimSuffix(value, "\n")+"\n"), 0o644))
	}
}

// link makes a link below sysfs to another path there, as the kernel does:
// relative. A target that is no device is made.
func (h *Host) link(name, target string) {
	h.t.Helper()
	link := filepath.Join(h.Sysfs(), name)
	h.check(os.MkdirAll(filepath.Dir(link), 0o755))
	if !strings.HasPrefix(target, "devices/") {
		h.check(os.MkdirAll(filepath.Join(h.Sysfs(), target), 0o755))
	}
	rel, err := filepath.Rel(path.Dir(name), target)
	h.check(err)
	h.check(os.Symlink(rel, link))
}

// onBus puts a device on its bus.
func (h *Host) onBus(bus, name, dir string) {
	h.t.Helper()
	h.link(dir+"/subsystem", "bus/"+bus)
	link := "bus/" + bus + "/devices/" + name
	h.link(link, dir)
	h.made[dir] = append(h.made[dir], "sys/"+link)
	h.uevents = append(h.uevents, dir)
}

// bind binds a device to a driver, if there is one.
func (h *Host) bind(bus, dir, driver string) {
	h.t.Helper()
	if driver != "" {
		h.link(dir+"/driver", "bus/"+bus+"/drivers/"+driver)
	}
}

// find returns the directory of a device of a bus.
func (h *Host) find(bus, name string) (string, error) { return h.findIn("bus/"+bus+"/devices", name) }

// findIn returns the directory that a link of a directory leads to.
func (h *Host) findIn(dir, name string) (string, error) {
	target, err := os.Readlink(filepath.Join(h.Sysfs(), dir, name))
	if err != nil {
		return "", err
	}
	to := strings.TrimLeft(target, "./")
	if !strings.HasPrefix(to, "devices/") {
		return "", errors.New("not a device: " + target)
	}
	return to, nil
}

func (h *Host) check(err error) {
	h.t.Helper()
	if err != nil {
		h.t.Error(err)
	}
}
