package health

import (
	"errors"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/generic-dp/generic-dp/internal/device"
	"github.com/generic-dp/generic-dp/internal/sys/files"
)

// link returns why a network function has no carrier, or an empty string if one of its interfaces
// has one. If several interfaces have no carrier, it is the reason of the last one.
func (h host) link(l device.LinkCheck) string {
	reason := "no network interface"
	for _, dir := range l.Dirs {
		if h.isRepresentor(dir) {
			continue
		}
		one := h.carrier(dir)
		// The other interfaces of a function may be unused ports.
		if one == "" {
			return ""
		}
		reason = one
	}
	return reason
}

// isRepresentor reports whether an interface stands for the port of a virtual function in the
// switch of a network card: its carrier says nothing about the cable. The names of such ports
// begin with the number of a physical function, "pf0vf3" or "c1pf0", and the name of the cable's
// port is "p0" (__devlink_port_phys_port_name_get in net/devlink/port.c).
func (h host) isRepresentor(dir string) bool {
	name, err := files.Read(h.local(dir+"/phys_port_name"), maxValue)
	// Most drivers do not support the attribute, and reading it fails.
	return err == nil && strings.Contains(string(name), "pf")
}

// carrier returns why an interface has no carrier. The file cannot be read while the interface is
// down (carrier_show in net/core/net-sysfs.c).
func (h host) carrier(dir string) string {
	value, err := files.Read(h.local(dir+"/carrier"), maxValue)
	switch {
	case errors.Is(err, unix.EINVAL):
		return "the network interface is down on the host"
	case errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR):
		return "the network interface has left the host"
	case err != nil:
		return errorText(err)
	case strings.TrimSpace(string(value)) != "1":
		return "no carrier"
	}
	return ""
}
