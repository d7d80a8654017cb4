package inventory

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"

	"github.com/jaypipes/ghw"

	"github.com/generic-dp/generic-dp/internal/device"
	"github.com/generic-dp/generic-dp/internal/host/sysfs"
)

// newGHW returns ghw's parser of PCI functions, without the functions of a host.
//
// ghw v0.26 reads a database of names with each call, which costs 12 MB of garbage and 25 ms. It
// fails on a host without the database, and panics if the database is malformed. Scans need no
// names. ghw ignores its option for another database, so that only the variable disables it. The
// variable affects the process and its children.
func newGHW() (*ghw.PCIInfo, error) {
	// Setenv only fails for malformed keys and values.
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

// function reads one PCI function or sub-function. ghw identifies the function. ghw's own list of
// functions is not used, because it is empty if one function is unreadable, as in each scan during
// a removal.
func (s *Scanner) function(dir string) (*sysfs.PCIFunction, error) {
	if sysfs.IsSubFunction(base(dir)) {
		return s.subFunction(dir)
	}
	// After an error, the readable part is returned with it.
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
// like a virtual function, but is on the auxiliary bus
// (Documentation/networking/devlink/devlink-port.rst). It has the identifiers and the NUMA
// node of the function above it.
func (s *Scanner) subFunction(dir string) (*sysfs.PCIFunction, error) {
	f, err := s.function(up(dir))
	number, driver, ownErr := s.sysfs.SubFunction(dir)
	f.PF = f.Address
	f.PFDir = ""
	f.Address = base(dir)
	f.IOMMUGroup = ""
	f.Driver = driver
	f.VFIO = false
	f.SRIOV = "sf"
	f.VF = number
	return f, errors.Join(err, ownErr)
}

// functionOnBus is an entry of the bus, and what could be read of its function.
type functionOnBus struct {
	sysfs.Entry
	read *sysfs.PCIFunction
	err  error
}

// readPCI adds every PCI function of the host.
func (s *Scanner) readPCI(c *scan) {
	entries := c.onBus(device.PCIBus, s.sysfs.PCI)
	functions := make([]functionOnBus, len(entries))
	for i, e := range entries {
		functions[i].Entry = e
	}
	// They take most of the time of a scan of a large host.
	inHalves(functions, func(half []functionOnBus) problems {
		for i := range half {
			half[i].read, half[i].err = s.function(half[i].Path)
		}
		return nil
	})
	inodes := make(map[string]uint64, len(entries))
	numbers := make(map[string]map[string]int) // of the virtual functions of each physical function
	for _, f := range functions {
		inodes[f.Path] = f.Ino
		s.readVirtual(c, f, numbers)
		h := &device.Hardware{
			Bus:  device.PCIBus,
			Path: f.Path,
			Name: f.Name,
			NUMA: f.read.NUMA,
			PCI:  &f.read.PCI,
		}
		if !sysfs.Gone(f.err) {
			c.problems.add(f.Path, f.err)
			c.add(h)
			continue
		}
		// Only the check of the link on the bus fails with ENOENT. The directory does not decide,
		// because a driver may hold the directory of a removed function for seconds.
		isRemoved := notExist(f.err) || !c.sysfs.Exists(f.Path)
		if !isRemoved {
			c.unread[f.Path] = device.UnreadHardware{Path: f.Path}
			c.unreadPCI[f.Path] = h
			c.problems.add(f.Path, fmt.Errorf("%v, although it is on its bus", f.err))
		}
	}
	maps.DeleteFunc(s.virtual, func(dir string, v virtualFunction) bool {
		return inodes[dir] != v.inode
	})
}

// virtualFunction is what the scanner remembers of a virtual function.
type virtualFunction struct {
	// inode is the inode of its link on the bus.
	inode  uint64
	pf     string
	number int
}

// readVirtual completes a virtual function. The number is only in the name of a link of the physical
// function. The kernel removes both links before it unbinds the driver of a virtual function and removes
// it (pci_iov_remove_virtfn in drivers/pci/iov.c), so that a function that was a virtual one stays one.
func (s *Scanner) readVirtual(c *scan, f functionOnBus, numbers map[string]map[string]int) {
	p := f.read
	known, isKnown := s.virtual[f.Path]
	isSame := isKnown && f.Ino != 0 && known.inode == f.Ino
	if isSame {
		p.SRIOV = "vf"
		p.PF = known.pf
		p.VF = known.number
		return
	}
	if p.PFDir == "" {
		return
	}
	if numbers[p.PFDir] == nil {
		read, err := c.sysfs.VirtFns(p.PFDir)
		c.problems.add(p.PFDir, err)
		numbers[p.PFDir] = read
	}
	number, isNumbered := numbers[p.PFDir][f.Path]
	if isNumbered {
		p.VF = number
	}
	if isNumbered && f.Ino != 0 {
		s.virtual[f.Path] = virtualFunction{
			inode:  f.Ino,
			pf:     p.PF,
			number: number,
		}
	}
}

// readMDevs adds the mediated devices of the host. Their parents are above them in
// sysfs, so that finish finds them like any other parent.
func (c *scan) readMDevs() {
	for _, e := range c.onBus(device.MDevBus, c.sysfs.MDevs) {
		m, err := c.sysfs.MDev(e.Path)
		// It was removed after the listing.
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
