package sysfstest

import (
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
)

// PCI is a PCI function. IDs are hexadecimal digits without "0x".
type PCI struct {
	Address string // "0000:3b:00.0"
	// Below is the directory of the bridge that it is behind; empty is the
	// host bridge of its bus.
	Below                string
	Vendor, Device       string
	SubVendor, SubDevice string // empty is "0000"
	Class                string // "030000"
	Revision             string // empty is "00"
	Driver, IOMMUGroup   string
	NUMA                 *int // nil is -1: the kernel does not know
	TotalVFs             int
	// PF is the address of the physical function of a virtual one, and VF
	// its number there.
	PF    string
	VF    int
	Nodes []Node
}

// AddPCI makes a PCI function and returns its directory.
func (h *Host) AddPCI(p PCI) string {
	h.t.Helper()
	h.mu.Lock()
	defer h.mu.Unlock()
	or := func(s, otherwise string) string {
		if s == "" {
			return otherwise
		}
		return s
	}
	p.SubVendor, p.SubDevice, p.Revision = or(p.SubVendor, "0000"), or(p.SubDevice, "0000"), or(p.Revision, "00")
	if len(p.Class) != 6 || len(p.Vendor) != 4 || len(p.Device) != 4 {
		h.t.Errorf("pci %q: want a vendor and a device of four digits and a class of six", p.Address)
		return ""
	}
	dir := path.Join(or(p.Below, "devices/pci"+p.Address[:len(p.Address)-len(":00.0")]), p.Address)
	numa := -1
	if p.NUMA != nil {
		numa = *p.NUMA
	}
	up := strings.ToUpper
	attrs := map[string]string{
		"vendor": "0x" + p.Vendor, "device": "0x" + p.Device,
		"subsystem_vendor": "0x" + p.SubVendor, "subsystem_device": "0x" + p.SubDevice,
		"class": "0x" + p.Class, "revision": "0x" + p.Revision, "numa_node": strconv.Itoa(numa),
		"modalias": fmt.Sprintf("pci:v0000%sd0000%ssv0000%ssd0000%sbc%ssc%si%s", up(p.Vendor), up(p.Device),
			up(p.SubVendor), up(p.SubDevice), up(p.Class[:2]), up(p.Class[2:4]), up(p.Class[4:])),
	}
	if p.TotalVFs > 0 {
		attrs["sriov_totalvfs"] = strconv.Itoa(p.TotalVFs)
	}
	h.attrs(dir, attrs)
	h.bind("pci", dir, p.Driver)
	if p.IOMMUGroup != "" {
		h.link(dir+"/iommu_group", "kernel/iommu_groups/"+p.IOMMUGroup)
	}
	if p.PF != "" {
		pf, err := h.find("pci", p.PF)
		h.check(err)
		h.link(dir+"/physfn", pf)
		link := fmt.Sprintf("%s/virtfn%d", pf, p.VF)
		h.link(link, dir)
		h.made[dir] = append(h.made[dir], "sys/"+link)
	}
	h.onBus("pci", p.Address, dir)
	for _, n := range p.Nodes {
		h.addNode(dir, n)
	}
	return dir
}

// RemovePCI removes a PCI function, by its address, and all below it.
func (h *Host) RemovePCI(address string) { h.t.Helper(); h.removeFrom("pci", address) }

// USB is a USB device. IDs are hexadecimal digits; what is empty the device
// does not have.
type USB struct {
	Port                              string // the kernel's name: "1-2", "1-1.4"
	Vendor, Product                   string
	Serial, Manufacturer, ProductName string
	Class                             string // empty is "00"
	Speed                             string // empty is "480"
	Interfaces                        []Interface
}

// Interface is a USB interface with the nodes below it.
type Interface struct {
	Number        int
	Class, Driver string
	Nodes         []Node
}

// AddRootHub makes a USB bus below its controller, which is named by its
// directory, and returns the directory of its root hub.
func (h *Host) AddRootHub(controller string, bus int, speed string) string {
	h.t.Helper()
	h.mu.Lock()
	defer h.mu.Unlock()
	name := fmt.Sprintf("usb%d", bus)
	product := "0002"
	if len(speed) > 3 {
		product = "0003"
	}
	return h.addUSB(path.Join(controller, name), fmt.Sprintf("%d-0", bus), USB{
		Port: name, Vendor: "1d6b", Product: product, Serial: path.Base(controller), Manufacturer: "Linux 6.1.0 xhci-hcd",
		ProductName: "xHCI Host Controller", Class: "09", Speed: speed,
		Interfaces: []Interface{{Class: "09", Driver: "hub"}},
	})
}

// AddUSB plugs a device into a port, and returns its directory. The root hub
// and the hubs on the way must be there.
func (h *Host) AddUSB(u USB) string {
	h.t.Helper()
	h.mu.Lock()
	defer h.mu.Unlock()
	hub, _, nested := cutLast(u.Port, ".")
	if !nested {
		bus, _, _ := strings.Cut(u.Port, "-")
		hub = "usb" + bus
	}
	above, err := h.find("usb", hub)
	if err != nil {
		h.t.Errorf("usb %q: no hub: %v", u.Port, err)
		return ""
	}
	return h.addUSB(path.Join(above, u.Port), u.Port, u)
}

// RemoveUSB pulls a device, named by its port, and all that is plugged into it.
func (h *Host) RemoveUSB(port string) { h.t.Helper(); h.removeFrom("usb", port) }

func (h *Host) addUSB(dir, interfaces string, u USB) string {
	h.t.Helper()
	busNumber := strings.TrimPrefix(u.Port, "usb")
	busNumber, _, _ = strings.Cut(busNumber, "-")
	bus, err := strconv.Atoi(busNumber)
	h.check(err)
	devnum, minor := h.nextDevnum(bus)
	if u.Class == "" {
		u.Class = "00"
	}
	if u.Speed == "" {
		u.Speed = "480"
	}
	h.attrs(dir, map[string]string{
		"idVendor": u.Vendor, "idProduct": u.Product, "serial": u.Serial, "manufacturer": u.Manufacturer, "product": u.ProductName,
		"bDeviceClass": u.Class, "speed": u.Speed, "devnum": strconv.Itoa(devnum),
	})
	h.bind("usb", dir, "usb")
	// The node of the device itself brings the link to the bus along.
	link := "bus/usb/devices/" + u.Port
	h.link(link, dir)
	h.made[dir] = append(h.made[dir], "sys/"+link)
	h.addNode(dir, Node{
		Name: fmt.Sprintf("bus/usb/%03d/%03d", bus, devnum), Subsystem: "usb", Dir: ".",
		Major: 189, Minor: minor,
	})
	for _, i := range u.Interfaces {
		name := fmt.Sprintf("%s:1.%d", interfaces, i.Number)
		own := dir + "/" + name
		h.attrs(own, map[string]string{"bInterfaceNumber": fmt.Sprintf("%02x", i.Number), "bInterfaceClass": i.Class})
		h.bind("usb", own, i.Driver)
		h.onBus("usb", name, own)
		for _, n := range i.Nodes {
			h.addNode(own, n)
		}
	}
	return dir
}

// nextDevnum counts on like the kernel, which starts anew after 127 and leaves
// out what is in use. It returns the minor number along.
func (h *Host) nextDevnum(bus int) (devnum int, minor uint32) {
	for range 127 {
		h.devnum[bus] = h.devnum[bus]%127 + 1
		minor = uint32((bus-1)*128 + h.devnum[bus] - 1)
		if _, err := os.Lstat(filepath.Join(h.Sysfs(), fmt.Sprintf("dev/char/189:%d", minor))); err != nil {
			break
		}
	}
	return h.devnum[bus], minor
}

// Platform is a platform device, which firmware describes.
type Platform struct {
	Path   string // below devices/platform: "soc/fe201000.serial"
	Bus    string // empty is "platform"
	Driver string
	NUMA   *int // nil: it has no such attribute
	Nodes  []Node
}

// AddPlatform makes a platform device and returns its directory.
func (h *Host) AddPlatform(p Platform) string {
	h.t.Helper()
	h.mu.Lock()
	defer h.mu.Unlock()
	if p.Bus == "" {
		p.Bus = "platform"
	}
	dir := path.Join("devices/platform", p.Path)
	if p.NUMA != nil {
		h.attrs(dir, map[string]string{"numa_node": strconv.Itoa(*p.NUMA)})
	}
	h.bind(p.Bus, dir, p.Driver)
	h.onBus(p.Bus, path.Base(p.Path), dir)
	for _, n := range p.Nodes {
		h.addNode(dir, n)
	}
	return dir
}

func (h *Host) removeFrom(bus, name string) {
	h.t.Helper()
	dir, err := h.find(bus, name)
	if err != nil {
		h.t.Errorf("%s %q: %v", bus, name, err)
		return
	}
	h.Remove(dir)
}

// cutLast is strings.Cut at the last sep.
func cutLast(s, sep string) (before, after string, found bool) {
	if i := strings.LastIndex(s, sep); i >= 0 {
		return s[:i], s[i+len(sep):], true
	}
	return s, "", false
}
