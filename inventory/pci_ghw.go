package inventory

import (
	"fmt"
	"log/slog"
	"os"
	"strings"

	"github.com/jaypipes/ghw"

	"github.com/generic-dp/generic-dp/device"
	"github.com/generic-dp/generic-dp/sysfs"
)

// withoutPCINames keeps ghw from looking for a database of PCI names, unless
// the environment names one.
//
// ghw v0.26 reads the database anew at each call, 12 MB of garbage and 25 ms,
// and fails on a host that has none; names are nothing that a scan needs. Its
// option for a database of the caller's own is not looked at, so the variable
// is the only way, and the environment the only place: it is the process's,
// and children inherit it.
func withoutPCINames() {
	const key = "PCIDB_PATH"
	if os.Getenv(key) == "" {
		// It fails for malformed keys and values only.
		_ = os.Setenv(key, os.DevNull)
	}
}

// ghwPCI asks ghw for the PCI functions below a sysfs root, by address. The
// package ghw itself is imported, not its pkg/pci alone, since the options
// are of a type that lives in an internal package.
//
// Nothing of ghw's answer is kept: a device leads to the whole database. A
// panic is an error: pcidb has one for a malformed database.
func ghwPCI(root string) (found map[string]*device.PCI, err error) {
	defer func() {
		if p := recover(); p != nil {
			found, err = nil, fmt.Errorf("ghw panics: %v", p)
		}
	}()
	info, err := ghw.PCI(
		ghw.WithChroot("/"),
		ghw.WithPathOverrides(ghw.PathOverrides{"/sys": root}),
		// The topology is 200 files more, and its answer is left out on
		// hosts of one node; numa_node says it all.
		ghw.WithDisableTopology(),
		ghw.WithDisableTools(),
		ghw.WithLogger(slog.New(slog.DiscardHandler)),
	)
	if err != nil {
		return nil, fmt.Errorf("ghw: %w", err)
	}
	found = make(map[string]*device.PCI, len(info.Devices))
	for _, d := range info.Devices {
		// ghw looks a subsystem up without its vendor and answers another
		// vendor's; the modalias says what the device says.
		ids, _ := sysfs.ParsePCIModalias(d.Modalias)
		found[strings.Clone(d.Address)] = &device.PCI{
			Address:    strings.Clone(d.Address),
			Vendor:     strings.Clone(d.Vendor.ID),
			Device:     strings.Clone(d.Product.ID),
			SubVendor:  strings.Clone(ids.SubVendor),
			SubDevice:  strings.Clone(ids.SubDevice),
			Class:      d.Class.ID + d.Subclass.ID + d.ProgrammingInterface.ID,
			Revision:   strings.TrimPrefix(strings.Clone(d.Revision), "0x"),
			Driver:     strings.Clone(d.Driver),
			IOMMUGroup: strings.Clone(d.IOMMUGroup),
		}
	}
	return found, nil
}
