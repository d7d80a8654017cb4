package catalog

import (
	"cmp"
	"regexp"
	"slices"
	"strings"

	"github.com/generic-dp/generic-dp/internal/device"
	"github.com/generic-dp/generic-dp/internal/order"
	"github.com/generic-dp/generic-dp/matchers"
)

// Device is hardware of the host, or its nodes without hardware. The names of its JSON
// fields are an API. Strings are empty and lists are not nil where a value is unknown.
type Device struct {
	// Name is the kernel's name of hardware, "1-1.4" or "0000:3b:00.0"; otherwise a path.
	Name       string   `json:"name"`
	Bus        string   `json:"bus"` // "usb", "pci", "mdev" or "platform"; empty without hardware
	Kind       string   `json:"kind"`
	ID         string   `json:"id"` // vendor:product, or the type of a mediated device
	Vendor     string   `json:"vendor"`
	Product    string   `json:"product"`
	Serial     string   `json:"serial"`
	Class      string   `json:"class"`
	Path       string   `json:"path"` // usb.path, the same in every boot
	PF         string   `json:"pf"`   // pci.pf: the physical function of a virtual one or a sub-function
	Driver     string   `json:"driver"`
	NUMA       []int    `json:"numa"`
	Nodes      []string `json:"nodes"`
	Interfaces []string `json:"interfaces"`
	// Offers are the devices of resources that contain this device.
	Offers []Offer `json:"offers"`
	// Refused is set if no resource may have any of its nodes without dangerous = true.
	Refused bool `json:"refused"`
	// InUse is what the host uses its network interfaces for, if it uses all of them: no
	// resource gets such an interface.
	InUse string `json:"in_use,omitempty"`
}

// Offer is a device of a resource: the full name of the resource and the ID of the device.
type Offer struct {
	Resource string `json:"resource"`
	ID       string `json:"id"`
}

// List lists all hardware by bus and name, then nodes and network interfaces without hardware.
// result has the offers of each resource. permitted has the offers of a configuration that selects
// every node without dangerous = true, so that its missing nodes are the dangerous ones.
func (c *Catalog) List(result, permitted matchers.Result) []Device {
	offers := ownersOf(result)
	list := []Device{} // an empty list is [] in JSON, and nil is null
	for _, h := range c.snap.Hardware {
		// A root hub is a part of its controller: nothing selects it.
		if !h.IsRootHub() {
			list = append(list, c.describe(h, offers))
		}
	}
	order.Stable(list, compareDevices)
	list = append(list, c.withoutHardware(offers)...)
	allowed := ownersOf(permitted)
	for i := range list {
		d := &list[i]
		isUnselected := len(d.Offers) == 0
		hasOnlyNodes := len(d.Nodes) > 0 && len(d.Interfaces) == 0
		d.Refused = isUnselected && hasOnlyNodes && !allowed.has(d.Nodes)
	}
	return list
}

// describe describes hardware. Refused is set later, in List.
func (c *Catalog) describe(h *device.Hardware, offers owners) Device {
	k := c.kindOf(h)
	d := Device{
		Name:       h.Name,
		Bus:        string(h.Bus),
		Kind:       k.name,
		NUMA:       []int{},
		Nodes:      c.nodesByKind(h, k),
		Interfaces: paths(h.Nets),
		InUse:      c.inUse(h.Nets),
	}
	d.Vendor, d.Product = c.names.Of(h)
	// Platform devices have neither IDs nor a class.
	switch {
	case h.USB != nil:
		d.ID = attribute(h, "usb.id")
		d.Serial = attribute(h, "usb.serial")
		d.Path = attribute(h, "usb.path")
		d.Driver = strings.Join(usbDrivers(h.USB), ",")
		d.Class = h.USB.Class
	case h.IsPartition():
		d.ID = attribute(h, "pci.id")
		d.Driver = h.Parent.PCI.Driver
	case h.PCI != nil:
		d.ID = attribute(h, "pci.id")
		d.PF = h.PCI.PF
		d.Driver = h.PCI.Driver
		d.Class = h.PCI.Class
	case h.MDev != nil:
		d.ID = h.MDev.Type
	}
	// The kernel has -1 for hardware whose node it does not know.
	if h.NUMA >= 0 {
		d.NUMA = append(d.NUMA, h.NUMA)
	}
	places := slices.Concat([]string{h.Path}, d.Nodes, d.Interfaces)
	if h.PCI != nil && h.PCI.VFIO { // a container gets all functions of a group
		places = append(places, "/dev/vfio/"+h.PCI.IOMMUGroup)
	}
	d.Offers = offers.of(places...)
	return d
}

// nodesByKind returns the paths of the nodes of hardware. The nodes of its kind come first.
func (c *Catalog) nodesByKind(h *device.Hardware, k kind) []string {
	first := []string{}
	var rest []string
	for _, n := range h.Nodes {
		if c.matches(n.Path, k.nodes...) {
			first = append(first, n.Path)
		} else {
			rest = append(rest, n.Path)
		}
	}
	return append(first, rest...)
}

// inUse returns what the host uses network interfaces for. It is empty if the host does not use one
// of them, which is then free.
func (c *Catalog) inUse(nets []*device.Node) string {
	why := ""
	for _, n := range nets {
		why = c.host.InUse(n)
		if why == "" {
			return ""
		}
	}
	return why
}

// buses are the buses in the order of the list.
var buses = []string{
	string(device.USBBus),
	string(device.PCIBus),
	string(device.MDevBus),
	string(device.PlatformBus),
}

// compareDevices orders hardware by bus and name.
func compareDevices(a, b Device) int {
	return cmp.Or(
		cmp.Compare(slices.Index(buses, a.Bus), slices.Index(buses, b.Bus)),
		compareNames(a, b),
	)
}

// compareNames compares devices of one bus: ports of USB by number, and addresses as text,
// since they are hexadecimal.
func compareNames(a, b Device) int {
	if a.Bus == string(device.USBBus) {
		return device.CompareNatural(a.Name, b.Name)
	}
	return strings.Compare(a.Name, b.Name)
}

// withoutHardware lists nodes and network interfaces without hardware. Nodes that only differ in their
// numbers and that no resource has, such as the terminals of a console or thousands of volumes, are one
// entry. So are the host's ends of the interfaces of containers, whose names have a hexadecimal number.
func (c *Catalog) withoutHardware(offers owners) []Device {
	numbers := regexp.MustCompile("^(cali|veth|lxc|eni)[0-9a-f]+|[0-9]+")
	var list []Device
	entries := map[string]int{} // by name and use
	for _, n := range slices.Concat(c.snap.Nodes, c.snap.Nets) {
		if n.Hardware != nil {
			continue
		}
		d := c.describeNode(n, offers)
		name := numbers.ReplaceAllString(n.Path, "$1*")
		// An interface in use and a free one never share an entry.
		at, isKnown := entries[name+"\n"+d.InUse]
		if isKnown && len(d.Offers) == 0 && len(list[at].Offers) == 0 {
			entry := &list[at]
			entry.Name = name
			entry.Nodes = append(entry.Nodes, d.Nodes...)
			entry.Interfaces = append(entry.Interfaces, d.Interfaces...)
			continue
		}
		entries[name+"\n"+d.InUse] = len(list)
		list = append(list, d)
	}
	return list
}

// describeNode describes a node or a network interface without hardware, by its path or name.
func (c *Catalog) describeNode(n *device.Node, offers owners) Device {
	d := Device{
		Name:       n.Path,
		Kind:       c.kindOfNode(n).name,
		NUMA:       []int{},
		Nodes:      []string{},
		Interfaces: []string{},
		Offers:     offers.of(n.Path),
	}
	if n.Net == nil {
		d.Nodes = append(d.Nodes, n.Path)
		return d
	}
	d.Interfaces = append(d.Interfaces, n.Path)
	d.InUse = c.host.InUse(n)
	return d
}

// owners are the offers by sysfs path of hardware, path of a node or name of an interface. The
// three kinds of keys never collide: only paths of nodes begin with "/dev".
type owners map[string][]Offer

// ownersOf lists the offers of all resources by what they contain.
func ownersOf(result matchers.Result) owners {
	found := owners{}
	for _, m := range result.Resources {
		for i := range m.Offers {
			found.add(m.Name, &m.Offers[i])
		}
	}
	return found
}

// add adds an offer of a resource.
func (o owners) add(resource string, offered *device.Offer) {
	offer := Offer{Resource: resource, ID: offered.ID}
	for _, path := range offered.Members {
		o[path] = append(o[path], offer)
	}
	// Hardware is empty for a device without hardware. No device is looked up by that key.
	o[offered.Hardware] = append(o[offered.Hardware], offer)
	// Every device has the companions of its resource: they are not taken by it.
	for _, n := range offered.Nodes {
		if !n.Companion {
			o[n.HostPath] = append(o[n.HostPath], offer)
		}
	}
	for _, n := range offered.Nets {
		o[n.HostName] = append(o[n.HostName], offer)
	}
}

// has reports whether one of some paths is offered.
func (o owners) has(paths []string) bool {
	return slices.ContainsFunc(paths, func(path string) bool {
		return len(o[path]) > 0
	})
}

// of lists the offers of some paths, without repeats.
func (o owners) of(paths ...string) []Offer {
	all := []Offer{}
	for _, path := range paths {
		all = union(all, o[path]...)
	}
	return all
}
