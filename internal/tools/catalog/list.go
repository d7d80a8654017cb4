package catalog

import (
	"cmp"
	"fmt"
	"slices"
	"sort"
	"strings"

	"github.com/generic-dp/generic-dp/internal/device"
	"github.com/generic-dp/generic-dp/matchers"
)

// Device is hardware of the host, or its nodes without hardware. The names of its JSON
// fields are an API.
type Device struct {
	// Name is the kernel's name of hardware: "1-1.4", "0000:3b:00.0"; else a path.
	Name       string   `json:"name"`
	Bus        string   `json:"bus"` // empty without hardware
	Kind       string   `json:"kind"`
	ID         string   `json:"id"` // vendor:product
	Vendor     string   `json:"vendor"`
	Product    string   `json:"product"`
	Serial     string   `json:"serial"`
	Class      string   `json:"class"`
	Path       string   `json:"path"` // usb.path, the same in every boot
	Driver     string   `json:"driver"`
	NUMA       []int    `json:"numa"`
	Nodes      []string `json:"nodes"`
	Interfaces []string `json:"interfaces"`
	// Offers of resources that have the device; none means that it is free, or Refused: no
	// resource may have any of its nodes without dangerous = true.
	Offers  []Offer `json:"offers"`
	Refused bool    `json:"refused"`
}

// Offer is a device of a resource.
type Offer struct {
	Resource string `json:"resource"`
	ID       string `json:"id"`
}

// List lists all hardware of a snapshot by bus and name, then nodes without hardware.
// result has the offers of each resource, permitted the nodes that a resource may have.
func List(snap *device.Snapshot, result, permitted matchers.Result, names Names) []Device {
	owners := ownersOf(result)
	list := []Device{}
	for _, h := range snap.Hardware {
		if h.IsRootHub() { // part of its controller: nothing selects it
			continue
		}
		k := kindOf(h)
		d := Device{Name: h.Name, Bus: string(h.Bus), Kind: k.name, NUMA: []int{}, Nodes: paths(h.Nodes), Interfaces: paths(h.Nets)}
		d.Vendor, d.Product = names.Of(h)
		// The nodes of its kind come first.
		sort.SliceStable(d.Nodes, func(i, j int) bool { return matches(d.Nodes[i], k.nodes...) && !matches(d.Nodes[j], k.nodes...) })
		switch {
		case h.USB != nil:
			d.ID, d.Serial, d.Path, d.Driver = attribute(h, "usb.id"), attribute(h, "usb.serial"), attribute(h, "usb.path"), usbDriver(h.USB)
			d.Class = h.USB.Class
		case h.PCI != nil:
			d.ID, d.Driver, d.Class = attribute(h, "pci.id"), h.PCI.Driver, h.PCI.Class
		case h.MDev != nil:
			d.ID = h.MDev.Type
		}
		if h.NUMA >= 0 {
			d.NUMA = append(d.NUMA, h.NUMA)
		}
		all := slices.Concat([]string{h.Path}, d.Nodes, d.Interfaces)
		if h.PCI != nil && h.PCI.VFIO { // a container gets all functions of a group
			all = append(all, "/dev/vfio/"+h.PCI.IOMMUGroup)
		}
		d.Offers = owners.of(all...)
		list = append(list, d)
	}
	order := []string{string(device.USBBus), string(device.PCIBus), string(device.MDevBus), string(device.PlatformBus)}
	sort.SliceStable(list, func(i, j int) bool {
		a, b := &list[i], &list[j]
		return cmp.Or(slices.Index(order, a.Bus)-slices.Index(order, b.Bus), byName(a, b)) < 0
	})
	list = append(list, nodesWithoutHardware(snap, owners)...)
	permittedOwners := ownersOf(permitted)
	for i := range list {
		d := &list[i]
		d.Refused = len(d.Offers)+len(d.Interfaces) == 0 && len(d.Nodes) > 0 && len(permittedOwners.of(d.Nodes...)) == 0
	}
	return list
}

// Find finds a device by any of its names: a path, a device ID, a PCI address, a USB port,
// a serial number, vendor:product or a network interface. The node is nil unless one is
// named, the hardware if that has none.
func Find(snap *device.Snapshot, forms device.Forms, name string) (*device.Hardware, *device.Node, error) {
	for _, l := range snap.Links {
		if l.Path == name {
			return l.Node.Hardware, l.Node, nil
		}
	}
	nodes := slices.Concat(snap.Nodes, snap.Nets)
	for _, n := range nodes {
		if n.Path == name || device.NodeID(n, forms.Of(n.Hardware)) == name {
			return n.Hardware, n, nil
		}
	}
	var sameModel []*device.Hardware
	for _, h := range snap.Hardware {
		vendor, product := ids(h)
		switch {
		case h.Name == name, h.Name == "0000:"+name, device.HardwareID(h, forms.Of(h)) == name, h.USB != nil && h.USB.Serial == name && name != "":
			return h, nil, nil
		case !h.IsRootHub() && vendor+":"+product == name:
			sameModel = append(sameModel, h)
		}
	}
	kernel := slices.IndexFunc(nodes, func(n *device.Node) bool { return n.Kernel == name })
	switch {
	case kernel >= 0 && len(sameModel) == 0:
		return nodes[kernel].Hardware, nodes[kernel], nil
	case len(sameModel) == 1:
		return sameModel[0], nil, nil
	case len(sameModel) > 1:
		var names []string
		for _, h := range sameModel {
			names = append(names, h.Name)
		}
		return nil, nil, fmt.Errorf("%d devices are %q: want one of %s", len(sameModel), name, strings.Join(names, ", "))
	}
	hint := "generic-dp devices --all lists all hardware"
	alike := func(n *device.Node) bool {
		return strings.TrimRight(n.Path, "0123456789") == strings.TrimRight(name, "0123456789")
	}
	if i := slices.IndexFunc(snap.Nodes, alike); i >= 0 {
		hint = "there is " + snap.Nodes[i].Path
	}
	return nil, nil, fmt.Errorf("no device %q on this host\n  hint: %s", name, hint)
}

// byName compares devices of one bus: ports of USB by number, addresses as text, since
// they are hexadecimal.
func byName(a, b *Device) int {
	if a.Bus == string(device.USBBus) {
		return device.CompareNatural(a.Name, b.Name)
	}
	return strings.Compare(a.Name, b.Name)
}

// nodesWithoutHardware lists them. Nodes with one stem, such as the 64 terminals of a
// console, are one entry.
func nodesWithoutHardware(snap *device.Snapshot, owners owners) []Device {
	var list []Device
	stems := map[string]int{}
	for _, n := range slices.Concat(snap.Nodes, snap.Nets) {
		if n.Hardware != nil {
			continue
		}
		d := Device{Name: n.Path, Kind: kindOfNode(n).name, NUMA: []int{}, Nodes: []string{}, Interfaces: []string{}, Offers: owners.of(n.Path)}
		if n.Net != nil {
			d.Kind, d.Interfaces = "network", append(d.Interfaces, n.Path)
		} else {
			d.Nodes = append(d.Nodes, n.Path)
		}
		stem := strings.TrimRight(n.Path, "0123456789")
		if at, again := stems[stem]; again && len(d.Offers) == 0 && len(list[at].Offers) == 0 {
			list[at].Name = stem + "*"
			list[at].Nodes, list[at].Interfaces = append(list[at].Nodes, d.Nodes...), append(list[at].Interfaces, d.Interfaces...)
			continue
		}
		stems[stem] = len(list)
		list = append(list, d)
	}
	return list
}

func paths(nodes []*device.Node) []string {
	list := make([]string, len(nodes))
	for i, n := range nodes {
		list[i] = n.Path
	}
	return list
}

// attribute is the value of an attribute of hardware.
func attribute(h *device.Hardware, name string) string {
	a, _ := device.FindAttribute(name)
	return strings.Join(a.Of(h, nil), ",")
}

// usbDriver lists the drivers of the interfaces.
func usbDriver(u *device.USB) string {
	var all []string
	for _, i := range u.Interfaces {
		if i.Driver != "" {
			all = union(all, i.Driver)
		}
	}
	return strings.Join(all, ",")
}

// owners are the offers by sysfs path of hardware, path of a node or name of an interface.
type owners map[string][]Offer

func ownersOf(result matchers.Result) owners {
	found := owners{}
	for _, m := range result.Resources {
		for _, o := range m.Offers {
			offer := Offer{m.Name, o.ID}
			for _, path := range append(o.Members, o.Hardware) {
				found[path] = append(found[path], offer)
			}
			for _, n := range o.Nodes {
				if !n.Companion {
					found[n.HostPath] = append(found[n.HostPath], offer)
				}
			}
			for _, n := range o.Nets {
				found[n.HostName] = append(found[n.HostName], offer)
			}
		}
	}
	return found
}

// of lists the offers of some paths, without repeats.
func (o owners) of(paths ...string) []Offer {
	all := []Offer{}
	for _, path := range paths {
		all = union(all, o[path]...)
	}
	return all
}
