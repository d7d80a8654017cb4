package matchers

import (
	"fmt"
	"slices"
	"strings"

	"github.com/generic-dp/generic-dp/internal/device"
)

// addReset adds the reset before a container with the device starts. A device that can never be
// reset has a Problem: no container should start with it and rely on the reset. The use of a network
// interface may pass, so it only prevents the reset.
func (b *builder) addReset() {
	reset := b.r.Container.Reset
	h := b.c.hardware
	if reset == "" || h == nil {
		return
	}
	b.offer.Reset = string(reset)
	if why := b.resetObstacle(h); why != "" {
		b.problem("container.reset: %s is never reset: %s", describe(h), why)
	}
	for _, n := range h.Nets {
		if use := b.Host.InUse(n); use != "" {
			b.offer.NoReset = fmt.Sprintf("the host uses its network interface %s: it is %s", n.Path, use)
		}
	}
}

// resetObstacle returns why a reset of hardware would affect more than its device, or an empty
// string. It continues a sentence that ends with a colon.
func (b *builder) resetObstacle(h *device.Hardware) string {
	isHub := h.IsRootHub() || h.USB != nil && h.USB.Class == "09"
	if isHub {
		return "it is a hub, and a reset disconnects every device below it"
	}
	if h.PCI != nil && h.PCI.SRIOV == "sf" {
		return "it is a part of a PCI function"
	}
	below := beginning(b.snap.Hardware, hardwarePath, h.Path+"/")
	if len(below) > 0 {
		return fmt.Sprintf("a reset also affects %s below it", andMore(describe(below[0]), len(below)))
	}
	if part := b.partOf(h); part != nil {
		// A reset of the function clears VF Enable (PCI Express Base Specification, "SR-IOV Control").
		return fmt.Sprintf("a reset also affects its part, %s", describe(part))
	}
	for _, n := range h.Nodes {
		if why := b.nodeObstacle(n); why != "" {
			return why
		}
	}
	return ""
}

// partOf returns a virtual function or a sub-function of a PCI function, nil if there is none.
func (b *builder) partOf(h *device.Hardware) *device.Hardware {
	if h.PCI == nil {
		return nil
	}
	for _, other := range b.snap.Hardware {
		if other.PCI != nil && other.PCI.PF == h.PCI.Address {
			return other
		}
	}
	return nil
}

// nodeObstacle returns why hardware with a node must not be reset, or an empty string. A node that
// the resource offers is permitted by its match.
func (b *builder) nodeObstacle(n *device.Node) string {
	// A file system on it may be mounted, or be mounted later.
	if n.Type == device.BlockNode {
		return fmt.Sprintf("it has the block device %s", n.Path)
	}
	isOffered := slices.ContainsFunc(b.c.picks, func(p pick) bool { return p.node == n })
	if isOffered {
		return ""
	}
	why := b.danger(n)
	// Whether the host uses the interface is judged by the interface itself.
	isOfNet := strings.Contains(why, string(network))
	if why != "" && !isOfNet {
		return fmt.Sprintf("it has the dangerous node %s: %s", n.Path, why)
	}
	return ""
}

// refuseSharedResets adds a Problem to offers with a reset whose hardware another offer contains, as
// a whole, by one of its nodes or as a companion: the container of that offer would lose it.
func (m *run) refuseSharedResets() {
	users := m.otherUsers()
	for i := range m.result.Resources {
		offered := &m.result.Resources[i]
		for j := range offered.Offers {
			o := &offered.Offers[j]
			user, isUsed := users[o]
			if o.Reset == "" || !isUsed || o.Problem != "" {
				continue
			}
			o.Problem = fmt.Sprintf("container.reset: it is never reset: a reset also affects device %q of %s, which has a part of it",
				user.offer.ID, user.resource)
			// Checks are of offers without a Problem.
			delete(offered.Checks, o.ID)
		}
	}
}

// resetUser is an offer that contains hardware.
type resetUser struct {
	offer    *device.Offer
	resource string
}

// otherUsers returns another offer with the same hardware, by the offer with a reset.
func (m *run) otherUsers() map[*device.Offer]resetUser {
	// owners are the offers with a reset, by the path of their hardware.
	owners := map[string]*device.Offer{}
	for i := range m.result.Resources {
		offers := m.result.Resources[i].Offers
		for j := range offers {
			if offers[j].Reset != "" {
				owners[offers[j].Hardware] = &offers[j]
			}
		}
	}
	users := map[*device.Offer]resetUser{}
	// Few configurations have a reset, and the others should not pay for it.
	if len(owners) == 0 {
		return users
	}
	for i := range m.result.Resources {
		offered := &m.result.Resources[i]
		for j := range offered.Offers {
			o := &offered.Offers[j]
			for _, path := range m.hardwareOf(o) {
				owner := owners[path]
				if owner != nil && owner != o {
					users[owner] = resetUser{offer: o, resource: offered.Name}
				}
			}
		}
	}
	return users
}

// hardwareOf returns the sysfs paths of all hardware of an offer, with repeats.
func (m *run) hardwareOf(o *device.Offer) []string {
	paths := append([]string{o.Hardware}, o.Members...)
	for _, n := range o.Nodes {
		if node := m.at(n.HostPath); node != nil {
			paths = append(paths, hardwarePath(node.Hardware))
		}
	}
	return paths
}
