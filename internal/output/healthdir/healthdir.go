// Package healthdir maintains a directory for each set of devices that a container got. The
// container sees the directory. The file "healthy" is in it while all devices of the set
// work and are where they were when the container started.
//
// A directory is never replaced while a container may have it mounted, because the container
// would go on to see the old one.
package healthdir

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/generic-dp/generic-dp/internal/device"
	"github.com/generic-dp/generic-dp/internal/output"
	"github.com/generic-dp/generic-dp/internal/sys/files"
)

// healthyName is the file that says that all devices of a set are healthy.
const healthyName = "healthy"

// Options are the options of Dirs.
type Options struct {
	// Dir contains one directory for each set.
	Dir string
	// Local returns the path at which this process finds a path of the host.
	Local func(host string) string
	// Now is the clock.
	Now func() time.Time
	// Hold is the minimum time for which a directory shows a loss.
	Hold time.Duration
	// Added is called when a container has got a new set, which has to be saved.
	Added func()
}

// Dirs are the directories of all sets. They are safe for concurrent use.
type Dirs struct {
	Options

	mu sync.Mutex
	// sets has the sets by the names of their directories.
	sets map[string]*set
	// newest is when a set was added last, the zero time if there was none.
	newest time.Time
	// broken has the devices that did not work at the last Plan, by ID.
	broken map[string]bool
}

// set is a set of devices.
type set struct {
	// HealthSet is the part that survives a restart.
	device.HealthSet
	// added is when the set was added or restored, or given to another container.
	added time.Time
	// inSpec is set if a CDI spec of this pass mounts the directory.
	inSpec bool
}

// New returns Dirs without sets. Restore adds the sets of an earlier instance.
func New(o Options) *Dirs {
	return &Dirs{
		Options: o,
		sets:    map[string]*set{},
	}
}

// SetName is the name of the directory of a set. The IDs must be sorted. A name that is too long
// for a file is replaced by its hash.
func SetName(ids []string) string {
	name := strings.Join(ids, ",")
	if len(name) > unix.NAME_MAX {
		sum := sha256.Sum256([]byte(name))
		name = "=" + hex.EncodeToString(sum[:])
	}
	return name
}

// idsOf returns the IDs in the name of a directory. It returns nil if the name is a hash, or if
// another program made the directory.
func idsOf(name string) []string {
	ids := strings.Split(name, ",")
	for _, id := range ids {
		if !device.ValidID(id) {
			return nil
		}
	}
	return ids
}

// Restore adds the sets that an earlier instance saved, and the sets whose directories it left
// without saving them. After a reboot every container has restarted, so that the nodes of a set
// are no longer the ones that a container has. isAlone is set if no other instance adds sets: then
// directories of unknown sets are removed.
func (d *Dirs) Restore(saved map[string]device.HealthSet, rebooted, isAlone bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	now := d.Now()
	// The saved state knows more than the directories, so it comes first.
	for name, s := range saved {
		d.restoreSet(name, s, rebooted, now)
	}
	entries, _ := os.ReadDir(d.Dir) // a missing directory has no sets
	for _, e := range entries {
		d.restoreDir(e.Name(), isAlone, now)
	}
}

// restoreSet adds a saved set. If the set is known, it only takes over a later loss.
func (d *Dirs) restoreSet(
	name string,
	saved device.HealthSet,
	rebooted bool,
	now time.Time,
) {
	if have := d.sets[name]; have != nil {
		if saved.Lost.After(have.Lost) {
			have.Lost = saved.Lost
		}
		return
	}
	if SetName(saved.IDs) != name {
		return
	}
	if rebooted {
		saved.Nodes = nil
		saved.Healthy = false
		saved.Lost = time.Time{}
	}
	if saved.Lost.After(now) {
		saved.Lost = now // the clock was set back
	}
	d.sets[name] = &set{
		HealthSet: saved,
		added:     now,
	}
}

// restoreDir adds the set of a directory that no state has. Whether its devices were lost
// before is unknown: without the file "healthy" they count as lost just now.
func (d *Dirs) restoreDir(name string, isAlone bool, now time.Time) {
	if d.sets[name] != nil {
		return
	}
	ids := idsOf(name)
	if ids == nil {
		if isAlone {
			_ = os.RemoveAll(filepath.Join(d.Dir, name))
		}
		return
	}
	s := &set{added: now}
	s.IDs = ids
	s.Healthy = exists(d.healthyFile(name))
	if !s.Healthy {
		s.Lost = now
	}
	d.sets[name] = s
}

// Save returns the sets for the next instance.
func (d *Dirs) Save() map[string]device.HealthSet {
	d.mu.Lock()
	defer d.mu.Unlock()
	all := make(map[string]device.HealthSet, len(d.sets))
	for name, s := range d.sets {
		all[name] = s.HealthSet
	}
	return all
}

// Add makes the directory for a container that gets these devices, and returns its path. An
// existing directory stays as it is. listed returns an error if one of the devices is not
// listed as healthy.
func (d *Dirs) Add(offers []*device.Offer, listed func() error) (string, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := listed(); err != nil {
		return "", err
	}
	s, err := d.newSet(offers)
	if err != nil {
		return "", err
	}
	name := SetName(s.IDs)
	path := d.path(name)
	plan := files.Plan{
		Label: "--run-dir",
		Dirs:  []string{path},
	}
	have := d.sets[name]
	if have != nil {
		have.added = s.added // the grace of Sweep begins again, for another container
		return path, plan.Make()
	}
	plan.Missing = []files.File{d.healthy(name)}
	if err := plan.Make(); err != nil {
		return "", err
	}
	d.sets[name] = s
	d.newest = s.added
	d.Added()
	return path, nil
}

// newSet is the set of devices that a container gets now. All devices belong to one resource.
func (d *Dirs) newSet(offers []*device.Offer) (*set, error) {
	s := &set{added: d.Now()}
	s.Healthy = true
	s.Nodes = map[string]map[string]string{}
	for _, o := range offers {
		if d.broken[o.ID] {
			// listed does not know that yet: the list is published after Plan.
			return nil, fmt.Errorf("device %q has just become unhealthy", o.ID)
		}
		s.IDs = append(s.IDs, o.ID)
		s.Nodes[o.ID], _ = d.nodes(o)
	}
	return s, nil
}

// AddToSpec adds the set of an entry of a CDI spec, and returns the path of its directory.
func (d *Dirs) AddToSpec(ids []string) string {
	d.mu.Lock()
	defer d.mu.Unlock()
	name := SetName(ids)
	s := d.sets[name]
	if s == nil {
		s = &set{added: d.Now()}
		s.IDs = slices.Clone(ids)
		d.sets[name] = s
	}
	s.inSpec = true
	return d.path(name)
}

// PlanRemoval returns the removal of "healthy" from the sets of which a device is lost or does
// not work. It records nothing: it is for the time before links and specs are made, which may
// fail for further devices.
func (d *Dirs) PlanRemoval(devices []output.Device) files.Plan {
	d.mu.Lock()
	defer d.mu.Unlock()
	byID := d.observe(devices)
	now := d.Now()
	plan := files.Plan{Label: "--run-dir"}
	for name, s := range d.sets {
		next := d.next(s.HealthSet, byID, now)
		isHeldBack := now.Before(d.holdEnd(next))
		if !next.Healthy || isHeldBack {
			plan.Stale = append(plan.Stale, d.healthyFile(name))
		}
	}
	return plan
}

// Plan records the state of the devices and returns what to change: "healthy" is stale in the
// sets of which a device is lost or does not work. It is missing where all devices are back
// and the hold after the loss has expired. due is when the next hold expires, the zero time
// if none does.
func (d *Dirs) Plan(devices []output.Device) (plan files.Plan, due time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	byID := d.observe(devices)
	now := d.Now()
	plan.Label = "--run-dir"
	for name, s := range d.sets {
		s.HealthSet = d.next(s.HealthSet, byID, now)
		end := d.holdEnd(s.HealthSet)
		isHeldBack := now.Before(end)
		if !s.Healthy || isHeldBack {
			plan.Stale = append(plan.Stale, d.healthyFile(name))
		}
		if !s.Healthy {
			continue // an event says when its devices work again
		}
		if !isHeldBack {
			s.Lost = time.Time{}
			plan.Dirs = append(plan.Dirs, d.path(name))
			plan.Missing = append(plan.Missing, d.healthy(name))
			continue
		}
		if due.IsZero() || end.Before(due) {
			due = end
		}
	}
	return plan, due
}

// observe returns the devices by ID, and remembers for Add which ones do not work.
func (d *Dirs) observe(devices []output.Device) map[string]*output.Device {
	byID := make(map[string]*output.Device, len(devices))
	d.broken = map[string]bool{}
	for i := range devices {
		v := &devices[i]
		byID[v.Offer.ID] = v
		if !v.Works {
			d.broken[v.Offer.ID] = true
		}
	}
	return byID
}

// holdEnd is when the hold after the last loss expires, the zero time if there was no loss.
func (d *Dirs) holdEnd(s device.HealthSet) time.Time {
	if s.Lost.IsZero() {
		return time.Time{}
	}
	return s.Lost.Add(d.Hold)
}

// next returns the next state of a set. The set is healthy if all its devices are present with all
// nodes and work. A device that the configuration no longer lists counts as healthy while its
// nodes are in place: nobody checks it any more, but its container still has it. Lost is updated
// when a set stops being healthy, and when a node is no longer the one that the container has.
func (d *Dirs) next(
	s device.HealthSet,
	devices map[string]*output.Device,
	now time.Time,
) device.HealthSet {
	hasMoved := false
	isHealthy := true
	nodes := make(map[string]map[string]string, len(s.IDs))
	for _, id := range s.IDs {
		known := s.Nodes[id]
		isInPlace := d.inPlace(known)
		if !isInPlace {
			hasMoved = true
		}
		v := devices[id]
		isPresent := v != nil && v.Present
		isUnlisted := isInPlace && len(known) > 0
		switch {
		case isPresent:
			found, isComplete := d.nodes(v.Offer)
			nodes[id] = found
			stillWorks := s.Healthy && v.Pending // no check has failed so far
			works := v.Works || stillWorks
			if !isComplete || !works {
				isHealthy = false
			}
		case isUnlisted:
			nodes[id] = known
		default:
			isHealthy = false
		}
	}
	// A set that stays unhealthy keeps the time at which it was lost.
	wasLost := s.Healthy && !isHealthy
	if wasLost || hasMoved {
		s.Lost = now
	}
	s.Nodes = nodes
	s.Healthy = isHealthy
	return s
}

// Holders is what the kubelet says about the sets that containers hold.
type Holders struct {
	// Sets has the names of held sets.
	Sets map[string]bool
	// Unlisted are the devices of pods that the kubelet does not list, by ID. Which of them a
	// container has together is not known.
	Unlisted map[string]bool
	// At is the time of the answer, the zero time if there was none.
	At time.Time
	// Partial is set if there may be more holders.
	Partial bool
}

// hold reports whether a container may have a set.
func (h *Holders) hold(name string, s *set) bool {
	isListed := func(id string) bool {
		return !h.Unlisted[id]
	}
	return h.Sets[name] || !slices.ContainsFunc(s.IDs, isListed)
}

// Sweep removes the sets that no container holds, except for sets that were added within the
// time of grace. ask is how recent the known holders have to be to sweep more: no event
// announces that a pod has ended, so a new set is the reason to ask.
func (d *Dirs) Sweep(held Holders, grace time.Duration) (ask time.Time, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	now := d.Now()
	var unused []string
	for name, s := range d.sets {
		graceEnd := s.added.Add(grace)
		isKnown := !held.Partial && !held.At.Before(graceEnd)
		if isKnown && !held.hold(name, s) {
			unused = append(unused, name)
			continue
		}
		if !now.Before(graceEnd) {
			ask = d.newest
		}
	}
	return ask, d.drop(unused)
}

// SweepUnlisted removes the sets that no CDI spec mounts and that have an unlisted device. It
// serves hosts without a kubelet, where nobody knows the containers.
func (d *Dirs) SweepUnlisted(devices []output.Device) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	listed := make(map[string]bool, len(devices))
	for _, v := range devices {
		listed[v.Offer.ID] = true
	}
	isUnlisted := func(id string) bool {
		return !listed[id]
	}
	var unused []string
	for name, s := range d.sets {
		if !s.inSpec && slices.ContainsFunc(s.IDs, isUnlisted) {
			unused = append(unused, name)
		}
	}
	return d.drop(unused)
}

// drop removes sets, and forgets which ones the specs of this pass mount. The caller holds
// the lock, so that Add does not meet a directory that is being removed.
func (d *Dirs) drop(names []string) error {
	plan := files.Plan{Label: "--run-dir"}
	for _, name := range names {
		plan.StaleTrees = append(plan.StaleTrees, d.path(name))
		delete(d.sets, name)
	}
	for _, s := range d.sets {
		s.inSpec = false
	}
	return plan.Remove()
}

// path is the path of the directory of a set.
func (d *Dirs) path(name string) string {
	return filepath.Join(d.Dir, name)
}

// healthyFile is the path of the file "healthy" of a set.
func (d *Dirs) healthyFile(name string) string {
	return filepath.Join(d.path(name), healthyName)
}

// healthy is the file "healthy" of a set, for a plan.
func (d *Dirs) healthy(name string) files.File {
	return files.File{
		Path: d.healthyFile(name),
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
	major := unix.Major(number)
	minor := unix.Minor(number)
	return fmt.Sprintf("%d:%d %d", major, minor, stat.Ino)
}

// exists reports whether there is something at a path.
func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}
