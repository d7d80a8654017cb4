package holders_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/generic-dp/generic-dp/internal/agent/holders"
	"github.com/generic-dp/generic-dp/internal/host/cgroup"
	"github.com/generic-dp/generic-dp/internal/kubelet/checkpoint"
	"github.com/generic-dp/generic-dp/internal/ledger"
	"github.com/generic-dp/generic-dp/internal/testing/kubelettest"
)

const (
	resource = "example.com/part"
	slot     = "part-0"
	other    = "part-1"
	// The UIDs of a pod of an API server, and of a static pod.
	podUID    = "5f1c2b7e-0000-4000-8000-000000000001"
	nextUID   = "5f1c2b7e-0000-4000-8000-000000000002"
	staticUID = "0123456789abcdef0123456789abcdef"
	// limit is the timeout of everything that a test waits for.
	limit = 20 * time.Second
)

// kubelet is what a tracker knows of the kubelet and of the host.
type kubelet struct {
	testing.TB
	checkpoint string
	cgroups    *kubelettest.Cgroups
	// changed has a value for each call of Options.Changed, up to its capacity.
	changed chan struct{}
	// queries has a value for each call of Options.Held. It has no capacity, so that the kubelet
	// answers once the test has received the value. A nil channel is not used.
	queries chan struct{}

	mu         sync.Mutex
	held       map[string]string
	heldErr    error
	pods       map[string]bool
	generation uint64
	log        bytes.Buffer
}

func newKubelet(t *testing.T) *kubelet {
	return &kubelet{
		TB:         t,
		checkpoint: filepath.Join(t.TempDir(), checkpoint.Name),
		cgroups:    kubelettest.NewCgroups(t),
		changed:    make(chan struct{}, 100),
		generation: 1,
	}
}

// tracker returns a tracker that watches this kubelet.
func (k *kubelet) tracker() *holders.Tracker {
	return holders.New(holders.Options{
		Checkpoint: k.checkpoint,
		Cgroups:    cgroup.New(k.cgroups.Dir()),
		IsOurs: func(name string) bool {
			return name == resource
		},
		Held: func(ctx context.Context) (map[string]string, bool, error) {
			if k.queries != nil {
				select {
				case k.queries <- struct{}{}:
				case <-ctx.Done():
				}
			}
			k.mu.Lock()
			defer k.mu.Unlock()
			return k.held, true, k.heldErr
		},
		Pods: func(context.Context) (map[string]bool, error) {
			k.mu.Lock()
			defer k.mu.Unlock()
			return k.pods, nil
		},
		Generation: func() uint64 {
			k.mu.Lock()
			defer k.mu.Unlock()
			return k.generation
		},
		Changed: func() {
			k.changed <- struct{}{}
		},
		Log: slog.New(slog.NewTextHandler(k, nil)),
	})
}

// Write implements io.Writer for the log.
func (k *kubelet) Write(text []byte) (int, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.log.Write(text)
}

// logged counts a message in the log.
func (k *kubelet) logged(message string) int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return strings.Count(k.log.String(), message)
}

// save replaces the checkpoint: pods have the slots that they hold, by UID.
func (k *kubelet) save(pods map[string][]string) {
	k.Helper()
	type entry struct {
		PodUID       string
		ResourceName string
		DeviceIDs    map[string][]string
	}
	entries := []entry{}
	for uid, slots := range pods {
		entries = append(entries, entry{uid, resource, map[string][]string{"-1": slots}})
	}
	text, err := json.Marshal(map[string]any{"Data": map[string]any{"PodDeviceEntries": entries}})
	if err != nil {
		k.Fatal(err)
	}
	k.write(text)
}

// write replaces the checkpoint by a rename, as the kubelet does.
func (k *kubelet) write(text []byte) {
	k.Helper()
	err := os.WriteFile(k.checkpoint+".next", text, 0o600)
	if err == nil {
		err = os.Rename(k.checkpoint+".next", k.checkpoint)
	}
	if err != nil {
		k.Fatal(err)
	}
}

// run runs a tracker until the test ends. The result announces a new checkpoint.
func (k *kubelet) run(tracker *holders.Tracker) chan<- struct{} {
	k.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	announce := make(chan struct{})
	ended := make(chan error, 1)
	go func() {
		ended <- tracker.Run(ctx, announce)
	}()
	k.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			k.Errorf("Run: %v", err)
		}
	})
	return announce
}

// awaitQuery waits for a query of the held slots, and has it answered.
func (k *kubelet) awaitQuery() {
	k.Helper()
	select {
	case <-k.queries:
	case <-time.After(limit):
		k.Fatal("the kubelet is not queried")
	}
}

// awaitHold waits until the tracker knows a hold.
func (k *kubelet) awaitHold(tracker *holders.Tracker, hold ledger.Hold) {
	k.Helper()
	deadline := time.Now().Add(limit)
	for !slices.Contains(tracker.Save(), hold) {
		if time.Now().After(deadline) {
			k.Fatalf("%+v is not among %+v", hold, tracker.Save())
		}
		runtime.Gosched()
	}
}

// awaitUnhealthy waits until exactly these slots are unhealthy.
func (k *kubelet) awaitUnhealthy(tracker *holders.Tracker, slots ...string) {
	k.Helper()
	deadline := time.After(limit)
	for {
		var unhealthy []string
		for id := range tracker.Unhealthy() {
			unhealthy = append(unhealthy, id)
		}
		slices.Sort(unhealthy)
		if slices.Equal(unhealthy, slots) {
			return
		}
		select {
		case <-k.changed:
		case <-deadline:
			k.Fatalf("unhealthy slots: %q, want %q", unhealthy, slots)
		}
	}
}

// A slot is refused, and unhealthy, while the pod that had it runs, and for no longer.
func TestSlotOfRunningPodIsRefused(t *testing.T) {
	t.Parallel()
	k := newKubelet(t)
	k.save(map[string][]string{podUID: {slot}})
	k.cgroups.Start(podUID)
	tracker := k.tracker()
	err := tracker.Check(t.Context(), []string{other, slot})
	if err == nil || !strings.Contains(err.Error(), podUID) || !strings.Contains(err.Error(), slot) {
		t.Fatalf("Check: %v, want an error that names %s and %s", err, slot, podUID)
	}
	if reason := tracker.Unhealthy()[slot]; !strings.Contains(reason, podUID) {
		t.Errorf("reason %q, want one that names %s", reason, podUID)
	}
	if err := tracker.Check(t.Context(), []string{other}); err != nil {
		t.Errorf("Check of the other slot: %v", err)
	}
	k.cgroups.End(podUID)
	k.run(tracker)
	k.awaitUnhealthy(tracker)
	if err := tracker.Check(t.Context(), []string{slot}); err != nil {
		t.Errorf("Check after the end of the pod: %v", err)
	}
}

// A checkpoint that was replaced since an allocation is read before the next one.
func TestCheckReadsWhatWasGranted(t *testing.T) {
	t.Parallel()
	k := newKubelet(t)
	k.save(nil)
	tracker := k.tracker()
	if err := tracker.Check(t.Context(), []string{slot}); err != nil {
		t.Fatal(err)
	}
	tracker.Granted([]string{slot})
	k.save(map[string][]string{podUID: {slot}})
	k.cgroups.Start(podUID)
	if err := tracker.Check(t.Context(), []string{slot}); err == nil {
		t.Error("the slot is free although a pod that got it runs")
	}
}

// The slot of a pod that the kubelet has forgotten turns unhealthy, and counts as held.
func TestForgottenPod(t *testing.T) {
	t.Parallel()
	k := newKubelet(t)
	k.save(map[string][]string{podUID: {slot}, nextUID: {other}})
	k.cgroups.Start(podUID)
	k.cgroups.Start(nextUID)
	tracker := k.tracker()
	if err := tracker.Check(t.Context(), []string{"part-2"}); err != nil { // this reads the checkpoint
		t.Fatal(err)
	}
	announce := k.run(tracker)
	k.save(map[string][]string{nextUID: {other}})
	announce <- struct{}{}
	k.awaitUnhealthy(tracker, slot)
	held := ledger.Held{IDs: map[string]string{other: resource}} // as the kubelet lists them
	tracker.AddForgotten(t.Context(), &held)
	if len(held.IDs) != 2 || held.IDs[slot] != resource {
		t.Errorf("held slots: %v, want also %s of %s", held.IDs, slot, resource)
	}
	k.save(map[string][]string{podUID: {slot}, nextUID: {other}}) // the kubelet has the pod again
	announce <- struct{}{}
	k.awaitUnhealthy(tracker)
}

// The kubelet does not list a device that only an init container holds, and the pod has no process
// while it waits for a volume.
func TestPodThatWaitsForAVolume(t *testing.T) {
	t.Parallel()
	k := newKubelet(t)
	k.save(map[string][]string{podUID: {slot}, nextUID: {other}})
	k.cgroups.Wait(podUID)
	tracker := k.tracker()
	held := ledger.Held{IDs: map[string]string{}}
	tracker.AddForgotten(t.Context(), &held)
	want := map[string]string{slot: resource}
	if held.Partial || !maps.Equal(held.IDs, want) {
		t.Errorf("held slots: %v, partial: %t; want %v", held.IDs, held.Partial, want)
	}
	k.cgroups.End(podUID)
	held = ledger.Held{IDs: map[string]string{}}
	tracker.AddForgotten(t.Context(), &held)
	if held.Partial || len(held.IDs) > 0 {
		t.Errorf("held slots after the end of the pod: %v, partial: %t", held.IDs, held.Partial)
	}
}

// It is not known who holds devices while the checkpoint can't be read.
func TestHoldersOfAnUnreadCheckpoint(t *testing.T) {
	t.Parallel()
	k := newKubelet(t)
	k.write([]byte("{"))
	tracker := k.tracker()
	held := ledger.Held{IDs: map[string]string{}}
	tracker.AddForgotten(t.Context(), &held)
	if !held.Partial {
		t.Error("the held slots count as complete")
	}
}

// A pod that is missing from the checkpoint is not forgotten if the kubelet lists it, or if it
// is unknown what the kubelet lists.
func TestPodIsNotForgotten(t *testing.T) {
	t.Parallel()
	for name, k := range map[string]*kubelet{
		"the kubelet lists it":        {held: map[string]string{slot: "default/pod"}},
		"the kubelet does not answer": {heldErr: errors.New("no answer")},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			next := newKubelet(t)
			next.held = k.held
			next.heldErr = k.heldErr
			next.cgroups.Start(podUID)
			tracker := next.tracker()
			tracker.Restore([]ledger.Hold{{Slot: slot, Pod: podUID, Resource: resource}})
			next.queries = make(chan struct{})
			announce := next.run(tracker)
			next.awaitQuery()
			announce <- struct{}{}
			next.awaitQuery() // the first look has ended
			if unhealthy := tracker.Unhealthy(); len(unhealthy) > 0 {
				t.Errorf("unhealthy slots: %v", unhealthy)
			}
		})
	}
}

// A checkpoint is read while the kubelet does not answer a query: the next version may not have its
// pods any more.
func TestReadsDuringQuery(t *testing.T) {
	t.Parallel()
	k := newKubelet(t)
	k.queries = make(chan struct{})
	k.cgroups.Start(podUID)
	k.cgroups.Start(nextUID)
	tracker := k.tracker()
	tracker.Restore([]ledger.Hold{{Slot: slot, Pod: podUID, Resource: resource}})
	announce := k.run(tracker)
	// From now on, a query about the first pod waits for its answer.
	for _, pods := range []map[string][]string{{nextUID: {other}}, {}} {
		k.save(pods)
		select {
		case announce <- struct{}{}:
		case <-time.After(limit):
			t.Fatal("the checkpoint is not read")
		}
		k.awaitHold(tracker, ledger.Hold{Slot: other, Pod: nextUID, Resource: resource})
	}
}

// The next version of a static pod gets the device of the former one. No other pod gets it, and
// nor does any after a restart of the kubelet.
func TestSuccessorOfStaticPod(t *testing.T) {
	t.Parallel()
	k := newKubelet(t)
	k.save(map[string][]string{staticUID: {slot}})
	k.cgroups.Start(staticUID)
	k.held = map[string]string{slot: "default/static"}
	tracker := k.tracker()
	announce := k.run(tracker)
	announce <- struct{}{}
	k.awaitHold(tracker, ledger.Hold{Slot: slot, Pod: staticUID, Resource: resource, Name: "default/static"})
	for name, test := range map[string]struct {
		pods       map[string]bool
		generation uint64
		isFree     bool
	}{
		"its next version":             {map[string]bool{"default/static": true}, 1, true},
		"another pod":                  {map[string]bool{"default/other": true}, 1, false},
		"after a start of the kubelet": {map[string]bool{"default/static": true}, 2, false},
	} {
		k.mu.Lock()
		k.pods = test.pods
		k.generation = test.generation
		k.mu.Unlock()
		if err := tracker.Check(t.Context(), []string{slot}); (err == nil) != test.isFree {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// What one instance saves, the next one knows, even if the checkpoint has lost it.
func TestSaveAndRestore(t *testing.T) {
	t.Parallel()
	k := newKubelet(t)
	k.save(map[string][]string{podUID: {slot}})
	first := k.tracker()
	if err := first.Check(t.Context(), []string{slot}); err != nil {
		t.Fatal(err)
	}
	saved := first.Save()
	want := []ledger.Hold{{Slot: slot, Pod: podUID, Resource: resource}}
	if !slices.Equal(saved, want) {
		t.Fatalf("saved %v, want %v", saved, want)
	}
	k.save(nil)
	k.cgroups.Start(podUID)
	second := k.tracker()
	second.Restore(saved)
	second.Restore(saved) // by the instance that takes over the lock
	if again := second.Save(); !slices.Equal(again, want) {
		t.Errorf("restored %v, want %v", again, want)
	}
	if err := second.Check(t.Context(), []string{slot}); err == nil {
		t.Error("the slot is free although the pod that got it runs")
	}
}

// A checkpoint that names endless pods for one slot takes limited memory when it is lost.
func TestHoldsAreLimited(t *testing.T) {
	t.Parallel()
	k := newKubelet(t)
	var saved []ledger.Hold
	for i := range 100 {
		saved = append(saved, ledger.Hold{Slot: slot, Pod: strings.Repeat("a", 1+i), Resource: resource})
	}
	tracker := k.tracker()
	tracker.Restore(saved)
	if n := len(tracker.Save()); n != 4 {
		t.Errorf("%d pods are remembered for one slot, want 4", n)
	}
}

// A pod whose cgroup cannot be read may run.
func TestUnreadablePod(t *testing.T) {
	t.Parallel()
	k := newKubelet(t)
	k.save(map[string][]string{podUID: {slot}})
	k.cgroups.Start(podUID)
	events := filepath.Join(k.cgroups.Dir(), "kubepods", "burstable", "pod"+podUID, "cgroup.events")
	if err := os.WriteFile(events, []byte("unreadable"), 0o600); err != nil {
		t.Fatal(err)
	}
	tracker := k.tracker()
	if err := tracker.Check(t.Context(), []string{slot}); err == nil {
		t.Error("the slot is free although the state of its last pod can't be read")
	}
	held := ledger.Held{IDs: map[string]string{}}
	tracker.AddForgotten(t.Context(), &held)
	if held.IDs[slot] != resource {
		t.Errorf("held slots: %v, want %s", held.IDs, slot)
	}
	k.cgroups.End(podUID)
	if err := tracker.Check(t.Context(), []string{slot}); err != nil {
		t.Error(err)
	}
}

// A broken checkpoint is logged once, and changes nothing.
func TestBrokenCheckpoint(t *testing.T) {
	t.Parallel()
	k := newKubelet(t)
	tracker := k.tracker()
	announce := k.run(tracker)
	for _, text := range []string{"{", "{ "} {
		k.write([]byte(text))
		announce <- struct{}{}
	}
	announce <- struct{}{}
	if n := k.logged("the kubelet's checkpoint can't be read"); n != 1 {
		t.Errorf("logged %d times, want once", n)
	}
	if err := tracker.Check(t.Context(), []string{slot}); err != nil {
		t.Error(err)
	}
}

// A host without a kubelet has no tracker.
func TestNoTracker(t *testing.T) {
	t.Parallel()
	var tracker *holders.Tracker
	if err := tracker.Check(t.Context(), []string{slot}); err != nil {
		t.Error(err)
	}
	tracker.Granted([]string{slot})
	tracker.ReadAgain()
	tracker.Restore([]ledger.Hold{{Slot: slot, Pod: podUID}})
	held := ledger.Held{IDs: map[string]string{}}
	tracker.AddForgotten(t.Context(), &held)
	if len(held.IDs) > 0 || tracker.Save() != nil || tracker.Unhealthy() != nil {
		t.Errorf("held %v, saved %v, unhealthy %v", held.IDs, tracker.Save(), tracker.Unhealthy())
	}
}
