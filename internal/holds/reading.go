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
	// maxHolds and maxHoldsPerSlot limit the memory: a checkpoint may name any number of pods. One
	// with more holds counts as unread.
	maxHolds        = 60_000
	maxHoldsPerSlot = 16
)

// reading is what is known of the checkpoint.
type reading struct {
	// hasRead is set once a read has ended.
	hasRead bool
	// version is the version that was read last.
	version version
	// unread is why the last version could not be read, empty if it could.
	unread string
}

// errTooMany means that a checkpoint has more holds than are kept.
var errTooMany = fmt.Errorf("the checkpoint has more than %d held devices", maxHolds)

// readPods returns the pods that have each slot, as the checkpoint says. A kubelet without a checkpoint has
// allocated nothing: it writes the file when it gets the list of a plugin (genericDeviceUpdateCallback,
// pkg/kubelet/cm/devicemanager/manager.go).
func (b *Book) readPods() (map[string][]podHold, error) {
	generation := b.Generation()
	entries, err := readCheckpoint(b.Checkpoint)
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	pods := map[string][]podHold{}
	count := 0
	for _, e := range entries {
		for _, slot := range slices.Concat(slices.Collect(maps.Values(e.DeviceIDs))...) {
			// Containers of one pod may share a slot, such as an init container.
			if indexOfPod(pods[slot], e.PodUID) >= 0 {
				continue
			}
			count++
			if count > maxHolds {
				return nil, errTooMany
			}
			pods[slot] = append(pods[slot], podHold{
				Pod:        e.PodUID,
				Resource:   e.ResourceName,
				isNamed:    true,
				generation: generation,
			})
		}
	}
	return pods, err
}

// indexOfPod returns the index of the hold of a pod, or -1.
func indexOfPod(pods []podHold, uid string) int {
	return slices.IndexFunc(pods, func(p podHold) bool { return p.Pod == uid })
}

// catchUp reads the checkpoint unless the current version was read. It waits for the read at most for
// a time: then the holds of the last read count, and the grants since then. Before the first read,
// the holds are unknown.
func (b *Book) catchUp(ctx context.Context, patience time.Duration) {
	for range maxReads {
		b.mu.Lock()
		isCurrent := b.reading.isCurrent(b.Checkpoint)
		b.mu.Unlock()
		if isCurrent {
			return
		}
		_, _, hasAnswered := b.reads.Do(ctx, b.Checkpoint, patience, b.read)
		if !hasAnswered {
			return
		}
	}
}

// isCurrent reports whether the version at a path is the one that was read.
func (r *reading) isCurrent(path string) bool {
	return r.hasRead && r.unread == "" && currentVersion(path) == r.version
}

// read reads the checkpoint. If that changes the holds, it calls Changed and asks Run for another look.
//
// A kubelet starts without holds if it cannot parse its checkpoint (Start,
// pkg/kubelet/cm/devicemanager/manager.go), and so does this program. Later, somebody else may have written
// the file while the kubelet runs.
func (b *Book) read() (none struct{}) {
	// A file that is replaced meanwhile is read again.
	current := currentVersion(b.Checkpoint)
	pods, err := b.readPods()
	b.mu.Lock()
	var unparsed error
	isFirst := b.reading.version == (version{})
	if isFirst && isUnparsable(err) {
		unparsed = err
		err = nil
	}
	b.logOnce(unparsed, "the kubelet's checkpoint can't be parsed: like the kubelet, the program starts as if no pod held a device")
	b.logOnce(err, "the kubelet's checkpoint can't be read: devices stay on the lists until it is known which pods hold them")
	before := b.reading.unread
	b.reading.hasRead = true
	b.reading.unread = ""
	hasChanged := false
	if err != nil {
		b.reading.unread = err.Error()
	} else {
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
	return none
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
	for slot, before := range b.pods {
		for _, past := range before {
			if i := indexOfPod(named[slot], past.Pod); i >= 0 {
				named[slot][i].StaticName = past.StaticName
			} else if len(named[slot]) < maxHoldsPerSlot {
				if past.isNamed {
					past.isNamed = false
					past.lostAt = b.Now()
				}
				named[slot] = append(named[slot], past)
			}
		}
	}
	hasTaken := false
	for slot, g := range b.grants {
		if g.isTakenBy(named[slot]) {
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
