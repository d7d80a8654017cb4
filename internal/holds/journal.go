package holds

import (
	"bytes"
	"context"
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/generic-dp/generic-dp/internal/device"
	"github.com/generic-dp/generic-dp/internal/sys/files"
)

// journal is the file with the holds that a restart of the program must not lose: the grants that the
// checkpoint does not have yet, the pods that it has lost, and what the held devices use. It has one
// JSON object in each line. An Allocate call adds lines before it is answered. Everything else follows
// in the background, and replaces the file.
type journal struct {
	// path is empty until Load: another instance may write the file.
	path string
	// isOutdated is set if the file lacks a change.
	isOutdated bool
	// file is the open file, 0 if it is not open.
	file int
}

// isOpen reports whether lines can be added to the file. It is not so before the first write, and if
// somebody has removed the file.
func (j *journal) isOpen() bool {
	var stat unix.Stat_t
	return j.file != 0 && unix.Fstat(j.file, &stat) == nil && stat.Nlink > 0
}

// replace writes the whole file, and opens it.
func (j *journal) replace(text []byte) error {
	err := os.MkdirAll(filepath.Dir(j.path), 0o755)
	if err == nil {
		err = files.Write(j.path, text, 0o600)
	}
	if err != nil {
		return err
	}
	if j.file != 0 {
		_ = unix.Close(j.file)
	}
	j.file, err = unix.Open(j.path, unix.O_WRONLY|unix.O_APPEND|unix.O_CLOEXEC, 0)
	if err != nil {
		j.file = 0
	}
	return nil // without an open file, the next change replaces it again
}

// entry is a line of the journal. It has one of its parts.
type entry struct {
	// Boot is the ID of the boot, in the first line.
	Boot string `json:"boot,omitempty"`
	// Slot is a slot that is held through Resource: by a pod, or by a grant.
	Slot     string `json:"slot,omitempty"`
	Resource string `json:"resource,omitempty"`
	Pod      string `json:"pod,omitempty"`
	Name     string `json:"name,omitempty"`
	// Device is the ID of a held device, and Uses is what it uses. With a grant, it is the device of the slot.
	Device string  `json:"device,omitempty"`
	Uses   *Device `json:"uses,omitempty"`
}

// maxJournal is the maximum size of the file in bytes.
const maxJournal = 32 << 20

// record writes the grants of slots. They are in the book already. The caller holds the lock.
func (b *Book) record(slots []Slot) error {
	j := &b.journal
	switch {
	case j.path == "":
		return nil
	case !j.isOpen():
		return j.replace(b.journalText())
	}
	var text bytes.Buffer
	text.WriteByte('\n') // the last line may be cut
	encoder := json.NewEncoder(&text)
	for i := range slots {
		s := &slots[i]
		_ = encoder.Encode(entry{Slot: s.ID, Resource: s.Device.Resource, Uses: &s.Device.Device}) // a buffer takes everything
	}
	_, err := unix.Write(j.file, text.Bytes())
	return err
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
	if err := b.journal.replace(b.journalText()); err != nil {
		b.logJournal(err)
		return
	}
	b.journal.isOutdated = false
	b.logJournal(nil)
}

// journalText is the content of the journal. The caller holds the lock.
func (b *Book) journalText() []byte {
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	_ = encoder.Encode(entry{Boot: b.Boot})
	for _, slot := range slices.Sorted(maps.Keys(b.pods)) {
		for _, p := range b.pods[slot] {
			_ = encoder.Encode(entry{Slot: slot, Resource: p.resource, Pod: p.pod, Name: p.staticName})
		}
	}
	for _, slot := range slices.Sorted(maps.Keys(b.grants)) {
		_ = encoder.Encode(entry{Slot: slot, Resource: b.grants[slot].resource})
	}
	for _, id := range slices.Sorted(maps.Keys(b.uses)) {
		use := b.uses[id]
		_ = encoder.Encode(entry{Device: id, Uses: &use})
	}
	return text.Bytes()
}

// logJournal logs that the journal can't be written, once. The caller holds the lock.
func (b *Book) logJournal(err error) {
	b.logOnce(&b.logged.journal, err, "holds can't be recorded: after a restart, devices of pods that the kubelet has forgotten may be offered")
}

// Load reads the journal and the checkpoint. It replaces what was known before, so that a successor calls
// it again when its predecessor has answered its last call.
func (b *Book) Load(ctx context.Context) {
	if b == nil {
		return
	}
	entries := b.readJournal()
	b.mu.Lock()
	b.pods = map[string][]podHold{}
	b.grants = map[string]grant{}
	for _, e := range entries {
		b.restore(e)
	}
	b.reading.hasRead = false
	b.reading.unread = "the kubelet's checkpoint is not read yet"
	b.view = nil
	b.mu.Unlock()
	b.catchUp(ctx, readPatience)
	b.request()
}

// readJournal returns the lines of the journal if it is of this boot. A line that is cut, because the
// program was killed while it wrote it, is left out: its call was not answered.
func (b *Book) readJournal() []entry {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.journal.path = b.Journal
	if b.journal.path == "" {
		return nil
	}
	text, err := files.Read(b.journal.path, maxJournal)
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
	return entries
}

// restore adds what a line of the journal says. The time of a grant begins again. The caller holds the lock.
func (b *Book) restore(e entry) {
	switch {
	case e.Device != "" && e.Uses != nil:
		b.uses[e.Device] = *e.Uses
	case !device.ValidID(deviceOfSlot(e.Slot)):
	case e.Pod == "":
		b.grants[e.Slot] = grant{resource: e.Resource, at: b.Now(), before: b.podsOf(e.Slot)}
		if e.Uses != nil {
			b.uses[deviceOfSlot(e.Slot)] = *e.Uses
		}
	case len(b.pods) < maxHolds:
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
