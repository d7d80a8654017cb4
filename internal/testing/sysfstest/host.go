// Package sysfstest makes hosts for tests: from recorded machines (Load), and step by
// step, with devices that come and go (Host). A host is a directory with "sys" and "dev",
// which package inventory scans like any other host.
package sysfstest

import (
	"cmp"
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

	"github.com/generic-dp/generic-dp/internal/device"
	"github.com/generic-dp/generic-dp/internal/host/inventory"
	"github.com/generic-dp/generic-dp/internal/host/recording"
)

// Tree is the directory of a host.
type Tree = recording.Tree

// Load unpacks a recorded machine into a temporary directory.
func Load(t testing.TB, file string) Tree {
	t.Helper()
	archive, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	tree := Tree{Root: t.TempDir()}
	if err := recording.Unpack(tree.Root, archive); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	return tree
}

// Scan scans a host, and returns the scanner too. It repeats scans in which a read
// timed out, as on a busy machine.
func Scan(t testing.TB, host inventory.Options) (*device.Snapshot, *inventory.Scanner) {
	t.Helper()
	s := inventory.New(host)
	for {
		snap, err := s.Scan(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if len(snap.UnreadHardware) == 0 {
			return snap, s
		}
	}
}

// HostOptions are options of a Host.
type HostOptions struct {
	// Dir is the host's directory; empty is a temporary one, see tempDir.
	Dir string
	// RealNodes makes device nodes with mknod(2) instead of placeholder files. The
	// test is skipped where mknod is denied.
	RealNodes bool
}

// Host is a host whose devices come and go. Like the kernel, it keeps device
// directories, links and nodes consistent: a node appears last and disappears first.
// Its methods are safe for concurrent use and fail the test on errors.
type Host struct {
	Tree
	t         testing.TB
	realNodes bool

	mu      sync.Mutex
	linked  map[string][]string // files elsewhere to remove with a device's directory, in order
	minors  uint32              // used of ownMajor
	temps   int
	devnum  map[int]int // latest by USB bus
	uevents []string
}

// tempDir returns a temporary directory, on tmpfs if available, which like the kernel's file
// systems does not reuse inodes.
func tempDir(t testing.TB) string {
	dir, err := os.MkdirTemp("/dev/shm", "sysfstest")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() {
		_ = os.RemoveAll(dir)
	})
	if err := os.Chmod(dir, 0o755); err != nil { // like t.TempDir
		t.Fatal(err)
	}
	return dir
}

// ownMajor is the default major number of nodes, reserved for local use
// (Documentation/admin-guide/devices.txt).
const ownMajor = 240

// New returns a host without devices.
func New(t testing.TB) *Host {
	t.Helper()
	return NewHost(t, HostOptions{})
}

// NewHost returns a host without devices.
func NewHost(t testing.TB, o HostOptions) *Host {
	t.Helper()
	if o.Dir == "" {
		o.Dir = tempDir(t)
	}
	h := &Host{
		Tree:      Tree{Root: o.Dir},
		t:         t,
		realNodes: o.RealNodes,
		linked:    make(map[string][]string),
		devnum:    make(map[int]int),
	}
	if err := recording.Unpack(h.Root, []byte("-- sys/devices/ --\n")); err != nil {
		t.Fatal(err)
	}
	if h.realNodes {
		if err := CheckMknod(h.Root); err != nil {
			t.Skipf("mknod is denied here: %v", err)
		}
		h.check(os.Remove(filepath.Join(h.Dev(), inventory.RecordingMarker)))
	}
	return h
}

// CheckMknod returns an error if mknod(2) of a device node in dir is denied.
func CheckMknod(dir string) error {
	probe := filepath.Join(dir, "probe")
	return errors.Join(unix.Mknod(probe, unix.S_IFCHR|0o600, int(unix.Mkdev(1, 3))), os.RemoveAll(probe))
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
	// Major and Minor; if both are 0, a unique pair is assigned.
	Major, Minor uint32
	// Attrs are attributes, named relative to the device's directory.
	Attrs map[string]string
}

// SerialPort is the node of a USB serial adapter's port: "ttyUSB0", port 0.
func SerialPort(name string, port int) Node {
	var minor uint32
	fmt.Sscanf(name, "ttyUSB%d", &minor)
	return Node{
		Name:      name,
		Subsystem: "tty",
		Dir:       name + "/tty/" + name,
		Major:     188,
		Minor:     minor,
		Attrs:     map[string]string{name + "/port_number": fmt.Sprint(port)},
	}
}

// Disk is a block device: "sda".
func Disk(name string) Node { return Node{Name: name, Subsystem: "block", Block: true} }

// Partition is a partition of a disk: "sda1" of "sda".
func Partition(disk, name string) Node {
	return Node{
		Name:      name,
		Subsystem: "block",
		Block:     true,
		Dir:       "block/" + disk + "/" + name,
	}
}

// AddNode adds a node to the device with the directory dir (empty: a virtual device) and
// returns the node's directory.
func (h *Host) AddNode(dir string, n Node) string {
	h.t.Helper()
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.addNode(cmp.Or(dir, "devices/virtual"), n)
}

// AddLink adds a symbolic link below /dev: "serial/by-id/x", "../../ttyUSB0".
func (h *Host) AddLink(name, target string) {
	h.t.Helper()
	link := filepath.Join(h.Dev(), name)
	h.check(os.MkdirAll(filepath.Dir(link), 0o755))
	h.check(os.Symlink(target, link))
}

// WriteProc writes a file below /proc: "1/net/dev".
func (h *Host) WriteProc(name, content string) {
	h.t.Helper()
	file := filepath.Join(h.Root, "proc", name)
	h.check(os.MkdirAll(filepath.Dir(file), 0o755))
	h.check(os.WriteFile(file, []byte(content), 0o644))
}

// Bind replaces the driver of a device, given by its directory; an empty driver unbinds
// it.
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

// Uevents returns the directories that the kernel would have announced since the last
// call, in order.
func (h *Host) Uevents() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	uevents := h.uevents
	h.uevents = nil
	return uevents
}

// Remove removes a device, given by its directory, and everything below it.
func (h *Host) Remove(dir string) {
	h.t.Helper()
	h.mu.Lock()
	defer h.mu.Unlock()
	var dirs []string
	for d := range h.linked {
		if d == dir || strings.HasPrefix(d, dir+"/") {
			dirs = append(dirs, d)
		}
	}
	slices.Sort(dirs)
	for _, d := range slices.Backward(dirs) {
		for _, f := range h.linked[d] {
			h.check(os.Remove(filepath.Join(h.Root, f)))
		}
		delete(h.linked, d)
		h.uevents = append(h.uevents, d)
		// The kernel removes this attribute before a device's strings, and readers rely
		// on that.
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
		n.Major = ownMajor
		n.Minor = h.minors
	}
	own := path.Join(dir, n.Dir)
	h.attrs(dir, n.Attrs)
	if own != dir {
		h.uevents = append(h.uevents, own)
		h.link(own+"/subsystem", "class/"+n.Subsystem)
	}
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
	h.linked[own] = append([]string{"dev/" + n.Name, "sys/" + link}, h.linked[own]...)

	node := filepath.Join(h.Dev(), n.Name)
	h.check(os.MkdirAll(filepath.Dir(node), 0o755))
	if h.realNodes {
		mode := uint32(unix.S_IFCHR | 0o660)
		if n.Block {
			mode = unix.S_IFBLK | 0o660
		}
		h.check(unix.Mknod(node, mode, int(unix.Mkdev(n.Major, n.Minor))))
		return own
	}
	// The content appears atomically, like the number of a node.
	h.temps++
	temp := filepath.Join(h.Root, fmt.Sprintf("node.%d", h.temps))
	h.check(os.WriteFile(temp, []byte(kind+" "+number+"\n"), 0o644))
	h.check(os.Rename(temp, node))
	return own
}

// attrs writes attributes of a device, with a newline each.
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

// link makes a relative link from one path below sysfs to another. It creates a target that
// is not a device.
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

// linkFrom makes a link that is removed with the directory dir.
func (h *Host) linkFrom(dir, name, target string) {
	h.t.Helper()
	h.link(name, target)
	h.linked[dir] = append(h.linked[dir], "sys/"+name)
}

func (h *Host) bind(bus, dir, driver string) {
	h.t.Helper()
	if driver != "" {
		h.link(dir+"/driver", "bus/"+bus+"/drivers/"+driver)
	}
}

// find returns the target of a device's link in a directory of sysfs, such as
// bus/usb/devices, or fails the test.
func (h *Host) find(list, name string) string {
	h.t.Helper()
	target, err := os.Readlink(filepath.Join(h.Sysfs(), list, name))
	h.check(err)
	return strings.TrimLeft(target, "./")
}

func (h *Host) check(err error) {
	h.t.Helper()
	if err != nil {
		h.t.Error(err)
	}
}
