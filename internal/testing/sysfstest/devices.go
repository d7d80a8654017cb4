package sysfstest

import (
	"cmp"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
)

// entry is the directory of a device.
type entry struct {
	bus, name, driver string
	attrs             map[string]string
	group             string // of the IOMMU
	nodes             []Node
}

// add makes a device: attributes, driver and groups before its entry on the bus, and
// nodes last.
func (h *Host) add(dir string, e entry) string {
	h.t.Helper()
	h.attrs(dir, e.attrs)
	h.bind(e.bus, dir, e.driver)
	if e.group != "" {
		h.link(dir+"/iommu_group", "kernel/iommu_groups/"+e.group)
	}
	h.link(dir+"/subsystem", "bus/"+e.bus)
	h.linkFrom(dir, "bus/"+e.bus+"/devices/"+e.name, dir)
	h.uevents = append(h.uevents, dir)
	for _, n := range e.nodes {
		h.addNode(dir, n)
	}
	return dir
}

// PCI is a PCI function. IDs are hexadecimal digits without "0x".
type PCI struct {
	Address string // "0000:3b:00.0"
	// Below is the directory of the bridge above it; empty is the host bridge.
	Below                string
	Vendor, Device       string
	SubVendor, SubDevice string // empty is "0000"
	Class                string // "030000"
	Revision             string // empty is "00"
	Driver, IOMMUGroup   string
	NUMA                 *int // nil is -1: unknown to the kernel
	TotalVFs             int
	// PF is the address of the physical function of a virtual one, VF its number.
	PF    string
	VF    int
	Nodes []Node
}

// AddPCI adds a PCI function and returns its directory. The physical function of a virtual one has no
// event, see EndVFs.
func (h *Host) AddPCI(p PCI) string {
	h.t.Helper()
	h.mu.Lock()
	defer h.mu.Unlock()
	p.SubVendor, p.SubDevice, p.Revision = cmp.Or(p.SubVendor, "0000"), cmp.Or(p.SubDevice, "0000"), cmp.Or(p.Revision, "00")
	if len(p.Class) != 6 || len(p.Vendor) != 4 || len(p.Device) != 4 {
		h.t.Errorf("pci %q: want a vendor and a device of four digits and a class of six", p.Address)
		return ""
	}
	numa := -1
	if p.NUMA != nil {
		numa = *p.NUMA
	}
	up := strings.ToUpper
	attrs := map[string]string{
		"vendor":           "0x" + p.Vendor,
		"device":           "0x" + p.Device,
		"subsystem_vendor": "0x" + p.SubVendor,
		"subsystem_device": "0x" + p.SubDevice,
		"class":            "0x" + p.Class,
		"revision":         "0x" + p.Revision,
		"numa_node":        strconv.Itoa(numa),
		"modalias": fmt.Sprintf("pci:v0000%sd0000%ssv0000%ssd0000%sbc%ssc%si%s", up(p.Vendor), up(p.Device),
			up(p.SubVendor), up(p.SubDevice), up(p.Class[:2]), up(p.Class[2:4]), up(p.Class[4:])),
	}
	if p.TotalVFs > 0 {
		attrs["sriov_totalvfs"] = strconv.Itoa(p.TotalVFs)
	}
	dir := path.Join(cmp.Or(p.Below, "devices/pci"+p.Address[:len(p.Address)-len(":00.0")]), p.Address)
	if p.PF != "" {
		pf := h.find("bus/pci/devices", p.PF)
		h.link(dir+"/physfn", pf)
		h.linkFrom(dir, fmt.Sprintf("%s/virtfn%d", pf, p.VF), dir)
	}
	return h.add(dir, entry{
		bus:    "pci",
		name:   p.Address,
		driver: p.Driver,
		attrs:  attrs,
		group:  p.IOMMUGroup,
		nodes:  p.Nodes,
	})
}

// EndVFs announces the physical function with this directory. The kernel does so once, after all of its
// virtual functions, whose drivers may take seconds to probe (sriov_enable in drivers/pci/iov.c).
func (h *Host) EndVFs(pf string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.uevents = append(h.uevents, pf)
}

// SubFunction is a sub-function of a PCI function.
type SubFunction struct {
	Name   string // "mlx5_core.sf.4"
	Number int
	Driver string
	Nodes  []Node
}

// AddSubFunction adds a sub-function to the function with the directory pf and returns
// the sub-function's directory.
func (h *Host) AddSubFunction(pf string, s SubFunction) string {
	h.t.Helper()
	h.mu.Lock()
	defer h.mu.Unlock()
	attrs := map[string]string{"sfnum": strconv.Itoa(s.Number)}
	return h.add(path.Join(pf, s.Name), entry{
		bus:    "auxiliary",
		name:   s.Name,
		driver: s.Driver,
		attrs:  attrs,
		nodes:  s.Nodes,
	})
}

// USB is a USB device. IDs are hexadecimal digits; an empty attribute is absent.
type USB struct {
	Port                              string // the kernel's name: "1-2", "1-1.4"
	Vendor, Product                   string
	Serial, Manufacturer, ProductName string
	Class                             string // empty is "00"
	Speed                             string // empty is "480"
	Interfaces                        []Interface
}

// Interface is a USB interface with its nodes.
type Interface struct {
	Number        int
	Class, Driver string
	Nodes         []Node
}

// AddBus adds a USB controller with one bus, whose ports are 1-1, 1-2 and so on. It returns the directory of
// the controller.
func (h *Host) AddBus() string {
	controller := h.AddPCI(PCI{Address: "0000:00:14.0", Vendor: "8086", Device: "a36d", Class: "0c0330", Driver: "xhci_hcd"})
	h.AddRootHub(controller, 1, "480")
	return controller
}

// AddRootHub adds a USB bus to a controller, given by its directory, and returns the
// directory of the root hub.
func (h *Host) AddRootHub(controller string, bus int, speed string) string {
	h.t.Helper()
	h.mu.Lock()
	defer h.mu.Unlock()
	name := fmt.Sprintf("usb%d", bus)
	product := "0002"
	if len(speed) > 3 {
		product = "0003"
	}
	return h.addUSB(path.Join(controller, name), bus, fmt.Sprintf("%d-0", bus), USB{
		Port:         name,
		Vendor:       "1d6b",
		Product:      product,
		Serial:       path.Base(controller),
		Manufacturer: "Linux 6.1.0 xhci-hcd",
		ProductName:  "xHCI Host Controller",
		Class:        "09",
		Speed:        speed,
		Interfaces:   []Interface{{Class: "09", Driver: "hub"}},
	})
}

// AddUSB plugs a device into a port and returns its directory. The hubs above it must
// exist.
func (h *Host) AddUSB(u USB) string {
	h.t.Helper()
	h.mu.Lock()
	defer h.mu.Unlock()
	number, _, _ := strings.Cut(u.Port, "-")
	bus, err := strconv.Atoi(number)
	h.check(err)
	hub := "usb" + number
	if i := strings.LastIndex(u.Port, "."); i >= 0 {
		hub = u.Port[:i]
	}
	above := h.find("bus/usb/devices", hub)
	if above == "" {
		return ""
	}
	return h.addUSB(path.Join(above, u.Port), bus, u.Port, u)
}

// RemoveUSB unplugs a device, given by its port, and everything below it.
func (h *Host) RemoveUSB(port string) {
	h.t.Helper()
	if dir := h.find("bus/usb/devices", port); dir != "" {
		h.Remove(dir)
	}
}

func (h *Host) addUSB(dir string, bus int, interfacePrefix string, u USB) string {
	h.t.Helper()
	devnum, minor := h.nextDevnum(bus)
	h.add(dir, entry{
		bus:    "usb",
		name:   u.Port,
		driver: "usb",
		attrs: map[string]string{
			"idVendor":     u.Vendor,
			"idProduct":    u.Product,
			"serial":       u.Serial,
			"manufacturer": u.Manufacturer,
			"product":      u.ProductName,
			"bDeviceClass": cmp.Or(u.Class, "00"),
			"speed":        cmp.Or(u.Speed, "480"),
			"busnum":       strconv.Itoa(bus),
			"devnum":       strconv.Itoa(devnum),
		},
		nodes: []Node{{
			Name:      fmt.Sprintf("bus/usb/%03d/%03d", bus, devnum),
			Subsystem: "usb",
			Dir:       ".",
			Major:     189,
			Minor:     minor,
		}},
	})
	for _, i := range u.Interfaces {
		name := fmt.Sprintf("%s:1.%d", interfacePrefix, i.Number)
		h.add(dir+"/"+name, entry{
			bus:    "usb",
			name:   name,
			driver: i.Driver,
			nodes:  i.Nodes,
			attrs:  map[string]string{"bInterfaceNumber": fmt.Sprintf("%02x", i.Number), "bInterfaceClass": i.Class},
		})
	}
	return dir
}

// nextDevnum returns the next device number of a bus and its minor number. Like the kernel,
// it wraps around after 127 and skips numbers in use.
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

// Platform is a platform device, as described by firmware.
type Platform struct {
	Path   string // below devices/platform: "soc/fe201000.serial"
	Bus    string // empty is "platform"
	Driver string
	NUMA   *int // nil is absent
	Nodes  []Node
}

// AddPlatform adds a platform device and returns its directory.
func (h *Host) AddPlatform(p Platform) string {
	h.t.Helper()
	h.mu.Lock()
	defer h.mu.Unlock()
	e := entry{
		bus:    cmp.Or(p.Bus, "platform"),
		name:   path.Base(p.Path),
		driver: p.Driver,
		nodes:  p.Nodes,
	}
	if p.NUMA != nil {
		e.attrs = map[string]string{"numa_node": strconv.Itoa(*p.NUMA)}
	}
	return h.add(path.Join("devices/platform", p.Path), e)
}

// MDev is a mediated device.
type MDev struct {
	UUID       string
	Type, Name string // directory of the type; empty Name: the type has none
	IOMMUGroup string
	Nodes      []Node
}

// AddMDev adds a mediated device to the device with the directory parent and returns
// the mediated device's directory.
func (h *Host) AddMDev(parent string, m MDev) string {
	h.t.Helper()
	h.mu.Lock()
	defer h.mu.Unlock()
	types := path.Join(parent, "mdev_supported_types", m.Type)
	h.check(os.MkdirAll(filepath.Join(h.Sysfs(), types), 0o755))
	h.attrs(types, map[string]string{"name": m.Name})
	own := path.Join(parent, m.UUID)
	h.link(own+"/mdev_type", types)
	return h.add(own, entry{
		bus:   "mdev",
		name:  m.UUID,
		group: m.IOMMUGroup,
		nodes: m.Nodes,
	})
}

// Net is a network interface.
type Net struct {
	Name string
	// Type is one of ARPHRD_* (include/uapi/linux/if_arp.h); 0 is Ethernet.
	Type           int
	DevPort, DevID int
	Bridge, Bond   bool
	// Master is the bridge or bond of this port, Lower the interface below; both must
	// exist.
	Master, Lower string
	// Index and Link are ifindex and iflink; Index 0 omits both.
	Index, Link int
	Up          bool
}

// AddNet adds a network interface to the device with the directory dir (empty: a virtual
// interface) and returns the interface's directory.
func (h *Host) AddNet(dir string, n Net) string {
	h.t.Helper()
	h.mu.Lock()
	defer h.mu.Unlock()
	own := path.Join(cmp.Or(dir, "devices/virtual"), "net", n.Name)
	h.attrs(own, map[string]string{
		"type":     strconv.Itoa(cmp.Or(n.Type, 1)),
		"dev_port": strconv.Itoa(n.DevPort),
		"dev_id":   fmt.Sprintf("0x%x", n.DevID),
		"address":  "02:00:00:00:00:01",
	})
	if n.Index > 0 {
		h.attrs(own, map[string]string{"ifindex": strconv.Itoa(n.Index), "iflink": strconv.Itoa(n.Link)})
	}
	if n.Up {
		h.attrs(own, map[string]string{"flags": "0x1003"})
	}
	for name, is := range map[string]bool{"bridge": n.Bridge, "bonding": n.Bond} {
		if is {
			h.check(os.MkdirAll(filepath.Join(h.Sysfs(), own, name), 0o755))
		}
	}
	h.link(own+"/subsystem", "class/net")
	h.linkFrom(own, "class/net/"+n.Name, own)
	if n.Master != "" {
		master := h.find("class/net", n.Master)
		h.link(own+"/master", master)
		h.link(own+"/upper_"+n.Master, master)
		h.linkFrom(own, master+"/lower_"+n.Name, own)
	}
	if n.Lower != "" {
		lower := h.find("class/net", n.Lower)
		h.link(own+"/lower_"+n.Lower, lower)
		h.linkFrom(own, lower+"/upper_"+n.Name, own)
	}
	return own
}
