package inventory

import (
	"strconv"
	"strings"

	"github.com/generic-dp/generic-dp/device"
)

// scsiIndex returns the place of a SCSI device at its controller, -1 for what
// is none. Names don't say it: the letters of disks are given out in the order
// in which the disks answer. The address in the path,
// ".../target6:0:1/6:0:1:2", has the number of the host, which the kernel
// counts over the machine, channel, target and LUN. Each port of an ATA
// controller is a host of its own, and knows its number.
//
// The index of target 1, LUN 2 is 1002; the port of an ATA controller is added,
// from 0. So it is the LUN for USB sticks and the port for ATA disks.
func (c *scan) scsiIndex(n *device.Node) (int, error) {
	ata := ""
	for rest := n.SysPath[len(n.Hardware.Path):]; rest != ""; {
		var name string
		name, rest, _ = strings.Cut(strings.TrimPrefix(rest, "/"), "/")
		if number, ok := strings.CutPrefix(name, "ata"); ok && isDigits(number) {
			ata = n.SysPath[:len(n.SysPath)-len(rest)-1]
		}
		target, lun, ok := scsiAddress(name)
		if !ok {
			continue
		}
		port := 0
		if ata != "" {
			var err error
			if port, err = recall(c.mem.indexes, ata, c.sysfs.ATAPort); port < 1 {
				return -1, err
			}
			port--
		}
		return 1000*target + lun + port, nil
	}
	return -1, nil
}

// scsiAddress takes target and LUN out of the name of a SCSI device,
// "6:0:1:2". What would not fit into an index is none: disks of large arrays.
func scsiAddress(name string) (target, lun int, ok bool) {
	parts := strings.Split(name, ":")
	if len(parts) != 4 {
		return 0, 0, false
	}
	for _, p := range parts {
		if !isDigits(p) {
			return 0, 0, false
		}
	}
	target, err := strconv.Atoi(parts[2])
	lun, lunErr := strconv.Atoi(parts[3])
	return target, lun, err == nil && lunErr == nil && target < 1000 && lun < 1000
}
