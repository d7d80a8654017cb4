package kubelettest

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

// maxHistory is how many lists per resource are kept.
const maxHistory = 1024

// resource is the kubelet's state of one resource.
type resource struct {
	plugin        *client   // in use
	stopped       time.Time // when that was lost; zero if it was not
	connected     []*client // all plugins of the resource
	registrations int
	devices       []*v1beta1.Device // the latest list
	stale         bool              // all devices count as unhealthy
	lists         []List
	received      int
}

// List is a list that a plugin sent.
type List struct {
	// Socket is the path of the plugin's socket.
	Socket  string
	At      time.Time
	Devices []*v1beta1.Device
}

// Healthy returns the IDs of the healthy devices, sorted.
func (l List) Healthy() []string { return l.ids(true) }

// Unhealthy returns the IDs of the others, sorted.
func (l List) Unhealthy() []string { return l.ids(false) }

func (l List) ids(healthy bool) []string {
	var ids []string
	for _, d := range l.Devices {
		if (d.GetHealth() == v1beta1.Healthy) == healthy {
			ids = append(ids, d.GetID())
		}
	}
	slices.Sort(ids)
	return ids
}

// Count is a resource in the node's status.
type Count struct {
	// Known: the node's status has the resource.
	Known                 bool
	Capacity, Allocatable int
}

// forget keeps only what a checkpoint has: the name.
func (r *resource) forget() {
	r.plugin, r.stopped = nil, time.Now()
	r.connected, r.devices = nil, nil
}

// find returns the client connected at the path socket; nil is none.
func (r *resource) find(socket string) *client {
	if i := slices.IndexFunc(r.connected, func(c *client) bool { return c.socket == socket }); i >= 0 {
		return r.connected[i]
	}
	return nil
}

// take takes a list from any plugin: the last writer wins.
func (r *resource) take(c *client, devices []*v1beta1.Device) {
	r.devices, r.stale = devices, false
	r.received++
	r.lists = append(r.lists, List{Socket: c.socket, At: time.Now(), Devices: devices})
	if len(r.lists) > maxHistory {
		r.lists = slices.Delete(r.lists, 0, len(r.lists)-maxHistory)
	}
}

// disconnect records that c is lost.
func (r *resource) disconnect(c *client, keying Keying) {
	if keying == ByResource {
		r.connected = nil
	} else if c = r.find(c.socket); c != nil {
		r.connected = slices.DeleteFunc(r.connected, func(other *client) bool { return other == c })
	} else {
		return
	}
	if len(r.connected) == 0 {
		r.stopped, r.stale = time.Now(), true
		return
	}
	r.plugin = r.connected[0]
}

// update changes the state and wakes all waiters.
func (k *Kubelet) update(f func()) {
	k.mu.Lock()
	defer k.mu.Unlock()
	f()
	close(k.changed)
	k.changed = make(chan struct{})
}

// Changed returns a channel that is closed at the next change of the kubelet's state.
func (k *Kubelet) Changed() <-chan struct{} {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.changed
}

// WaitFor returns when condition holds, which is called at once and after every change.
// Its error is ctx's.
func (k *Kubelet) WaitFor(ctx context.Context, condition func() bool) error {
	for {
		changed := k.Changed()
		if condition() {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("wait for the kubelet: %w", ctx.Err())
		}
	}
}

// WaitAllocatable returns when n devices of the resource are allocatable.
func (k *Kubelet) WaitAllocatable(ctx context.Context, name string, n int) error {
	err := k.WaitFor(ctx, func() bool {
		c := k.Count(name)
		return c.Known && c.Allocatable == n
	})
	if err != nil {
		return fmt.Errorf("%d allocatable of %q, have %+v: %w", n, name, k.Count(name), err)
	}
	return nil
}

// Resources lists the names of all resources that ever registered, sorted.
func (k *Kubelet) Resources() []string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.Sorted(maps.Keys(k.resources))
}

// Count returns a resource's count in the node's status. A resource without a plugin
// keeps its capacity until the grace period ends.
func (k *Kubelet) Count(name string) (c Count) {
	k.read(name, func(r *resource) {
		if r.stopped.IsZero() || time.Since(r.stopped) <= k.opts.StopGrace {
			c = Count{Known: true, Capacity: len(r.devices), Allocatable: len(r.healthy())}
		}
	})
	return c
}

// healthy returns the IDs of the allocatable devices.
func (r *resource) healthy() map[string]bool {
	ids := map[string]bool{}
	for _, d := range r.devices {
		if !r.stale && d.GetHealth() == v1beta1.Healthy {
			ids[d.GetID()] = true
		}
	}
	return ids
}

// numa returns the NUMA nodes of a device, none if it is not listed.
func (r *resource) numa(id string) []int64 {
	var nodes []int64
	if r == nil {
		return nil
	}
	for _, d := range r.devices {
		if d.GetID() == id {
			for _, n := range d.GetTopology().GetNodes() {
				nodes = append(nodes, n.GetID())
			}
		}
	}
	return nodes
}

// read calls f with a known resource.
func (k *Kubelet) read(name string, f func(*resource)) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if r := k.resources[name]; r != nil {
		f(r)
	}
}

// Lists returns the lists received for a resource, oldest first, up to a limit.
func (k *Kubelet) Lists(name string) (lists []List) {
	k.read(name, func(r *resource) { lists = slices.Clone(r.lists) })
	return lists
}

// Latest returns the latest list received for a resource, in any run of the kubelet,
// and how many were received in total.
func (k *Kubelet) Latest(name string) (latest List, received int) {
	k.read(name, func(r *resource) {
		if received = r.received; received > 0 {
			latest = r.lists[len(r.lists)-1]
		}
	})
	return latest, received
}

// Connected returns the paths of the connected sockets of a resource.
func (k *Kubelet) Connected(name string) (sockets []string) {
	k.read(name, func(r *resource) {
		for _, c := range r.connected {
			sockets = append(sockets, c.socket)
		}
	})
	return sockets
}

// Registrations returns how often the kubelet accepted a resource.
func (k *Kubelet) Registrations(name string) (n int) {
	k.read(name, func(r *resource) { n = r.registrations })
	return n
}

// Requests returns every Register call for a resource, accepted or not.
func (k *Kubelet) Requests(name string) []Request {
	k.mu.Lock()
	defer k.mu.Unlock()
	var requests []Request
	for _, r := range k.requests {
		if r.Resource == name {
			requests = append(requests, r)
		}
	}
	return requests
}
