package importer

import (
	"cmp"
	"math"
	"path"
	"strings"

	"github.com/generic-dp/generic-dp/internal/device"
)

// squatLister lists the devices of a group (discoverPath and discoverUSB in deviceplugin of
// generic-device-plugin): the i-th matches of its paths, sorted, are one device, and all
// matches of usb are one device.
type squatLister struct {
	resource string
	group    squatGroup
}

// devices lists the devices of a group. A group has paths or usb, and not both.
func (s squatLister) devices(h *host) (devices []Device) {
	devices = s.pathDevices(h)
	if nodes := s.usbNodes(h); len(nodes) > 0 {
		devices = append(devices, s.device(nodes))
	}
	return devices
}

// device is a device of the group with some nodes.
func (s squatLister) device(nodes []string) Device {
	return Device{
		Resource: s.resource,
		Slots:    s.group.count,
		Nodes:    nodes,
	}
}

// pathDevices lists the devices of paths. There are as many devices as the longest list of
// matches has, but no more than each path with its limit allows. Optional paths without
// matches do not count.
func (s squatLister) pathDevices(h *host) (devices []Device) {
	var paths []squatPath
	var found [][]string // the matches of each path
	longest := 0
	limit := math.MaxInt
	for _, p := range s.group.paths {
		matches := h.glob(p.Path)
		// Mounts are left out: they are no nodes, and a snapshot does not have them.
		isAbsent := len(matches) == 0 && p.Optional
		if p.match.As != "" || isAbsent {
			continue
		}
		paths = append(paths, p)
		found = append(found, matches)
		longest = max(longest, len(matches))
		limit = min(limit, len(matches)*max(p.Limit, 1))
	}
	for i := range min(longest, limit) {
		var nodes []string
		for k, p := range paths {
			at := found[k][i%len(found[k])]
			nodes = append(nodes, h.at(at, p.mounted(at))...)
		}
		devices = append(devices, s.device(nodes))
	}
	return devices
}

// mounted is the path of a match in the container.
func (p squatPath) mounted(at string) string {
	container := cmp.Or(p.MountPath, at)
	if strings.HasSuffix(container, "/") {
		container += path.Base(at)
	}
	return container
}

// usbNodes lists the bus nodes of the USB devices that the group selects.
func (s squatLister) usbNodes(h *host) (nodes []string) {
	for _, u := range s.group.usb {
		for _, hw := range h.Hardware {
			if u.selects(hw) {
				nodes = append(nodes, busNodes(hw)...)
			}
		}
	}
	return nodes
}

// selects reports whether hardware is a USB device that is selected.
func (u squatUSB) selects(hw *device.Hardware) bool {
	if hw.USB == nil {
		return false
	}
	sameID := hw.USB.Vendor == u.Vendor && hw.USB.Product == u.Product
	return sameID && (u.Serial == "" || hw.USB.Serial == u.Serial)
}

// busNodes lists the nodes below /dev/bus/usb of a USB device: the plugin gives containers no
// other nodes.
func busNodes(hw *device.Hardware) (nodes []string) {
	for _, n := range hw.Nodes {
		if strings.HasPrefix(n.Path, "/dev/bus/usb/") {
			nodes = append(nodes, n.Path)
		}
	}
	return nodes
}
