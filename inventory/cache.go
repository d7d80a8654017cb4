package inventory

import (
	"maps"
	"slices"

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
	dirs map[string]*devDir // directories of device nodes, by path on the host
	// onPCI and onUSB are the devices on a bus, by name.
	onPCI, onUSB map[string]sysfs.Entry
	facts        map[string]*facts // by directory in sysfs
}

// facts are the results for one directory; nil is not read yet.
type facts struct {
	pci       **function
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
		dirs: make(map[string]*devDir), onPCI: make(map[string]sysfs.Entry), onUSB: make(map[string]sysfs.Entry), facts: make(map[string]*facts),
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
	maps.DeleteFunc(c.onPCI, func(_ string, e sysfs.Entry) bool { return covered(e.Path) })
	maps.DeleteFunc(c.onUSB, func(_ string, e sysfs.Entry) bool { return covered(e.Path) })
	maps.DeleteFunc(c.facts, func(dir string, _ *facts) bool { return covered(dir) })
}

// updateBus records the directories of the devices of a bus, and returns the new ones.
func updateBus(known map[string]sysfs.Entry, lists ...[]sysfs.Entry) (came []string) {
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
		return came
	}
	here := make(map[string]bool, n)
	for _, list := range lists {
		for _, e := range list {
			here[e.Name] = true
		}
	}
	maps.DeleteFunc(known, func(name string, _ sysfs.Entry) bool { return !here[name] })
	return came
}
