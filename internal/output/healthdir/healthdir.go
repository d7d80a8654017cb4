// Package healthdir maintains a directory for each device whose containers want one. A container
// sees the directory. The file "healthy" is in it while the device works and is where it was when
// the container started.
//
// A directory is never replaced while a container may have it mounted, because the container
// would go on to see the old one. Therefore it exists as long as its device is listed or held.
package healthdir

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/generic-dp/generic-dp/internal/device"
	"github.com/generic-dp/generic-dp/internal/output"
	"github.com/generic-dp/generic-dp/internal/sys/files"
)

// healthyName is the file that says that a device is healthy.
const healthyName = "healthy"

// Options are the options of Dirs.
type Options struct {
	// Dir contains one directory for each device.
	Dir string
	// Local returns the path at which this process finds a path of the host.
	Local func(host string) string
	// Now is the clock.
	Now func() time.Time
	// Hold is the minimum time for which a directory shows a loss.
	Hold time.Duration
	// Changed is called when the next Plan has to make the file "healthy" of a directory.
	Changed func()
}

// Dirs are the directories of all devices. They are safe for concurrent use.
type Dirs struct {
	Options

	mu sync.Mutex
	// known has the devices with a directory, by ID.
	known map[string]*device.Health
}

// New returns Dirs without directories. Restore adds the directories of an earlier instance.
func New(o Options) *Dirs {
	return &Dirs{
		Options: o,
		known:   map[string]*device.Health{},
	}
}

// Restore adds the devices that an earlier instance saved, by ID, and those whose directories it left
// without saving them. After a reboot every container has restarted, so that the nodes of a device
// are no longer the ones that a container has. What is not the directory of a device is removed.
func (d *Dirs) Restore(saved map[string]device.Health, rebooted bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	now := d.Now()
	// The saved state knows more than the directories, so it comes first.
	for id, s := range saved {
		if device.ValidID(id) {
			d.restoreSaved(id, s, rebooted, now)
		}
	}
	entries, _ := os.ReadDir(d.Dir) // a missing directory has no entries
	for _, e := range entries {
		name := e.Name()
		if device.ValidID(name) {
			d.restoreDir(name, now)
		} else {
			_ = os.RemoveAll(d.Path(name))
		}
	}
}

// restoreSaved adds a saved device. If the device is known, it only takes over a later loss.
func (d *Dirs) restoreSaved(id string, saved device.Health, rebooted bool, now time.Time) {
	if have := d.known[id]; have != nil {
		if saved.Lost.After(have.Lost) {
			have.Lost = saved.Lost
		}
		return
	}
	if rebooted {
		saved = device.Health{}
	}
	if saved.Lost.After(now) {
		saved.Lost = now // the clock was set back
	}
	d.known[id] = &saved
}

// restoreDir adds the device of a directory that no state has. Whether the device was lost
// before is unknown: without the file "healthy" it counts as lost just now.
func (d *Dirs) restoreDir(id string, now time.Time) {
	if d.known[id] != nil {
		return
	}
	_, err := os.Lstat(d.healthyFile(id))
	if err == nil {
		d.known[id] = &device.Health{Healthy: true}
	} else {
		d.known[id] = &device.Health{Lost: now}
	}
}

// Save returns the devices for the next instance, by ID.
func (d *Dirs) Save() map[string]device.Health {
	d.mu.Lock()
	defer d.mu.Unlock()
	all := make(map[string]device.Health, len(d.known))
	for id, s := range d.known {
		all[id] = *s
	}
	return all
}

// Make makes a directory that Path has returned, for a container that gets the device. It exists already
// unless Plan has just begun to list the device.
func (d *Dirs) Make(path string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	id := filepath.Base(path)
	s := d.known[id]
	if s == nil {
		s = &device.Health{}
		d.known[id] = s
	}
	plan := files.Plan{
		Label: "--run-dir",
		Dirs:  []string{path},
	}
	if d.isShown(*s, d.Now()) {
		plan.Missing = append(plan.Missing, d.healthy(id))
	}
	return plan.Make()
}

// PlanRemoval returns the removal of "healthy" from the directories of devices that are lost or do
// not work. It records nothing: it is for the time before links and specs are made, which may
// fail for further devices.
func (d *Dirs) PlanRemoval(devices []output.Device) files.Plan {
	d.mu.Lock()
	defer d.mu.Unlock()
	byID := byID(devices)
	now := d.Now()
	plan := files.Plan{Label: "--run-dir"}
	for id, s := range d.known {
		next := d.next(*s, byID[id], now)
		if !d.isShown(next, now) {
			plan.Stale = append(plan.Stale, d.healthyFile(id))
		}
	}
	return plan
}

// Plan records the state of the devices and returns what to change: "healthy" is stale in the
// directories of devices that are lost or do not work. It is missing where the device is back
// and the hold after the loss has expired. due is when the next hold expires, the zero time
// if none does.
func (d *Dirs) Plan(devices []output.Device) (plan files.Plan, due time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, v := range devices {
		isNew := d.known[v.Offer.ID] == nil
		if isNew && v.Offer.HealthDir != "" {
			d.known[v.Offer.ID] = &device.Health{}
		}
	}
	byID := byID(devices)
	now := d.Now()
	plan.Label = "--run-dir"
	for id, s := range d.known {
		*s = d.next(*s, byID[id], now)
		plan.Dirs = append(plan.Dirs, d.Path(id))
		if d.isShown(*s, now) {
			s.Lost = time.Time{}
			plan.Missing = append(plan.Missing, d.healthy(id))
			continue
		}
		plan.Stale = append(plan.Stale, d.healthyFile(id))
		end := s.Lost.Add(d.Hold)
		// For an unhealthy device, an event says when it works again.
		isNext := due.IsZero() || end.Before(due)
		if s.Healthy && isNext {
			due = end
		}
	}
	return plan, due
}

// MakePlanned makes what a plan of Plan lacks. Make may be called for the same files at the same time.
func (d *Dirs) MakePlanned(plan files.Plan) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return plan.Make()
}

// Sweep removes the directories of devices that are neither listed nor held.
func (d *Dirs) Sweep(devices []output.Device, mayBeHeld func(id string) bool) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	byID := byID(devices)
	plan := files.Plan{Label: "--run-dir"}
	for id := range d.known {
		isListed := byID[id] != nil
		if !isListed && !mayBeHeld(id) {
			plan.StaleTrees = append(plan.StaleTrees, d.Path(id))
			delete(d.known, id)
		}
	}
	return plan.Remove()
}

// byID returns the devices by ID.
func byID(devices []output.Device) map[string]*output.Device {
	found := make(map[string]*output.Device, len(devices))
	for i := range devices {
		found[devices[i].Offer.ID] = &devices[i]
	}
	return found
}

// isShown reports whether the file "healthy" should exist.
func (d *Dirs) isShown(s device.Health, now time.Time) bool {
	isHeldBack := !s.Lost.IsZero() && now.Before(s.Lost.Add(d.Hold))
	return s.Healthy && !isHeldBack
}

// next returns the next state of a device, which is nil if it is not listed. The device is healthy if it
// is present with all nodes and works. A device that the configuration no longer lists counts as healthy
// while its nodes are in place: nobody checks it any more, but its container still has it. Lost is updated
// when the device stops being healthy, and when a node is no longer the one that the container has.
func (d *Dirs) next(s device.Health, v *output.Device, now time.Time) device.Health {
	isInPlace := d.inPlace(s.Nodes)
	isPresent := v != nil && v.Present
	isUnlisted := isInPlace && len(s.Nodes) > 0
	wasHealthy := s.Healthy
	switch {
	case isPresent:
		nodes, isComplete := d.nodes(v.Offer)
		s.Nodes = nodes
		stillWorks := s.Healthy && v.Pending // no check has failed so far
		s.Healthy = isComplete && (v.Works || stillWorks)
	case isUnlisted:
		s.Healthy = true
	default:
		s.Nodes = nil
		s.Healthy = false
	}
	// A device that stays unhealthy keeps the time at which it was lost.
	wasLost := wasHealthy && !s.Healthy
	if wasLost || !isInPlace {
		s.Lost = now
	}
	return s
}

// Path is the path of the directory of a device.
func (d *Dirs) Path(id string) string { return filepath.Join(d.Dir, id) }

// healthyFile is the path of the file "healthy" of a device.
func (d *Dirs) healthyFile(id string) string {
	return filepath.Join(d.Path(id), healthyName)
}

// healthy is the file "healthy" of a device, for a plan.
func (d *Dirs) healthy(id string) files.File {
	return files.File{
		Path: d.healthyFile(id),
		Mode: 0o444,
	}
}

// nodes identifies the nodes of a device by path, and reports whether all of them exist.
func (d *Dirs) nodes(o *device.Offer) (map[string]string, bool) {
	nodes := map[string]string{}
	isComplete := true
	for _, n := range o.Nodes {
		node := d.node(n.HostPath)
		if node == "" {
			isComplete = false
			continue
		}
		nodes[n.HostPath] = node
	}
	return nodes, isComplete
}

// inPlace reports whether the nodes at these paths are still the same nodes.
func (d *Dirs) inPlace(nodes map[string]string) bool {
	for path, node := range nodes {
		if d.node(path) != node {
			return false
		}
	}
	return true
}

// node identifies the node at a path by its device number and inode, and returns "" if there is no
// node. devtmpfs gives a node that the kernel made again another inode. A container has the old
// node, and cannot use the new device through it.
func (d *Dirs) node(path string) string {
	var stat unix.Stat_t
	if err := unix.Lstat(d.Local(path), &stat); err != nil {
		return ""
	}
	number := uint64(stat.Rdev)
	return fmt.Sprintf("%d:%d %d", unix.Major(number), unix.Minor(number), stat.Ino)
}
