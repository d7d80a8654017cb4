package inventory

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path"
	"strconv"
	"strings"

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

// function is a PCI function or sub-function on its bus, as far as it could be read.
type function struct {
	sysfs.Entry
	// PCI has no number of a virtual function: only its physical function has that, see readVirtual.
	device.PCI
	// pfDir is the directory of the physical function of a virtual function.
	pfDir string
	numa  int // -1 if it is unknown
	err   error
}

// auxiliary is the bus of sub-functions.
const auxiliary device.Bus = "auxiliary"

// isSubFunction reports whether name is the name of a sub-function, "mlx5_core.sf.4": driver,
// kind and a number that counts over the machine
// (Documentation/driver-api/auxiliary_bus.rst).
func isSubFunction(name string) bool {
	_, number, isKind := strings.Cut(name, ".sf.")
	return isKind && device.IsDigits(number)
}

// readFunction reads one PCI function or sub-function. ghw identifies the function. ghw's own list of
// functions is not used, because it is empty if one function is unreadable, as in each scan during
// a removal.
func (s *Scanner) readFunction(f *function) {
	if isSubFunction(f.Name) {
		s.readSubFunction(f)
	} else {
		f.err = s.readPCI(f, f.Path)
	}
}

// readPCI reads the attributes of a function that do not change while it has its driver
// (Documentation/ABI/testing/sysfs-bus-pci). Gone reports whether the error means that the function was removed.
func (s *Scanner) readPCI(f *function, dir string) error {
	d := s.sysfs.Dir(dir)
	f.PCI = device.PCI{
		Address:    base(dir),
		Revision:   strings.TrimPrefix(d.Attr("revision"), "0x"),
		Driver:     d.LinkBase("driver"),
		IOMMUGroup: d.LinkBase("iommu_group"),
		SRIOV:      "none",
		VF:         -1,
	}
	f.VFIO = isVFIO(f.Driver)
	f.numa = d.Number("numa_node")
	// The link belongs to the virtual function itself. The kernel announces the physical function only
	// after the last of its virtual functions (sriov_enable in drivers/pci/iov.c).
	if physfn := d.Link("physfn"); physfn != "" {
		f.pfDir = path.Join(dir, physfn)
		f.PF = base(physfn)
		f.SRIOV = "vf"
	} else if d.Number("sriov_totalvfs") > 0 {
		f.SRIOV = "pf"
	}
	// It contains the class and the identifiers of vendor, device and subsystem. The kernel removes a function from
	// the bus first, then its attributes, and this attribute last.
	modalias := d.Attr("modalias")
	err := d.Err()
	if modalias == "" {
		_, onBus := s.sysfs.Device(busDir(device.PCIBus), f.Address)
		err = errors.Join(err, onBus)
	}
	parser, parserErr := s.ghw()
	if parserErr != nil {
		return parserErr
	}
	identified := parser.ParseDevice(f.Address, modalias)
	if identified == nil {
		return cmp.Or(err, fmt.Errorf("modalias: %q has no identifiers", modalias))
	}
	f.Vendor = identified.Vendor.ID
	f.Device = identified.Product.ID
	f.SubVendor = identified.Subsystem.VendorID
	f.SubDevice = identified.Subsystem.ID
	f.Class = identified.Class.ID + identified.Subclass.ID + identified.ProgrammingInterface.ID
	return err
}

// readSubFunction reads a part of a PCI function that has interfaces and nodes of its own,
// like a virtual function, but is on the auxiliary bus
// (Documentation/networking/devlink/devlink-port.rst). It has the identifiers and the NUMA
// node of the function above it.
func (s *Scanner) readSubFunction(f *function) {
	err := s.readPCI(f, up(f.Path))
	d := s.sysfs.Dir(f.Path)
	f.PF = f.Address
	f.pfDir = ""
	f.Address = f.Name
	f.IOMMUGroup = ""
	f.Driver = d.LinkBase("driver")
	f.VFIO = false
	f.SRIOV = "sf"
	f.VF = d.Number("sfnum")
	var onBus error
	if f.VF < 0 {
		_, onBus = s.sysfs.Device(busDir(auxiliary), f.Name)
	}
	f.err = errors.Join(err, d.Err(), onBus)
}

// readFunctions adds every PCI function of the host, and their sub-functions.
func (s *Scanner) readFunctions(c *scan) {
	var functions []function
	for _, e := range c.onBus(device.PCIBus) {
		functions = append(functions, function{Entry: e})
	}
	for _, e := range c.onBus(auxiliary) {
		if isSubFunction(e.Name) && device.IsPCIAddress(base(up(e.Path))) {
			functions = append(functions, function{Entry: e})
		}
	}
	if c.unlisted != nil {
		return // the scan fails, and what is not listed is not forgotten
	}
	// They take most of the time of a scan of a large host.
	inHalves(functions, func(half []function) problems {
		for i := range half {
			s.readFunction(&half[i])
		}
		return nil
	})
	virtual := make(map[string]virtualFunction)
	numbers := make(map[string]map[string]int) // of the virtual functions of each physical function
	for i := range functions {
		f := &functions[i]
		s.readVirtual(c, f, numbers, virtual)
		h := &device.Hardware{
			Bus:  device.PCIBus,
			Path: f.Path,
			Name: f.Name,
			NUMA: f.numa,
			PCI:  &f.PCI,
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
	s.virtual = virtual
}

// virtualFunction is what the scanner remembers of a virtual function.
type virtualFunction struct {
	// inode is the inode of its link on the bus.
	inode  uint64
	pf     string
	number int
}

// readVirtual completes a virtual function, and remembers it in next. The number is only in the name of a link of
// the physical function. The kernel removes both links before it unbinds the driver of a virtual function and
// removes it (pci_iov_remove_virtfn in drivers/pci/iov.c), so that a function that was a virtual one stays one.
func (s *Scanner) readVirtual(c *scan, f *function, numbers map[string]map[string]int, next map[string]virtualFunction) {
	known, isKnown := s.virtual[f.Path]
	if !isKnown && f.pfDir == "" {
		return
	}
	// The links of a virtual function were read before. Its successor comes at least a second later
	// (sriov_disable in drivers/pci/iov.c).
	inode := c.sysfs.Inode(busDir(device.PCIBus), f.Name)
	isSame := isKnown && inode != 0 && known.inode == inode
	if isSame {
		f.SRIOV = "vf"
		f.PF = known.pf
		f.VF = known.number
		next[f.Path] = known
		return
	}
	if f.pfDir == "" {
		return
	}
	if numbers[f.pfDir] == nil {
		numbers[f.pfDir] = c.numbersOfVFs(f.pfDir)
	}
	number, isNumbered := numbers[f.pfDir][f.Path]
	if isNumbered {
		f.VF = number
	}
	if isNumbered && inode != 0 {
		next[f.Path] = virtualFunction{
			inode:  inode,
			pf:     f.PF,
			number: number,
		}
	}
}

// numbersOfVFs returns the numbers of the existing virtual functions of a physical function,
// by directory. The links virtfn0, virtfn1, … contain the numbers.
func (c *scan) numbersOfVFs(dir string) map[string]int {
	targets, err := c.sysfs.LinksWith(dir, "virtfn")
	c.problems.add(dir, err)
	numbers := make(map[string]int, len(targets))
	for digits, function := range targets {
		n, parseErr := strconv.Atoi(digits)
		if parseErr == nil && n >= 0 {
			numbers[function] = n
		}
	}
	return numbers
}

// readMDevs adds the mediated devices of the host (Documentation/driver-api/vfio-mediated-device.rst). Their parents
// are above them in sysfs, so that finish finds them like any other parent.
func (c *scan) readMDevs() {
	for _, e := range c.onBus(device.MDevBus) {
		d := c.sysfs.Dir(e.Path)
		m := &device.MDev{
			UUID:       e.Name,
			Type:       d.LinkBase("mdev_type"),
			IOMMUGroup: d.LinkBase("iommu_group"),
		}
		if m.Type != "" {
			// Types are in the parent device (create_mdev_supported_type in
			// drivers/vfio/mdev/mdev_sysfs.c).
			m.Name = c.attr(up(e.Path)+"/mdev_supported_types/"+m.Type, "name")
		}
		// It was removed after the listing.
		if !c.sysfs.Exists(e.Path) {
			continue
		}
		c.report(d)
		c.add(&device.Hardware{
			Bus:  device.MDevBus,
			Path: e.Path,
			Name: e.Name,
			NUMA: -1,
			MDev: m,
		})
		c.hasMDevs = true
	}
}
