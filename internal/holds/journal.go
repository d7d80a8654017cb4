package holds

import (
	"context"
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/generic-dp/generic-dp/internal/sys/files"
)

// journal is the content of the file with the holds that a restart of the program must not lose: the grants
// that the checkpoint does not have yet, the pods that it has lost, and what the held devices use. An Allocate
// call is answered after it was written. Everything else follows in the background. The file need not survive
// a power failure, so it is not synced.
type journal struct {
	// Boot is the ID of the boot.
	Boot string `json:"boot"`
	// Pods are the pods that have each slot, and Grants the resources of granted slots.
	Pods   map[string][]podHold `json:"pods"`
	Grants map[string]string    `json:"grants"`
	// Uses is what each held device uses, by its ID.
	Uses map[string]Device `json:"uses"`
}

// maxJournal is the maximum size of the file in bytes.
const maxJournal = 32 << 20

// Save writes what Run has not written yet.
func (b *Book) Save() {
	b.mu.Lock()
	defer b.mu.Unlock()
	_ = b.save() // it logs its error
}

// Retire writes the journal for the last time: from now on it belongs to another instance.
func (b *Book) Retire() {
	b.Save()
	b.mu.Lock()
	defer b.mu.Unlock()
	b.mayWrite = false
}

// save writes the journal if it lacks a change, and logs an error once. The caller holds the lock.
func (b *Book) save() error {
	if !b.mayWrite || !b.isOutdated {
		return nil
	}
	grants := map[string]string{}
	for slot, g := range b.grants {
		grants[slot] = g.resource
	}
	text, err := json.Marshal(journal{
		Boot:   b.Boot,
		Pods:   b.pods,
		Grants: grants,
		Uses:   b.uses,
	})
	if err == nil {
		err = files.Overwrite(b.Journal, text, 0o600)
	}
	if os.IsNotExist(err) {
		_ = os.MkdirAll(filepath.Dir(b.Journal), 0o755)
		err = files.Overwrite(b.Journal, text, 0o600)
	}
	b.isOutdated = err != nil
	b.logOnce(err, "holds can't be recorded: after a restart, devices of pods that the kubelet has forgotten may be offered")
	return err
}

// Load reads the journal and the checkpoint. It replaces what was known before: a successor calls it again
// when its predecessor has answered its last call. mayWrite is set if no other instance answers, to which
// the journal belongs.
func (b *Book) Load(ctx context.Context, mayWrite bool) {
	kept := b.readJournal()
	b.mu.Lock()
	b.mayWrite = mayWrite
	b.pods = map[string][]podHold{}
	count := 0
	for slot, pods := range kept.Pods {
		count += len(pods)
		if count > maxHolds {
			break
		}
		for i := range pods {
			pods[i].lostAt = b.Now() // unless the checkpoint has it
		}
		b.pods[slot] = pods
	}
	b.grants = map[string]grant{}
	for slot, resource := range kept.Grants {
		b.grants[slot] = grant{
			resource: resource,
			at:       b.Now(), // its time begins again
			before:   slices.Clone(b.pods[slot]),
		}
	}
	maps.Copy(b.uses, kept.Uses)
	b.reading.hasRead = false
	b.reading.unread = "the kubelet's checkpoint is not read yet"
	b.view = nil
	b.mu.Unlock()
	b.catchUp(ctx, readPatience)
	b.request()
}

// readJournal returns the journal, if it is of this boot. There may be none, or another program has
// replaced it.
func (b *Book) readJournal() (kept journal) {
	err := files.ReadJSON(b.Journal, maxJournal, &kept)
	if err != nil || kept.Boot != b.Boot {
		return journal{}
	}
	return kept
}
