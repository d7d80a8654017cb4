package matchers

import (
	"slices"
	"strings"
	"unicode"

	"github.com/generic-dp/generic-dp/device"
)

// addNet puts one of the device's network interfaces into the offer. It moves
// into the container, which CDI alone can do; elsewhere it is there for
// variables. One that can't be handed over is in the offer all the same: where
// it were missing it would seem to have moved.
func (o *offering) addNet(p pick) {
	if !o.offer.CDI {
		return
	}
	host, name := p.node.Path, p.node.Path
	if text := o.r.Container.NetName; len(text) > 0 {
		found, err := o.one(text, o.s.subjectOf(p))
		if err != nil {
			o.problem("container.net_name of %s: %v", host, err)
		} else {
			name = found.String()
		}
	}
	if !validNetName(name) {
		o.problem("container.net_name of %s: %q is no name of a network interface: want 1 to 15 characters without space, %q and %q", host, name, "/", ":")
	}
	if !o.mayBeDangerous(p.match) {
		if why := o.inUse(p.node); why != "" {
			o.problem("%s is dangerous to move: it is %s; %s", host, why, dangerousHint)
		}
	}
	for _, other := range o.offer.Nets {
		if other.Name == name {
			o.problem("%s and %s would both be called %s in the container: want a variable in container.net_name", other.HostName, host, name)
		}
	}
	o.offer.Nets = append(o.offer.Nets, device.OfferedNet{HostName: host, Key: o.key(p.node), Name: name})
}

// validNetName reports whether the kernel takes a name for a network interface
// (dev_valid_name in net/core/dev.c).
func validNetName(name string) bool {
	const longest = 15 // IFNAMSIZ without the zero at the end
	return name != "" && len(name) <= longest && name != "." && name != ".." &&
		!strings.ContainsAny(name, "/:") && !strings.ContainsFunc(name, unicode.IsSpace)
}

// addCDIDevices adds the CDI devices of the host that are passed along: the
// one that the device is, and those of container.cdi_devices.
func (o *offering) addCDIDevices() {
	if o.s.cdi != nil {
		o.addCDIDevice(o.s.cdi)
	}
	for _, text := range o.r.Container.CDIDevices {
		found, err := o.one(text, o.s.subject())
		if err != nil {
			o.problem("container.cdi_devices: %v", err)
			continue
		}
		name := found.String()
		i := slices.IndexFunc(o.opts.CDIDevices, func(d device.CDIDevice) bool { return d.Name == name })
		if i < 0 {
			o.problem("container.cdi_devices: no CDI spec of the host has %q", name)
			continue
		}
		if !slices.Contains(o.offer.CDIDevices, name) {
			o.addCDIDevice(&o.opts.CDIDevices[i])
		}
	}
}

func (o *offering) addCDIDevice(d *device.CDIDevice) {
	if why := o.cdiDanger(d); why != "" && !o.companionsMayBeDangerous() {
		o.problem("CDI device %s is dangerous: %s; %s", d.Name, why, dangerousHint)
		return
	}
	o.offer.CDIDevices = append(o.offer.CDIDevices, d.Name)
}
