package holds

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"slices"
	"time"

	"github.com/generic-dp/generic-dp/internal/holds/checkpoint"
)

const (
	// readPatience is how long Load, a pass and an Allocate call wait for a read of the checkpoint.
	readPatience = 200 * time.Millisecond
	// maxReads bounds the reads for one look: the kubelet may replace the checkpoint during each.
	maxReads = 3
)

// reading is what is known of the checkpoint.
type reading struct {
	// hasRead is set once a read has ended.
	hasRead bool
	// isOutdated is set if the checkpoint must be read also if it has not changed.
	isOutdated bool
	// version is the version that was read last.
	version checkpoint.Version
	// unread is why the last version could not be read, empty if it could.
	unread string
	// refreshes counts the refreshes that the kubelet has answered.
	refreshes uint64
	// hasNews is set if a read has changed the holds, and no pass has seen that.
	hasNews bool
}

// listing collects the holds of one checkpoint.
type listing struct {
	generation uint64
	pods       map[string][]podHold
	// count is the number of holds, and more than maxHolds if one did not fit.
	count int
}

// errTooMany means that a checkpoint has more holds than are kept.
var errTooMany = fmt.Errorf("the checkpoint has more than %d held devices", maxHolds)

// add adds an allocation. It returns false when the listing is full.
func (l *listing) add(a checkpoint.Allocation) bool {
	for _, slot := range a.IDs {
		// Containers of one pod may share a slot, such as an init container.
		if indexOfPod(l.pods[slot], a.PodUID) >= 0 {
			continue
		}
		l.count++
		if l.count > maxHolds {
			return false
		}
		l.pods[slot] = append(l.pods[slot], podHold{
			pod:        a.PodUID,
			resource:   a.Resource,
			isNamed:    true,
			generation: l.generation,
		})
	}
	return true
}

// indexOfPod returns the index of the hold of a pod, or -1.
func indexOfPod(pods []podHold, uid string) int {
	return slices.IndexFunc(pods, func(p podHold) bool { return p.pod == uid })
}

// catchUp reads the checkpoint unless the current version was read. It waits for the read at most for
// a time: then the holds of the last read count, and the grants since then. Before the first read,
// the holds are unknown.
func (b *Book) catchUp(ctx context.Context, patience time.Duration) {
	for range maxReads {
		if b.isCurrent() {
			return
		}
		_, _, hasAnswered := b.reads.Do(ctx, b.Checkpoint, patience, b.read)
		if !hasAnswered {
			b.mu.Lock()
			if !b.reading.hasRead {
				b.reading.unread = "the kubelet's checkpoint is not read yet"
				b.view = nil
			}
			b.mu.Unlock()
			return
		}
	}
}

// isCurrent reports whether the current version of the checkpoint was read.
func (b *Book) isCurrent() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.reading.isCurrent(b.Checkpoint)
}

// isCurrent reports whether the version at a path is the one that was read.
func (r *reading) isCurrent(path string) bool {
	return r.hasRead && !r.isOutdated && r.unread == "" && checkpoint.Current(path) == r.version
}

// read reads the checkpoint. The result says nothing.
//
// A kubelet without a checkpoint has allocated nothing: it writes the file when it gets the list of a
// plugin (genericDeviceUpdateCallback, pkg/kubelet/cm/devicemanager/manager.go). One that cannot be
// parsed at the start of this program has no holds either, because the kubelet starts without them
// (Start in the same file). Later, somebody else may have written it while the kubelet runs.
func (b *Book) read() bool {
	l := listing{generation: b.Generation(), pods: map[string][]podHold{}}
	version := checkpoint.Current(b.Checkpoint)
	var err error
	if version != (checkpoint.Version{}) {
		version, err = checkpoint.Read(b.Checkpoint, l.add)
	}
	if l.count > maxHolds {
		err = errTooMany
	}
	b.mu.Lock()
	b.reading.hasRead = true
	b.reading.isOutdated = false
	isFirst := b.reading.version == (checkpoint.Version{})
	isEmpty := isFirst && isUnparsable(err)
	b.logRead(err, isEmpty)
	if isEmpty {
		version = checkpoint.Current(b.Checkpoint)
		l.pods = map[string][]podHold{}
	}
	before := b.reading.unread
	if err != nil && !isEmpty {
		b.reading.unread = err.Error()
	} else {
		b.reading.unread = ""
		b.reading.version = version
		b.merge(l.pods)
	}
	if b.reading.unread != before {
		b.view = nil
		b.reading.hasNews = true
	}
	b.mu.Unlock()
	return true
}

// takeNews reports whether a read has found something that no pass has seen.
func (b *Book) takeNews() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	hasNews := b.reading.hasNews
	b.reading.hasNews = false
	return hasNews
}

// isUnparsable reports whether a file is not the checkpoint of a kubelet, or only a part of one.
func isUnparsable(err error) bool {
	var syntax *json.SyntaxError
	var mistyped *json.UnmarshalTypeError
	isCut := errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
	return isCut || errors.As(err, &syntax) || errors.As(err, &mistyped) || errors.Is(err, checkpoint.ErrNoEntries)
}

// merge replaces the named holds by the ones of the latest checkpoint. It keeps the holds that the
// checkpoint has lost until review finds that their pods have ended. The caller holds the lock.
func (b *Book) merge(named map[string][]podHold) {
	hasTaken := false
	for slot, before := range b.pods {
		for _, past := range before {
			i := indexOfPod(named[slot], past.pod)
			if i >= 0 {
				named[slot][i].staticName = past.staticName
				continue
			}
			if past.isNamed {
				past.isNamed = false
				past.refresh = b.reading.refreshes
			}
			if len(named[slot]) < maxHoldsPerSlot {
				named[slot] = append(named[slot], past)
			}
		}
	}
	for slot, g := range b.grants {
		isTaken := slices.ContainsFunc(named[slot], func(p podHold) bool {
			return p.isNamed && !slices.Contains(g.before, p.pod)
		})
		if isTaken {
			delete(b.grants, slot)
			hasTaken = true
		}
	}
	// The kubelet writes the file with each list, mostly without a change.
	if !hasTaken && maps.EqualFunc(b.pods, named, slices.Equal) {
		return
	}
	b.pods = named
	b.reading.hasNews = true
	b.changed()
}

// logRead logs a read that failed. isEmpty is set if the kubelet starts without holds then, as this program
// does. The caller holds the lock.
func (b *Book) logRead(err error, isEmpty bool) {
	if errors.Is(err, fs.ErrNotExist) {
		err = nil // it was removed after the check for its version
	}
	message := "the kubelet's checkpoint can't be read: devices stay on the lists until it is known which pods hold them"
	if isEmpty {
		message = "the kubelet's checkpoint can't be parsed: like the kubelet, the program starts as if no pod held a device"
	}
	b.logOnce(&b.logged.read, err, message)
}
