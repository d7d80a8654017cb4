package holds

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"time"
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
	// version is the version that was read last.
	version version
	// unread is why the last version could not be read, empty if it could.
	unread string
	// refreshes counts the refreshes that the kubelet has answered.
	refreshes uint64
}

// errTooMany means that a checkpoint has more holds than are kept.
var errTooMany = fmt.Errorf("the checkpoint has more than %d held devices", maxHolds)

// readPods returns the pods that have each slot, as the checkpoint says.
func (b *Book) readPods() (map[string][]podHold, error) {
	generation := b.Generation()
	entries, err := readCheckpoint(b.Checkpoint)
	pods := map[string][]podHold{}
	count := 0
	for _, e := range entries {
		for _, ids := range e.DeviceIDs {
			for _, slot := range ids {
				// Containers of one pod may share a slot, such as an init container.
				if indexOfPod(pods[slot], e.PodUID) >= 0 {
					continue
				}
				count++
				if count > maxHolds {
					return nil, errTooMany
				}
				pods[slot] = append(pods[slot], podHold{
					pod:        e.PodUID,
					resource:   e.ResourceName,
					isNamed:    true,
					generation: generation,
				})
			}
		}
	}
	return pods, err
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
	return r.hasRead && r.unread == "" && currentVersion(path) == r.version
}

// read reads the checkpoint. If that changes the holds, it calls Changed and asks Run for another look. The
// result says nothing.
//
// A kubelet without a checkpoint has allocated nothing: it writes the file when it gets the list of a
// plugin (genericDeviceUpdateCallback, pkg/kubelet/cm/devicemanager/manager.go). One that cannot be
// parsed at the start of this program has no holds either, because the kubelet starts without them
// (Start in the same file). Later, somebody else may have written it while the kubelet runs.
func (b *Book) read() bool {
	// A file that is replaced meanwhile is read again.
	current := currentVersion(b.Checkpoint)
	pods, err := b.readPods()
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	b.mu.Lock()
	b.reading.hasRead = true
	isFirst := b.reading.version == (version{})
	isEmpty := isFirst && isUnparsable(err)
	b.logRead(err, isEmpty)
	before := b.reading.unread
	hasChanged := false
	if err != nil && !isEmpty {
		b.reading.unread = err.Error()
	} else {
		b.reading.unread = ""
		b.reading.version = current
		hasChanged = b.merge(pods)
	}
	if b.reading.unread != before {
		b.view = nil
		hasChanged = true
	}
	b.mu.Unlock()
	if hasChanged {
		b.Changed()
		b.request()
	}
	return true
}

// isUnparsable reports whether a file is not the checkpoint of a kubelet, or only a part of one.
func isUnparsable(err error) bool {
	var syntax *json.SyntaxError
	var mistyped *json.UnmarshalTypeError
	return errors.As(err, &syntax) || errors.As(err, &mistyped) || errors.Is(err, errNoEntries)
}

// merge replaces the named holds by the ones of the latest checkpoint, and reports whether that changes
// something. It keeps the holds that the checkpoint has lost until review finds that their pods have ended.
// The caller holds the lock.
func (b *Book) merge(named map[string][]podHold) (hasChanged bool) {
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
		return false
	}
	b.pods = named
	b.changed()
	return true
}

// logRead logs a read that failed. isEmpty is set if the kubelet starts without holds then, as this program
// does. The caller holds the lock.
func (b *Book) logRead(err error, isEmpty bool) {
	message := "the kubelet's checkpoint can't be read: devices stay on the lists until it is known which pods hold them"
	if isEmpty {
		message = "the kubelet's checkpoint can't be parsed: like the kubelet, the program starts as if no pod held a device"
	}
	b.logOnce(&b.logged.read, err, message)
}
