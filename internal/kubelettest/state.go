package kubelettest

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

// maxHistory is how many lists of a resource are kept.
const maxHistory = 1024

// resource is what the kubelet knows of one resource.
type resource struct {
	endpoint      *endpoint   // who is asked for it
	connected     []*endpoint // everyone who offers it
	registrations int
	devices       []*v1beta1.Device // the latest list
	stale         bool              // all devices count as unhealthy
	lists         []List
	received      int
}

// endpoint is a plugin that was connected. stopped is when it was lost; zero is
// not yet.
type endpoint struct {
	client  *client
	options *v1beta1.DevicePluginOptions
	stopped time.Time
}

// List is one list that a plugin sent.
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

// Count is what the node's status says of a resource.
type Count struct {
	// Known: the node's status has the resource.
	Known                 bool
	Capacity, Allocatable int
}

// forget leaves what a checkpoint keeps: the name.
func (r *resource) forget() {
	r.endpoint = &endpoint{stopped: time.Now()}
	r.connected, r.devices = nil, nil
}

// find returns the endpoint connected at the path socket; nil is none.
func (r *resource) find(socket string) *endpoint {
	for _, e := range r.connected {
		if e.client.socket == socket {
			return e
		}
	}
	return nil
}

// take takes a list, from whichever plugin: the last one to write wins.
func (r *resource) take(c *client, devices []*v1beta1.Device) {
	r.devices, r.stale = devices, false
	r.received++
	r.lists = append(r.lists, List{Socket: c.socket, At: time.Now(), Devices: devices})
	if len(r.lists) > maxHistory {
		r.lists = slices.Delete(r.lists, 0, len(r.lists)-maxHistory)
	}
}

// disconnect takes note that c is lost.
func (r *resource) disconnect(c *client, keying Keying) {
	if keying == ByResource {
		r.endpoint.stopped, r.connected, r.stale = time.Now(), nil, true
		return
	}
	e := r.find(c.socket)
	if e == nil {
		return
	}
	e.stopped = time.Now()
	r.connected = slices.DeleteFunc(r.connected, func(other *endpoint) bool { return other == e })
	if len(r.connected) == 0 {
		r.stale = true
		return
	}
	r.endpoint = r.connected[0]
}

// update changes the state and tells everyone who waits.
func (k *Kubelet) update(f func()) {
	k.mu.Lock()
	defer k.mu.Unlock()
	f()
	close(k.changed)
	k.changed = make(chan struct{})
}

// Changed returns a channel that is closed at the next change of whatever can be
// asked of the kubelet.
func (k *Kubelet) Changed() <-chan struct{} {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.changed
}

// WaitFor returns when condition holds, which is asked at once and after every
// change. Its error is ctx's.
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

// Count returns what the node's status says of a resource. A resource whose
// plugin is gone has its capacity until the grace period ends.
func (k *Kubelet) Count(name string) Count {
	k.mu.Lock()
	defer k.mu.Unlock()
	r := k.resources[name]
	if r == nil || !r.endpoint.stopped.IsZero() && time.Since(r.endpoint.stopped) > k.opts.StopGrace {
		return Count{}
	}
	return Count{Known: true, Capacity: len(r.devices), Allocatable: len(r.healthy())}
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

// numa returns the NUMA nodes of a device, none where it is not listed.
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

// Lists returns the lists received for a resource, oldest first; of a great many
// the latest.
func (k *Kubelet) Lists(name string) []List {
	k.mu.Lock()
	defer k.mu.Unlock()
	if r := k.resources[name]; r != nil {
		return slices.Clone(r.lists)
	}
	return nil
}

// Latest returns the latest list received for a resource, in whichever life of
// the kubelet, and how many were received in all.
func (k *Kubelet) Latest(name string) (List, int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if r := k.resources[name]; r != nil && len(r.lists) > 0 {
		return r.lists[len(r.lists)-1], r.received
	}
	return List{}, 0
}

// Connected returns the paths of the sockets at which a resource is offered now,
// as far as the kubelet knows.
func (k *Kubelet) Connected(name string) []string {
	k.mu.Lock()
	defer k.mu.Unlock()
	var sockets []string
	if r := k.resources[name]; r != nil {
		for _, e := range r.connected {
			sockets = append(sockets, e.client.socket)
		}
	}
	return sockets
}

// Registrations returns how often the kubelet accepted a resource.
func (k *Kubelet) Registrations(name string) int {
	k.mu.Lock()
	defer k.mu.Unlock()
	if r := k.resources[name]; r != nil {
		return r.registrations
	}
	return 0
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

// RefuseWith makes every Register call fail with err; nil ends that.
func (k *Kubelet) RefuseWith(err error) {
	k.update(func() { k.faults.refuse = err })
}

// HangRegister keeps Register calls from being answered, until it is called with
// false, the call is cancelled or the kubelet ends.
func (k *Kubelet) HangRegister(hang bool) {
	k.update(func() {
		switch {
		case hang && k.faults.hang == nil:
			k.faults.hang = make(chan struct{})
		case !hang && k.faults.hang != nil:
			close(k.faults.hang)
			k.faults.hang = nil
		}
	})
}

// WithholdStreams makes the kubelet accept registrations and then open no
// ListAndWatch stream.
func (k *Kubelet) WithholdStreams(withhold bool) {
	k.update(func() { k.faults.noStreams = withhold })
}

// CutStream ends the newest ListAndWatch stream of a resource, with nothing said
// and no socket touched.
func (k *Kubelet) CutStream(name string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.process == nil {
		return
	}
	if cs := k.process.clients[name]; len(cs) > 0 {
		cs[len(cs)-1].cut()
	}
}
