package holds_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/generic-dp/generic-dp/internal/holds"
	"github.com/generic-dp/generic-dp/internal/host/cgroup"
	"github.com/generic-dp/generic-dp/internal/testing/kubelettest"
)

const (
	part = "example.com/part"
	// The UIDs of two pods of an API server, and of a static pod.
	podUID    = "5f1c2b7e-0000-4000-8000-000000000001"
	nextUID   = "5f1c2b7e-0000-4000-8000-000000000002"
	staticUID = "0123456789abcdef0123456789abcdef"
)

// host is what a book knows of the kubelet and of its host.
type host struct {
	*testing.T
	dir     string
	cgroups *kubelettest.Cgroups
	// boot is the number of the boot, and starts counts the starts of the kubelet.
	boot, starts int
	// query answers a query of PodResources, and listAgain follows a list.
	query     func() (map[string]string, error)
	listAgain func()
	// pods are all pods that the kubelet has, and noPods is why it does not say so.
	pods   map[string]bool
	noPods error
	log    bytes.Buffer
}

// onHost runs a test in a bubble: time passes only while everything waits.
func onHost(t *testing.T, test func(*host)) {
	t.Helper()
	t.Parallel()
	dir := t.TempDir()
	cgroups := kubelettest.NewCgroups(t)
	synctest.Test(t, func(t *testing.T) {
		test(&host{
			T:         t,
			dir:       dir,
			cgroups:   cgroups,
			query:     func() (map[string]string, error) { return nil, nil },
			listAgain: func() {},
		})
	})
}

// isOurs says that every resource is this program's.
func (h *host) isOurs(string) bool { return true }

func (h *host) checkpoint() string { return filepath.Join(h.dir, "checkpoint") }

func (h *host) journal() string { return filepath.Join(h.dir, "holds") }

// start starts the program.
func (h *host) start() *holds.Book {
	h.Helper()
	b := h.instance()
	b.Load(h.Context(), true)
	return b
}

// instance is an instance of the program that has loaded nothing.
func (h *host) instance() *holds.Book {
	return holds.New(holds.Options{
		Checkpoint: h.checkpoint(),
		Cgroups:    cgroup.New(h.cgroups.Dir()),
		Journal:    h.journal(),
		Boot:       fmt.Sprint("boot ", h.boot),
		Now:        time.Now,
		Listed:     func(context.Context) (map[string]string, error) { return h.query() },
		ListAgain:  func() { h.listAgain() },
		Pods:       func(context.Context) (map[string]bool, error) { return h.pods, h.noPods },
		Generation: func() uint64 { return uint64(1 + h.starts) },
		Changed:    func() {},
		Log:        slog.New(slog.NewTextHandler(&h.log, nil)),
	})
}

// must ends the test after an error of the test itself.
func (h *host) must(err error) {
	h.Helper()
	if err != nil {
		h.Fatal(err)
	}
}

// write replaces the checkpoint by a rename, as the kubelet does.
func (h *host) write(text string) {
	h.Helper()
	h.must(os.WriteFile(h.checkpoint()+".next", []byte(text), 0o600))
	h.must(os.Rename(h.checkpoint()+".next", h.checkpoint()))
}

// save replaces the checkpoint: pods have the slots that they hold, by UID.
func (h *host) save(pods map[string][]string) {
	h.Helper()
	type entry struct {
		PodUID, ResourceName string
		DeviceIDs            map[string][]string
	}
	entries := []entry{}
	for uid, slots := range pods {
		entries = append(entries, entry{uid, part, map[string][]string{"-1": slots}})
	}
	text, err := json.Marshal(map[string]any{"Data": map[string]any{"PodDeviceEntries": entries}})
	h.must(err)
	h.write(string(text))
}

// read replaces the checkpoint, and has it read.
func (h *host) read(b *holds.Book, pods map[string][]string) {
	h.Helper()
	h.save(pods)
	b.ReadCheckpoint(h.Context())
}

// places makes a device whose places are these.
func places(places ...string) holds.Device { return holds.Device{Places: places} }

// exclusive is an exclusive device.
func exclusive(d holds.Device) holds.Device {
	d.Exclusive = true
	return d
}

// shared is a shared device.
func shared(d holds.Device) holds.Device {
	d.Shared = true
	return d
}

// wanted is a device of the resource part.
func wanted(id string) holds.Wanted {
	return holds.Wanted{ID: id, Resource: part, Slots: 1, Device: places("devices/" + id)}
}

// grant has a container get the first slot of a device.
func (h *host) grant(b *holds.Book, w holds.Wanted) error {
	h.Helper()
	_, err := b.Grant(h.Context(), []holds.Wanted{w}, []string{w.ID})
	return err
}

// mustGrant is grant, which must succeed.
func (h *host) mustGrant(b *holds.Book, w holds.Wanted) {
	h.Helper()
	if err := h.grant(b, w); err != nil {
		h.Errorf("Grant of %s: %v", w.ID, err)
	}
}

// mustRefuse is grant, which must fail for a reason.
func (h *host) mustRefuse(b *holds.Book, w holds.Wanted, why string) {
	h.Helper()
	if err := h.grant(b, w); err == nil || !strings.Contains(err.Error(), why) {
		h.Errorf("Grant of %s: %v, want an error with %q", w.ID, err, why)
	}
}

// wantHolders checks who holds a device: the UIDs of pods and claims, and "grant".
func (h *host) wantHolders(b *holds.Book, when, id string, want ...string) {
	h.Helper()
	got := b.Holders(id)
	if !slices.Equal(got, want) {
		h.Errorf("%s: holders of %s: %q, want %q", when, id, got, want)
	}
}
