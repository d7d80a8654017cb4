package inventory

import (
	"net"

	"github.com/generic-dp/generic-dp/device"
)

// ForeignNets reports whether a snapshot has network interfaces that are not
// those of this process: its sysfs shows another network namespace, as in a pod
// that is given the host's /sys. The kernel tells of an interface in its own
// namespace only (net_namespace in net/core/net-sysfs.c, kobject_uevent_net_broadcast
// in lib/kobject_uevent.c), so that nothing tells of those.
func ForeignNets(s *device.Snapshot) bool {
	if len(s.Nets) == 0 {
		return false
	}
	list, err := net.Interfaces()
	if err != nil {
		return true
	}
	own := make(map[string]bool, len(list))
	for _, i := range list {
		own[i.Name] = true
	}
	for _, n := range s.Nets {
		if !own[n.Path] {
			return true
		}
	}
	return false
}
