package matchers

import (
	"strings"

	"github.com/generic-dp/generic-dp/config"
	"github.com/generic-dp/generic-dp/device"
)

// identify names a device as its resource, which is called name, wants it. It
// is empty while that name is not known and the ID is made of it.
func (b *builder) identify(s *selected, name string) string {
	switch {
	case (s.pool || s.virtual != nil) && name == "":
		return ""
	case s.pool:
		return device.PoolID(name)
	case s.virtual != nil:
		return device.VirtualID(name, s.virtual.Name)
	}
	id := b.ownID(s)
	if b.r.Shared && name != "" {
		return device.SharedID(name, id)
	}
	return id
}

// ownID is the ID of a device whatever resource it is of.
func (b *builder) ownID(s *selected) string {
	switch {
	case s.value != "":
		return device.GroupID(b.r.GroupBy, s.value)
	case s.cdi != nil:
		return device.CDIDeviceID(s.cdi.Name)
	case len(s.paths) > 0:
		return device.PathID(s.paths[0].path)
	}
	form := b.forms.Of(s.hardware)
	if b.r.Identity == config.IdentityPort {
		form = device.PortForm
	}
	if s.single {
		return device.NodeID(s.picks[0].node, form)
	}
	return device.HardwareID(s.hardware, form)
}

// checkSerial says why a device does not go by the serial number that its
// resource wants it to go by. It goes by its port then.
func (o *offering) checkSerial() {
	s, h := o.s, o.s.hardware
	if o.r.Identity != config.IdentitySerial || s.pool || s.value != "" || s.single && len(s.picks) == 0 {
		return
	}
	switch {
	case h == nil:
		o.problem("%s has no serial number, which identity = %q wants", s.picks[0].node.Path, o.r.Identity)
	case h.USB == nil || strings.TrimSpace(h.USB.Serial) == "":
		o.problem("%s has no serial number, which identity = %q wants", describe(h), o.r.Identity)
	case device.PlaceholderSerial(h.USB.Serial):
		o.problem("%s has no serial number of its own, which identity = %q wants: %q is what many devices have", describe(h), o.r.Identity, h.USB.Serial)
	case o.forms.Of(h) != device.SerialForm:
		o.problem("%s has the serial number %q of another device, which identity = %q can't tell from it", describe(h), h.USB.Serial, o.r.Identity)
	}
}
