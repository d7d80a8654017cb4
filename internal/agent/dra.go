package agent

import (
	"context"
	"fmt"
	"maps"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/generic-dp/generic-dp/cdi"
	"github.com/generic-dp/generic-dp/config"
	"github.com/generic-dp/generic-dp/internal/device"
	"github.com/generic-dp/generic-dp/internal/holds"
	"github.com/generic-dp/generic-dp/internal/host/health"
	"github.com/generic-dp/generic-dp/internal/kubelet"
	"github.com/generic-dp/generic-dp/internal/kubelet/dra"
	"github.com/generic-dp/generic-dp/internal/kubelet/kubeapi"
	"github.com/generic-dp/generic-dp/internal/ledger"
)

// keyOf is the key of a resource. While the flags switch DRA off, it is the one of a device plugin.
//
// To the ledger a change of the API is a move to another resource, made when no container holds the
// device.
func (o Options) keyOf(name string, c *config.Resource) string {
	byDRA := c.API == config.APIDRA && o.hasKubelet()
	return device.ResourceKey(name, byDRA)
}

// isByDRA reports whether a key is of a resource that DRA offers.
func isByDRA(key string) bool {
	_, byDRA := device.SplitResourceKey(key)
	return byDRA
}

// metadataName is the directory of device metadata in the run directory.
const metadataName = "claims"

// draDriver offers devices by dynamic resource allocation. It starts when a resource or a prepared
// claim needs it, and then also runs in every later instance: without the driver a kubelet cannot
// end a pod that has a claim, whether the claim was prepared or not.
type draDriver struct {
	// agent provides what the plugin needs of the program, such as its paths and its resources.
	agent  *Agent
	plugin *dra.Plugin
	// isRunning is set once the plugin was started.
	isRunning atomic.Bool
	// list is what the loop has published last.
	list dra.List
}

// runDRA starts the driver if it is needed. Only the loop calls it, in each pass.
func (l *loop) runDRA(out ledger.Output) {
	d := l.dra
	if !l.options.hasKubelet() || d.isRunning.Load() || !l.needsDRA(out) {
		return
	}
	d.isRunning.Store(true)
	l.life.answering.Go(d.plugin.Run)
	l.book.FollowPods()
	// The name of a slice begins with the name of its node.
	if l.options.NodeName != "" {
		l.life.passing.Go(d.plugin.Publish)
	}
	// The state remembers this, so that the next instance starts the driver at once.
	l.memory.hasRunDRA = true
}

// needsDRA reports whether the driver must run: because it has run before, because a resource is
// offered by DRA, or because a container holds a device through DRA.
func (l *loop) needsDRA(out ledger.Output) bool {
	if l.memory.hasRunDRA {
		return true
	}
	for _, r := range out.Resources {
		if isByDRA(r.Name) {
			return true
		}
	}
	for _, id := range l.held.HeldIDs() {
		for _, h := range l.held.Slots(id) {
			if h.Claim != "" {
				return true
			}
		}
	}
	return false
}

// newDRADriver returns a driver that has not started. The hooks run in goroutines of its plugin. They only
// read published state.
func newDRADriver(a *Agent) *draDriver {
	d := &draDriver{agent: a}
	o := &a.options
	d.plugin = dra.New(dra.Options{
		API:      kubeapi.New(o.KubeAPI),
		Node:     o.NodeName,
		Registry: o.Paths.Registry,
		Claims:   a.outputs.specs,
		Metadata: filepath.Join(o.Paths.RunDir, metadataName),
		Devices:  &d.list,
		Inject:   d.inject,
		Book:     a.book,
		Enter:    a.enter,
		PodState: a.pods.cgroups.PodState,
		Known:    d.known,
		Changed:  a.wake.send,
		Wrote:    a.page.metrics.CountSliceWrite,
		Prepared: func(took time.Duration, err error) {
			a.page.metrics.CountAllocation(dra.Driver, took, err)
			a.holdsChanged.send() // the claim may block devices of device plugins
		},
		Log: a.log,
	})
	return d
}

// holders returns the holders of each slot, as far as the kubelet lists them. held has the holders
// by the names that devices have in the pool of the node.
func (d *draDriver) holders(entries []ledger.Entry, held kubelet.Holders) map[string][]kubelet.Holder {
	bySlot := map[string][]kubelet.Holder{}
	for _, e := range entries {
		for i, h := range held[dra.Driver][dra.DeviceName(e.Offer.ID)] {
			// Claims do not say which slot they use: any numbering will do.
			slot := device.SlotID(e.Offer.ID, min(i, e.Offer.Slots-1))
			bySlot[slot] = append(bySlot[slot], h)
		}
	}
	return bySlot
}

// publishDRA publishes the devices that DRA offers. A device keeps the time since when it has its
// state.
func (l *loop) publishDRA() {
	d := l.dra
	old, _ := d.list.Get()
	// An empty list is not nil here: nil means that nothing is known yet.
	list := []dra.Device{}
	last := map[string]dra.Device{}
	now := l.now()
	for _, v := range old {
		last[v.ID] = v
	}
	for _, m := range l.agent.members() {
		if !m.byDRA {
			continue
		}
		if !m.shown {
			return // slices of the last instance stay until its list is known
		}
		published := m.now.Load()
		for _, e := range published.entries {
			v := deviceOf(m.Name, e)
			v.EvictAfter = published.config.EvictAfter
			v.Since = now
			if was, ok := last[v.ID]; ok {
				if v.Attributes == nil { // an absent device keeps its attributes
					v.Attributes = was.Attributes
					v.Mistyped = was.Mistyped
					v.Capacity = was.Capacity
					v.Uses = was.Uses
				}
				// Another reason does not restart the time until pods lose the device.
				if was.State == v.State {
					v.Since = was.Since
				}
			}
			list = append(list, v)
		}
	}
	// The first list may be empty, which differs from nil: then the slices of the last instance
	// are removed.
	if !reflect.DeepEqual(old, list) {
		d.list.Set(list)
	}
}

// deviceOf describes a listed device for DRA. EvictAfter, Since and CDI are left to the caller.
func deviceOf(resource string, e ledger.Entry) dra.Device {
	return dra.Device{
		Resource:   resource,
		ID:         e.Offer.ID,
		Attributes: e.Offer.Attributes,
		Mistyped:   e.Offer.Mistyped,
		Capacity:   e.Offer.Capacity,
		NUMA:       e.Offer.NUMA,
		Slots:      e.Offer.Slots,
		Uses:       holds.DeviceOf(&e.Offer),
		State:      stateOf(e),
		Reason:     e.Reason,
	}
}

// stateOf returns the state of a listed device for DRA. Settling covers everything that is expected
// to end without an administrator.
func stateOf(e ledger.Entry) dra.State {
	switch {
	case e.Healthy:
		return dra.Healthy
	case e.Withheld:
		return dra.Withheld
	case e.Reason == ledger.ReasonGone:
		return dra.Gone
	case e.Reason == ledger.ReasonSettling, e.Reason == health.ReasonPending, e.Reason == ledger.ReasonUnread:
		return dra.Settling
	}
	return dra.Unhealthy
}

// inject is dra.Options.Inject: it returns what a container gets of the devices with these names,
// and the devices. It is called in goroutines of the plugin. A name may be repeated, once for each
// slot.
func (d *draDriver) inject(
	ctx context.Context,
	names []string,
	amounts dra.Amounts,
) (r device.Response, devices []dra.Device, err error) {
	all := d.agent.members()
	ids := map[*resource][]string{}
	byID := map[string]map[string]string{}
	for _, name := range names {
		m, e := all.byDeviceName(name)
		if m == nil {
			return r, nil, fmt.Errorf("device %q is not offered by DRA now: %w", name, dra.ErrNotOffered)
		}
		// The plugin tries again while the kubelet waits.
		if !e.Healthy {
			return r, nil, fmt.Errorf("device %q is unhealthy: %s: %w", e.Offer.ID, e.Reason, dra.ErrNotOffered)
		}
		// The ID of a device is also the ID of its first slot, which stands for any slot here.
		ids[m] = append(ids[m], e.Offer.ID)
		byID[e.Offer.ID] = amounts[name]
		v := deviceOf(m.Name, e)
		if v.CDI, err = m.Names(&e.Offer); err != nil {
			return r, nil, err
		}
		isInSpec := slices.ContainsFunc(v.CDI, func(name string) bool {
			return strings.HasPrefix(name, m.Name+"=")
		})
		if isInSpec && !d.agent.outputs.specs.Has(m.Name) {
			return r, nil, fmt.Errorf("device %q: its CDI spec is missing below --cdi-dir", e.Offer.ID)
		}
		devices = append(devices, v)
	}
	r.Env = map[string]string{}
	places := containerPlaces{}
	for _, m := range all {
		if ids[m] == nil {
			continue
		}
		one, err := m.allocate(ctx, ids[m], byID)
		if err == nil {
			// Allocate checks the devices of one resource against each other. Only a claim mixes
			// resources.
			err = places.add(m.Name, one)
		}
		if err != nil {
			return r, nil, err
		}
		// Equal names have equal values, see containerPlaces.
		maps.Copy(r.Env, one.Env)
		r.Mounts = append(r.Mounts, one.Mounts...)
	}
	return r, devices, nil
}

// containerPlaces are the paths, interfaces and environment variables of a container that several resources
// use.
type containerPlaces map[string]struct{ resource, value string }

// add adds the places of the response of a resource, including its CDI entries. It is an error if
// two resources use one place with different values.
func (c containerPlaces) add(resource string, r device.Response) error {
	places := maps.Clone(r.Places)
	for key, value := range r.Env {
		places["environment variable "+key] = value
	}
	// The order makes the error stable if there are several conflicts.
	for _, place := range slices.Sorted(maps.Keys(places)) {
		have, isUsed := c[place]
		if isUsed && have.value != places[place] {
			return fmt.Errorf("%s is of %s and of %s in one claim: give each its own in the configuration, or use a claim for each",
				place, have.resource, resource)
		}
		c[place] = struct{ resource, value string }{resource, places[place]}
	}
	return nil
}

// byDeviceName returns the device with a name in the pool of the node, and its resource. The
// resource is nil if there is none.
func (s set) byDeviceName(name string) (*resource, ledger.Entry) {
	for _, m := range s {
		if !m.byDRA {
			continue
		}
		if e := m.now.Load().byDeviceName(name); e != nil {
			return m, *e
		}
	}
	return nil, ledger.Entry{}
}

// byDeviceName returns the entry with a name in the pool of the node, nil if there is none. The names
// are made for the first call, because each of them is a hash.
func (p *published) byDeviceName(name string) *ledger.Entry {
	p.nameOnce.Do(func() {
		p.names = make(map[string]*ledger.Entry, len(p.entries))
		for i := range p.entries {
			e := &p.entries[i]
			p.names[dra.DeviceName(e.Offer.ID)] = e
		}
	})
	return p.names[name]
}

// known is dra.Options.Known: it asks the kubelet, and returns a function that reports whether the
// kubelet lists a claim. A kubelet that has just started may lack pods. It is asked all the same: a
// claim only ends if its pods have no process and the API server has no allocation, and such a kubelet
// starts no pod that the API server does not have.
func (d *draDriver) known(ctx context.Context) (func(cdi.Claim) bool, error) {
	a := d.agent
	list, err := a.pods.client.Holders(ctx, a.now())
	if err != nil {
		return nil, err
	}
	return lists(list[dra.Driver]), nil
}

// lists returns a function that reports whether the kubelet lists a claim with one of its devices.
// listed has the holders by the name of the device. Another claim may hold other slots of the
// device.
func lists(listed map[string][]kubelet.Holder) func(cdi.Claim) bool {
	return func(c cdi.Claim) bool {
		return slices.ContainsFunc(c.Devices(), func(d device.Ref) bool {
			return slices.ContainsFunc(listed[dra.DeviceName(d.ID)], func(h kubelet.Holder) bool {
				return h.Namespace == c.Namespace && h.Claim == c.Name
			})
		})
	}
}
