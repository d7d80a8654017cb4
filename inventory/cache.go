package inventory

import (
	"maps"

	"github.com/generic-dp/generic-dp/device"
	"github.com/generic-dp/generic-dp/sysfs"
)

// cache are the results of earlier scans that are still valid. Two mechanisms keep it
// valid: the kernel announces every device that is added, removed or bound, and drop
// removes the results of that device and of everything below it; and each scan still
// reads which devices are on a bus, with the inodes of their links, and which
// directories of nodes have changed, so that a replaced device never has the results of
// its predecessor, even before the events arrive.
//
// Only results of successful reads are cached.
type cache struct {
	dirs   map[string]*devDir // directories of device nodes, by path on the host
	places map[string]place   // of nodes, by path on the host
	// onPCI and onUSB are the devices on a bus, by name.
	onPCI, onUSB map[string]sysfs.Entry

	pci        memo[device.PCI]
	physFns    memo[string]
	hasVFs     memo[bool]
	virtFns    memo[map[string]int]
	interfaces memo[device.USBInterface]
	subsystems memo[string]
	numa       memo[int]
	indexes    memo[int]
	devNames   memo[string]
	firmware   memo[string]
	labels     memo[string]
	wwids      memo[string]
}

// memo are the results for directories in sysfs.
type memo[V any] map[string]V

// get returns the cached result for a directory, or reads it.
func (m memo[V]) get(dir string, read func(string) (V, error)) (V, error) {
	if v, ok := m[dir]; ok {
		return v, nil
	}
	v, err := read(dir)
	if err == nil {
		m[dir] = v
	}
	return v, err
}

func (m memo[V]) drop(covered func(dir string) bool) {
	maps.DeleteFunc(m, func(dir string, _ V) bool { return covered(dir) })
}

// place is the directory of a node in sysfs.
type place struct {
	id                 nodeID
	sysPath, subsystem string
}

func newCache() *cache {
	return &cache{
		dirs: make(map[string]*devDir), places: make(map[string]place),
		onPCI: make(map[string]sysfs.Entry), onUSB: make(map[string]sysfs.Entry),
		pci: make(memo[device.PCI]), physFns: make(memo[string]), hasVFs: make(memo[bool]), virtFns: make(memo[map[string]int]),
		interfaces: make(memo[device.USBInterface]),
		subsystems: make(memo[string]), numa: make(memo[int]), indexes: make(memo[int]), devNames: make(memo[string]),
		firmware: make(memo[string]), labels: make(memo[string]), wwids: make(memo[string]),
	}
}

// drop drops the results for the devices with these directories, and for everything
// below them.
func (c *cache) drop(dirs []string) {
	if len(dirs) == 0 {
		return
	}
	stale := make(map[string]bool, len(dirs))
	for _, dir := range dirs {
		stale[dir] = true
		if bus, of := busDevice(dir); bus == device.PCIBus && of == dir {
			// Functions refer to each other: the links between a physical function and
			// its virtual ones are made after the event of the latter, and announced by
			// an event of the former (sriov_enable and sriov_numvfs_store in
			// drivers/pci).
			c.dropVirtual()
		}
	}
	covered := func(dir string) bool {
		for ; dir != ""; dir = up(dir) {
			if stale[dir] {
				return true
			}
		}
		return false
	}
	maps.DeleteFunc(c.places, func(_ string, p place) bool { return covered(p.sysPath) })
	maps.DeleteFunc(c.onPCI, func(_ string, e sysfs.Entry) bool { return covered(e.Path) })
	maps.DeleteFunc(c.onUSB, func(_ string, e sysfs.Entry) bool { return covered(e.Path) })
	c.pci.drop(covered)
	c.interfaces.drop(covered)
	c.subsystems.drop(covered)
	c.numa.drop(covered)
	c.indexes.drop(covered)
	c.devNames.drop(covered)
	c.firmware.drop(covered)
	c.labels.drop(covered)
	c.wwids.drop(covered)
}

func (c *cache) dropVirtual() {
	clear(c.physFns)
	clear(c.hasVFs)
	clear(c.virtFns)
}

// updateBus records the directories of the devices of a bus. It returns the new
// directories, and whether others have gone.
func updateBus(known map[string]sysfs.Entry, lists ...[]sysfs.Entry) (came []string, went bool) {
	n := 0
	for _, list := range lists {
		n += len(list)
		for _, e := range list {
			if known[e.Name] != e {
				known[e.Name] = e
				came = append(came, e.Path)
			}
		}
	}
	if len(known) == n {
		return came, false
	}
	here := make(map[string]bool, n)
	for _, list := range lists {
		for _, e := range list {
			here[e.Name] = true
		}
	}
	maps.DeleteFunc(known, func(name string, _ sysfs.Entry) bool { return !here[name] })
	return came, true
}
