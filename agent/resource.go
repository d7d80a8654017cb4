package agent

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/generic-dp/generic-dp/cdi"
	"github.com/generic-dp/generic-dp/device"
	"github.com/generic-dp/generic-dp/ledger"
	"github.com/generic-dp/generic-dp/topology"
)

// resource is the source of a plugin: the latest state of one resource. The loop
// publishes; any number of streams and calls read without a lock.
type resource struct {
	cdi.Resource
	looks looks
	now   atomic.Pointer[published]
}

// published is one immutable state of a resource.
type published struct {
	list    []device.Listed
	entries []ledger.Entry
	devices map[string]*listed // by ID of slot 0
	prefer  string             // as topology.Prefer takes it
	changed chan struct{}      // closed when a newer list is there
}

// listed is one device of a published state.
type listed struct {
	*ledger.Entry
	injection cdi.Injection
}

func newResource(r cdi.Resource, looks looks) *resource {
	res := &resource{Resource: r, looks: looks}
	res.now.Store(&published{changed: make(chan struct{})})
	return res
}

// publish replaces the state and reports whether the kubelet is shown another list.
// A device that only moved to another node keeps the list, and no stream wakes.
func (r *resource) publish(list []device.Listed, entries []ledger.Entry, prefer string) bool {
	old := r.now.Load()
	next := &published{list: list, entries: entries, devices: make(map[string]*listed, len(entries)), prefer: prefer, changed: old.changed}
	devices := make([]listed, len(entries))
	for i := range entries {
		d := &devices[i]
		d.Entry, d.injection.Offer = &entries[i], &entries[i].Offer
		next.devices[d.Offer.ID] = d
	}
	same := device.SameList(old.list, list)
	if !same {
		next.changed = make(chan struct{})
	}
	r.now.Store(next)
	if !same {
		close(old.changed)
	}
	return !same
}

// Devices is the latest list and a channel that is closed when it is no
// longer the latest.
func (r *resource) Devices() ([]device.Listed, <-chan struct{}) {
	p := r.now.Load()
	return p.list, p.changed
}

// Blocks reports whether Allocate may block.
func (r *resource) Blocks(ids []string) bool {
	devices, err := r.now.Load().find(ids)
	return err == nil && slices.ContainsFunc(devices, func(d *cdi.Injection) bool { return d.Blocks() || quietlyUsed(*d.Offer) })
}

// Allocate returns what a container gets that holds these slots.
func (r *resource) Allocate(ctx context.Context, ids []string) (device.Response, error) {
	devices, err := r.now.Load().find(ids)
	if err == nil && slices.ContainsFunc(devices, func(d *cdi.Injection) bool { return quietlyUsed(*d.Offer) }) {
		if err = r.looks.wait(ctx); err == nil {
			devices, err = r.now.Load().find(ids)
		}
	}
	if err != nil {
		return device.Response{}, err
	}
	return r.Respond(devices)
}

// find returns the devices of slots in the order of their IDs, or an error for the
// first slot that is not listed or not healthy.
func (p *published) find(ids []string) ([]*cdi.Injection, error) {
	devices := make([]*cdi.Injection, 0, len(ids))
	for _, slotID := range ids {
		id, slot := device.SplitSlot(slotID)
		d := p.devices[id]
		switch {
		case d == nil || slot >= d.Offer.Slots && !slices.Contains(d.Retired, slot):
			return nil, fmt.Errorf("device %q is not known: it was removed, or has another ID now", slotID)
		case !d.Healthy:
			return nil, fmt.Errorf("device %q is unhealthy: %s", slotID, d.Reason)
		case slot >= d.Offer.Slots:
			return nil, fmt.Errorf("device %q is unhealthy: %s", slotID, ledger.ReasonSlotRetired)
		}
		if !slices.Contains(devices, &d.injection) {
			devices = append(devices, &d.injection)
		}
	}
	slices.SortFunc(devices, func(a, b *cdi.Injection) int { return strings.Compare(a.Offer.ID, b.Offer.ID) })
	return devices, nil
}

// Prefer suggests which of the available slots to take.
func (r *resource) Prefer(available, must []string, size int) []string {
	p := r.now.Load()
	return topology.Prefer(p.prefer, p.list, available, must, size)
}

// hostCheck is where containers will look for what they are about to get.
type hostCheck struct {
	Paths
	specs *cdi.HostSpecs
}

// Exists returns why a path of the host is not there.
func (h hostCheck) Exists(path string) error { return h.missing(path) }

// HasCDI reports whether the host has a CDI device.
func (h hostCheck) HasCDI(name string) bool { return h.specs.Has(name) }

// Node returns why a runtime that opens path would not find a node. Links are
// followed as the host would follow them, one step: the program's own lead to a
// node.
func (h hostCheck) Node(path string, n device.OfferedNode) error {
	if path != n.HostPath {
		target, err := os.Readlink(path)
		if err != nil {
			return fmt.Errorf("its link is not there: %w", err)
		}
		if target != n.HostPath {
			return fmt.Errorf("its link %s leads to %s, want %s", path, target, n.HostPath)
		}
	}
	info, err := os.Lstat(h.local(n.HostPath))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("node %s is gone", n.HostPath)
	case err != nil:
		return fmt.Errorf("node %s: %w", n.HostPath, err)
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok || info.Mode()&fs.ModeDevice == 0 {
		return nil // a recorded machine has files in place of nodes
	}
	if major, minor := unix.Major(stat.Rdev), unix.Minor(stat.Rdev); major != n.Major || minor != n.Minor {
		return fmt.Errorf("node %s is now %d:%d, was %d:%d: another device took its name", n.HostPath, major, minor, n.Major, n.Minor)
	}
	return nil
}
