package inventory

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"os"

	"github.com/jaypipes/ghw"

	"github.com/generic-dp/generic-dp/internal/device"
	"github.com/generic-dp/generic-dp/internal/host/sysfs"
)

// newGHW returns ghw's parser of PCI functions, without those of any host.
//
// ghw v0.26 reads a database of names with each call: 12 MB of garbage and 25 ms. It fails
// on a host without one, and panics on a malformed one. Scans need no names. It ignores
// its option for a caller's database, so that the variable is the only means; it affects
// the process and its children.
func newGHW() (*ghw.PCIInfo, error) {
	// It fails only for malformed keys and values.
	_ = os.Setenv("PCIDB_PATH", os.DevNull)
	info, err := ghw.PCI(
		ghw.WithPathOverrides(ghw.PathOverrides{"/sys": os.DevNull}),
		ghw.WithDisableTopology(),
		ghw.WithDisableTools(),
		ghw.WithLogger(slog.New(slog.DiscardHandler)),
	)
	if err != nil {
		return nil, fmt.Errorf("ghw: %w", err)
	}
	return info, nil
}

// function reads one PCI function, or a sub-function. ghw identifies it. ghw's own list is
// empty if one function is unreadable, as in each scan that meets a removal.
func (s *Scanner) function(dir string) (*sysfs.PCIFunction, error) {
	if sysfs.IsSubFunction(base(dir)) {
		return s.subFunction(dir)
	}
	read, modalias, err := s.sysfs.PCIFunction(dir)
	f := &read
	f.VFIO = isVFIO(f.Driver)
	parser, parserErr := s.ghw()
	if parserErr != nil {
		return f, parserErr
	}
	d := parser.ParseDevice(f.Address, modalias)
	if d == nil {
		return f, cmp.Or(err, fmt.Errorf("modalias: %q has no identifiers", modalias))
	}
	f.Vendor = d.Vendor.ID
	f.Device = d.Product.ID
	f.SubVendor = d.Subsystem.VendorID
	f.SubDevice = d.Subsystem.ID
	f.Class = d.Class.ID + d.Subclass.ID + d.ProgrammingInterface.ID
	return f, err
}

// subFunction reads a part of a PCI function that has interfaces and nodes of its own,
// like a virtual one, but is on the auxiliary bus
// (Documentation/networking/devlink/devlink-port.rst).
func (s *Scanner) subFunction(dir string) (*sysfs.PCIFunction, error) {
	f, err := s.function(up(dir))
	number, driver, ownErr := s.sysfs.SubFunction(dir)
	f.PF, f.Address, f.IOMMUGroup, f.Driver, f.VFIO = f.Address, base(dir), "", driver, false
	f.SRIOV = "sf"
	f.VF = number
	return f, errors.Join(err, ownErr)
}

// readFunctions reads all PCI functions, the bulk of a large host, beside nodes and USB.
// readPCI reads the failed ones again, and reports errors.
func (s *Scanner) readFunctions() *cache {
	c := &scan{cache: newCache()}
	for _, e := range c.onBus(device.PCIBus, s.sysfs.PCI) {
		_, _ = cached(&c.cache.of(e.Path).pci, e.Path, s.function)
	}
	return c.cache
}

// readPCI adds every PCI function of the host.
func (s *Scanner) readPCI(c *scan) {
	var pfs []*device.Hardware
	for _, e := range c.onBus(device.PCIBus, s.sysfs.PCI) {
		f, err := cached(&c.cache.of(e.Path).pci, e.Path, s.function)
		h := &device.Hardware{
			Bus:  device.PCIBus,
			Path: e.Path,
			Name: e.Name,
			NUMA: f.NUMA,
			PCI:  &f.PCI,
		}
		if f.SRIOV == "pf" { // even if it is unread: its virtual functions are not
			pfs = append(pfs, h)
		}
		if sysfs.Gone(err) {
			// Only the check of the link on the bus gives ENOENT: a driver may hold the
			// directory of a removed function for seconds.
			if !notExist(err) && c.sysfs.Exists(e.Path) {
				c.unread[e.Path] = device.UnreadHardware{Path: e.Path}
				c.unreadPCI[e.Path] = h
				c.problems.add(e.Path, fmt.Errorf("%v, although it is on its bus", err))
			}
			continue
		}
		c.problems.add(e.Path, err)
		c.add(h)
	}
	for _, pf := range pfs {
		for dir, n := range fact(c, &c.cache.of(pf.Path).virtFns, pf.Path, c.sysfs.VirtFns) {
			if vf := c.hardware[dir]; vf != nil && vf.PCI != nil {
				p := *vf.PCI
				p.SRIOV = "vf"
				p.PF = pf.Name
				p.VF = n
				vf.PCI = &p
			}
		}
	}
}

// readMDevs adds the mediated devices of the host. Their parents are above them in
// sysfs, so that finish finds them like any other parent.
func (c *scan) readMDevs() {
	for _, e := range c.onBus(device.MDevBus, c.sysfs.MDevs) {
		m, err := c.sysfs.MDev(e.Path)
		if !c.sysfs.Exists(e.Path) {
			continue
		}
		c.problems.add(e.Path, err)
		c.add(&device.Hardware{
			Bus:  device.MDevBus,
			Path: e.Path,
			Name: e.Name,
			NUMA: -1,
			MDev: &m,
		})
		c.hasMDevs = true
	}
}
