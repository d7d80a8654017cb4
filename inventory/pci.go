package inventory

import (
	"fmt"
	"log/slog"
	"os"
	"strings"

	"github.com/jaypipes/ghw"
	"golang.org/x/sys/unix"

	"github.com/generic-dp/generic-dp/device"
	"github.com/generic-dp/generic-dp/sysfs"
)

// listPCI lists the PCI functions of the host.
func (s *Scanner) listPCI(c *scan) []sysfs.Entry {
	entries, err := s.sysfs.PCI(c.cache.onPCI)
	if notExist(err) {
		return nil
	}
	c.problems.add("bus/pci/devices", err)
	if entries == nil && err != nil {
		c.noBus = append(c.noBus, device.PCIBus)
	}
	if came := updateBus(c.cache.onPCI, entries); !c.full {
		c.cache.drop(came)
	}
	return entries
}

// ghwAnswer is the result of ghw: functions by address.
type ghwAnswer struct {
	found map[string]*device.PCI
	err   error
}

// askGHW asks ghw, while the scan reads the rest. A function that is exchanged meanwhile
// causes an event.
func (s *Scanner) askGHW() <-chan ghwAnswer {
	answer := make(chan ghwAnswer, 1)
	go func() {
		found, err := s.ghw(s.sysfs.Root())
		answer <- ghwAnswer{found, err}
	}()
	return answer
}

// readPCI adds every PCI function of the host. A full scan uses ghw; functions that ghw
// left out, and those added or bound since, are read from sysfs: for a single one that
// is cheaper than ghw, which reads all.
//
// ghw v0.26 returns "no devices" without an error if one of them is unreadable, as in
// each scan that meets a device being removed. So its result is compared with the
// directory, and requested once more.
func (s *Scanner) readPCI(c *scan, entries []sysfs.Entry, answer <-chan ghwAnswer) {
	var found map[string]*device.PCI
	if c.full && len(entries) > 0 {
		// What ghw does not read is read meanwhile.
		for _, e := range entries {
			_, _ = cached(&c.cache.of(e.Path).hasVFs, e.Path, c.sysfs.HasVFs)
			c.numaAt(e.Path)
		}
		a := <-answer
		if a.err != nil || len(a.found) != len(entries) {
			entries = s.listPCI(c)
			a = <-s.askGHW()
		}
		if a.err != nil {
			s.ghwOnce.Do(func() {
				s.log.Warn("ghw can't read the PCI devices: reading sysfs instead", "error", a.err)
			})
		} else if len(a.found) != len(entries) {
			s.log.Debug("ghw left out PCI devices: reading them from sysfs", "found", len(a.found), "devices", len(entries))
		}
		found = a.found
	}
	read := func(dir string) (device.PCI, error) {
		if p := found[base(dir)]; p != nil {
			return *p, nil
		}
		p, err := c.sysfs.PCIFunction(dir)
		if !c.sysfs.Exists(dir) {
			err = unix.ENODEV
		}
		return p, err
	}
	first := len(c.list)
	pfs := make(map[string]*device.Hardware) // by address
	for _, e := range entries {
		f := c.cache.of(e.Path)
		p, err := cached(&f.pci, e.Path, read)
		if sysfs.Gone(err) {
			continue
		}
		c.problems.add(e.Path, err)
		h := &device.Hardware{Bus: device.PCIBus, Path: e.Path, Name: e.Name, NUMA: -1, PCI: &p}
		c.add(h)
		p.SRIOV, p.VF, p.VFIO = "none", -1, isVFIO(p.Driver)
		hasVFs, err := cached(&f.hasVFs, e.Path, c.sysfs.HasVFs)
		c.problems.add(e.Path, err)
		if hasVFs {
			p.SRIOV, pfs[e.Name] = "pf", h
		}
	}
	if len(pfs) > 0 {
		c.virtualFunctions(c.list[first:], pfs)
	}
}

// virtualFunctions fills in PF and VF, which ghw lacks like SRIOV.
func (c *scan) virtualFunctions(functions []*device.Hardware, pfs map[string]*device.Hardware) {
	for _, h := range functions {
		if h.PCI.SRIOV == "pf" {
			continue
		}
		address, err := cached(&c.cache.of(h.Path).physFn, h.Path, c.sysfs.PhysFn)
		c.problems.add(h.Path, err)
		if address == "" {
			continue
		}
		h.PCI.SRIOV, h.PCI.PF = "vf", address
		pf := pfs[address]
		if pf == nil {
			continue
		}
		numbers, err := cached(&c.cache.of(pf.Path).virtFns, pf.Path, c.sysfs.VirtFns)
		c.problems.add(pf.Path, err)
		if n, ok := numbers[h.PCI.Address]; ok {
			h.PCI.VF = n
		}
	}
}

// withoutPCINames keeps ghw from reading a database of PCI names, unless the
// environment names one.
//
// ghw v0.26 reads the database at each call, 12 MB of garbage and 25 ms, and fails on a
// host without one; scans need no names. It ignores its option for a caller's database,
// so that the variable is the only means; it affects the process and its children.
func withoutPCINames() {
	const key = "PCIDB_PATH"
	if os.Getenv(key) == "" {
		// It fails only for malformed keys and values.
		_ = os.Setenv(key, os.DevNull)
	}
}

// ghwPCI returns the PCI functions of ghw below a sysfs root, by address. It imports
// the package ghw, not only its pkg/pci, since the options are of a type in an internal
// package.
//
// Nothing of ghw's result is retained: a device references the whole database. A panic
// is an error: pcidb panics on a malformed database.
func ghwPCI(root string) (found map[string]*device.PCI, err error) {
	defer func() {
		if p := recover(); p != nil {
			found, err = nil, fmt.Errorf("ghw panics: %v", p)
		}
	}()
	info, err := ghw.PCI(
		ghw.WithChroot("/"),
		ghw.WithPathOverrides(ghw.PathOverrides{"/sys": root}),
		// The topology costs 200 more files and is left out on hosts with one node;
		// numa_node has it.
		ghw.WithDisableTopology(),
		ghw.WithDisableTools(),
		ghw.WithLogger(slog.New(slog.DiscardHandler)),
	)
	if err != nil {
		return nil, fmt.Errorf("ghw: %w", err)
	}
	found = make(map[string]*device.PCI, len(info.Devices))
	for _, d := range info.Devices {
		// ghw looks up a subsystem without its vendor and returns another vendor's; the
		// modalias has the IDs of the device.
		subVendor, subDevice := subsystemIDs(d.Modalias)
		found[strings.Clone(d.Address)] = &device.PCI{
			Address:    strings.Clone(d.Address),
			Vendor:     strings.Clone(d.Vendor.ID),
			Device:     strings.Clone(d.Product.ID),
			SubVendor:  subVendor,
			SubDevice:  subDevice,
			Class:      d.Class.ID + d.Subclass.ID + d.ProgrammingInterface.ID,
			Revision:   strings.TrimPrefix(strings.Clone(d.Revision), "0x"),
			Driver:     strings.Clone(d.Driver),
			IOMMUGroup: strings.Clone(d.IOMMUGroup),
		}
	}
	return found, nil
}

// subsystemIDs parses the subsystem IDs in a modalias such as
// "pci:v000010DEd00001C82sv00001043sd00008613bc03sc00i00" (pci_uevent in
// drivers/pci/pci-driver.c); empty for another format.
func subsystemIDs(modalias string) (vendor, device string) {
	const form = "pci:v........d........sv........sd........"
	if len(modalias) < len(form) || modalias[22:24] != "sv" || modalias[32:34] != "sd" {
		return "", ""
	}
	return strings.ToLower(modalias[28:32]), strings.ToLower(modalias[38:42])
}
