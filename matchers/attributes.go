package matchers

import (
	"errors"
	"slices"
	"strings"

	"github.com/generic-dp/generic-dp/internal/device"
)

// standard is the domain of attributes that all drivers have in common
// (k8s.io/dynamic-resource-allocation/deviceattribute).
const standard = "resource.kubernetes.io/"

// attributes returns the attributes of the device that claims select by. Configured attributes
// replace the attributes of the hardware. The result is not nil, even if the device has no attribute.
func (b *builder) attributes() map[string]device.Typed {
	all := make(map[string]device.Typed)
	if b.c.hardware != nil {
		b.addHardwareAttributes(all, b.c.hardware)
	}
	for _, a := range b.r.Attributes {
		value, err := b.single(a.Value, b.c)
		var missing noValue
		if errors.As(err, &missing) && !missing.unread {
			continue // devices without a value have no such attribute
		}
		if err != nil {
			b.problem("attributes.%s: %v", a.Name, err)
			continue
		}
		text := value.String()
		typed, err := device.ParseTyped(a.Type, text)
		if err != nil {
			b.problem("attributes.%s: %q %v", a.Name, text, err)
			b.offer.Mistyped = true
			continue
		}
		all[a.Name] = typed
	}
	return all
}

// addHardwareAttributes adds the attributes of hardware.
func (b *builder) addHardwareAttributes(all map[string]device.Typed, h *device.Hardware) {
	// An empty text is added, too. The type of these attributes is always string.
	add := func(name, text string) {
		all[name] = device.Typed{Text: text}
	}
	if h.USB != nil {
		add("vendor", h.USB.Vendor)
		add("product", h.USB.Product)
		add("serial", strings.TrimSpace(h.USB.Serial))
		add("port", device.Place(h))
		add("driver", b.interfaceDriver(h.USB.Interfaces))
	} else if h.PCI != nil {
		add("vendor", h.PCI.Vendor)
		add("product", h.PCI.Device)
		add("driver", h.PCI.Driver)
		// The standard attribute must be an address with a domain, "0000:3b:00.0".
		if device.IsPCIAddress(h.PCI.Address) {
			add(standard+"pciBusID", h.PCI.Address)
		}
	}
	if root := rootOf(h); root != "" {
		add(standard+"pcieRoot", root)
	}
}

// rootOf returns the PCIe root complex that hardware is below, or an empty string. A path such as
// "devices/pci0000:00/..." begins with it.
func rootOf(h *device.Hardware) string {
	_, below, isBelowPCI := strings.Cut(h.Path, "devices/pci")
	if !isBelowPCI {
		return ""
	}
	root, _, _ := strings.Cut(below, "/")
	return "pci" + root
}

// interfaceDriver returns the driver of the interfaces that have nodes of the device, or "" if
// there are several drivers, or none.
func (b *builder) interfaceDriver(interfaces []device.USBInterface) string {
	driver := ""
	for _, i := range interfaces {
		hasNode := slices.ContainsFunc(b.c.picks, func(p pick) bool {
			return p.node.Interface == i.Number
		})
		if !hasNode || i.Driver == driver {
			continue
		}
		if driver != "" {
			return ""
		}
		driver = i.Driver
	}
	return driver
}

// capacity returns the amounts of the device that its claims share. A device without a value, or
// with a value that contradicts the configured amounts, is not offered: claims that request the
// capacity could not be told how much they get.
func (b *builder) capacity() map[string]device.Capacity {
	if len(b.r.Capacity) == 0 {
		return nil
	}
	all := make(map[string]device.Capacity)
	for _, c := range b.r.Capacity {
		what := "capacity." + c.Name
		text, ok := b.text(what, c.Value, b.c)
		if !ok {
			continue
		}
		capacity, field, err := device.NewCapacity(text, c.Default)
		if err != nil {
			b.problem("%s.%s: %v", what, field, err)
			continue
		}
		all[c.Name] = capacity
	}
	return all
}

// features returns the values of the device that become labels of the node. A label is no reason to
// keep a device from containers: a device without a value has no such label.
func (b *builder) features() map[string]string {
	if len(b.r.Features) == 0 {
		return nil
	}
	all := make(map[string]string)
	for _, f := range b.r.Features {
		// An error means that there is no value, or more than one.
		text, err := b.single(f.Value, b.c)
		if err == nil {
			all[f.Name] = text.String()
		}
	}
	return all
}
