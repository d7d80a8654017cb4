package holds_test

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/generic-dp/generic-dp/internal/holds"
	"github.com/generic-dp/generic-dp/internal/host/cgroup"
)

// BenchmarkGrant grants a slot on a node whose pods have 50 devices, each time another one, so that each grant
// is written.
func BenchmarkGrant(b *testing.B) {
	var entries []string
	for i := range 50 {
		entries = append(entries, fmt.Sprintf(`{"PodUID":"5f1c2b7e-0000-4000-8000-%012d","ResourceName":%q,"DeviceIDs":{"-1":["d%d"]}}`, i, part, i))
	}
	dir := b.TempDir()
	checkpoint := filepath.Join(dir, holds.CheckpointName)
	text := `{"Data":{"PodDeviceEntries":[` + strings.Join(entries, ",") + `]}}`
	if err := os.WriteFile(checkpoint, []byte(text), 0o600); err != nil {
		b.Fatal(err)
	}
	book := holds.New(holds.Options{
		Checkpoint: checkpoint,
		Cgroups:    cgroup.New(""),
		Journal:    filepath.Join(dir, "holds"),
		Now:        time.Now,
		Generation: func() uint64 { return 1 },
		Changed:    func() {},
		Log:        slog.New(slog.DiscardHandler),
	})
	book.Load(b.Context(), true)
	slot := wanted("a")
	other := wanted("b")
	for b.Loop() {
		cancel, err := book.Grant(b.Context(), []holds.Wanted{slot}, []string{slot.ID})
		if err != nil {
			b.Fatal(err)
		}
		cancel()
		slot, other = other, slot
	}
}
