package holds

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/generic-dp/generic-dp/internal/device"
	"github.com/generic-dp/generic-dp/internal/sys/atomicfile"
)

// journal is the file with the holds that a restart of the program must not lose: the grants that the
// checkpoint does not have yet, the pods that it has lost, and what the held devices use. It has one
// JSON object in each line. An Allocate call adds lines before it is answered. Everything else follows
// in the background, and replaces the file.
type journal struct {
	path string
	boot string
	// isOutdated is set if the file lacks a change.
	isOutdated bool
	// isPresent is set if the file is of this boot.
	isPresent bool
}

// entry is a line of the journal. It has one of its parts.
type entry struct {
	// Boot is the ID of the boot, in the first line.
	Boot string `json:"boot,omitempty"`
	// Slot is a slot that is held through Resource: by a pod, or by a grant at a time.
	Slot     string     `json:"slot,omitempty"`
	Resource string     `json:"resource,omitempty"`
	Pod      string     `json:"pod,omitempty"`
	Name     string     `json:"name,omitempty"`
	Granted  *time.Time `json:"granted,omitempty"`
	// Device is the ID of a held device, and Uses is what it uses.
	Device string  `json:"device,omitempty"`
	Uses   *Device `json:"uses,omitempty"`
}

// maxJournal is the maximum size of the file in bytes.
const maxJournal = 32 << 20

// append adds the grants of slots at the end of the file.
func (j *journal) append(slots []Slot, now time.Time) error {
	if j.path == "" {
		return nil
	}
	var text bytes.Buffer
	text.WriteByte('\n') // the last line may be cut
	encoder := json.NewEncoder(&text)
	if !j.isPresent {
		_ = encoder.Encode(entry{Boot: j.boot}) // a buffer takes everything
	}
	written := map[string]bool{}
	for i := range slots {
		s := &slots[i]
		if !written[s.Device.ID] {
			written[s.Device.ID] = true
			_ = encoder.Encode(entry{Device: s.Device.ID, Uses: &s.Device.Device})
		}
		_ = encoder.Encode(entry{Slot: s.ID, Resource: s.Device.Resource, Granted: &now})
	}
	flags := os.O_WRONLY | os.O_APPEND | os.O_CREATE
	if !j.isPresent {
		flags |= os.O_TRUNC
	}
	file, err := os.OpenFile(j.path, flags, 0o600)
	if errors.Is(err, fs.ErrNotExist) {
		if err = os.MkdirAll(filepath.Dir(j.path), 0o755); err == nil {
			file, err = os.OpenFile(j.path, flags, 0o600)
		}
	}
	if err != nil {
		return err
	}
	_, err = file.Write(text.Bytes())
	if err == nil {
		j.isPresent = true
	}
	return errors.Join(err, file.Close())
}

// Save writes what Run has not written yet, before another instance reads it.
func (b *Book) Save() {
	if b != nil {
		b.writeJournal()
	}
}

// writeJournal replaces the file if it lacks a change.
func (b *Book) writeJournal() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.journal.isOutdated || b.journal.path == "" {
		return
	}
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	_ = encoder.Encode(entry{Boot: b.journal.boot})
	for _, slot := range slices.Sorted(maps.Keys(b.pods)) {
		for _, p := range b.pods[slot] {
			_ = encoder.Encode(entry{Slot: slot, Resource: p.resource, Pod: p.pod, Name: p.staticName})
		}
	}
	for _, slot := range slices.Sorted(maps.Keys(b.grants)) {
		g := b.grants[slot]
		_ = encoder.Encode(entry{Slot: slot, Resource: g.resource, Granted: &g.at})
	}
	for _, id := range slices.Sorted(maps.Keys(b.uses)) {
		use := b.uses[id]
		_ = encoder.Encode(entry{Device: id, Uses: &use})
	}
	err := os.MkdirAll(filepath.Dir(b.journal.path), 0o755)
	if err == nil {
		err = atomicfile.Write(b.journal.path, text.Bytes(), 0o600)
	}
	if err != nil {
		b.logJournal(err)
		return
	}
	b.journal.isPresent = true
	b.journal.isOutdated = false
	b.logged.journal = ""
}

// logJournal logs that the journal can't be written, once. The caller holds the lock.
func (b *Book) logJournal(err error) {
	if b.logged.journal != err.Error() {
		b.Log.Warn("holds can't be recorded: after a restart, devices of pods that the kubelet has forgotten may be offered", "err", err)
	}
	b.logged.journal = err.Error()
}

// Load reads the journal and the checkpoint. It replaces what was known before, so that a successor calls
// it again when its predecessor has answered its last call.
func (b *Book) Load(ctx context.Context) {
	if b == nil {
		return
	}
	entries := b.readJournal()
	b.mu.Lock()
	before := b.pods
	b.pods = map[string][]podHold{}
	b.grants = map[string]grant{}
	for _, e := range entries {
		b.restore(e)
	}
	b.keepNamed(before)
	b.reading.isOutdated = true
	b.view = nil
	b.mu.Unlock()
	b.catchUp(ctx, readPatience)
	b.request()
}

// keepNamed keeps the pods that the checkpoint has named, until it is read again. The caller holds the
// lock.
func (b *Book) keepNamed(before map[string][]podHold) {
	for slot, pods := range before {
		for _, p := range pods {
			if !p.isNamed {
				continue
			}
			if i := indexOfPod(b.pods[slot], p.pod); i >= 0 {
				b.pods[slot][i] = p
			} else {
				b.pods[slot] = append(b.pods[slot], p)
			}
		}
	}
}

// readJournal returns the lines of the journal if it is of this boot. A line that is cut, because the
// program was killed while it wrote it, is left out: its call was not answered.
func (b *Book) readJournal() []entry {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.journal.path = b.Journal
	b.journal.boot = b.Boot
	b.journal.isPresent = false
	if b.journal.path == "" {
		return nil
	}
	text, err := atomicfile.Read(b.journal.path, maxJournal)
	if err != nil {
		return nil // there is none, or another program has replaced it
	}
	var entries []entry
	for line := range bytes.Lines(text) {
		var e entry
		if json.Unmarshal(line, &e) == nil {
			entries = append(entries, e)
		}
	}
	isOfBoot := len(entries) > 0 && entries[0].Boot == b.Boot
	if !isOfBoot {
		return nil
	}
	b.journal.isPresent = true
	return entries
}

// restore adds what a line of the journal says. The caller holds the lock.
func (b *Book) restore(e entry) {
	switch {
	case e.Device != "" && e.Uses != nil:
		b.uses[e.Device] = *e.Uses
	case !device.ValidID(deviceOfSlot(e.Slot)):
	case e.Granted != nil:
		at := *e.Granted
		// The clock may have been set since.
		if now := b.Now(); at.After(now) || now.Sub(at) >= grantTime {
			at = now
		}
		b.grants[e.Slot] = grant{resource: e.Resource, at: at, before: b.podsOf(e.Slot)}
	case e.Pod != "" && len(b.pods) < maxHolds:
		pods := b.pods[e.Slot]
		isKnown := indexOfPod(pods, e.Pod) >= 0
		if !isKnown && len(pods) < maxHoldsPerSlot {
			b.pods[e.Slot] = append(pods, podHold{
				pod:        e.Pod,
				resource:   e.Resource,
				staticName: e.Name,
			})
		}
	}
}
