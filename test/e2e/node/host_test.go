package node_test

import (
	"fmt"
	"os"
	"path"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/generic-dp/generic-dp/test/e2e/bed"
)

// host is the hardware of a bed: device nodes in a /dev of the bed's own, where
// kubelet, runtime and plugin find them, and a sysfs that says what the nodes
// belong to, for the plugin's --sysfs. Both are kept in step in the order of the
// kernel: a node is the last thing to appear and the first to go.
type host struct {
	bed   *bed.Bed
	sysfs string
}

// common are the nodes without which programs and containers do not start.
var common = map[string]number{
	"null": {1, 3}, "zero": {1, 5}, "full": {1, 7}, "random": {1, 8}, "urandom": {1, 9}, "kmsg": {1, 11}, "tty": {5, 0},
}

// number is a device number. Those of serial adapters have no driver behind them
// on a machine without adapters: to open one fails with ENXIO where the device
// cgroup allows it, with EPERM where not.
type number struct{ major, minor uint32 }

// newHost covers the bed's /dev. It stays over a reboot: hardware does.
func newHost(t testing.TB, b *bed.Bed) *host {
	t.Helper()
	h := &host{bed: b, sysfs: filepath.Join(b.Dir, "sys")}
	dev := filepath.Join(b.Dir, "dev")
	for _, dir := range []string{dev, filepath.Join(h.sysfs, "devices"), filepath.Join(h.sysfs, "dev/char"), filepath.Join(h.sysfs, "dev/block")} {
		h.mkdir(t, dir)
	}
	b.Run(t, "mount", "-t", "tmpfs", "-o", "mode=0755", "dev", dev)
	h.mkdir(t, b.Path(filepath.Join(dev, "pts")))
	b.Run(t, "mount", "--bind", "/dev/pts", filepath.Join(dev, "pts"))
	b.Run(t, "mount", "--rbind", dev, "/dev")
	for name, n := range common {
		h.mknod(t, name, n, 0o666)
	}
	for name, target := range map[string]string{"ptmx": "pts/ptmx", "fd": "/proc/self/fd"} {
		h.check(t, os.Symlink(target, h.path(name)))
	}
	h.pci(t, controller, -1, "0c0330")
	h.usbDevice(t, controllerDir+"/usb1", "usb1", map[string]string{"idVendor": "1d6b", "idProduct": "0002", "bDeviceClass": "09", "speed": "480"})
	return h
}

// The controller of all USB devices.
const (
	controller    = "0000:00:14.0"
	controllerDir = "devices/pci0000:00/" + controller
)

// node makes a node that belongs to no hardware.
func (h *host) node(t testing.TB, name string, n number) {
	t.Helper()
	h.mknod(t, name, n, 0o660)
}

// unlink removes a node, as [host.node] made it.
func (h *host) unlink(t testing.TB, name string) {
	t.Helper()
	h.check(t, os.Remove(h.path(name)))
}

// dongle is a USB serial adapter.
type dongle struct {
	port   string // "1-2"
	serial string
	tty    int // N of ttyUSBN
}

// id is the ID that the plugin is to give it. Serial numbers go along with the
// thing, wherever it is plugged in.
func (d dongle) id() string { return "usb:10c4:ea60:" + d.serial }

func (d dongle) name() string     { return fmt.Sprintf("ttyUSB%d", d.tty) }
func (d dongle) number() number   { return number{188, uint32(d.tty)} }
func (d dongle) dir() string      { return controllerDir + "/usb1/" + d.port }
func (d dongle) iface() string    { return d.port + ":1.0" }
func (d dongle) ifaceDir() string { return d.dir() + "/" + d.iface() }

// plug plugs an adapter in.
func (h *host) plug(t testing.TB, d dongle) {
	t.Helper()
	h.usbDevice(t, d.dir(), d.port, map[string]string{
		"idVendor": "10c4", "idProduct": "ea60", "bDeviceClass": "00", "speed": "12",
		"manufacturer": "Silicon Labs", "product": "CP2102", "serial": d.serial,
	})
	h.attr(t, d.ifaceDir()+"/bInterfaceNumber", "00")
	h.attr(t, d.ifaceDir()+"/bInterfaceClass", "ff")
	h.attr(t, d.ifaceDir()+"/"+d.name()+"/port_number", "0")
	h.link(t, d.ifaceDir()+"/subsystem", "bus/usb")
	h.link(t, "bus/usb/devices/"+d.iface(), d.ifaceDir())
	h.add(t, d.ifaceDir()+"/"+d.name()+"/tty/"+d.name(), "tty", d.name(), d.number())
}

// pull pulls an adapter.
func (h *host) pull(t testing.TB, d dongle) {
	t.Helper()
	h.unlink(t, d.name())
	for _, link := range []string{h.charLink(d.number()), "bus/usb/devices/" + d.iface(), "bus/usb/devices/" + d.port} {
		h.check(t, os.Remove(filepath.Join(h.sysfs, link)))
	}
	h.check(t, os.RemoveAll(filepath.Join(h.sysfs, d.dir())))
}

// card makes a PCI function with nodes, named below /dev, and returns its ID.
func (h *host) card(t testing.TB, address string, numa int, nodes map[string]number) (id string) {
	t.Helper()
	dir := h.pci(t, address, numa, "120000")
	for name, n := range nodes {
		h.add(t, dir+"/accel/"+path.Base(name), "accel", name, n)
	}
	return address
}

func (h *host) pci(t testing.TB, address string, numa int, class string) (dir string) {
	t.Helper()
	dir = "devices/pci" + address[:len("0000:00")] + "/" + address
	for name, value := range map[string]string{
		"vendor": "0x8086", "device": "0xa36d", "subsystem_vendor": "0x0000", "subsystem_device": "0x0000",
		"class": "0x" + class, "revision": "0x00", "numa_node": fmt.Sprint(numa),
		"modalias": fmt.Sprintf("pci:v00008086d0000A36Dsv00000000sd00000000bc%ssc%si%s", class[:2], class[2:4], class[4:]),
	} {
		h.attr(t, dir+"/"+name, value)
	}
	h.link(t, dir+"/subsystem", "bus/pci")
	h.link(t, "bus/pci/devices/"+address, dir)
	return dir
}

func (h *host) usbDevice(t testing.TB, dir, name string, attrs map[string]string) {
	t.Helper()
	for attr, value := range attrs {
		h.attr(t, dir+"/"+attr, value)
	}
	h.link(t, dir+"/subsystem", "bus/usb")
	h.link(t, "bus/usb/devices/"+name, dir)
}

// add makes a node of the device directory dir.
func (h *host) add(t testing.TB, dir, subsystem, name string, n number) {
	t.Helper()
	h.attr(t, dir+"/uevent", fmt.Sprintf("MAJOR=%d\nMINOR=%d\nDEVNAME=%s", n.major, n.minor, name))
	h.link(t, dir+"/subsystem", "class/"+subsystem)
	h.link(t, h.charLink(n), dir)
	h.mknod(t, name, n, 0o660)
}

func (h *host) charLink(n number) string { return fmt.Sprintf("dev/char/%d:%d", n.major, n.minor) }

// path is the test's path of a node.
func (h *host) path(name string) string { return filepath.Join(h.bed.Path("/dev"), name) }

func (h *host) mknod(t testing.TB, name string, n number, mode uint32) {
	t.Helper()
	h.mkdir(t, filepath.Dir(h.path(name)))
	h.check(t, unix.Mknod(h.path(name), unix.S_IFCHR|mode, int(unix.Mkdev(n.major, n.minor))))
	h.check(t, unix.Chmod(h.path(name), mode)) // whatever the umask is; devtmpfs does so too
}

func (h *host) attr(t testing.TB, name, value string) {
	t.Helper()
	h.mkdir(t, filepath.Join(h.sysfs, path.Dir(name)))
	h.check(t, os.WriteFile(filepath.Join(h.sysfs, name), []byte(value+"\n"), 0o644))
}

// link makes a link in sysfs to another path there, relative as the kernel's are.
func (h *host) link(t testing.TB, name, target string) {
	t.Helper()
	h.mkdir(t, filepath.Join(h.sysfs, path.Dir(name)))
	h.mkdir(t, filepath.Join(h.sysfs, target))
	relative, err := filepath.Rel(path.Dir(name), target)
	h.check(t, err)
	h.check(t, os.Symlink(relative, filepath.Join(h.sysfs, name)))
}

func (h *host) mkdir(t testing.TB, dir string) {
	t.Helper()
	h.check(t, os.MkdirAll(dir, 0o755))
}

func (h *host) check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
