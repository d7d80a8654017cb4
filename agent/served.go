package agent

import (
	"context"
	"fmt"
	"time"

	"github.com/generic-dp/generic-dp/cdi"
	"github.com/generic-dp/generic-dp/config"
	"github.com/generic-dp/generic-dp/device"
	"github.com/generic-dp/generic-dp/ledger"
	"github.com/generic-dp/generic-dp/plugin"
)

// served is one resource with the plugin that serves it. It lives as long as the
// kubelet is to know of the resource, whatever its configuration does meanwhile.
type served struct {
	name     string
	resource *resource
	plugin   *plugin.Plugin // nil where there is no kubelet

	// The rest is the loop's alone.
	since time.Time // when it was made
	shown bool      // a list was published
	stop  context.CancelFunc
	ended chan struct{} // closed when the plugin has; nil before it runs
}

func (a *Agent) newServed(name string, now time.Time) *served {
	r := newResource(cdi.Resource{Name: name, Link: a.injector.links.Path, Host: hostCheck{a.options.Paths, a.injector.others}}, a.looks)
	s := &served{name: name, resource: r, since: now}
	if a.options.CDIOnly {
		return s
	}
	hooks := plugin.Hooks{
		Registered: func(cause plugin.Cause, _ time.Duration) {
			a.metrics.CountRegistration(name, string(cause))
			a.events.add(name, "", "registered ("+string(cause)+")")
		},
		Refused:   func(error) { a.metrics.CountRefusal(name) },
		Allocated: func(took time.Duration, err error) { a.metrics.CountAllocation(name, took, err) },
	}
	s.plugin = plugin.New(plugin.Options{Resource: name, Watch: a.kubelet, Source: r, Log: a.log, Hooks: hooks})
	return s
}

// show publishes what the ledger lists, and reports whether that is news for the
// kubelet. c is nil while the resource is being retired.
func (s *served) show(c *config.Resource, listed ledger.ListedResource) bool {
	var list []device.Listed
	for _, e := range listed.Devices {
		list = append(list, ledger.Slots(e)...)
	}
	prefer := ""
	if c != nil {
		prefer = string(c.Prefer)
	}
	return s.resource.publish(list, listed.Devices, prefer)
}

// ready is an error if the resource has devices and is not registered. One that
// is being retired need not be.
func (m member) ready() error {
	list, _ := m.resource.Devices()
	if m.plugin == nil || m.config == nil || len(list) == 0 && m.config.Register != config.RegisterAlways {
		return nil
	}
	status, _ := m.plugin.Status()
	if status.Registered {
		return nil
	}
	return fmt.Errorf("resource %s is not registered: %s", m.name, status.Reason)
}

// TooLarge lists the resources whose list the kubelet would refuse on the
// host that was looked at, with the figures.
func TooLarge(view *View) []error {
	var problems []error
	for _, m := range view.Matched.Resources {
		var list []device.Listed
		for _, o := range m.Offers {
			for slot := range o.Slots {
				list = append(list, device.Listed{ID: device.SlotID(o.ID, slot), NUMA: o.NUMA})
			}
		}
		if size := plugin.MessageSize(list); size > plugin.MaxMessage {
			problems = append(problems, fmt.Errorf("%s: count: %d devices with %d slots each make a list of %d bytes: the kubelet takes at most %d",
				m.Resource.Place, len(m.Offers), m.Resource.Count, size, plugin.MaxMessage))
		}
	}
	return problems
}
