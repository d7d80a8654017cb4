package matchers

import (
	"slices"
	"strings"

	"github.com/generic-dp/generic-dp/config"
	"github.com/generic-dp/generic-dp/device"
)

// standard is the domain of attributes that all drivers have in common.
const standard = "resource.kubernetes.io/"

// attributes are those of the device for claims, by name: those of its hardware, then the
// configured ones.
func (b *builder) attributes() map[string]string {
	all := map[string]string{}
	if h := b.c.hardware; h != nil {
		switch {
		case h.USB != nil:
			all["vendor"], all["product"], all["serial"], all["port"] = h.USB.Vendor, h.USB.Product, strings.TrimSpace(h.USB.Serial), device.Place(h)
			all["driver"] = b.interfaceDriver(h.USB.Interfaces)
		case h.PCI != nil:
			all["vendor"], all["product"], all["driver"] = h.PCI.Vendor, h.PCI.Device, h.PCI.Driver
			if device.IsPCIAddress(h.PCI.Address) {
				all[standard+"pciBusID"] = h.PCI.Address
			}
		}
		if _, rest, ok := strings.Cut(h.Path, "devices/pci"); ok {
			root, _, _ := strings.Cut(rest, "/")
			all[standard+"pcieRoot"] = "pci" + root
		}
	}
	for _, a := range b.r.Attributes {
		if value, ok := b.text("attributes."+a.Name, a.Value, b.c); ok {
			all[a.Name] = value
		}
	}
	return all
}

// interfaceDriver is the driver of the interfaces that have nodes of the device; empty if
// there are several, or none.
func (b *builder) interfaceDriver(interfaces []device.USBInterface) (driver string) {
	for _, i := range interfaces {
		used := slices.ContainsFunc(b.c.picks, func(p pick) bool { return p.node.Interface == i.Number })
		switch {
		case !used || i.Driver == driver:
		case driver != "":
			return ""
		default:
			driver = i.Driver
		}
	}
	return driver
}

// annotationNote says what DRA has no place for.
func (m *run) annotationNote(r *config.Resource) {
	if r.API == config.APIDRA && len(r.Container.Annotations) > 0 {
		names := make([]string, 0, len(r.Container.Annotations))
		for _, a := range r.Container.Annotations {
			names = append(names, a.Key.String())
		}
		slices.Sort(names)
		m.note(r.Place, "container.env gives the same to the container itself",
			"container.annotations with api = %q: a DRA driver can't annotate containers: left out are %s", r.API, strings.Join(names, ", "))
	}
}
