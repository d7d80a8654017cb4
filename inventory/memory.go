package inventory

import (
	"maps"

	"github.com/generic-dp/generic-dp/device"
	"github.com/generic-dp/generic-dp/sysfs"
)

// memory is what earlier scans read and nothing has made doubtful since. Two
// things keep it true: the kernel tells of every device that comes, goes or is
// bound, and forget takes out what was read of that device and of all below it;
// and each scan still reads which devices are on a bus, with the inodes of their
// links, and which directories of nodes have changed, so that a device that took
// another one's place is never shown with the other one's readings, whatever
// events are yet to come.
//
// Only what was read without an error is kept. Keys are directories in sysfs
// where nothing else is said.
type memory struct {
	dirs   map[string]*devDir // directories of device nodes, by path on the host
	places map[string]place   // of nodes, by path on the host

	pciDirs, usbDirs map[string]sysfs.Entry // by name on the bus
	pci              map[string]device.PCI
	virtual          map[string]virtual
	virtFns          map[string]map[string]int // numbers of virtual functions by address
	interfaces       map[string]sysfs.USBInterface

	subsystems map[string]string
	numa       map[string]int
	indexes    map[string]int // of nodes, by the directory that has the attribute
	devNames   map[string]string
}

// place is where in sysfs a node is.
type place struct {
	id                 nodeID
	sysPath, subsystem string
}

// virtual is what a PCI function says of virtual functions.
type virtual struct {
	pf    string // address of the physical function, of a virtual one
	total int    // of virtual functions it can have; -1: it is none that has any
}

func newMemory() *memory {
	return &memory{
		dirs: make(map[string]*devDir), places: make(map[string]place),
		pciDirs: make(map[string]sysfs.Entry), usbDirs: make(map[string]sysfs.Entry),
		pci: make(map[string]device.PCI), virtual: make(map[string]virtual), virtFns: make(map[string]map[string]int),
		interfaces: make(map[string]sysfs.USBInterface),
		subsystems: make(map[string]string), numa: make(map[string]int), indexes: make(map[string]int), devNames: make(map[string]string),
	}
}

// recall returns what is known of a directory, or reads it.
func recall[V any](known map[string]V, dir string, read func(string) (V, error)) (V, error) {
	if v, ok := known[dir]; ok {
		return v, nil
	}
	v, err := read(dir)
	if err == nil {
		known[dir] = v
	}
	return v, err
}

// forget drops what is known of the devices that have these directories and of
// all that is below them.
func (m *memory) forget(dirs []string) {
	if len(dirs) == 0 {
		return
	}
	told := make(map[string]bool, len(dirs))
	for _, dir := range dirs {
		told[dir] = true
	}
	covered := func(dir string) bool {
		for ; dir != ""; dir = up(dir) {
			if told[dir] {
				return true
			}
		}
		return false
	}
	for _, dir := range dirs {
		if bus, of := busDevice(dir); bus == device.PCIBus && of == dir {
			// Functions know of each other: the links between a physical
			// function and its virtual ones are made after the event of the
			// latter, and told of by an event of the former (sriov_enable and
			// sriov_numvfs_store in drivers/pci).
			m.forgetVirtual()
		}
	}
	maps.DeleteFunc(m.places, func(_ string, p place) bool { return covered(p.sysPath) })
	for _, byName := range []map[string]sysfs.Entry{m.pciDirs, m.usbDirs} {
		maps.DeleteFunc(byName, func(_ string, e sysfs.Entry) bool { return covered(e.Path) })
	}
	forgetIn(m.pci, covered)
	forgetIn(m.interfaces, covered)
	forgetIn(m.subsystems, covered)
	forgetIn(m.numa, covered)
	forgetIn(m.indexes, covered)
	forgetIn(m.devNames, covered)
}

func forgetIn[V any](known map[string]V, covered func(string) bool) {
	maps.DeleteFunc(known, func(dir string, _ V) bool { return covered(dir) })
}

func (m *memory) forgetVirtual() {
	clear(m.virtual)
	clear(m.virtFns)
}

// nowOnBus takes down where the devices of a bus are. It returns the
// directories of those that were not there before, and whether others have gone.
func nowOnBus(known map[string]sysfs.Entry, lists ...[]sysfs.Entry) (came []string, went bool) {
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
