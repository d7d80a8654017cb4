package inventory_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/generic-dp/generic-dp/internal/device"
	"github.com/generic-dp/generic-dp/internal/host/inventory"
)

// watch runs a watcher until the end of the test, starting with its first batch.
func watch(t *testing.T, o inventory.WatchOptions) *inventory.Watcher {
	t.Helper()
	w := inventory.NewWatcher(o)
	goes(t, w.Run)
	<-w.Changes()
	w.Take()
	return w
}

// loopDevice makes an unused loop device.
func loopDevice(t *testing.T) (number int, remove func()) {
	t.Helper()
	control, err := os.OpenFile("/dev/loop-control", os.O_RDWR, 0)
	if err != nil {
		t.Skipf("no loop devices here: %v", err)
	}
	t.Cleanup(func() { control.Close() })
	fd := int(control.Fd())
	for {
		number = 1000 + rand.IntN(100000)
		err := unix.IoctlSetInt(fd, unix.LOOP_CTL_ADD, number)
		if err == nil {
			break
		}
		if !errors.Is(err, unix.EEXIST) {
			t.Skipf("making a loop device is refused here: %v", err)
		}
	}
	remove = sync.OnceFunc(func() {
		// Another process may have it open, to probe it.
		for {
			err := unix.IoctlSetInt(fd, unix.LOOP_CTL_REMOVE, number)
			if err == nil {
				return
			}
			if !errors.Is(err, unix.EBUSY) && !errors.Is(err, unix.EINTR) {
				t.Errorf("removing loop device %d: %v", number, err)
				return
			}
		}
	})
	t.Cleanup(remove)
	return number, remove
}

// On a real host an added or removed device is announced by the kernel, and found by the
// next scan.
func TestLoopDeviceOnThisHost(t *testing.T) {
	t.Parallel()
	w := watch(t, inventory.WatchOptions{})
	if d := w.Degraded(); d != nil {
		t.Skipf("events are refused here: %q", d)
	}
	s := inventory.New(inventory.Options{})
	seen := func(path string, b inventory.Batch) *device.Node {
		snap, err := s.Update(t.Context(), b)
		if err != nil {
			t.Fatal(err)
		}
		for _, n := range snap.Nodes {
			if n.Path == path {
				return n
			}
		}
		return nil
	}
	number, remove := loopDevice(t)
	name := "loop" + strconv.Itoa(number)
	sysPath := "devices/virtual/block/" + name
	// Other devices may come and go meanwhile.
	announced := false
	until(t, w, "the new device", func(b inventory.Batch) bool {
		announced = announced || slices.Contains(b.Paths, sysPath)
		here := seen("/dev/"+name, b) != nil
		return announced && here
	})
	n := seen("/dev/"+name, inventory.Batch{})
	want := &device.Node{
		Path: "/dev/" + name, Type: device.BlockNode, Major: 7, Minor: n.Minor, Kernel: name, SysPath: sysPath, Subsystem: "block",
		Interface: -1, Index: -1,
	}
	if diff := cmp.Diff(want, n); diff != "" {
		t.Error(diff)
	}
	announced = false
	remove()
	until(t, w, "the removal", func(b inventory.Batch) bool {
		announced = announced || slices.Contains(b.Paths, sysPath)
		gone := seen("/dev/"+name, b) == nil
		return announced && gone
	})
}

// goes runs run until the end of the test.
func goes(t *testing.T, run func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("%v; want nil once cancelled", err)
		}
	})
}

// until takes batches until done returns true.
func until(t *testing.T, w *inventory.Watcher, what string, done func(inventory.Batch) bool) {
	t.Helper()
	deadline := time.After(20 * time.Second)
	for {
		select {
		case <-w.Changes():
			if done(w.Take()) {
				return
			}
		case <-deadline:
			t.Fatalf("%s: not seen in 20 s", what)
		}
	}
}
