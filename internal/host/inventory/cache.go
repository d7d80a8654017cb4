package inventory

import (
	"maps"
	"slices"

	"github.com/generic-dp/generic-dp/internal/device"
	"github.com/generic-dp/generic-dp/internal/host/sysfs"
)

// cache are the results of earlier scans that are still valid. Two mechanisms keep it valid:
//
//   - The kernel announces every device that is added, removed or bound. drop removes the results
//     of the device and of everything below it.
//   - Each scan lists the devices on a bus with the inodes of their links, and checks which
//     directories of nodes have changed. A replaced device therefore never has the results of
//     its predecessor, even before the events arrive. Where inodes do not identify files, all
//     devices of a bus are new in each scan.
//
// Only results of successful reads are cached.
type cache struct {
	dirs  map[string]*devDir                    // directories of device nodes, by path on the host
	onBus map[device.Bus]map[string]sysfs.Entry // devices by name
	facts map[string]*facts                     // by directory in sysfs
}

// facts are the results for one directory. A result is nil if it was not read yet. The fields are
// pointers, so that a known empty value differs from a value that was not read.
type facts struct {
	pci       **sysfs.PCIFunction
	usb       *device.USBInterface
	subsystem *string
	numa      *int
	index     *int
	devName   *string
	firmware  *string
	label     *string
	wwid      *string
}

// of returns the facts of a directory.
func (c *cache) of(dir string) *facts {
	f := c.facts[dir]
	if f == nil {
		f = new(facts)
		c.facts[dir] = f
	}
	return f
}

// fact is like cached, and records an error as a problem of the directory. It returns the zero
// value of V, or what could be read, after an error.
func fact[V any](c *scan, known **V, dir string, read func(string) (V, error)) V {
	v, err := cached(known, dir, read)
	c.problems.add(dir, err)
	return v
}

// cached returns the known result for a directory, or reads it. An error is not kept: the next scan
// reads again.
func cached[V any](known **V, dir string, read func(string) (V, error)) (V, error) {
	if *known != nil {
		return **known, nil
	}
	v, err := read(dir)
	if err == nil {
		*known = &v
	}
	return v, err
}

// newCache returns an empty cache, with which a scan reads everything.
func newCache() *cache {
	return &cache{
		dirs:  make(map[string]*devDir),
		onBus: make(map[device.Bus]map[string]sysfs.Entry),
		facts: make(map[string]*facts),
	}
}

// add adds the results of another scan for buses and directories in sysfs.
func (c *cache) add(other *cache) {
	maps.Copy(c.onBus, other.onBus)
	maps.Copy(c.facts, other.facts)
}

// drop drops the results for the devices with these directories, and for everything
// below them.
func (c *cache) drop(dirs []string) {
	if len(dirs) == 0 {
		return
	}
	// A change of a device also affects everything below it, for example its name or its driver.
	stale := newSubtrees(dirs)
	for _, d := range c.dirs {
		for _, n := range d.nodes {
			if stale.contain(n.place.sysPath) {
				n.place = place{}
			}
		}
	}
	maps.DeleteFunc(c.facts, func(dir string, _ *facts) bool {
		return stale.contain(dir)
	})
}

// subtrees are directories with everything below them.
type subtrees struct {
	tops map[string]bool
	// lengths are the different lengths of tops. There are only a few, so that contain looks up
	// few prefixes of a path.
	lengths []int
}

// newSubtrees returns the subtrees of these directories, which have no slash at the end.
func newSubtrees(dirs []string) subtrees {
	s := subtrees{tops: make(map[string]bool, len(dirs))}
	for _, dir := range dirs {
		s.tops[dir] = true
		if !slices.Contains(s.lengths, len(dir)) {
			s.lengths = append(s.lengths, len(dir))
		}
	}
	return s
}

// contain reports whether a directory is in one of the subtrees.
func (s subtrees) contain(dir string) bool {
	for _, n := range s.lengths {
		if n > len(dir) {
			continue
		}
		isPrefix := n == len(dir) || dir[n] == '/'
		if isPrefix && s.tops[dir[:n]] {
			return true
		}
	}
	return false
}

// lister lists the devices on a bus. It does not read the links of known devices again.
type lister func(known map[string]sysfs.Entry) ([]sysfs.Entry, error)

// onBus lists the devices on a bus. It drops the results for a device that was replaced. A bus that
// the kernel does not have has no devices.
func (c *scan) onBus(bus device.Bus, list lister) []sysfs.Entry {
	known := c.cache.onBus[bus]
	entries, err := list(known)
	if notExist(err) {
		return nil
	}
	c.problems.add("bus/"+string(bus)+"/devices", err)
	// Nodes of devices on such a bus are left out, see leaveOut.
	if err != nil && entries == nil {
		c.noBus = append(c.noBus, bus)
	}
	var added []string
	for _, e := range entries {
		if known[e.Name] != e || e.Ino == 0 {
			added = append(added, e.Path)
		}
	}
	// Nothing was added, and an equal number means that nothing was removed.
	if len(added) == 0 && len(known) == len(entries) {
		return entries
	}
	c.cache.drop(added)
	byName := make(map[string]sysfs.Entry, len(entries))
	for _, e := range entries {
		byName[e.Name] = e
	}
	c.cache.onBus[bus] = byName
	return entries
}
