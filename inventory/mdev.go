package inventory

// readMDev adds the mediated devices of the host.
func (c *scan) readMDev() {}
