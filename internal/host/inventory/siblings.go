package inventory

import (
	"maps"
	"slices"
	"strconv"
	"sync"

	"github.com/generic-dp/generic-dp/internal/device"
)

const (
	// maxFamilies and maxSiblings limit what is remembered of network interfaces.
	maxFamilies = 256
	maxSiblings = 64
)

// netNumbers numbers network interfaces of one device that the kernel does not number. A container
// takes its interface out of the host's sysfs, so that a number must not depend on which interfaces are
// visible. It is remembered instead, by the inode of the interface, which stays the same when the
// interface moves to another network namespace and back (kernfs_rename_ns in fs/kernfs/dir.c).
type netNumbers struct {
	mu    sync.Mutex
	known map[string][]device.KnownNet
}

// number sets the index of each interface that shares its hardware and USB interface with another one.
// inodes has the inode of each interface by its name.
func (k *netNumbers) number(nets []*device.Node, inodes map[string]uint64) {
	families := make(map[string][]*device.Node)
	for _, n := range nets {
		if n.Hardware != nil {
			key := n.Hardware.Path + "#" + strconv.Itoa(n.Interface)
			families[key] = append(families[key], n)
		}
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, key := range slices.Sorted(maps.Keys(families)) {
		family := families[key]
		before := k.known[key]
		if len(family) == 1 && before == nil {
			continue
		}
		after := numberSiblings(family, inodes, before)
		if before == nil && len(k.known) >= maxFamilies {
			continue
		}
		if k.known == nil {
			k.known = make(map[string][]device.KnownNet)
		}
		k.known[key] = after
	}
}

// numberSiblings sets the index of the interfaces of one family, and returns what to remember: these
// interfaces, and then those that are absent.
func numberSiblings(family []*device.Node, inodes map[string]uint64, before []device.KnownNet) []device.KnownNet {
	device.SortNets(family)
	var used device.Numbers
	absent := slices.Clone(before)
	var others []*device.Node
	for _, n := range family {
		i := slices.IndexFunc(absent, func(k device.KnownNet) bool {
			return isSameNet(k, n.Path, inodes[n.Path])
		})
		if i < 0 {
			others = append(others, n)
			continue
		}
		n.Index = absent[i].Number
		used.Take(n.Index)
		absent = slices.Delete(absent, i, i+1)
	}
	// The driver or the device was removed and added again: all interfaces are other ones.
	if len(others) == len(family) {
		absent = nil
	}
	for _, k := range absent {
		used.Take(k.Number)
	}
	// The kernel's numbers come first.
	var unnumbered []*device.Node
	for _, n := range others {
		if !used.Take(n.Index) {
			unnumbered = append(unnumbered, n)
		}
	}
	for _, n := range unnumbered {
		n.Index = used.Next()
	}
	var after []device.KnownNet
	for _, n := range family {
		after = append(after, device.KnownNet{
			Name:   n.Path,
			Inode:  inodes[n.Path],
			Number: n.Index,
		})
	}
	after = append(after, absent...)
	return after[:min(len(after), maxSiblings)]
}

// isSameNet reports whether a remembered interface has a name and an inode. Only where an inode is
// not known, as after a reboot, the name decides.
func isSameNet(k device.KnownNet, name string, inode uint64) bool {
	if k.Inode != 0 && inode != 0 {
		return k.Inode == inode
	}
	return k.Name == name
}

// KnownNets returns the numbers of the network interfaces that the kernel does not number, for
// RestoreNets. It is safe to call during a scan.
func (s *Scanner) KnownNets() map[string][]device.KnownNet {
	s.nets.mu.Lock()
	defer s.nets.mu.Unlock()
	return maps.Clone(s.nets.known)
}

// RestoreNets restores the numbers that an earlier process has given. sameBoot is set if it did so in
// the same boot: an inode has no meaning in another one. No scan may run.
func (s *Scanner) RestoreNets(known map[string][]device.KnownNet, sameBoot bool) {
	s.nets.mu.Lock()
	defer s.nets.mu.Unlock()
	s.nets.known = make(map[string][]device.KnownNet, len(known))
	for key, family := range known {
		family = slices.Clone(family)
		for i := range family {
			if !sameBoot {
				family[i].Inode = 0
			}
		}
		s.nets.known[key] = family
	}
}
