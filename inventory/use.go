package inventory

import (
	"cmp"
	"slices"

	"github.com/generic-dp/generic-dp/device"
	"github.com/generic-dp/generic-dp/sysfs"
)

// InUse says what the host itself uses a block device or a network interface
// for, in words for an administrator: "/boot is mounted from /dev/sda1", "a port
// of bridge br0". It is empty for nothing, and for other nodes. All that the
// host uses is read when it is asked for first.
func (a *Attributes) InUse(n *device.Node) string {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch n.Type {
	case device.BlockNode:
		if a.usedDisks == nil {
			a.usedDisks = a.diskUse()
		}
		return a.usedDisks[numberOf(n)]
	case device.NetInterface:
		if a.usedNets == nil {
			a.usedNets = a.netUse()
		}
		return a.usedNets[n.Path]
	}
	return ""
}

// diskUse says of block devices what the host itself uses them for: a mounted
// file system, swap, a device that is made of them. A disk is used if one of
// its partitions is, and they are used if it is as a whole.
//
// Mounts are those of the first process and of this one. In a container
// without the host's processes that is no more than what the runtime has
// mounted into it, the file system of the kubelet's directory for one.
func (a *Attributes) diskUse() map[number]string {
	blocks := newBlocks(a.of.nodes)
	if len(blocks.byNumber) == 0 {
		return blocks.used
	}
	// The strongest reason comes first and stays.
	sum := newTableSum()
	a.mountUse(blocks, sum)
	a.swapUse(blocks, sum)
	a.tables = sum.read()
	for _, n := range blocks.nodes {
		holders, err := a.sysfs.Holders(n.SysPath)
		if err != nil && !sysfs.Gone(err) {
			a.problem(n.SysPath, err)
		}
		for _, h := range holders {
			blocks.use(n, n.Path+" is part of "+h)
		}
	}
	btrfs, err := a.sysfs.Btrfs()
	if err != nil && !sysfs.Gone(err) {
		a.problem("fs/btrfs", err)
	}
	for _, e := range btrfs {
		if n := blocks.bySysPath[e.Path]; n != nil {
			blocks.use(n, "a btrfs file system is mounted from "+n.Path)
		}
	}
	return blocks.spread()
}

// blocks are the block devices of a scan.
type blocks struct {
	nodes     []*device.Node // those that sysfs knows, by path
	bySysPath map[string]*device.Node
	byPath    map[string]*device.Node
	byNumber  map[number][]*device.Node // with copies made by hand
	used      map[number]string
}

func newBlocks(nodes []*device.Node) *blocks {
	b := &blocks{
		bySysPath: make(map[string]*device.Node), byPath: make(map[string]*device.Node),
		byNumber: make(map[number][]*device.Node), used: make(map[number]string),
	}
	for _, n := range nodes {
		if n.Type != device.BlockNode {
			continue
		}
		b.byPath[n.Path] = n
		b.byNumber[numberOf(n)] = append(b.byNumber[numberOf(n)], n)
		if n.SysPath != "" && b.bySysPath[n.SysPath] == nil {
			b.nodes = append(b.nodes, n)
			b.bySysPath[n.SysPath] = n
		}
	}
	return b
}

func numberOf(n *device.Node) number { return number{n.Type, n.Major, n.Minor} }

// of returns the node of a device number: the kernel's own, if it is there.
func (b *blocks) of(k number) *device.Node {
	list := b.byNumber[k]
	if i := slices.IndexFunc(list, func(n *device.Node) bool { return n.SysPath != "" }); i > 0 {
		return list[i]
	}
	if len(list) == 0 {
		return nil
	}
	return list[0]
}

// use notes why the device of a node is in use, unless that is known.
func (b *blocks) use(n *device.Node, reason string) {
	k := numberOf(n)
	b.used[k] = cmp.Or(b.used[k], reason)
}

// spread returns the reasons of all nodes: those of a disk for its partitions,
// too, and theirs for it. A partition is the directory below that of its disk.
func (b *blocks) spread() map[number]string {
	own := func(n *device.Node) string { return b.used[numberOf(n)] }
	reasons := make(map[number]string)
	note := func(n *device.Node, reason string) {
		reasons[numberOf(n)] = cmp.Or(reasons[numberOf(n)], reason)
	}
	for _, n := range b.nodes {
		note(n, own(n))
		if disk := b.bySysPath[up(n.SysPath)]; disk != nil {
			note(n, own(disk))
			note(disk, cmp.Or(own(disk), own(n)))
		}
	}
	for k, reason := range b.used {
		reasons[k] = reason
	}
	return reasons
}
