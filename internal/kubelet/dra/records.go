package dra

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/generic-dp/generic-dp/cdi"
	"github.com/generic-dp/generic-dp/internal/device"
	"github.com/generic-dp/generic-dp/internal/holds"
)

// records has the prepared claims of the node, by UID. Their files are the state that survives a
// restart: load reads them once. The book knows which devices they hold. The methods may be called
// concurrently.
type records struct {
	files *cdi.Writer
	book  *holds.Book

	mu      sync.Mutex
	byUID   map[string]*record
	changed chan struct{} // closed when a claim is removed; nil if nobody waits
}

// record is one prepared claim. Its fields belong to records.mu. Each preparation makes another
// record, so that a caller with an old record notices that the claim was prepared again.
type record struct {
	// claim is the content of the file.
	claim cdi.Claim
	// written is the time of the last preparation.
	written time.Time
	// ran is set once a process of one of the claim's pods was seen after the preparation.
	ran bool
	// runs is set if such a process existed when the state of the pods was last known.
	runs bool
	// released is set once the kubelet called NodeUnprepareResources.
	released bool
	// isOwned is set once it is known that the claim was made for one pod.
	isOwned bool
}

// holder is a claim that holds devices.
type holder struct {
	record *record
	claim  cdi.Claim
}

// deviceID returns the ID of a device in a claim, "RESOURCE=ID". A device that moves to another
// resource keeps its ID, and therefore its holder.
func deviceID(name string) string {
	_, id, _ := strings.Cut(name, "=")
	return id
}

// WantedBy are the devices of claims for the book, by the UID of the claim and once for each slot. What
// they use is not in the files of claims.
func WantedBy(claims []cdi.Claim) map[string][]holds.Wanted {
	all := map[string][]holds.Wanted{}
	for _, c := range claims {
		for _, name := range c.Devices() {
			all[c.UID] = append(all[c.UID], wanted(name))
		}
	}
	return all
}

// wanted is a device of a claim, "RESOURCE=ID", for the book.
func wanted(name string) holds.Wanted {
	resource, id, _ := strings.Cut(name, "=")
	return holds.Wanted{ID: id, Resource: device.ResourceKey(resource, true)}
}

// load reads the claims that earlier instances have prepared. The error is about files that can't be
// read, whose devices are not known.
func (r *records) load(now time.Time) error {
	claims, err := r.files.Claims()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.byUID = map[string]*record{}
	for _, c := range claims {
		written := now
		info, err := os.Lstat(r.files.ClaimPath(c.UID))
		// A time in the future would delay the end of the claim.
		isEarlier := err == nil && info.ModTime().Before(now)
		if isEarlier {
			written = info.ModTime()
		}
		r.put(&record{claim: c, written: written})
	}
	r.book.SetClaims(WantedBy(claims), err)
	return err
}

// reservation is the result of reserve.
type reservation struct {
	// conflicts has the holders by device. Nothing was recorded if there are some.
	conflicts map[string][]holder
	// renewed is the record of the last preparation, nil if there was none.
	renewed *record
}

// reserve records a claim that is about to be written, so that no concurrent call for another claim
// or container gets its devices. It records nothing if other claims hold one of the devices beyond what
// the device has, or exclude it. An error that wraps ErrNotOffered says that a container of the
// device plugin has the hardware. The caller holds the lock of the claim.
func (r *records) reserve(filled *filled, now time.Time) (reservation, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	claim := filled.claim
	conflicts := r.overAmounts(claim)
	if len(conflicts) > 0 {
		return reservation{conflicts: conflicts}, nil
	}
	last := r.byUID[claim.UID]
	devices := filled.wanted()
	keepsDevices := last != nil && lostDevice(claim, last.claim) == ""
	if keepsDevices {
		r.book.Record(claim.UID, devices) // its containers may run already
	} else {
		conflicts, err := r.reserveInBook(claim, devices)
		if err != nil || len(conflicts) > 0 {
			return reservation{conflicts: conflicts}, err
		}
	}
	r.put(&record{claim: claim, written: now})
	return reservation{renewed: last}, nil
}

// reserveInBook records the devices of a claim in the book, or returns the claims that exclude one of
// them, by device. The caller holds r.mu.
func (r *records) reserveInBook(claim cdi.Claim, devices []holds.Wanted) (map[string][]holder, error) {
	others, err := r.book.Reserve(claim.UID, devices)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", err, ErrNotOffered)
	}
	conflicts := map[string][]holder{}
	for _, h := range others {
		own := r.byUID[h.Claim]
		if own == nil {
			return nil, fmt.Errorf("device %q is held by a container through %s: %w", h.ID, h.Resource, ErrNotOffered)
		}
		name, _ := device.SplitResourceKey(h.Resource)
		key := name + "=" + h.ID
		other := holder{record: own, claim: own.claim}
		if !slices.ContainsFunc(conflicts[key], other.isSame) {
			conflicts[key] = append(conflicts[key], other)
		}
	}
	return conflicts, nil
}

// isSame reports whether a holder is the same claim.
func (h holder) isSame(other holder) bool { return h.record == other.record }

// overAmounts returns the other holders of devices that have less of a capacity than they and the claim
// need together, by device. The caller holds r.mu.
func (r *records) overAmounts(claim cdi.Claim) map[string][]holder {
	conflicts := map[string][]holder{}
	for name := range count(claim) {
		var others []holder
		for _, other := range r.byUID {
			// The claim keeps what it has when it is prepared again.
			isOther := other.claim.UID != claim.UID
			if isOther && len(sharesOf(other.claim, deviceID(name))) > 0 {
				others = append(others, holder{record: other, claim: other.claim})
			}
		}
		if r.exceeds(claim, name, others) {
			conflicts[name] = others
		}
	}
	return conflicts
}

// count returns the number of slots that a claim holds, by device.
func count(claim cdi.Claim) map[string]int {
	slots := map[string]int{}
	for _, name := range claim.Devices() {
		slots[name]++
	}
	return slots
}

// restore undoes a reservation whose file could not be written. The caller holds the lock of the claim.
func (r *records) restore(uid string, last *record) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if last == nil {
		r.drop(r.byUID[uid])
		return
	}
	r.put(last)
	r.book.Record(uid, WantedBy([]cdi.Claim{last.claim})[uid])
}

// rewrite replaces the pods of a claim, in its file and in its record. Like another preparation it
// makes another record, so that a caller with the old one notices. The caller holds the lock of the
// claim. The error is about the file, which then has the former pods.
func (r *records) rewrite(last holder, pods []string) error {
	next := r.view(last.record)
	next.claim.Pods = pods
	if err := r.files.SetClaimPods(next.claim.UID, pods); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.put(&next)
	return nil
}

// remove removes the file of a claim, and its record if the file is gone. The caller holds the lock of
// the claim.
func (r *records) remove(uid string) error {
	if err := r.files.RemoveClaim(uid); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.drop(r.byUID[uid])
	return nil
}

// all returns the prepared claims. The order is random, and the slots of the holders are not set.
func (r *records) all() []holder {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []holder
	for _, own := range r.byUID {
		out = append(out, holder{record: own, claim: own.claim})
	}
	return out
}

// get returns a prepared claim. It is false if the claim is not prepared.
func (r *records) get(uid string) (holder, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	own := r.byUID[uid]
	if own == nil {
		return holder{}, false
	}
	return holder{record: own, claim: own.claim}, true
}

// mark changes a record. A record that another call has replaced meanwhile is changed without
// effect. change is called with r.mu held.
func (r *records) mark(own *record, change func(*record)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	change(own)
}

// markReleased records that the kubelet released a claim, and reports whether it had done so
// before.
func (r *records) markReleased(own *record) (again bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	again = own.released
	own.released = true
	return again
}

// view returns a copy of a record, whose fields must not be read without the lock.
func (r *records) view(own *record) record {
	r.mu.Lock()
	defer r.mu.Unlock()
	return *own
}

// removed returns a channel that is closed when the next claim is removed.
func (r *records) removed() <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.changed == nil {
		r.changed = make(chan struct{})
	}
	return r.changed
}

// put adds a record in place of the one with its UID. The caller holds r.mu. The state of the pods
// is kept, because their processes outlive a preparation.
func (r *records) put(own *record) {
	if last := r.byUID[own.claim.UID]; last != nil {
		own.runs = last.runs
		own.isOwned = last.isOwned
	}
	r.byUID[own.claim.UID] = own
}

// drop removes a record that may be nil, with its holds, and wakes the calls that wait for a device. The
// caller holds r.mu.
func (r *records) drop(own *record) {
	if own == nil {
		return
	}
	delete(r.byUID, own.claim.UID)
	r.book.Release(own.claim.UID)
	if r.changed != nil {
		close(r.changed)
		r.changed = nil
	}
}
