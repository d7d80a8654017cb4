package agent

import (
	"cmp"
	"context"
	"slices"
	"sort"
	"sync"
	"sync/atomic"
	"time"

	"github.com/generic-dp/generic-dp/cdi"
	"github.com/generic-dp/generic-dp/config"
	"github.com/generic-dp/generic-dp/internal/device"
	"github.com/generic-dp/generic-dp/internal/host/health"
	"github.com/generic-dp/generic-dp/internal/kubelet/plugin"
	"github.com/generic-dp/generic-dp/internal/ledger"
	"github.com/generic-dp/generic-dp/internal/order"
)

// resource is one resource with its plugin. It provides the plugin with devices. It lives as long
// as it is listed to the kubelet, including its retirement. The loop publishes the latest state,
// and any number of streams and calls read it without a lock.
type resource struct {
	cdi.Resource
	agent *Agent
	// key is its name in the ledger.
	key   string
	byDRA bool
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
	// waiting are matched devices that are not listed yet.
	waiting []ledger.Waiting
	// since says since when each entry has its health and reason, by ID.
	since map[string]time.Time
	// refused is why slots of healthy devices are unhealthy, by slot.
	refused map[string]string
	// config is the configuration of the resource, or retired.
	config *config.Resource
	// changed is closed when there is a newer list.
	changed chan struct{}
	// names is made by byDeviceName.
	names    map[string]*ledger.Entry
	nameOnce sync.Once
}

// retired is the configuration of a resource that is no longer configured. It is compared by its
// address. No pod is evicted because of a retired resource.
var retired = &config.Resource{EvictAfter: -1}

// newResource returns a resource without devices and without a plugin.
func newResource(r cdi.Resource, a *Agent) *resource {
	res := &resource{Resource: r, agent: a}
	res.now.Store(&published{config: retired, changed: make(chan struct{})})
	return res
}

// addResource makes a resource that the ledger lists for the first time. The plugin does not run
// yet, see loop.startPlugin.
func (a *Agent) addResource(key string, now time.Time) *resource {
	name, byDRA := device.SplitResourceKey(key)
	r := newResource(a.outputs.resource(name), a)
	r.key = key
	r.byDRA = byDRA
	r.since = now
	// All resources of DRA share one plugin, which registers the driver.
	if byDRA || !a.options.hasKubelet() {
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

// missing returns why the resource is not registered although it has devices, unless it is
// being retired. With register = "always" it must also be registered without devices.
func (r *resource) missing() (reason string, isMissing bool) {
	p := r.now.Load()
	hasKubelet := r.plugin != nil || r.byDRA
	isWanted := len(p.list) > 0 || p.config.Register == config.RegisterAlways
	if !hasKubelet || !isWanted || p.config == retired {
		return "", false
	}
	registration := r.registration()
	return registration.Reason, !registration.Registered
}

// registration is the state of the registration with the kubelet. The resource has a plugin or a
// driver.
func (r *resource) registration() plugin.Status {
	if r.byDRA {
		return plugin.Status(r.agent.dra.plugin.Status())
	}
	return r.plugin.Status()
}

// publish replaces the state and reports whether the list for the kubelet has changed. If a device
// has only moved to another node, the list is the same and no stream wakes. Only the loop calls it.
// It keeps the devices of listed, and sets the reason of a device with refused slots in them.
func (r *resource) publish(listed ledger.ListedResource, c *config.Resource) bool {
	old := r.now.Load()
	entries := listed.Devices
	next := &published{
		entries: entries,
		waiting: listed.Waiting,
		refused: r.agent.book.Refused(),
		config:  c,
		changed: old.changed,
	}
	for i := range entries {
		slots := ledger.Slots(entries[i])
		next.refuse(&entries[i], slots)
		next.list = append(next.list, slots...)
	}
	next.since = old.sinceOf(entries, time.Now())
	// An equal list must not wake the streams, which would send it again.
	if device.SameList(old.list, next.list) {
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

// indexOf returns the index of the entry of a device.
func (p *published) indexOf(id string) (i int, isListed bool) {
	// The entries are in natural order, see published.
	return sort.Find(len(p.entries), func(i int) int {
		return device.CompareNatural(id, p.entries[i].Offer.ID)
	})
}

// Prefer suggests which of the available slots to take. must are the slots that the kubelet takes
// in any case, and size is the number of slots in all.
func (r *resource) Prefer(available, must []string, size int) []string {
	p := r.now.Load()
	return plugin.Prefer(string(p.config.Prefer), p.list, available, must, size)
}

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

// firstResults is how long the first list of a resource waits for the first results of health
// checks. Most arrive within a millisecond, and a list without them would briefly make all devices
// Unhealthy at every update of the program. A check that hangs delays the other devices only for
// this time.
const firstResults = 100 * time.Millisecond

// publish publishes the list of each resource. A resource is made when the ledger first lists it,
// and ends when the ledger no longer does. due is when lists must be published that wait for the
// first results of checks, the zero time if none waits.
func (l *loop) publish(
	listed []ledger.ListedResource,
	configs map[string]*config.Resource,
	now time.Time,
) (due time.Time) {
	// Resources keep their plugin and stream from one pass to the next.
	old := l.agent.members()
	next := make(set, len(listed))
	for i, in := range listed {
		next[i] = old.find(in.Name)
		if next[i] == nil {
			next[i] = l.agent.addResource(in.Name, now)
		}
	}
	l.agent.serving.Store(&next) // before the kubelet knows any of their lists
	for i, in := range listed {
		r := next[i]
		c := cmp.Or(configs[in.Name], retired)
		if at := r.awaits(in, now); !at.IsZero() {
			due = order.Earliest(due, at)
			// The empty list is not sent: the plugin of the resource does not run yet.
			r.publish(ledger.ListedResource{}, c)
			continue
		}
		r.shown = true
		if r.publish(in, c) {
			l.pace.limiter.lastUpdate = time.Now()
		}
		// Otherwise, a resource that never had a device stays unknown to the kubelet.
		isWanted := in.Register || c.Register == config.RegisterAlways
		hasStarted := r.ended != nil
		if r.plugin != nil && isWanted && !hasStarted {
			l.startPlugin(r)
		}
	}
	for _, r := range old {
		hasStarted := r.ended != nil
		if hasStarted && next.find(r.key) == nil {
			l.log.Info("resource is no longer offered", "resource", r.Name)
			r.stop()
			// A resource of the same name waits for it, see startPlugin.
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

// startPlugin runs the plugin of a resource until r.stop is called. It first waits until the last plugin
// of this name has ended: two plugins would have two live streams.
func (l *loop) startPlugin(r *resource) {
	own, stop := context.WithCancel(l.life.answering.ctx)
	ended := make(chan struct{})
	r.stop = stop
	r.ended = ended
	predecessor := l.life.ended[r.Name]
	forgetMetrics := l.page.metrics.Forget
	l.life.answering.Go(func(context.Context) error {
		defer close(ended)
		defer stop()
		if predecessor != nil {
			<-predecessor // it was told to stop
		}
		l.agent.afterDriver(own)
		if own.Err() != nil {
			return nil
		}
		err := r.plugin.Run(own)
		forgetMetrics(r.Name)
		return err
	})
}
