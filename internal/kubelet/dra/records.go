package dra

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/generic-dp/generic-dp/cdi"
)

// records has the prepared claims of the node in memory, by UID and by device, so that the cost
// of a prepare does not grow with the number of claims. The files of the claims decide: another
// instance of this program writes and removes some during a rolling update, therefore each use
// compares the names in the directory first. Its methods may be called concurrently.
type records struct {
	files *cdi.Writer
	// excludes is Options.Excludes.
	excludes func(id, other string) bool

	mu       sync.Mutex
	byUID    map[string]*record
	byDevice map[string]map[*record]int // slots by device ID
	changed  chan struct{}              // closed when a claim is removed; nil if nobody waits
}

// record is one prepared claim. Its fields belong to records.mu. Each preparation makes another
// record, so that a caller with an old record notices that the claim was prepared again.
type record struct {
	// claim is the content of the file.
	claim cdi.Claim
	// inode is the inode of the file of the claim, 0 if the file must be read again.
	inode uint64
	// busy is set while a call of this instance writes or removes the file.
	busy bool
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

// holder is a claim that holds slots of a device.
type holder struct {
	record *record
	claim  cdi.Claim
	slots  int
}

// deviceID returns the ID of a device in a claim, "RESOURCE=ID". A device that moves to another
// resource keeps its ID, and therefore its holder.
func deviceID(name string) string {
	_, id, _ := strings.Cut(name, "=")
	return id
}

// reservation is the result of reserve.
type reservation struct {
	// conflicts has the holders by device. Nothing was recorded if there are some.
	conflicts map[string][]holder
	// renewed is set if the claim was prepared before.
	renewed bool
}

// reserve records a claim that is about to be written, so that no concurrent call for another claim
// gets its devices. It records nothing if other claims hold one of the devices beyond the slots of
// the device. The caller holds the lock of the claim, and calls endWrite after the write.
func (r *records) reserve(claim cdi.Claim, slots map[string]int, now time.Time) (reservation, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.refresh(now); err != nil {
		return reservation{}, err
	}
	conflicts := r.conflicts(claim, slots)
	if len(conflicts) > 0 {
		return reservation{conflicts: conflicts}, nil
	}
	_, renewed := r.byUID[claim.UID]
	r.put(&record{
		claim:   claim,
		busy:    true,
		written: now,
	})
	return reservation{renewed: renewed}, nil
}

// contested returns the conflicts like reserve, after the file of the claim was written. Another
// instance may have written a claim at the same time. Each of them writes first and compares
// afterwards, so that at least one of them sees both.
func (r *records) contested(claim cdi.Claim, slots map[string]int, now time.Time) (map[string][]holder, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.refresh(now); err != nil {
		return nil, err
	}
	return r.conflicts(claim, slots), nil
}

// conflicts returns the holders of devices that have fewer slots than the claim and its other
// holders need. Holders are compared by the ID of the device, because a device that moves between
// resources stays the same hardware. A claim that holds a device that excludes one of them is also
// a holder. The caller holds r.mu.
func (r *records) conflicts(claim cdi.Claim, slots map[string]int) map[string][]holder {
	conflicts := map[string][]holder{}
	for name, wanted := range count(claim) {
		var others []holder
		held := wanted
		for other, n := range r.byDevice[deviceID(name)] {
			// The claim keeps what it has when it is prepared again.
			if other.claim.UID == claim.UID {
				continue
			}
			held += n
			others = append(others, holder{record: other, claim: other.claim, slots: n})
		}
		if held > slots[name] || r.exceeds(claim, name, others) {
			conflicts[name] = others
		}
		rivals := r.rivals(claim, deviceID(name))
		if len(rivals) > 0 {
			conflicts[name] = append(conflicts[name], rivals...)
		}
	}
	return conflicts
}

// rivals returns the other claims that hold a device that excludes a device. The caller holds r.mu.
func (r *records) rivals(claim cdi.Claim, id string) []holder {
	if r.excludes == nil {
		return nil
	}
	var found []holder
	for other, claims := range r.byDevice {
		if other == id || !r.excludes(id, other) {
			continue
		}
		for own, n := range claims {
			if own.claim.UID != claim.UID {
				found = append(found, holder{record: own, claim: own.claim, slots: n})
			}
		}
	}
	return found
}

// checkWithin returns why one claim cannot have all of its devices: two of them exclude each other.
func (r *records) checkWithin(claim cdi.Claim) error {
	if r.excludes == nil {
		return nil
	}
	names := slices.Sorted(maps.Keys(count(claim)))
	for i, name := range names {
		for _, other := range names[:i] {
			if r.excludes(deviceID(name), deviceID(other)) {
				return fmt.Errorf("devices %q and %q exclude each other, and a claim cannot have both", other, name)
			}
		}
	}
	return nil
}

// count returns the number of slots that a claim holds, by device.
func count(claim cdi.Claim) map[string]int {
	slots := map[string]int{}
	for _, name := range claim.Devices() {
		slots[name]++
	}
	return slots
}

// endWrite follows the write of the file of a claim. If the write failed, the next use reads the
// file again, which may be the earlier one. ok is set if the write succeeded. The caller holds the
// lock of the claim.
func (r *records) endWrite(uid string, ok bool) {
	r.end(uid, func(own *record, current uint64) {
		own.inode = 0
		if ok {
			own.inode = current
		}
	})
}

// rewrite replaces the pods of a claim, in its file and in its record. Like another preparation it
// makes another record, so that a caller with the old one notices. The caller holds the lock of the
// claim. The error is about the file, which then has the former pods.
func (r *records) rewrite(last holder, pods []string) error {
	next := r.view(last.record)
	next.claim.Pods = pods
	next.busy = true
	r.mu.Lock()
	r.put(&next)
	r.mu.Unlock()
	err := r.files.SetClaimPods(next.claim.UID, pods)
	r.endWrite(next.claim.UID, err == nil)
	return err
}

// beginRemoval precedes the removal of the file of a claim, so that refresh does not read it. The
// caller calls endRemoval afterwards.
func (r *records) beginRemoval(uid string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if own := r.byUID[uid]; own != nil {
		own.busy = true
	}
}

// endRemoval drops the record of a claim whose file is gone. If the removal failed, the record
// stays as it was.
func (r *records) endRemoval(uid string) {
	r.end(uid, func(*record, uint64) {})
}

// end drops the record of a claim if its file does not exist. Otherwise, it calls update with the
// inode of the file, 0 if that is unknown.
func (r *records) end(uid string, update func(own *record, current uint64)) {
	var current uint64
	info, err := os.Lstat(r.files.ClaimPath(uid))
	if err == nil {
		current = inode(info)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	own := r.byUID[uid]
	if own == nil {
		return
	}
	own.busy = false
	if errors.Is(err, fs.ErrNotExist) {
		r.drop(own)
		return
	}
	update(own, current)
}

// all returns the prepared claims. The error is about claims that can't be read. The order is
// random, and the slots of the holders are not set.
func (r *records) all(now time.Time) ([]holder, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	err := r.refresh(now)
	var out []holder
	for _, own := range r.byUID {
		out = append(out, holder{record: own, claim: own.claim})
	}
	return out, err
}

// get returns a prepared claim. The record may belong to another instance, which prepared the claim
// during a rolling update. It is false if the claim is not prepared. The caller may hold the lock
// of the claim.
func (r *records) get(uid string, now time.Time) (holder, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	_ = r.refresh(now) // a claim that can't be read has no record
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

// refresh reads the files that another instance wrote since the last call, and drops the claims
// whose files it removed. It costs one listing of the directory if there are none. The error is
// about files that can't be read, whose devices are not known. The caller holds r.mu.
func (r *records) refresh(now time.Time) error {
	files, err := r.files.ClaimFiles()
	if err != nil {
		return err
	}
	var errs []error
	for uid, ino := range files {
		own := r.byUID[uid]
		// A write replaces the file, and the new file has another inode.
		isCurrent := own != nil && (own.busy || own.inode == ino)
		if isCurrent {
			continue
		}
		if err := r.read(uid, ino, now); err != nil {
			errs = append(errs, err)
		}
	}
	for uid, own := range r.byUID {
		_, isListed := files[uid]
		if !isListed && !own.busy && r.isGone(uid) {
			r.drop(own)
		}
	}
	return errors.Join(errs...)
}

// read records a claim from its file. The caller holds r.mu.
func (r *records) read(uid string, ino uint64, now time.Time) error {
	claim, err := r.files.ReadClaim(uid)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // removed meanwhile
	}
	if err != nil {
		return err
	}
	written := now
	info, err := os.Lstat(r.files.ClaimPath(uid))
	// The file may be from before a restart. A time in the future would delay the end of the claim.
	isEarlier := err == nil && info.ModTime().Before(now)
	if isEarlier {
		written = info.ModTime()
	}
	r.put(&record{
		claim:   claim,
		inode:   ino,
		written: written,
	})
	return nil
}

// isGone reports whether a claim has no file. A listing may leave out a file that another instance
// replaces at the same time: POSIX does not say whether readdir returns it
// (readdir, XSH of POSIX.1-2024).
func (r *records) isGone(uid string) bool {
	_, err := os.Lstat(r.files.ClaimPath(uid))
	return errors.Is(err, fs.ErrNotExist)
}

// put adds a record in place of the one with its UID. The caller holds r.mu. The state of the pods
// is kept, because their processes outlive a preparation.
func (r *records) put(own *record) {
	if last := r.byUID[own.claim.UID]; last != nil {
		own.runs = last.runs
		own.isOwned = last.isOwned
		r.drop(last)
	}
	if r.byUID == nil {
		r.byUID = map[string]*record{}
		r.byDevice = map[string]map[*record]int{}
	}
	r.byUID[own.claim.UID] = own
	for name, n := range count(own.claim) {
		id := deviceID(name)
		if r.byDevice[id] == nil {
			r.byDevice[id] = map[*record]int{}
		}
		r.byDevice[id][own] += n
	}
}

// drop removes a record, and wakes the calls that wait for a device. The caller holds r.mu.
func (r *records) drop(own *record) {
	delete(r.byUID, own.claim.UID)
	for name := range count(own.claim) {
		id := deviceID(name)
		delete(r.byDevice[id], own)
		if len(r.byDevice[id]) == 0 {
			delete(r.byDevice, id)
		}
	}
	if r.changed != nil {
		close(r.changed)
		r.changed = nil
	}
}
