package matchers

import (
	"path"
	"strings"

	"github.com/generic-dp/generic-dp/config"
	"github.com/generic-dp/generic-dp/device"
)

// memMajor is the major number of /dev/mem and its like
// (Documentation/admin-guide/devices.txt).
const memMajor = 1

const dangerousHint = "dangerous = true in its match, and --allow=dangerous, hand it over all the same"

// mayBeDangerous reports whether what a match selects may be dangerous.
func (b *builder) mayBeDangerous(m *config.Match) bool {
	return m.Dangerous && b.opts.Allow.Dangerous
}

// inUse says what the host itself uses a block device or a network interface for.
func (b *builder) inUse(n *device.Node) string {
	if b.opts.InUse == nil {
		return ""
	}
	return b.opts.InUse(n)
}

// danger says why a node would give a container the host itself, "" where it
// does not: memory and ports of the machine, and disks that the host uses.
func (b *builder) danger(n *device.Node) string {
	if n.Type == device.CharNode && n.Major == memMajor {
		switch n.Minor {
		case 1:
			return "it is the memory of the host"
		case 2:
			return "it is the memory of the host's kernel"
		case 4:
			return "it is the I/O ports of the host"
		}
	}
	if why := b.inUse(n); why != "" {
		return why
	}
	return b.throughCommands(n)
}

// throughCommands says what the host uses a disk for that a character node
// takes commands for, around the block device: those of SCSI generic and bsg,
// whose disk is below the same device of the SCSI bus, those of NVMe, whose
// namespaces are below their controller or the subsystem that it is a part of,
// and the bus node of a USB disk, which takes its driver away.
func (b *builder) throughCommands(n *device.Node) string {
	if n.Type != device.CharNode || n.SysPath == "" {
		return ""
	}
	var above string
	switch {
	case n.Subsystem == "scsi_generic" || n.Subsystem == "bsg":
		above = path.Dir(path.Dir(n.SysPath))
	case n.Subsystem == "nvme":
		above = n.SysPath
	case n.Subsystem == "nvme-generic":
		above = path.Dir(n.SysPath)
	case n.Hardware != nil && n.Hardware.Bus == device.USBBus && n.SysPath == n.Hardware.Path:
		above = n.SysPath
	default:
		return ""
	}
	nodes := b.ix.snap.Nodes // disks in the network belong to no hardware
	if n.Hardware != nil {
		nodes = n.Hardware.Nodes
	}
	for _, disk := range nodes {
		if disk.Type != device.BlockNode || !strings.HasPrefix(disk.SysPath, above+"/") {
			continue
		}
		if why := b.inUse(disk); why != "" {
			return why
		}
	}
	if n.Subsystem == "nvme" {
		return b.throughSubsystem(n)
	}
	return ""
}

// nvmeSubsystems is where the disks are that several NVMe controllers may lead to
// (nvme_mpath_alloc_disk in drivers/nvme/host/multipath.c).
const nvmeSubsystems = "devices/virtual/nvme-subsystem/"

// throughSubsystem says what the host uses a disk for of the subsystem that an
// NVMe controller is a part of.
func (b *builder) throughSubsystem(controller *device.Node) string {
	const name = "subsysnqn" // the same of a controller and of its subsystem
	for _, disk := range b.ix.snap.Nodes {
		rest, ok := strings.CutPrefix(disk.SysPath, nvmeSubsystems)
		if !ok || b.inUse(disk) == "" {
			continue
		}
		subsystem, _, _ := strings.Cut(rest, "/")
		own := b.ix.attr([]string{controller.SysPath}, name)
		if own == "" || own == b.ix.attr([]string{nvmeSubsystems + subsystem}, name) {
			return b.inUse(disk)
		}
	}
	return ""
}
