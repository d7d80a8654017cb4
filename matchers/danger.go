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
	if n.InUse != "" {
		return n.InUse
	}
	return b.ix.throughCommands(n)
}

// throughCommands says what the host uses a disk for that a character node
// takes commands for, around the block device: those of SCSI generic and bsg,
// whose disk is below the same device of the SCSI bus, and those of NVMe, whose
// namespaces are below their controller.
func (ix *index) throughCommands(n *device.Node) string {
	var above string
	switch n.Subsystem {
	case "scsi_generic", "bsg":
		above = path.Dir(path.Dir(n.SysPath))
	case "nvme":
		above = n.SysPath
	case "nvme-generic":
		above = path.Dir(n.SysPath)
	}
	if n.Type != device.CharNode || n.Hardware == nil || !strings.HasPrefix(above, n.Hardware.Path) {
		return ""
	}
	for _, disk := range n.Hardware.Nodes {
		if disk.Type == device.BlockNode && disk.InUse != "" && strings.HasPrefix(disk.SysPath, above+"/") {
			return disk.InUse
		}
	}
	return ""
}
