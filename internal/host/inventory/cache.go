package inventory

import (
	"maps"
	"slices"

	"github.com/generic-dp/generic-dp/internal/device"
	"github.com/generic-dp/generic-dp/internal/host/sysfs"
)

// cache are the results of earlier scans that are still valid. Two mechanisms keep it
// valid: the kernel announces every device that is added, removed or bound, and drop
// removes the results of that device and of everything below it; and each scan still
// reads which devices are on a bus, with the inodes of their links, and which
// directories of nodes have changed, so that a replaced device never has the results of
// its predecessor, even before the events arrive. Where inodes identify nothing, all
// devices of a bus are new in each scan.
//
// Only results of successful reads are cached.
type cache struct {
	dirs  map[string]*devDir                    // directories of device nodes, by path on the host
	onBus map[device.Bus]map[string]sysfs.Entry // devices by name
	facts map[string]*facts                     // by directory in sysfs
}

// facts are the results for one directory; nil is not read yet.
type facts struct {
	pci       **sysfs.PCIFunction
	virtFns   *map[string]int
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

// fact is cached where an error degrades only the directory.
func fact[V any](c *scan, known **V, dir string, read func(string) (V, error)) V {
	v, err := cached(known, dir, read)
	c.problems.add(dir, err)
	return v
}

// cached returns a cached result for a directory, or reads it.
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

func newCache() *cache {
	return &cache{
		dirs: make(map[string]*devDir), onBus: make(map[device.Bus]map[string]sysfs.Entry), facts: make(map[string]*facts),
	}
}

// drop drops the results for the devices with these directories, and for everything
// below them.
func (c *cache) drop(dirs []string) {
	if len(dirs) == 0 {
		return
	}
	stale := make(map[string]bool, len(dirs))
	var lengths []int // of few paths, compared with the directories
	for _, dir := range dirs {
		stale[dir] = true
		if !slices.Contains(lengths, len(dir)) {
			lengths = append(lengths, len(dir))
		}
	}
	covered := func(dir string) bool {
		for _, n := range lengths {
			if n <= len(dir) && (n == len(dir) || dir[n] == '/') && stale[dir[:n]] {
				return true
			}
		}
		return false
	}
	for _, d := range c.dirs {
		for _, n := range d.nodes {
			if covered(n.place.sysPath) {
				n.place = place{}
			}
		}
	}
	maps.DeleteFunc(c.facts, func(dir string, _ *facts) bool {
		return covered(dir)
	})
}

// onBus lists the devices on a bus, and drops the results for the predecessors of new
// ones.
func (c *scan) onBus(bus device.Bus, list func(known map[string]sysfs.Entry) ([]sysfs.Entry, error)) []sysfs.Entry {
	known := c.cache.onBus[bus]
	entries, err := list(known)
	if notExist(err) {
		return nil
	}
	c.problems.add("bus/"+string(bus)+"/devices", err)
	if err != nil && entries == nil {
		c.noBus = append(c.noBus, bus)
	}
	var came []string
	for _, e := range entries {
		if known[e.Name] != e || e.Ino == 0 {
			came = append(came, e.Path)
		}
	}
	if len(came) == 0 && len(known) == len(entries) {
		return entries
	}
	c.cache.drop(came)
	here := make(map[string]sysfs.Entry, len(entries))
	for _, e := range entries {
		here[e.Name] = e
	}
	c.cache.onBus[bus] = here
	return entries
}
