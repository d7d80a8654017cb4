package agent

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/generic-dp/generic-dp/cdi"
	"github.com/generic-dp/generic-dp/internal/device"
	"github.com/generic-dp/generic-dp/internal/host/health"
	"github.com/generic-dp/generic-dp/internal/ledger"
)

const (
	// healthName is the directory of health directories in the run directory.
	healthName = "health"
	// healthyName is the file in each of them.
	healthyName = "healthy"
)

// healthDirs maintains a directory for each set of devices that a container got, which
// the container sees: healthy is in it while all of them are healthy and where they
// were. A directory is never replaced while a container may have it: the container would go on
// to see the old one.
type healthDirs struct {
	dir   string
	local func(host string) string
	now   func() time.Time
	made  signal // there is a new set, which the loop saves

	mu   sync.Mutex
	sets map[string]*healthSet // by the name of the directory
	// newest is when a set was made last; zero is never.
	newest time.Time
}

type healthSet struct {
	ledger.HealthSet
	made   time.Time // or read after a start
	wanted bool      // a CDI spec has it
}

func newHealthDirs(p Paths, now func() time.Time, made signal) *healthDirs {
	return &healthDirs{dir: filepath.Join(p.RunDir, healthName), local: p.local, now: now, made: made, sets: map[string]*healthSet{}}
}

// setName names the directory of a set. setOf reads the IDs from it, also after a loss of
// the state, unless the name was too long and is a hash.
func setName(ids []string) string {
	name := strings.Join(ids, ",")
	if len(name) > unix.NAME_MAX {
		sum := sha256.Sum256([]byte(name))
		name = "=" + hex.EncodeToString(sum[:])
	}
	return name
}

// setOf returns the IDs in the name of a directory; nil is none.
func setOf(name string) []string {
	ids := strings.Split(name, ",")
	if slices.ContainsFunc(ids, func(id string) bool { return !device.ValidID(id) }) {
		return nil
	}
	return ids
}

// restore adds the sets of an earlier instance, or of the instance that this one succeeds.
// After a reboot every container has restarted. owns is set if there is no other instance.
func (h *healthDirs) restore(saved map[string]ledger.HealthSet, rebooted, owns bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := h.now()
	for name, s := range saved {
		if have := h.sets[name]; have != nil {
			if s.Lost.After(have.Lost) {
				have.Lost = s.Lost
			}
			continue
		}
		if setName(s.IDs) != name {
			continue
		}
		if rebooted {
			s.Nodes, s.Healthy, s.Lost = nil, false, time.Time{}
		}
		if s.Lost.After(now) { // the clock was set
			s.Lost = now
		}
		h.sets[name] = &healthSet{HealthSet: s, made: now}
	}
	entries, _ := os.ReadDir(h.dir)
	for _, e := range entries {
		name := e.Name()
		ids := setOf(name)
		switch {
		case h.sets[name] != nil:
		case ids != nil:
			s := &healthSet{HealthSet: ledger.HealthSet{IDs: ids, Healthy: h.exists(name)}, made: now}
			if !s.Healthy {
				s.Lost = now
			}
			h.sets[name] = s
		case owns:
			_ = os.RemoveAll(filepath.Join(h.dir, name))
		}
	}
}

// save returns the sets for the next instance.
func (h *healthDirs) save() map[string]ledger.HealthSet {
	h.mu.Lock()
	defer h.mu.Unlock()
	all := make(map[string]ledger.HealthSet, len(h.sets))
	for name, s := range h.sets {
		all[name] = s.HealthSet
	}
	return all
}

// add makes the directory for a container with these devices, which listed confirms to be
// healthy, and returns its path. One that exists stays as it is.
func (h *healthDirs) add(devices []*cdi.Injection, listed func() error) (path string, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	// The loop may have published a loss meanwhile, and does not know this set.
	if err := listed(); err != nil {
		return "", err
	}
	s := &healthSet{HealthSet: ledger.HealthSet{Hold: devices[0].Offer.HealthHold, Nodes: map[string]map[string]string{}, Healthy: true}, made: h.now()}
	for _, d := range devices {
		s.IDs = append(s.IDs, d.Offer.ID)
		s.Nodes[d.Offer.ID], _ = h.nodes(d.Offer)
	}
	name := setName(s.IDs)
	path = filepath.Join(h.dir, name)
	if have := h.sets[name]; have != nil {
		have.made = s.made // for another container
		return path, h.mkdir(name)
	}
	if err := errors.Join(h.mkdir(name), h.make(name)); err != nil {
		return "", err
	}
	h.sets[name], h.newest = s, s.made
	h.made.send()
	return path, nil
}

// want makes the set of a CDI spec, and returns the path of its directory.
func (h *healthDirs) want(ids []string) string {
	h.mu.Lock()
	defer h.mu.Unlock()
	name := setName(ids)
	if h.sets[name] == nil {
		h.sets[name] = &healthSet{HealthSet: ledger.HealthSet{IDs: slices.Clone(ids)}, made: h.now()}
	}
	h.sets[name].wanted = true
	return filepath.Join(h.dir, name)
}

// withdraw removes healthy where a listed device went or moved, before publication.
func (h *healthDirs) withdraw(listed []ledger.ListedResource) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.sets) == 0 {
		return nil
	}
	entries := map[string]*ledger.Entry{}
	for _, r := range listed {
		for i := range r.Devices {
			entries[r.Devices[i].Offer.ID] = &r.Devices[i]
		}
	}
	now := h.now()
	var errs []error
	for name, s := range h.sets {
		h.update(s, entries, now)
		if s.Healthy && !now.Before(s.due()) {
			continue
		}
		if err := os.Remove(filepath.Join(h.dir, name, healthyName)); !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// show makes healthy where all devices are back and the hold is over, and returns when the
// next hold is over; zero is never.
func (h *healthDirs) show() (wake time.Time, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := h.now()
	var errs []error
	for name, s := range h.sets {
		switch due := s.due(); {
		case !s.Healthy:
		case now.Before(due):
			wake = earlier(wake, due)
		default:
			s.Lost = time.Time{}
			errs = append(errs, errors.Join(h.mkdir(name), h.make(name)))
		}
	}
	return wake, errors.Join(errs...)
}

// due is when the hold after a loss is over; zero is long ago.
func (s *healthSet) due() time.Time {
	if s.Lost.IsZero() {
		return time.Time{}
	}
	return s.Lost.Add(s.Hold)
}

// update records the state of a set's devices.
func (h *healthDirs) update(s *healthSet, entries map[string]*ledger.Entry, now time.Time) {
	moved, healthy, was := false, true, s.Healthy
	nodes := make(map[string]map[string]string, len(s.IDs))
	for _, id := range s.IDs {
		same := true
		for path, node := range s.Nodes[id] {
			same = same && h.node(path) == node
		}
		moved = moved || !same
		switch e := entries[id]; {
		case e != nil && e.Present:
			there := false
			nodes[id], there = h.nodes(&e.Offer)
			healthy = healthy && there && (e.Healthy || e.Sound || was && e.Reason == health.ReasonPending)
			if e.Offer.HealthDir != "" {
				s.Hold = e.Offer.HealthHold
			}
		case same && len(s.Nodes[id]) > 0: // the configuration may have retired it
			nodes[id] = s.Nodes[id]
		default:
			healthy = false
		}
	}
	s.Nodes, s.Healthy = nodes, healthy
	if moved || was && !healthy {
		s.Lost = now
	}
}

// sweep removes sets that no container has, and returns how recent the known holders must
// be to sweep the others: no event tells that a pod has ended, so a new set is the reason
// to ask. Without a kubelet a set stays while its devices are listed.
func (h *healthDirs) sweep(held ledger.Held, listed []ledger.ListedResource, cdiOnly bool) (ask time.Time, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.sets) == 0 {
		return time.Time{}, nil
	}
	lists := map[string]bool{}
	for _, r := range listed {
		for i := range r.Devices {
			lists[r.Devices[i].Offer.ID] = true
		}
	}
	now := h.now()
	var errs []error
	for name, s := range h.sets {
		used := held.Sets[name] || held.Partial || held.At.Before(s.made.Add(retainFor))
		if cdiOnly {
			used = s.wanted || !slices.ContainsFunc(s.IDs, func(id string) bool { return !lists[id] })
		}
		if !used {
			errs = append(errs, os.RemoveAll(filepath.Join(h.dir, name)))
			delete(h.sets, name)
			continue
		}
		s.wanted = false
		if !cdiOnly && !now.Before(s.made.Add(retainFor)) {
			ask = h.newest
		}
	}
	return ask, errors.Join(errs...)
}

// nodes identifies the nodes of a device by path, and reports whether all are there.
func (h *healthDirs) nodes(o *device.Offer) (nodes map[string]string, all bool) {
	nodes, all = map[string]string{}, true
	for _, n := range o.Nodes {
		if node := h.node(n.HostPath); node != "" {
			nodes[n.HostPath] = node
		} else {
			all = false
		}
	}
	return nodes, all
}

// node identifies the node at a path; empty if there is none. A node that the kernel
// replaced, so that a container with the old one can't use it, has another inode.
func (h *healthDirs) node(path string) string {
	var stat unix.Stat_t
	if unix.Lstat(h.local(path), &stat) != nil {
		return ""
	}
	return fmt.Sprintf("%d:%d %d", unix.Major(uint64(stat.Rdev)), unix.Minor(uint64(stat.Rdev)), stat.Ino)
}

// mkdir makes a directory that any user of a container may enter, regardless of the umask.
func (h *healthDirs) mkdir(name string) error {
	dir := filepath.Join(h.dir, name)
	if present(dir) {
		return nil
	}
	return errors.Join(os.MkdirAll(dir, 0o755), os.Chmod(dir, 0o755))
}

func (h *healthDirs) make(name string) error {
	if h.exists(name) {
		return nil
	}
	return os.WriteFile(filepath.Join(h.dir, name, healthyName), nil, 0o444)
}

// exists reports whether a directory says that its set is healthy.
func (h *healthDirs) exists(name string) bool {
	return present(filepath.Join(h.dir, name, healthyName))
}

// showHealth restores healthy where that is due, after the lists are published. withdrawn
// is the error of its removal. It returns when to call it again; zero is never.
func (l *loop) showHealth(out *ledger.Output, withdrawn error) (wake time.Time, err error) {
	err = withdrawn
	if l.writer {
		next, unmade := l.health.show()
		ask, unswept := l.health.sweep(l.held.Held, out.Resources, l.options.CDIOnly)
		if ask.After(out.AskSince) {
			out.AskSince = ask
		}
		wake, err = next, errors.Join(withdrawn, unmade, unswept)
	}
	l.problems.warn("health directories", err, "health directories are out of date")
	return wake, err
}

// addHealthDir adds the health directory to the response for a container with these slots.
func (r *resource) addHealthDir(response *device.Response, devices []*cdi.Injection, slots []string) error {
	path, err := r.health.add(devices, func() error {
		_, err := r.now.Load().find(slots)
		return err
	})
	if err != nil {
		return fmt.Errorf("container.health_dir: %w", err)
	}
	mount := device.Mount{HostPath: path, ContainerPath: devices[0].Offer.HealthDir, ReadOnly: true}
	response.Mounts = append(slices.Clip(response.Mounts), mount)
	return nil
}
