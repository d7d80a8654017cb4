package exclusive_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/generic-dp/generic-dp/internal/agent/exclusive"
	"github.com/generic-dp/generic-dp/internal/device"
)

// clock is the clock of the instances of a test.
type clock struct {
	mu  sync.Mutex
	at  time.Time
	now func() time.Time
}

func newClock() *clock {
	c := &clock{at: time.Unix(1_000_000, 0)}
	c.now = func() time.Time {
		c.mu.Lock()
		defer c.mu.Unlock()
		return c.at
	}
	return c
}

func (c *clock) forward(by time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at = c.at.Add(by)
}

func stick(id string, places ...string) exclusive.Device {
	return exclusive.Device{ID: id, Resource: "example.com/" + id, Places: places}
}

func nobody(string) bool { return false }

// Random calls of two instances: a grant is given exactly if no device with a conflicting place is
// granted, and ends exactly if it is old enough and no container holds its device.
func TestRegistryAgreesWithConflict(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(5, 6))
	for range 30 {
		dir := filepath.Join(t.TempDir(), "exclusive")
		clock := newClock()
		instances := []*exclusive.Registry{exclusive.New(dir, "boot", clock.now), exclusive.New(dir, "boot", clock.now)}
		devices := make([]exclusive.Device, 8)
		for i := range devices {
			devices[i] = stick(fmt.Sprint("d", i), randomPlace(random))
		}
		// granted has the latest time at which an instance may have seen a grant of each device.
		granted := map[string]time.Time{}
		for range 60 {
			instance := instances[random.IntN(2)]
			d := devices[random.IntN(len(devices))]
			rival := ""
			for _, other := range devices {
				_, isGranted := granted[other.ID]
				if isGranted && other.ID != d.ID && device.Conflict(d.Places, other.Places) {
					rival = other.ID
				}
			}
			switch random.IntN(4) {
			case 0:
				clock.forward(2 * exclusive.Margin)
				held := devices[random.IntN(len(devices))].ID
				for _, i := range instances {
					_, _ = i.Grants() // each instance sees all grants, with this time at the latest
				}
				clock.forward(exclusive.Margin)
				instance.Release(clock.now(), func(id string) bool { return id == held })
				for id := range granted {
					if id != held {
						delete(granted, id)
					}
				}
			case 1:
				clock.forward(exclusive.Margin / 10)
				areNew := true
				for _, at := range granted {
					areNew = areNew && clock.now().Before(at.Add(exclusive.Margin))
				}
				if areNew {
					instance.Release(clock.now(), nobody)
				}
			default:
				cancel, err := instance.Reserve([]exclusive.Device{d})
				if (err != nil) != (rival != "") {
					t.Fatalf("Reserve(%v) with %v of %v: %v", d, granted, devices, err)
				}
				_, wasGranted := granted[d.ID]
				if err == nil && !wasGranted && random.IntN(3) == 0 {
					cancel()
				} else if err == nil && !wasGranted {
					granted[d.ID] = clock.now()
				}
			}
			for i, instance := range instances {
				now, err := instance.Grants()
				if err != nil || len(now) != len(granted) {
					t.Fatalf("instance %d has the grants %v, %v: want %v", i, now, err, granted)
				}
			}
		}
	}
}

// randomPlace returns a place in a small tree.
func randomPlace(random *rand.Rand) string {
	var parts []string
	for range random.IntN(4) + 1 {
		parts = append(parts, string(rune('a'+random.IntN(2))))
	}
	return strings.Join(parts, "/")
}

// Of two instances that are asked for rivals at the same time, at most one grants.
func TestTwoInstancesAtTheSameTime(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "exclusive")
	clock := newClock()
	hub := stick("hub", "usb1/1-2")
	port := stick("port", "usb1/1-2/1-2.1")
	for range 200 {
		errs := make([]error, 4)
		cancels := make([]func(), 4)
		var calls sync.WaitGroup
		for i, d := range []exclusive.Device{hub, port, hub, port} {
			instance := exclusive.New(dir, "boot", clock.now)
			calls.Go(func() {
				cancels[i], errs[i] = instance.Reserve([]exclusive.Device{d})
			})
		}
		calls.Wait()
		hasHub := errs[0] == nil || errs[2] == nil
		hasPort := errs[1] == nil || errs[3] == nil
		if hasHub && hasPort {
			t.Fatalf("both are granted: %v", errs)
		}
		for i := range cancels {
			if errs[i] == nil {
				cancels[i]()
			}
		}
	}
	if files, err := os.ReadDir(dir); err != nil || len(files) > 0 {
		t.Errorf("%d files are left: %v", len(files), err)
	}
}

// A grant of an earlier instance counts as new, since its clock is not known. A grant of an earlier
// boot ends, because no container survives that.
func TestGrantOfAnEarlierInstance(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "exclusive")
	clock := newClock()
	a := stick("a", "place")
	b := stick("b", "place/part")
	first := exclusive.New(dir, "boot", clock.now)
	if _, err := first.Reserve([]exclusive.Device{a}); err != nil {
		t.Fatal(err)
	}
	clock.forward(time.Hour)
	second := exclusive.New(dir, "boot", clock.now)
	if err := second.Conflict(b); err == nil || !strings.Contains(err.Error(), "held as a through example.com/a") {
		t.Errorf("Conflict: %v", err)
	}
	second.Release(clock.now(), nobody)
	if grants, _ := second.Grants(); len(grants) != 1 {
		t.Errorf("grants are %v: want a", grants)
	}
	next := exclusive.New(dir, "next boot", clock.now)
	if _, err := next.Reserve([]exclusive.Device{b}); err != nil {
		t.Error(err)
	}
}

// A file that is too large to be read may be the grant of any device.
func TestUnreadableGrant(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "exclusive")
	registry := exclusive.New(dir, "boot", time.Now)
	err := os.MkdirAll(dir, 0o700)
	err = errors.Join(err, os.WriteFile(filepath.Join(dir, "large"), make([]byte, 2<<20), 0o600))
	if err != nil {
		t.Fatal(err)
	}
	_, err = registry.Reserve([]exclusive.Device{stick("a", "place")})
	if err == nil || !strings.Contains(err.Error(), "large") {
		t.Errorf("Reserve: %v", err)
	}
	if files, _ := os.ReadDir(dir); len(files) != 1 {
		t.Errorf("%d files: want only the large one", len(files))
	}
}

// What is not a grant refuses no device: a file that does not parse is removed, and other kinds of
// files are ignored.
func TestFilesThatAreNoGrants(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "exclusive")
	registry := exclusive.New(dir, "boot", time.Now)
	err := os.MkdirAll(filepath.Join(dir, "directory"), 0o700)
	err = errors.Join(err, os.WriteFile(filepath.Join(dir, "broken"), []byte("{"), 0o600))
	err = errors.Join(err, os.WriteFile(filepath.Join(dir, "empty"), nil, 0o600))
	err = errors.Join(err, os.Symlink("loop", filepath.Join(dir, "loop")))
	if err != nil {
		t.Fatal(err)
	}
	cancel, err := registry.Reserve([]exclusive.Device{stick("a", "place")})
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	files, _ := os.ReadDir(dir)
	var names []string
	for _, f := range files {
		names = append(names, f.Name())
	}
	if want := []string{"directory", "loop"}; !slices.Equal(names, want) {
		t.Errorf("files: %q, want %q", names, want)
	}
}
