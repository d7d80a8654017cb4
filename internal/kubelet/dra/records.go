package dra

import (
	"context"
	"errors"
	"io/fs"
	"os"
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

	mu       sync.Mutex
	byUID    map[string]*record
	byDevice map[string]map[*record]int // slots by device ID
	changed  chan struct{}              // closed when a claim is removed; nil if nobody waits
}

// record is one prepared claim. Its fields belong to records.mu.
type record struct {
	claim cdi.Claim
	// inode is the inode of its file, 0 if that must be read again.
	inode uint64
	// busy is set while a call of this instance writes or removes the file.
	busy bool
	// written is the time of the last preparation.
	written time.Time
	// ran is set once a process of one of its pods was seen.
	ran bool
	// released is set once the kubelet called NodeUnprepareResources.
	released bool
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

// reserve records a claim that is about to be written, if no other claim holds one of its
// devices beyond the slots of the device. Otherwise, it returns the holders by device, in which
// case nothing was recorded. The caller holds the lock of the claim, and calls settle after the
// write.
func (r *records) reserve(claim cdi.Claim, slots map[string]int, now time.Time) (map[string][]holder, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.refresh(now); err != nil {
		return nil, err
	}
	if conflicts := r.conflicts(claim, slots); len(conflicts) > 0 {
		return conflicts, nil
	}
	r.put(&record{
		claim:   claim,
		busy:    true,
		written: now,
	})
	return nil, nil
}

// contested returns the holders like reserve, after the file of the claim was written. Another
// instance may have written a claim at the same time: each of them writes first and compares
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
// holders need.
func (r *records) conflicts(claim cdi.Claim, slots map[string]int) map[string][]holder {
	conflicts := map[string][]holder{}
	for name, wanted := range count(claim) {
		var others []holder
		held := wanted
		for other, n := range r.byDevice[deviceID(name)] {
			if other.claim.UID == claim.UID {
				continue
			}
			held += n
			others = append(others, holder{record: other, claim: other.claim, slots: n})
		}
		if held > slots[name] {
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

// settle ends the write or the removal of the file of a claim. If that failed, the next use
// reads the file again.
func (r *records) settle(uid string, ok bool) {
	var ino uint64
	info, err := os.Lstat(r.files.ClaimPath(uid))
	if ok && err == nil {
		ino = inode(info)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	own := r.byUID[uid]
	if own == nil {
		return
	}
	own.busy = false
	own.inode = ino
	if errors.Is(err, fs.ErrNotExist) {
		r.drop(own)
	}
}

// begin marks the record of a claim whose file is about to be removed, so that refresh does not
// read it. The caller calls settle afterwards.
func (r *records) begin(uid string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if own := r.byUID[uid]; own != nil {
		own.busy = true
	}
}

// all returns the prepared claims. The error is about claims that can't be read.
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

// get returns a prepared claim.
func (r *records) get(uid string, now time.Time) (holder, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	_ = r.refresh(now) // an unreadable claim is not prepared by this instance
	own := r.byUID[uid]
	if own == nil {
		return holder{}, false
	}
	return holder{record: own, claim: own.claim}, true
}

// mark changes a record.
func (r *records) mark(own *record, change func(*record)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	change(own)
}

// view returns a copy of a record.
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
// whose files it removed. It costs one listing of the directory if there are none.
func (r *records) refresh(now time.Time) error {
	files, err := r.files.ClaimFiles()
	if err != nil {
		return err
	}
	var errs []error
	for uid, ino := range files {
		have := r.byUID[uid]
		current := have != nil && (have.busy || have.inode == ino)
		if current {
			continue
		}
		claim, err := r.files.ReadClaim(uid)
		if errors.Is(err, fs.ErrNotExist) {
			continue // removed meanwhile
		}
		if err != nil {
			errs = append(errs, err)
			continue
		}
		written := now
		if info, err := os.Lstat(r.files.ClaimPath(uid)); err == nil && info.ModTime().Before(now) {
			written = info.ModTime()
		}
		r.put(&record{claim: claim, inode: ino, written: written})
	}
	for uid, have := range r.byUID {
		if _, exists := files[uid]; !exists && !have.busy {
			r.drop(have)
		}
	}
	return errors.Join(errs...)
}

// put adds a record in place of the one with its UID.
func (r *records) put(own *record) {
	if last := r.byUID[own.claim.UID]; last != nil {
		own.ran = last.ran
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

// locks are mutexes by name. A caller stops waiting when its context ends, since the holder of a
// lock may hang in a write.
type locks struct {
	mu   sync.Mutex
	held map[string]chan struct{} // closed when the lock is free
}

// lock waits for the lock of a name, and returns how to free it.
func (l *locks) lock(ctx context.Context, name string) (unlock func(), err error) {
	for {
		l.mu.Lock()
		taken := l.held[name]
		if taken == nil {
			if l.held == nil {
				l.held = map[string]chan struct{}{}
			}
			mine := make(chan struct{})
			l.held[name] = mine
			l.mu.Unlock()
			unlock := func() {
				l.mu.Lock()
				defer l.mu.Unlock()
				delete(l.held, name)
				close(mine)
			}
			return unlock, nil
		}
		l.mu.Unlock()
		select {
		case <-taken:
		case <-ctx.Done():
			return nil, errors.New("an earlier call for the claim has not ended")
		}
	}
}
