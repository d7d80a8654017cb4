package output

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/generic-dp/generic-dp/internal/device"
	"github.com/generic-dp/generic-dp/internal/order"
	"github.com/generic-dp/generic-dp/internal/sys/files"
)

// healthyName is the file that says that a device is healthy.
const healthyName = "healthy"

// Health maintains a directory for each device whose containers want one. A container sees the
// directory. The file "healthy" is in it while the device works and is where it was when the container
// started.
//
// A directory is never replaced while a container may have it mounted, because the container
// would go on to see the old one. Therefore it exists as long as its device is listed or held.
//
// Health is safe for concurrent use.
type Health struct {
	// Dir contains one directory for each device.
	Dir string
	// Local returns the path at which this process finds a path of the host.
	Local func(host string) string
	// Now is the clock.
	Now func() time.Time
	// Hold is the minimum time for which a directory shows a loss.
	Hold time.Duration
	// Off is set if nobody keeps directories up to date.
	Off bool

	mu sync.Mutex
	// known has the devices with a directory, by ID.
	known map[string]*device.Health
}

// Restore begins with the devices that an earlier instance saved, by ID, and those whose directories it
// left without saving them. After a reboot every container has restarted, so that the nodes of a device
// are no longer the ones that a container has. What is not the directory of a device is removed.
func (d *Health) Restore(saved map[string]device.Health, rebooted bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	now := d.Now()
	d.known = map[string]*device.Health{}
	for id, s := range saved {
		if !device.ValidID(id) {
			continue
		}
		if rebooted {
			s = device.Health{}
		}
		if s.Lost.After(now) {
			s.Lost = now // the clock was set back
		}
		d.known[id] = &s
	}
	entries, _ := os.ReadDir(d.Dir) // a missing directory has no entries
	for _, e := range entries {
		id := e.Name()
		if !device.ValidID(id) {
			_ = os.RemoveAll(d.Path(id))
			continue
		}
		if d.known[id] != nil {
			continue
		}
		// Without the file "healthy" the device counts as lost just now.
		if _, err := os.Lstat(d.healthyFile(id)); err == nil {
			d.known[id] = &device.Health{Healthy: true}
		} else {
			d.known[id] = &device.Health{Lost: now}
		}
	}
}

// Save returns the devices for the next instance, by ID.
func (d *Health) Save() map[string]device.Health {
	d.mu.Lock()
	defer d.mu.Unlock()
	all := make(map[string]device.Health, len(d.known))
	for id, s := range d.known {
		all[id] = *s
	}
	return all
}

// Make makes a directory that Path has returned, for a container that gets the device. It exists already
// unless Withdraw has just begun to list the device.
func (d *Health) Make(path string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	id := filepath.Base(path)
	s := d.known[id]
	if s == nil {
		s = &device.Health{}
		d.known[id] = s
	}
	plan := files.Plan{Label: "--run-dir"}
	d.show(&plan, id)
	return plan.Make()
}

// Withdraw records the state of the devices, and removes "healthy" from the directories of devices that
// are lost or do not work. Directories of devices that are neither listed nor held are removed. due is
// when the next hold expires, the zero time if none does.
//
// It is called before the lists are published: nothing may look healthy in a container that the kubelet
// sees as Unhealthy.
func (d *Health) Withdraw(devices []Device, mayBeHeld func(id string) bool) (due time.Time, err error) {
	if d.Off {
		return time.Time{}, nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	listed := make(map[string]*Device, len(devices))
	for i := range devices {
		v := &devices[i]
		id := v.Offer.ID
		listed[id] = v
		if d.known[id] == nil && v.Offer.HealthDir != "" {
			d.known[id] = &device.Health{}
		}
	}
	now := d.Now()
	plan := files.Plan{Label: "--run-dir"}
	for id, s := range d.known {
		if listed[id] == nil && !mayBeHeld(id) {
			plan.StaleTrees = append(plan.StaleTrees, d.Path(id))
			delete(d.known, id)
			continue
		}
		*s = d.next(*s, listed[id], now)
		if d.isShown(*s, now) {
			continue
		}
		plan.Stale = append(plan.Stale, d.healthyFile(id))
		// For an unhealthy device, an event says when it works again.
		if s.Healthy {
			due = order.Earliest(due, s.Lost.Add(d.Hold))
		}
	}
	return due, plan.Remove()
}

// Show makes the directories, and "healthy" where Withdraw has found that the device is back and the hold
// after its loss has expired. It is called after the lists are published: a container may use a device
// only after the kubelet knows that it is Healthy again.
func (d *Health) Show() error {
	if d.Off {
		return nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	plan := files.Plan{Label: "--run-dir"}
	for id := range d.known {
		d.show(&plan, id)
	}
	return plan.Make()
}

// show adds the directory of a device to a plan, and the file "healthy" if it should exist.
func (d *Health) show(plan *files.Plan, id string) {
	s := d.known[id]
	plan.Dirs = append(plan.Dirs, d.Path(id))
	if !d.isShown(*s, d.Now()) {
		return
	}
	s.Lost = time.Time{}
	plan.Missing = append(plan.Missing, files.File{
		Path: d.healthyFile(id),
		Mode: 0o444,
	})
}

// isShown reports whether the file "healthy" should exist.
func (d *Health) isShown(s device.Health, now time.Time) bool {
	isHeldBack := !s.Lost.IsZero() && now.Before(s.Lost.Add(d.Hold))
	return s.Healthy && !isHeldBack
}

// next returns the next state of a device, which is nil if it is not listed. The device is healthy if it
// is present with all nodes and works. A device that the configuration no longer lists counts as healthy
// while its nodes are in place: nobody checks it any more, but its container still has it. Lost is updated
// when the device stops being healthy, and when a node is no longer the one that the container has.
func (d *Health) next(s device.Health, v *Device, now time.Time) device.Health {
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
func (d *Health) Path(id string) string { return filepath.Join(d.Dir, id) }

// healthyFile is the path of the file "healthy" of a device.
func (d *Health) healthyFile(id string) string {
	return filepath.Join(d.Path(id), healthyName)
}

// nodes identifies the nodes of a device by path, and reports whether all of them exist.
func (d *Health) nodes(o *device.Offer) (map[string]string, bool) {
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
func (d *Health) inPlace(nodes map[string]string) bool {
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
func (d *Health) node(path string) string {
	var stat unix.Stat_t
	if err := unix.Lstat(d.Local(path), &stat); err != nil {
		return ""
	}
	number := uint64(stat.Rdev)
	return fmt.Sprintf("%d:%d %d", unix.Major(number), unix.Minor(number), stat.Ino)
}
