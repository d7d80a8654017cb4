package inventory

import "github.com/generic-dp/generic-dp/device"

// readUse says of block devices what the host itself uses them for.
func (c *scan) readUse([]*device.Node) {}
