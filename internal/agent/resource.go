package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sort"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/generic-dp/generic-dp/cdi"
	"github.com/generic-dp/generic-dp/config"
	"github.com/generic-dp/generic-dp/internal/device"
	"github.com/generic-dp/generic-dp/internal/host/health"
	"github.com/generic-dp/generic-dp/internal/kubelet/plugin"
	"github.com/generic-dp/generic-dp/internal/ledger"
	"github.com/generic-dp/generic-dp/internal/output/healthdir"
	"github.com/generic-dp/generic-dp/internal/topology"
)

// resource is one resource with its plugin, of which it is the source. It lives as long
// as it is listed to the kubelet, including retirement. The loop publishes the latest
// state; any number of streams and calls read it without a lock.
type resource struct {
	cdi.Resource
	key     string     // its name in the ledger
	dra     *draDriver // nil for a device plugin
	rescans rescanRequests
	health  *healthdir.Dirs
	holders *holders
	now     atomic.Pointer[published]
	plugin  *plugin.Plugin // nil without a kubelet, and by DRA

	// For the loop alone.
	since time.Time // creation
	shown bool      // a list was published
	stop  context.CancelFunc
	ended chan struct{} // closed when the plugin has ended; nil before it runs
}

// published is one immutable state of a resource.
type published struct {
	list       []device.Listed
	entries    []ledger.Entry    // in natural order of their IDs
	injections []cdi.Injection   // of the entries
	refused    map[string]string // why slots of healthy devices are not healthy
	config     *config.Resource  // or retired
	blocks     bool              // Allocate may block
	changed    chan struct{}     // closed when there is a newer list

	names deviceNames
}

// retired is the configuration of a resource that is no longer configured.
var retired = &config.Resource{EvictAfter: -1}

func newResource(r cdi.Resource, rescans rescanRequests) *resource {
	res := &resource{Resource: r, rescans: rescans}
	res.now.Store(&published{config: retired, changed: make(chan struct{})})
	return res
}

// addResource makes a resource that the ledger lists for the first time.
func (a *Agent) addResource(key string, now time.Time) *resource {
	name, byDRA := nameOf(key)
	r := newResource(a.outputs.resource(name), a.rescans)
	r.key = key
	r.since = now
	r.health = a.outputs.health
	r.holders = a.pods.holders
	if byDRA {
		r.dra = a.dra
		return r
	} else if a.options.CDIOnly {
		return r
	}
	hooks := plugin.Hooks{
		Registered: func(cause plugin.Cause) {
			a.page.metrics.CountRegistration(name, string(cause))
			a.page.events.add(name, "", "registered ("+string(cause)+")")
		},
		Refused: func() {
			a.page.metrics.CountRefusal(name)
		},
		Allocated: func(took time.Duration, err error) {
			a.page.metrics.CountAllocation(name, took, err)
		},
	}
	r.plugin = plugin.New(plugin.Options{
		Resource: name,
		Watch:    a.kubelet,
		Source:   r,
		Log:      a.log,
		Hooks:    hooks,
	})
	return r
}

// ready is an error if the resource has devices and is not registered, unless it is
// being retired.
func (r *resource) ready() error {
	p := r.now.Load()
	if r.plugin == nil && r.dra == nil || p.config == retired || len(p.list) == 0 && p.config.Register != config.RegisterAlways {
		return nil
	}
	status := r.registration()
	if status.Registered {
		return nil
	}
	return fmt.Errorf("resource %s is not registered: %s", r.Name, status.Reason)
}

// registration is the state of the registration with the kubelet.
func (r *resource) registration() plugin.Status {
	if r.dra != nil {
		return r.dra.Status()
	}
	return r.plugin.Status()
}

// publish replaces the state and reports whether the list for the kubelet changed. A
// device that only moved to another node keeps the list, and no stream wakes.
func (r *resource) publish(entries []ledger.Entry, c *config.Resource) bool {
	old := r.now.Load()
	next := &published{
		entries:    entries,
		injections: make([]cdi.Injection, len(entries)),
		refused:    r.holders.unhealthy(),
		config:     c,
		changed:    old.changed,
	}
	for i := range entries {
		next.injections[i].Offer = &entries[i].Offer
		next.blocks = next.blocks || next.injections[i].Blocks() || needsRescan(entries[i].Offer)
		slots := ledger.Slots(entries[i])
		next.refuse(&entries[i], slots)
		next.list = append(next.list, slots...)
	}
	same := device.SameList(old.list, next.list)
	if !same {
		next.changed = make(chan struct{})
	}
	r.now.Store(next)
	if !same {
		close(old.changed)
	}
	return !same
}

// refuse makes the refused slots of a device unhealthy, and the device if no slot is left.
func (p *published) refuse(e *ledger.Entry, slots []device.Listed) {
	if !e.Healthy || len(p.refused) == 0 {
		return
	}
	left := 0
	for i := range slots {
		reason := p.refused[slots[i].ID]
		if reason != "" && slots[i].Healthy {
			slots[i].Healthy = false
			slots[i].Reason = reason
			e.Reason = reason
		}
		if slots[i].Healthy {
			left++
		}
	}
	if left > 0 {
		e.Reason = ""
		return
	}
	e.Healthy = false
}

// Devices is the latest list and a channel that is closed when a newer one exists.
func (r *resource) Devices() ([]device.Listed, <-chan struct{}) {
	p := r.now.Load()
	return p.list, p.changed
}

// Blocks reports whether Allocate may block.
func (r *resource) Blocks() bool { return r.now.Load().blocks }

// Allocate returns the response for a container with these slots.
func (r *resource) Allocate(ctx context.Context, ids []string) (device.Response, error) {
	devices, err := r.now.Load().find(ids)
	if err == nil && slices.ContainsFunc(devices, func(d *cdi.Injection) bool {
		return needsRescan(*d.Offer)
	}) {
		if err = r.rescans.wait(ctx); err == nil {
			devices, err = r.now.Load().find(ids)
		}
	}
	if err == nil {
		err = r.holders.check(ctx, ids)
	}
	if err != nil {
		return device.Response{}, err
	}
	response, err := r.Respond(devices)
	if err == nil && devices[0].Offer.HealthDir != "" {
		err = r.addHealthDir(&response, devices, ids)
	}
	if err == nil {
		r.holders.grant(ids)
	}
	return response, err
}

// addHealthDir adds the health directory to the response for a container with these slots.
func (r *resource) addHealthDir(response *device.Response, devices []*cdi.Injection, slots []string) error {
	offers := make([]*device.Offer, len(devices))
	for i, d := range devices {
		offers[i] = d.Offer
	}
	listed := func() error {
		_, err := r.now.Load().find(slots)
		return err
	}
	path, err := r.health.Add(offers, listed)
	if err != nil {
		return fmt.Errorf("container.health_dir: %w", err)
	}
	mount := device.Mount{HostPath: path, ContainerPath: offers[0].HealthDir, ReadOnly: true}
	response.Mounts = append(slices.Clip(response.Mounts), mount)
	return nil
}

// find returns the devices of slots in the order of their IDs, or an error for the
// first slot that is unlisted or unhealthy.
func (p *published) find(ids []string) ([]*cdi.Injection, error) {
	devices := make([]*cdi.Injection, 0, len(ids))
	slots := make(map[string]int)
	limit := p.config.Container.MaxPerContainer
	for _, slotID := range ids {
		id, slot := device.SplitSlot(slotID)
		i, found := sort.Find(len(p.entries), func(i int) int {
			return device.CompareNatural(id, p.entries[i].Offer.ID)
		})
		if !found || !p.entries[i].Lists(slot) {
			return nil, fmt.Errorf("device %q is not known: it was removed, or has another ID now", slotID)
		}
		switch e := &p.entries[i]; {
		case !e.Healthy:
			return nil, fmt.Errorf("device %q is unhealthy: %s", slotID, e.Reason)
		case slot >= e.Offer.Slots:
			return nil, fmt.Errorf("device %q is unhealthy: %s", slotID, ledger.ReasonSlotRetired)
		case p.refused[slotID] != "":
			return nil, fmt.Errorf("device %q is unhealthy: %s", slotID, p.refused[slotID])
		}
		if slots[id]++; slots[id] == 1 {
			devices = append(devices, &p.injections[i])
		} else if limit > 0 && slots[id] > limit {
			return nil, fmt.Errorf("device %q: more of its slots for one container than container.max_per_container = %d",
				id, limit)
		}
	}
	sort.Slice(devices, func(i, j int) bool { return devices[i].Offer.ID < devices[j].Offer.ID })
	return devices, nil
}

// Prefer suggests which of the available slots to take.
func (r *resource) Prefer(available, must []string, size int) []string {
	p := r.now.Load()
	return topology.Prefer(string(p.config.Prefer), p.list, available, must, size)
}

// rescanLimit is how long Allocate waits for a scan. The kubelet waits for Allocate
// without a timeout, and admits no other pod meanwhile.
const rescanLimit = 500 * time.Millisecond

// rescanRequests are requests for a scan. Each is closed when its outcome is published.
type rescanRequests chan chan struct{}

// wait requests a scan and returns when its outcome is published.
func (q rescanRequests) wait(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, rescanLimit)
	defer cancel()
	done := make(chan struct{})
	select {
	case q <- done:
	case <-ctx.Done():
		return errTooSlow
	}
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return errTooSlow
	}
}

var errTooSlow = errors.New("the host was not scanned in time: it may use the device itself")

// needsRescan reports whether the host may have started to use the device: no event
// announces that an interface becomes a port of a bridge, or that a route uses it.
func needsRescan(o device.Offer) bool { return len(o.Nets) > 0 }

// set is the served resources in the order of the configuration, followed by retiring
// ones. It is immutable: the loop replaces it as a whole.
type set []*resource

// find returns the resource with a name in the ledger; nil is none.
func (s set) find(key string) *resource {
	for _, r := range s {
		if r.key == key {
			return r
		}
	}
	return nil
}

// members are the served resources.
func (a *Agent) members() set {
	if s := a.serving.Load(); s != nil {
		return *s
	}
	return nil
}

// Names lists the served resources, retiring ones last.
func (a *Agent) Names() []string {
	var names []string
	for _, r := range a.members() {
		names = append(names, r.Name)
	}
	return names
}

// Entries lists the devices of a resource, by ID.
func (a *Agent) Entries(name string) []ledger.Entry {
	for _, key := range []string{name, name + draSuffix} {
		if r := a.members().find(key); r != nil {
			return r.now.Load().entries
		}
	}
	return nil
}

// firstResults is how long the first list of a resource waits for the first results of
// health checks: most come in a millisecond, and a list without them would briefly make
// all devices Unhealthy with every update of the program. A hung check delays the other
// devices no longer than this.
const firstResults = 100 * time.Millisecond

// publish publishes the list of each resource. A resource is made when the ledger first
// lists it and ends when it no longer does. The result is when lists that wait for the
// first results of checks are due; zero is none.
func (l *loop) publish(
	ctx context.Context,
	listed []ledger.ListedResource,
	configs map[string]*config.Resource,
	now time.Time,
) (due time.Time) {
	old := l.members()
	next := make(set, len(listed))
	added := false
	for i, in := range listed {
		r := old.find(in.Name)
		c := cmp.Or(configs[in.Name], retired)
		if r == nil {
			r = l.addResource(in.Name, now)
			added = true
		}
		next[i] = r
		if at := r.awaits(in, now); !at.IsZero() {
			due = earlier(due, at)
			r.publish(nil, c)
			continue
		}
		r.shown = true
		if r.publish(in.Devices, c) {
			l.pace.limiter.lastUpdate = time.Now()
		}
	}
	l.serving.Store(&next) // before the kubelet knows any of them
	if added {
		l.pods.holders.readAgain()
	}
	for i, r := range next {
		if r.shown && r.plugin != nil && r.ended == nil && (listed[i].Register || r.now.Load().config.Register == config.RegisterAlways) {
			r.start(ctx, l.life.group, l.life.ended[r.Name], l.page.metrics.Forget)
		}
	}
	for _, r := range old {
		if r.ended != nil && next.find(r.key) == nil {
			l.log.Info("resource is no longer offered", "resource", r.Name)
			r.stop()
			l.life.ended[r.Name] = r.ended
		}
	}
	return due
}

// awaits returns until when the first list of a resource waits for the first results of
// checks; zero if it does not.
func (r *resource) awaits(listed ledger.ListedResource, now time.Time) time.Time {
	until := r.since.Add(firstResults)
	if r.shown || !now.Before(until) || !slices.ContainsFunc(listed.Devices, func(e ledger.Entry) bool { return e.Reason == health.ReasonPending }) {
		return time.Time{}
	}
	return until
}

// start runs the plugin until stop, once the last one of this name has ended: two at
// once would be two live streams.
func (r *resource) start(ctx context.Context, group *errgroup.Group, before <-chan struct{}, forget func(resource string)) {
	own, stop := context.WithCancel(ctx)
	ended := make(chan struct{})
	r.stop = stop
	r.ended = ended
	group.Go(func() error {
		defer close(ended)
		defer stop()
		if before != nil {
			select {
			case <-before:
			case <-own.Done():
				<-before
				return nil
			}
		}
		err := r.plugin.Run(own)
		forget(r.Name)
		return err
	})
}
