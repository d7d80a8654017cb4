package holders

import (
	"context"
	"errors"
	"io/fs"
	"slices"
	"time"

	"github.com/generic-dp/generic-dp/internal/kubelet/checkpoint"
)

const (
	// readPatience is how long Allocate waits for a read of the kubelet's checkpoint.
	readPatience = 200 * time.Millisecond
	// maxReads bounds the reads for one Allocate call: the kubelet may replace the
	// checkpoint during each of them.
	maxReads = 3
)

// catchUp reads the checkpoint if it may have holds of these slots that are not known yet.
func (t *Tracker) catchUp(ctx context.Context, slots []string) {
	for range maxReads {
		if !t.mustRead(slots) {
			return
		}
		_, _, answered := t.reads.Do(ctx, t.options.Checkpoint, readPatience, t.readIfChanged)
		if !answered {
			return
		}
	}
}

// mustRead reports whether nothing was read so far, or one of the slots was allocated and the
// checkpoint has changed since the last read.
func (t *Tracker) mustRead(slots []string) bool {
	t.mu.Lock()
	hasTriedRead := t.hasTriedRead
	version := t.version
	isGranted := slices.ContainsFunc(slots, func(slot string) bool { return t.granted[slot] })
	t.mu.Unlock()
	if !hasTriedRead {
		return true
	}
	return isGranted && checkpoint.Current(t.options.Checkpoint) != version
}

// readIfChanged reads the checkpoint unless it is the version that was read last. It returns
// false after an error. A missing checkpoint says nothing: the kubelet writes the next one
// from its memory.
func (t *Tracker) readIfChanged() bool {
	t.mu.Lock()
	t.hasTriedRead = true
	last := t.version
	resourceSets := t.resourceSets
	t.mu.Unlock()
	current := checkpoint.Current(t.options.Checkpoint)
	if current == last || current == (checkpoint.Version{}) {
		return true
	}
	reading := listing{
		isOurs:     t.options.IsOurs,
		generation: t.options.Generation(),
		holds:      map[string][]hold{},
	}
	version, err := checkpoint.Read(t.options.Checkpoint, reading.add)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.logRead(err, reading.isCut)
	if err != nil {
		return false
	}
	t.version = version
	t.merge(reading.holds)
	if t.resourceSets != resourceSets {
		// The set of resources has changed during the read.
		t.outdate()
	}
	return true
}

// listing collects the holds of this program's resources from one checkpoint.
type listing struct {
	isOurs     func(resource string) bool
	generation uint64

	holds map[string][]hold
	count int
	// isCut is set if the checkpoint has more than maxHolds.
	isCut bool
}

// add adds an allocation. It returns false when the listing is full.
func (l *listing) add(a checkpoint.Allocation) bool {
	if !l.isOurs(a.Resource) {
		return true
	}
	for _, slot := range a.IDs {
		// Containers of one pod may share a slot, such as an init container.
		if indexOfPod(l.holds[slot], a.PodUID) >= 0 {
			continue
		}
		if l.count >= maxHolds {
			l.isCut = true
			return false
		}
		l.holds[slot] = append(l.holds[slot], hold{
			podUID:     a.PodUID,
			resource:   a.Resource,
			isListed:   true,
			generation: l.generation,
		})
		l.count++
	}
	return true
}

// merge replaces the listed holds by the ones of the latest checkpoint. It keeps the holds that
// the checkpoint has lost: their pods may still run. The caller holds the lock.
func (t *Tracker) merge(listed map[string][]hold) {
	for slot, before := range t.holds {
		for _, past := range before {
			i := indexOfPod(listed[slot], past.podUID)
			if i >= 0 {
				listed[slot][i].staticName = past.staticName
				continue
			}
			if len(listed[slot]) < maxHoldsPerSlot {
				past.isListed = false
				listed[slot] = append(listed[slot], past)
			}
		}
	}
	for slot := range t.granted {
		if hasListed(listed[slot]) {
			delete(t.granted, slot) // the checkpoint shows what Allocate returned
		}
	}
	for slot, podUID := range t.refused {
		i := indexOfPod(listed[slot], podUID)
		if i >= 0 && listed[slot][i].isListed {
			t.release(slot, "the kubelet has the pod again")
		}
	}
	t.holds = listed
}

// logRead logs a read that failed or was cut. The caller holds the lock.
func (t *Tracker) logRead(err error, isCut bool) {
	if errors.Is(err, fs.ErrNotExist) {
		err = nil // it was removed after the check for its version
	}
	text := ""
	if err != nil {
		text = err.Error()
	}
	if err != nil && text != t.logged.readError {
		t.options.Log.Warn("the kubelet's checkpoint can't be read: pods that the kubelet forgets later are not noticed",
			"err", err,
		)
	}
	t.logged.readError = text
	if isCut && !t.logged.tooMany {
		t.options.Log.Warn("the kubelet's checkpoint has too many devices: the other pods are not remembered",
			"limit", maxHolds,
		)
	}
	t.logged.tooMany = isCut
}

// ReadAgain reads the checkpoint again although it has not changed. It is for a changed set of
// resources, whose holds no read has collected so far.
func (t *Tracker) ReadAgain() {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.outdate()
}

// outdate makes the next look read the checkpoint, whatever its version is. The caller holds
// the lock.
func (t *Tracker) outdate() {
	t.resourceSets++
	t.version = checkpoint.Version{}
	t.hasTriedRead = false
	t.request()
}
