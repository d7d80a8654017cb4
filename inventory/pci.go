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

// readPCI adds every PCI function of the host. A full scan uses ghw; functions that ghw
// left out, and those added or bound since, are read from sysfs: for a single one that
// is cheaper than ghw, which reads all.
func (s *Scanner) readPCI(c *scan) {
	entries, err := s.sysfs.PCI(c.cache.onPCI)
	if notExist(err) {
		return
	}
	c.problems.add("bus/pci/devices", err)
	if entries == nil && err != nil {
		c.noBus = append(c.noBus, device.PCIBus)
	}
	var found map[string]*device.PCI
	if c.full && len(entries) > 0 {
		found, entries = s.askGHW(entries)
	}
	came, went := updateBus(c.cache.onPCI, entries)
	if !c.full {
		c.cache.drop(came)
		if went {
			c.cache.dropVirtual()
		}
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
	fns := make(map[string]*device.Hardware, len(entries))
	for _, e := range entries {
		p, err := c.cache.pci.get(e.Path, read)
		if sysfs.Gone(err) {
			continue
		}
		c.problems.add(e.Path, err)
		fns[e.Name] = &device.Hardware{Bus: device.PCIBus, Path: e.Path, Name: e.Name, NUMA: -1, PCI: &p}
		c.hardware[e.Path] = fns[e.Name]
	}
	c.virtualFunctions(fns)
}

// askGHW returns the functions of ghw, by address, and the list of functions to compare
// them with.
//
// ghw v0.26 returns "no devices" without an error if one of them is unreadable, as in
// each scan that meets a device being removed. So its result is compared with the
// directory, and requested once more.
func (s *Scanner) askGHW(entries []sysfs.Entry) (map[string]*device.PCI, []sysfs.Entry) {
	found, err := s.ghw(s.sysfs.Root())
	if err == nil && len(found) == len(entries) {
		return found, entries
	}
	if again, listErr := s.sysfs.PCI(nil); listErr == nil {
		entries = again
	}
	found, err = s.ghw(s.sysfs.Root())
	if err != nil {
		s.ghwOnce.Do(func() {
			s.log.Warn("ghw can't read the PCI devices: reading sysfs instead", "error", err)
		})
	} else if len(found) != len(entries) {
		s.log.Debug("ghw left out PCI devices: reading them from sysfs", "found", len(found), "devices", len(entries))
	}
	return found, entries
}

// virtualFunctions fills in SRIOV, PF and VF, which ghw lacks.
func (c *scan) virtualFunctions(fns map[string]*device.Hardware) {
	vfs := make(map[string][]*device.PCI)
	for _, h := range fns {
		p := h.PCI
		p.SRIOV, p.VF = "none", -1
		pf, err := c.cache.physFns.get(h.Path, c.sysfs.PhysFn)
		c.problems.add(h.Path, err)
		if pf != "" {
			p.SRIOV, p.PF = "vf", pf
			vfs[pf] = append(vfs[pf], p)
			continue
		}
		hasVFs, err := c.cache.hasVFs.get(h.Path, c.sysfs.HasVFs)
		c.problems.add(h.Path, err)
		if hasVFs {
			p.SRIOV = "pf"
		}
	}
	for pf, list := range vfs {
		h := fns[pf]
		if h == nil {
			continue
		}
		h.PCI.SRIOV = "pf"
		numbers, err := c.cache.virtFns.get(h.Path, c.sysfs.VirtFns)
		c.problems.add(h.Path, err)
		for _, p := range list {
			if n, ok := numbers[p.Address]; ok {
				p.VF = n
			}
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
