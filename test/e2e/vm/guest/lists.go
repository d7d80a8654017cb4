package main

import (
	"context"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/generic-dp/generic-dp/internal/testing/kubelettest"
	"github.com/generic-dp/generic-dp/test/e2e/vm/wire"
)

const linksDir = "/run/generic-dp/links"

// history keeps every list that the kubelet received, with the links at that time.
type history struct {
	kubelet *kubelettest.Kubelet

	mu       sync.Mutex
	lists    map[string][]wire.List
	received map[string]int
	changed  chan struct{}
}

func newHistory(k *kubelettest.Kubelet) *history {
	return &history{kubelet: k, lists: map[string][]wire.List{}, received: map[string]int{}, changed: make(chan struct{})}
}

// run records until ctx ends.
func (h *history) run(ctx context.Context) {
	_ = h.kubelet.WaitFor(ctx, func() bool {
		h.update()
		return false
	})
}

// update adds new lists. Of several, only the last gets links: the others' are unknown.
func (h *history) update() {
	links := readLinks()
	for _, name := range h.kubelet.Resources() {
		_, received := h.kubelet.Latest(name)
		all := h.kubelet.Lists(name)
		h.mu.Lock()
		if n := min(received-h.received[name], len(all)); n > 0 {
			h.received[name] = received
			for i, l := range all[len(all)-n:] {
				list := wire.List{Resource: name, Received: received - n + i + 1, At: l.At, Devices: devices(l)}
				if i == n-1 {
					list.Links = links
				}
				h.lists[name] = append(h.lists[name], list)
			}
			close(h.changed)
			h.changed = make(chan struct{})
		}
		h.mu.Unlock()
	}
}

// of returns the lists of a resource, and a channel that the next list of any resource
// closes.
func (h *history) of(resource string) ([]wire.List, <-chan struct{}) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.lists[resource], h.changed
}

// wait returns the wanted list, or the latest and an error.
func (h *history) wait(w wire.Want) (wire.List, error) {
	deadline := time.NewTimer(w.Within)
	defer deadline.Stop()
	for {
		lists, changed := h.of(w.Resource)
		latest := wire.List{Resource: w.Resource}
		if len(lists) > 0 {
			latest = lists[len(lists)-1]
		}
		if latest.Received > w.After && wanted(latest, w) {
			return latest, nil
		}
		select {
		case <-changed:
		case <-deadline.C:
			return latest, fmt.Errorf("%q: no list of healthy %q and unhealthy %q within %v: list %d is %v",
				w.Resource, w.Healthy, w.Unhealthy, w.Within, latest.Received, latest.Devices)
		}
	}
}

func wanted(l wire.List, w wire.Want) bool {
	want := map[string]bool{}
	for _, id := range w.Unhealthy {
		want[id] = false
	}
	for _, id := range w.Healthy {
		want[id] = true
	}
	have := map[string]bool{}
	for id, d := range l.Devices {
		if _, ok := want[id]; ok || !w.More {
			have[id] = d.Healthy
		}
	}
	return maps.Equal(want, have)
}

func devices(l kubelettest.List) map[string]wire.Device {
	devices := map[string]wire.Device{}
	for _, d := range l.Devices {
		entry := wire.Device{Healthy: d.GetHealth() == v1beta1.Healthy}
		for _, n := range d.GetTopology().GetNodes() {
			entry.NUMA = append(entry.NUMA, n.GetID())
		}
		devices[d.GetID()] = entry
	}
	return devices
}

// readLinks reads the existing links.
func readLinks() map[string]wire.Link {
	links := map[string]wire.Link{}
	_ = filepath.WalkDir(linksDir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.Type() != fs.ModeSymlink {
			return nil // removed meanwhile
		}
		var st unix.Stat_t
		target, err := os.Readlink(path)
		if err != nil || unix.Lstat(path, &st) != nil {
			return nil
		}
		links[strings.TrimPrefix(path, linksDir+"/")] = wire.Link{Target: target, Made: time.Unix(st.Ctim.Unix())}
		return nil
	})
	return links
}
