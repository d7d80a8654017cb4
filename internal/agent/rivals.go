package agent

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/generic-dp/generic-dp/cdi"
	"github.com/generic-dp/generic-dp/internal/agent/exclusive"
	"github.com/generic-dp/generic-dp/internal/agent/holders"
	"github.com/generic-dp/generic-dp/internal/device"
	"github.com/generic-dp/generic-dp/internal/kubelet/dra"
	"github.com/generic-dp/generic-dp/internal/ledger"
)

// exclusiveName is the directory of the grants of exclusive devices in the run directory.
const exclusiveName = "exclusive"

// rivals decides in Allocate and NodePrepareResources whether a container may get an exclusive
// device. The list of the ledger says that as well, but it only follows the answers of the kubelet.
// The methods of the loop are marked; all others may be called concurrently.
type rivals struct {
	registry *exclusive.Registry
	// holders knows the allocations in the checkpoint of the kubelet. It may be nil.
	holders *holders.Tracker
	// claims returns the prepared claims.
	claims func() ([]cdi.Claim, error)
	// changed asks for a pass: the rivals of a device that was granted become unhealthy.
	changed signal
	// known is what the loop has published last. It is nil before the first pass.
	known atomic.Pointer[knownDevices]
}

// knownDevices is what the loop knows about the devices that may exclude others. It is immutable.
type knownDevices struct {
	// places has the places of all listed and waiting devices by ID, nil if they are not known.
	places map[string][]string
	// plain are the devices among them that exclude none.
	plain map[string]bool
	// areHoldersKnown is set if the kubelet has named all holders since the start.
	areHoldersKnown bool
}

// newKnownDevices returns what an output of the ledger and the answers of the kubelet say.
func newKnownDevices(out ledger.Output, held ledger.Held) *knownDevices {
	known := &knownDevices{
		places:          map[string][]string{},
		plain:           map[string]bool{},
		areHoldersKnown: !held.At.IsZero() && !held.Partial,
	}
	for _, r := range out.Resources {
		for _, e := range r.Devices {
			known.places[e.Offer.ID] = e.Offer.Places
			known.plain[e.Offer.ID] = e.Present && !e.Offer.Exclusive
		}
	}
	return known
}

// exclusives returns the exclusive devices among the devices of a resource.
func exclusives(key string, devices []*cdi.Injection) []exclusive.Device {
	var found []exclusive.Device
	for _, d := range devices {
		if d.Offer.Exclusive {
			found = append(found, exclusive.Device{
				ID:       d.Offer.ID,
				Resource: key,
				Places:   d.Offer.Places,
			})
		}
	}
	return found
}

// reserve grants exclusive devices to a container, unless another container may hold a rival of one
// of them. The caller calls cancel if the container does not get them.
func (r *rivals) reserve(ctx context.Context, devices []exclusive.Device) (cancel func(), err error) {
	cancel, err = r.registry.Reserve(devices)
	if err != nil {
		return nil, err
	}
	for _, d := range devices {
		if err := r.checkOthers(ctx, d); err != nil {
			cancel()
			return nil, err
		}
	}
	r.changed.send()
	return cancel, nil
}

// reserve reserves the exclusive devices of a container with these slots. The caller calls cancel if
// the container does not get them. A claim is not reserved, because its file is the record, see
// draDriver.offered.
func (r *resource) reserve(ctx context.Context, devices []*cdi.Injection, ids []string) (cancel func(), err error) {
	wanted := exclusives(r.key, devices)
	isDecidedElsewhere := r.dra != nil || r.rivals == nil
	if len(wanted) == 0 || isDecidedElsewhere {
		return func() {}, nil
	}
	cancel, err = r.rivals.reserve(ctx, wanted)
	if err != nil {
		return nil, err
	}
	// The list may say by now that a container holds a rival for which there is no grant, such as a
	// pod from before the device was exclusive.
	if _, err := r.now.Load().find(ids); err != nil {
		cancel()
		return nil, err
	}
	return cancel, nil
}

// check returns why a claim cannot have an exclusive device. The claim is written already, so that a
// later call of reserve sees it.
func (r *rivals) check(ctx context.Context, d exclusive.Device) error {
	if err := r.registry.Conflict(d); err != nil {
		return err
	}
	return r.checkCheckpoint(ctx, d)
}

// offered is dra.Options.Offered. It is asked after the file of a claim is written, because the
// device may have changed meanwhile, and a container may have got a device that excludes it.
func (d *draDriver) offered(name string) error {
	m, e, err := d.agent.members().offeredByDRA(name)
	if err != nil || !e.Offer.Exclusive {
		return err
	}
	err = d.agent.pods.rivals.check(context.Background(), exclusive.Device{
		ID:       e.Offer.ID,
		Resource: m.key,
		Places:   e.Offer.Places,
	})
	if err == nil && e.Excluded != "" {
		err = fmt.Errorf("device %q is %s", e.Offer.ID, e.Excluded)
	}
	if err != nil {
		return fmt.Errorf("%w: %w", err, dra.ErrNotOffered)
	}
	return nil
}

// checkOthers returns why a device cannot be allocated although no grant conflicts with it.
func (r *rivals) checkOthers(ctx context.Context, d exclusive.Device) error {
	claims, err := r.claims()
	if err != nil {
		return fmt.Errorf("device %q is exclusive, and it is not known whether a claim has it: %w", d.ID, err)
	}
	for _, c := range claims {
		for _, name := range c.Devices() {
			resource, id, _ := strings.Cut(name, "=")
			if r.excludes(d, id) {
				return exclusive.Held(d.ID, id, resource+draSuffix)
			}
		}
	}
	return r.checkCheckpoint(ctx, d)
}

// checkCheckpoint returns why a device cannot be allocated according to the checkpoint of the
// kubelet, as long as the kubelet has not named all holders: containers of an earlier instance, and
// of pods that a kubelet restores after a reboot without an Allocate call, have no grant.
func (r *rivals) checkCheckpoint(ctx context.Context, d exclusive.Device) error {
	known := r.known.Load()
	if known == nil {
		return errHoldersUnknown
	}
	if known.areHoldersKnown {
		return nil
	}
	listed, isRead := r.holders.Listed(ctx)
	if !isRead {
		return errHoldersUnknown
	}
	for _, slot := range slices.Sorted(maps.Keys(listed)) {
		id, _ := device.SplitSlot(slot)
		if r.excludes(d, id) {
			return exclusive.Held(d.ID, id, listed[slot])
		}
	}
	return nil
}

var errHoldersUnknown = errors.New("the kubelet has not reported yet which containers hold exclusive devices: if this lasts, check the kubelet and its PodResources socket")

// excludes reports whether a device that is held excludes d. A device whose places are not known
// does.
func (r *rivals) excludes(d exclusive.Device, id string) bool {
	known := r.known.Load()
	if id == d.ID || known.plain[id] {
		return false
	}
	places := known.places[id]
	return len(places) == 0 || device.Conflict(d.Places, places)
}

// conflict reports whether two devices exclude each other, by their IDs. It is
// dra.Options.Excludes.
func (r *rivals) conflict(id, other string) bool {
	known := r.known.Load()
	if known == nil || id == other {
		return false
	}
	// Without exclusive devices there are no places.
	places := known.places[id]
	excludesNone := known.plain[id] || known.plain[other]
	if excludesNone || len(places) == 0 {
		return false
	}
	others := known.places[other]
	return len(others) == 0 || device.Conflict(places, others)
}

// granted returns the devices that containers may hold, in addition to the last answer of the
// kubelet. Only the loop calls it.
func (l *loop) granted() map[string]ledger.Grant {
	r := l.pods.rivals
	granted, err := r.registry.Grants()
	l.page.problems.warn("exclusive devices", err, "grants of exclusive devices can't be read: none is allocated",
		"hint", l.options.hint("run-dir"),
	)
	if !l.hasExclusive() {
		return granted
	}
	add := func(id, resource string) {
		if _, isKnown := granted[id]; !isKnown {
			granted[id] = ledger.Grant{Resource: resource}
		}
	}
	if l.dra.plugin.Load() != nil {
		for _, c := range l.claims() {
			for _, name := range c.Devices() {
				resource, id, _ := strings.Cut(name, "=")
				add(id, resource+draSuffix)
			}
		}
	}
	held := &l.held.Held
	areHoldersKnown := !held.At.IsZero() && !held.Partial
	if !areHoldersKnown {
		for slot, resource := range l.pods.holders.LastListed() {
			id, _ := device.SplitSlot(slot)
			add(id, resource)
		}
	}
	return granted
}

// hasExclusive reports whether a resource of the configuration is exclusive.
func (l *loop) hasExclusive() bool {
	for i := range l.config.Resources {
		if l.config.Resources[i].Exclusive {
			return true
		}
	}
	return false
}

// releaseGrants ends the grants of devices that no container holds. Only the loop calls it, with the
// answer from which the next list is made.
func (l *loop) releaseGrants() {
	held := &l.held.Held
	if held.At.IsZero() || held.Partial {
		return
	}
	inUse := map[string]bool{}
	for slot := range held.IDs {
		id, _ := device.SplitSlot(slot)
		inUse[id] = true
	}
	l.pods.rivals.registry.Release(held.At, func(id string) bool {
		return inUse[id]
	})
}
