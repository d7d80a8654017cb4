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

	"github.com/generic-dp/generic-dp/cdi"
	"github.com/generic-dp/generic-dp/config"
	"github.com/generic-dp/generic-dp/internal/agent/holders"
	"github.com/generic-dp/generic-dp/internal/device"
	"github.com/generic-dp/generic-dp/internal/host/health"
	"github.com/generic-dp/generic-dp/internal/kubelet/plugin"
	"github.com/generic-dp/generic-dp/internal/ledger"
	"github.com/generic-dp/generic-dp/internal/output/healthdir"
	"github.com/generic-dp/generic-dp/internal/status"
	"github.com/generic-dp/generic-dp/internal/topology"
)

// resource is one resource with its plugin. It provides the plugin with devices. It lives as long
// as it is listed to the kubelet, including its retirement. The loop publishes the latest state,
// and any number of streams and calls read it without a lock.
type resource struct {
	cdi.Resource
	// key is its name in the ledger.
	key string
	// dra is nil for a device plugin.
	dra *draDriver
	// rescans requests a scan of the loop, for devices that the host may use without an event.
	rescans rescanRequests
	// health makes the directories that show containers the health of their devices.
	health *healthdir.Dirs
	// holders knows the pods that had a slot before. It may be nil.
	holders *holders.Tracker
	// rivals decides about exclusive devices. It may be nil if there are none.
	rivals *rivals
	// resetter resets devices before containers start. It may be nil.
	resetter *resetter
	// now is the latest state. It is never nil.
	now atomic.Pointer[published]
	// plugin is nil without a kubelet, and for DRA.
	plugin *plugin.Plugin

	// Only the loop uses the fields below.

	// since is when the resource was made.
	since time.Time
	// shown is set once a list was published.
	shown bool
	// stop ends the plugin. It is nil before the plugin runs.
	stop context.CancelFunc
	// ended is closed when the plugin has ended. It is nil before the plugin runs.
	ended chan struct{}
}

// published is one immutable state of a resource.
type published struct {
	// list is the list for the kubelet.
	list []device.Listed
	// entries are the listed devices in natural order of their IDs.
	entries []ledger.Entry
	// since says since when each entry has its health and reason, in the same order.
	since []time.Time
	// injections has the injection of each entry, in the same order.
	injections []cdi.Injection
	// refused is why slots of healthy devices are unhealthy, by slot.
	refused map[string]string
	// config is the configuration of the resource, or retired.
	config *config.Resource
	// blocks is set if Allocate may block.
	blocks bool
	// mustPreStart is set if the kubelet has to announce each start of a container.
	mustPreStart bool
	// changed is closed when there is a newer list.
	changed chan struct{}

	// names finds entries for claims. Only DRA uses it.
	names deviceNames
}

// retired is the configuration of a resource that is no longer configured. It is compared by its
// address. No pod is evicted because of a retired resource.
var retired = &config.Resource{EvictAfter: -1}

// newResource returns a resource without devices. It has neither a plugin nor a tracker of holders.
func newResource(r cdi.Resource, rescans rescanRequests) *resource {
	res := &resource{Resource: r, rescans: rescans}
	res.now.Store(&published{config: retired, changed: make(chan struct{})})
	return res
}

// addResource makes a resource that the ledger lists for the first time. The plugin does not run
// yet, see loop.start.
func (a *Agent) addResource(key string, now time.Time) *resource {
	name, byDRA := nameOf(key)
	r := newResource(a.outputs.resource(name), a.rescans)
	r.key = key
	r.since = now
	r.health = a.outputs.health
	r.holders = a.pods.holders
	r.rivals = a.pods.rivals
	r.resetter = a.pods.resetter
	// All resources of DRA share one plugin, which registers the driver.
	if byDRA {
		r.dra = a.dra
		return r
	}
	if a.options.CDIOnly {
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
// being retired. With register = "always" it must also be registered without devices.
func (r *resource) ready() error {
	p := r.now.Load()
	hasKubelet := r.plugin != nil || r.dra != nil
	if !hasKubelet || p.config == retired {
		return nil
	}
	if len(p.list) == 0 && p.config.Register != config.RegisterAlways {
		return nil
	}
	registration := r.registration()
	if registration.Registered {
		return nil
	}
	return errors.New(status.NotRegistered(r.Name, registration.Reason))
}

// registration is the state of the registration with the kubelet. The resource has a plugin or a
// driver.
func (r *resource) registration() plugin.Status {
	if r.dra != nil {
		return r.dra.Status()
	}
	return r.plugin.Status()
}

// publish replaces the state and reports whether the list for the kubelet has changed. If a device
// has only moved to another node, the list is the same and no stream wakes. Only the loop calls it.
// It keeps entries, and sets the reason of a device with refused slots in them.
func (r *resource) publish(entries []ledger.Entry, c *config.Resource) bool {
	old := r.now.Load()
	next := &published{
		entries:    entries,
		injections: make([]cdi.Injection, len(entries)),
		refused:    r.holders.Unhealthy(),
		config:     c,
		changed:    old.changed,

		mustPreStart: c.Container.Reset != "",
	}
	// A resource that is being retired keeps its registration, so it keeps the options, too.
	if c == retired {
		next.mustPreStart = old.mustPreStart
	}
	for i := range entries {
		next.injections[i].Offer = &entries[i].Offer
		// One slow device suffices: calls are not distinguished by their devices.
		blocks := next.injections[i].Blocks() || needsRescan(entries[i].Offer) || entries[i].Offer.Exclusive
		next.blocks = next.blocks || blocks
		slots := ledger.Slots(entries[i])
		next.refuse(&entries[i], slots)
		next.list = append(next.list, slots...)
	}
	next.since = old.sinceOf(entries, time.Now())
	// An equal list must not wake the streams, which would send it again. But a stream has to know
	// that the resource has other options.
	hasOptions := old.mustPreStart == next.mustPreStart
	if hasOptions && device.SameList(old.list, next.list) {
		r.now.Store(next)
		return false
	}
	next.changed = make(chan struct{})
	r.now.Store(next)
	close(old.changed) // after the store: a stream that wakes reads the new list
	return true
}

// refuse makes the refused slots of a device unhealthy, and the device if no slot is left. It
// changes both, before they are published.
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

// Devices is the latest list and a channel that is closed when a newer one exists. The list must
// not be changed. The plugin calls it for each stream.
func (r *resource) Devices() ([]device.Listed, <-chan struct{}) {
	p := r.now.Load()
	return p.list, p.changed
}

// Blocks reports whether Allocate may block. Then the plugin limits the time of the call.
func (r *resource) Blocks() bool { return r.now.Load().blocks }

// Allocate returns the response for a container with these slots. The kubelet keeps it for the life
// of the pod, so everything in it is checked now. ids has at least one slot. The error names the
// device and the reason.
func (r *resource) Allocate(ctx context.Context, ids []string) (device.Response, error) {
	return r.allocate(ctx, ids, nil)
}

// allocate is Allocate for a container of a claim, which gets its devices in another way than others,
// by the ID of the device.
func (r *resource) allocate(ctx context.Context, ids []string, shares map[string]share) (device.Response, error) {
	devices, err := r.findCurrent(ctx, ids)
	if err != nil {
		return device.Response{}, err
	}
	// This may wait until the containers of the former pod have ended.
	if err := r.holders.Check(ctx, ids); err != nil {
		return device.Response{}, err
	}
	devices, err = withShares(devices, shares)
	if err != nil {
		return device.Response{}, err
	}
	cancel, err := r.reserve(ctx, devices, ids)
	if err != nil {
		return device.Response{}, err
	}
	response, err := r.respond(devices, ids)
	if err != nil {
		cancel()
		return device.Response{}, err
	}
	// From now on, the checkpoint of the kubelet should have these slots.
	r.holders.Granted(ids)
	return response, nil
}

// reserve reserves the exclusive devices of a container with these slots. The caller calls cancel if
// the container does not get them. A claim is not reserved, because its file is the record, see
// draDriver.offered.
func (r *resource) reserve(ctx context.Context, devices []*cdi.Injection, ids []string) (cancel func(), err error) {
	wanted := exclusives(r.key, devices)
	if len(wanted) == 0 || r.dra != nil {
		return func() {}, nil
	}
	cancel, err = r.rivals.reserve(ctx, wanted)
	if err != nil {
		return nil, err
	}
	// The list may say by now that a container holds a rival for which there is no grant, such as a
	// pod from before the device was exclusive.
	if _, err := r.now.Load().find(ids); err != nil {
		cancel()
		return nil, err
	}
	return cancel, nil
}

// respond returns the response for a container with these devices, of which it gets these slots.
func (r *resource) respond(devices []*cdi.Injection, ids []string) (device.Response, error) {
	response, err := r.Respond(devices)
	if err != nil {
		return device.Response{}, err
	}
	// All devices of a resource have the same directory in the container.
	if devices[0].Offer.HealthDir != "" {
		if err := r.addHealthDir(&response, devices, ids); err != nil {
			return device.Response{}, err
		}
	}
	return response, nil
}

// findCurrent returns the devices of slots, see published.find. It has the host scanned first if
// the host may have started to use one of them without an event.
func (r *resource) findCurrent(ctx context.Context, ids []string) ([]*cdi.Injection, error) {
	devices, err := r.now.Load().find(ids)
	if err != nil || !slices.ContainsFunc(devices, isRescanned) {
		return devices, err
	}
	if err := r.rescans.wait(ctx); err != nil {
		return nil, err
	}
	return r.now.Load().find(ids)
}

// addHealthDir adds the health directory to the response for a container with these slots. It makes
// the directory. The error means that the container must not start.
func (r *resource) addHealthDir(response *device.Response, devices []*cdi.Injection, slots []string) error {
	offers := make([]*device.Offer, len(devices))
	for i, d := range devices {
		offers[i] = d.Offer
	}
	// The devices may have changed since findCurrent. Add asks again, under its own lock.
	listed := func() error {
		_, err := r.now.Load().find(slots)
		return err
	}
	path, err := r.health.Add(offers, listed)
	if err != nil {
		return fmt.Errorf("container.health_dir: %w", err)
	}
	mount := device.Mount{HostPath: path, ContainerPath: offers[0].HealthDir, ReadOnly: true}
	// The response may be a kept one, whose mounts other calls share.
	response.Mounts = append(slices.Clip(response.Mounts), mount)
	return nil
}

// find returns the devices of slots in the order of their IDs, or an error for the first slot that
// is not listed or not healthy: the kubelet may still use an older list. A device is returned once,
// however many of its slots are named.
func (p *published) find(slots []string) ([]*cdi.Injection, error) {
	devices := make([]*cdi.Injection, 0, len(slots))
	slotsOf := make(map[string]int) // by the ID of the device
	limit := p.config.Container.MaxPerContainer
	for _, slotID := range slots {
		i, err := p.findSlot(slotID)
		if err != nil {
			return nil, err
		}
		id := p.entries[i].Offer.ID
		slotsOf[id]++
		if slotsOf[id] == 1 {
			devices = append(devices, &p.injections[i])
			continue
		}
		// The kubelet may ignore the preference and choose other slots, so the limit is also
		// checked here.
		if limit > 0 && slotsOf[id] > limit {
			return nil, fmt.Errorf("device %q: more of its slots for one container than container.max_per_container = %d",
				id, limit)
		}
	}
	// The order decides the values of environment variables, and must be the same after a restart.
	sort.Slice(devices, func(i, j int) bool {
		return devices[i].Offer.ID < devices[j].Offer.ID
	})
	return devices, nil
}

// findSlot returns the index of the entry of a slot, or why the slot must not be allocated.
func (p *published) findSlot(slotID string) (int, error) {
	id, slot := device.SplitSlot(slotID)
	i, found := p.indexOf(id)
	if !found || !p.entries[i].Lists(slot) {
		return 0, fmt.Errorf("device %q is not known: it was removed, or has another ID now", slotID)
	}
	e := &p.entries[i]
	reason := p.refused[slotID]
	// Such a slot stays listed while a container may hold it.
	if slot >= e.Offer.Slots {
		reason = ledger.ReasonSlotRetired
	}
	if e.Excluded != "" {
		reason = e.Excluded
	}
	if !e.Healthy {
		reason = e.Reason
	}
	if reason != "" || !e.Healthy {
		return 0, fmt.Errorf("device %q is unhealthy: %s", slotID, reason)
	}
	return i, nil
}

// indexOf returns the index of the entry of a device.
func (p *published) indexOf(id string) (int, bool) {
	// The entries are in natural order, see published.
	return sort.Find(len(p.entries), func(i int) int {
		return device.CompareNatural(id, p.entries[i].Offer.ID)
	})
}

// Prefer suggests which of the available slots to take. must are the slots that the kubelet takes
// in any case, and size is the number of slots in all.
func (r *resource) Prefer(available, must []string, size int) []string {
	p := r.now.Load()
	return topology.Prefer(string(p.config.Prefer), p.list, available, must, size)
}

// rescanLimit is how long Allocate waits for a scan. The kubelet waits for Allocate without a
// timeout, and admits no other pod until it returns.
const rescanLimit = 500 * time.Millisecond

// rescanRequests are requests for a scan. Each is closed when its outcome is published.
type rescanRequests chan chan struct{}

// wait requests a scan and returns when its outcome is published. It returns errTooSlow after
// rescanLimit, or if ctx ends before.
func (q rescanRequests) wait(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, rescanLimit)
	defer cancel()
	if q.scan(ctx) != nil {
		return errTooSlow
	}
	return nil
}

// scan requests a scan and returns when its outcome is published, or with the error of ctx.
func (q rescanRequests) scan(ctx context.Context) error {
	done := make(chan struct{})
	select {
	case q <- done:
	case <-ctx.Done():
		return ctx.Err()
	}
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

var errTooSlow = errors.New("the host was not scanned in time: it may use the device itself")

// needsRescan reports whether the host may have started to use the device: no event
// announces that an interface becomes a port of a bridge, or that a route uses it.
func needsRescan(o device.Offer) bool { return len(o.Nets) > 0 }

// isRescanned reports whether the host must be scanned before the device is allocated.
func isRescanned(d *cdi.Injection) bool { return needsRescan(*d.Offer) }

// set has the served resources in the order of the configuration, and then the retiring ones. It is
// immutable: the loop replaces it as a whole. A plain search finds a resource, because a host has
// few of them.
type set []*resource

// find returns the resource with a name in the ledger, nil if there is none.
func (s set) find(key string) *resource {
	for _, r := range s {
		if r.key == key {
			return r
		}
	}
	return nil
}

// members are the served resources. It is empty before the first pass. Any goroutine may call it.
func (a *Agent) members() set {
	if s := a.serving.Load(); s != nil {
		return *s
	}
	return nil
}

// Names lists the served resources, retiring ones last. The names are without the mark of DRA.
func (a *Agent) Names() []string {
	var names []string
	for _, r := range a.members() {
		names = append(names, r.Name)
	}
	return names
}

// Entries lists the devices of a resource, by ID. While a resource moves between the APIs, the
// entries of the device plugin are returned. The result is nil if there is no such resource, and
// must not be changed.
func (a *Agent) Entries(name string) []ledger.Entry {
	for _, key := range []string{name, name + draSuffix} {
		if r := a.members().find(key); r != nil {
			return r.now.Load().entries
		}
	}
	return nil
}

// firstResults is how long the first list of a resource waits for the first results of health
// checks. Most arrive within a millisecond, and a list without them would briefly make all devices
// Unhealthy at every update of the program. A check that hangs delays the other devices only for
// this time.
const firstResults = 100 * time.Millisecond

// publish publishes the list of each resource. A resource is made when the ledger first lists it,
// and ends when the ledger no longer does. due is when lists must be published that wait for the
// first results of checks, the zero time if none waits.
func (l *loop) publish(
	ctx context.Context,
	listed []ledger.ListedResource,
	configs map[string]*config.Resource,
	now time.Time,
) (due time.Time) {
	// Resources keep their plugin and stream from one pass to the next.
	old := l.members()
	next := make(set, len(listed))
	hasNew := false
	for i, in := range listed {
		r := old.find(in.Name)
		c := cmp.Or(configs[in.Name], retired)
		if r == nil {
			r = l.addResource(in.Name, now)
			hasNew = true
		}
		next[i] = r
		if at := r.awaits(in, now); !at.IsZero() {
			due = earlier(due, at)
			// The empty list is not sent: the plugin of the resource does not run yet.
			r.publish(nil, c)
			continue
		}
		r.shown = true
		if r.publish(in.Devices, c) {
			l.pace.limiter.lastUpdate = time.Now()
		}
	}
	l.serving.Store(&next) // before the kubelet knows any of them
	// The tracker has not read the holds of the new resources so far.
	if hasNew {
		l.pods.holders.ReadAgain()
	}
	for i, r := range next {
		hasStarted := r.ended != nil
		if r.plugin == nil || hasStarted || !r.shown {
			continue
		}
		// Otherwise, a resource that never had a device stays unknown to the kubelet.
		if listed[i].Register || r.now.Load().config.Register == config.RegisterAlways {
			l.start(ctx, r)
		}
	}
	for _, r := range old {
		hasStarted := r.ended != nil
		if hasStarted && next.find(r.key) == nil {
			l.log.Info("resource is no longer offered", "resource", r.Name)
			r.stop()
			// A resource of the same name waits for it, see start.
			l.life.ended[r.Name] = r.ended
		}
	}
	return due
}

// awaits returns until when the first list of a resource waits for the first results of checks, the
// zero time if it does not wait.
func (r *resource) awaits(listed ledger.ListedResource, now time.Time) time.Time {
	until := r.since.Add(firstResults)
	mayWait := !r.shown && now.Before(until)
	if mayWait && slices.ContainsFunc(listed.Devices, isPending) {
		return until
	}
	return time.Time{}
}

// isPending reports whether only the first result of a check is missing.
func isPending(e ledger.Entry) bool { return e.Reason == health.ReasonPending }

// start runs the plugin of a resource until r.stop is called. It first waits until the last plugin
// of this name has ended: two plugins would have two live streams.
func (l *loop) start(ctx context.Context, r *resource) {
	own, stop := context.WithCancel(ctx)
	ended := make(chan struct{})
	r.stop = stop
	r.ended = ended
	predecessor := l.life.ended[r.Name]
	forgetMetrics := l.page.metrics.Forget
	l.life.group.Go(func() error {
		defer close(ended)
		defer stop()
		if predecessor != nil {
			<-predecessor // it was told to stop
			if own.Err() != nil {
				return nil
			}
		}
		err := r.plugin.Run(own)
		forgetMetrics(r.Name)
		return err
	})
}
