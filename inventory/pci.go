package inventory

import (
	"github.com/generic-dp/generic-dp/device"
	"github.com/generic-dp/generic-dp/sysfs"
)

// readPCI adds every PCI function of the host. What ghw knows comes from ghw;
// the rest, and every function that ghw left out, comes from sysfs.
func (s *Scanner) readPCI(c *scan) {
	entries, err := s.sysfs.PCIAgain(c.mem.pciDirs)
	if notExist(err) {
		return
	}
	if err != nil {
		c.problem("bus/pci/devices", err)
		if entries == nil {
			c.noBus = append(c.noBus, device.PCIBus)
		}
	}
	// One function that came or was bound is cheaper read by itself than by
	// ghw, which reads them all.
	var found map[string]*device.PCI
	if c.whole && len(entries) > 0 {
		found, entries = s.askGHW(entries)
	}
	came, went := nowOnBus(c.mem.pciDirs, entries)
	if !c.whole {
		c.mem.forget(came)
		if went {
			c.mem.forgetVirtual()
		}
	}
	fns := make(map[string]*device.Hardware, len(entries))
	for _, e := range entries {
		p, ok := c.mem.pci[e.Path]
		if !ok {
			if p, ok = c.pciFunction(e, found[e.Name]); !ok {
				continue
			}
		}
		h := &device.Hardware{Bus: device.PCIBus, Path: e.Path, Name: e.Name, NUMA: -1, PCI: &p}
		c.hardware[e.Path] = h
		fns[e.Name] = h
	}
	c.virtualFunctions(fns)
}

// askGHW returns what ghw says of the functions, by address, and the list of
// functions that it is to be compared with.
//
// ghw v0.26 answers "no devices" without an error when one of them can't be
// read, as happens to each scan that meets a device on its way out. So its
// answer is compared with the directory, and asked for once more.
func (s *Scanner) askGHW(entries []sysfs.Entry) (map[string]*device.PCI, []sysfs.Entry) {
	found, err := s.ghw(s.sysfs.Root())
	if err == nil && len(found) == len(entries) {
		return found, entries
	}
	if again, listErr := s.sysfs.PCI(); listErr == nil {
		entries = again
	}
	found, err = s.ghw(s.sysfs.Root())
	if err != nil {
		s.ghwOnce.Do(func() {
			s.log.Warn("ghw can't read the pci devices, reading sysfs instead", "error", err)
		})
	} else if len(found) != len(entries) {
		s.log.Debug("ghw left out pci devices, reading them from sysfs", "found", len(found), "devices", len(entries))
	}
	return found, entries
}

// pciFunction returns what ghw found of a function, or reads it without ghw. It
// reports false for one that has gone.
func (c *scan) pciFunction(e sysfs.Entry, found *device.PCI) (device.PCI, bool) {
	if found != nil {
		c.mem.pci[e.Path] = *found
		return *found, true
	}
	f, err := c.sysfs.PCIFunction(e.Path)
	if !c.sysfs.Exists(e.Path) {
		return device.PCI{}, false
	}
	p := device.PCI{
		Address: e.Name, Vendor: f.Vendor, Device: f.Device, SubVendor: f.SubVendor, SubDevice: f.SubDevice,
		Class: f.Class, Revision: f.Revision, Driver: f.Driver, IOMMUGroup: f.IOMMUGroup,
	}
	if err != nil {
		c.problem(e.Path, err)
	} else {
		c.mem.pci[e.Path] = p
	}
	return p, true
}

// virtualFunctions fills in SRIOV, PF and VF, none of which ghw has.
func (c *scan) virtualFunctions(fns map[string]*device.Hardware) {
	vfs := make(map[string][]*device.PCI)
	for _, h := range fns {
		p := h.PCI
		p.SRIOV, p.VF = "none", -1
		v, err := recall(c.mem.virtual, h.Path, c.virtual)
		switch {
		case v.pf != "":
			p.SRIOV, p.PF = "vf", v.pf
			vfs[v.pf] = append(vfs[v.pf], p)
		case v.total > 0:
			p.SRIOV = "pf"
		}
		if err != nil && !sysfs.Gone(err) {
			c.problem(h.Path, err)
		}
	}
	for pf, list := range vfs {
		h := fns[pf]
		if h == nil {
			continue
		}
		h.PCI.SRIOV = "pf"
		numbers, err := recall(c.mem.virtFns, h.Path, c.sysfs.VirtFns)
		if err != nil && !sysfs.Gone(err) {
			c.problem(h.Path, err)
		}
		for _, p := range list {
			if n, ok := numbers[p.Address]; ok {
				p.VF = n
			}
		}
	}
}

// virtual reads what a function says of virtual functions.
func (c *scan) virtual(dir string) (virtual, error) {
	pf, err := c.sysfs.PhysFn(dir)
	if err != nil || pf != "" {
		return virtual{pf: pf, total: -1}, err
	}
	total, err := c.sysfs.TotalVFs(dir)
	return virtual{total: total}, err
}
