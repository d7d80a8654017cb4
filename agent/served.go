package agent

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/generic-dp/generic-dp/config"
	"github.com/generic-dp/generic-dp/device"
	"github.com/generic-dp/generic-dp/ledger"
	"github.com/generic-dp/generic-dp/plugin"
)

// served is one resource with the plugin that serves it.
type served struct {
	config   *config.Resource
	resource *resource
	plugin   *plugin.Plugin
	running  bool // the plugin runs; only the loop looks
	tooLarge bool // said that the list is too large
}

func (a *Agent) newServed(c *config.Resource) *served {
	r := newResource(c.Name, string(c.Prefer), a.options.Paths, a.links.Path)
	hooks := plugin.Hooks{
		Registered: func(cause plugin.Cause, _ time.Duration) { a.metrics.CountRegistration(c.Name, string(cause)) },
		Refused:    func(error) { a.metrics.CountRefusal(c.Name) },
		Allocated:  func(took time.Duration, err error) { a.metrics.CountAllocation(c.Name, took, err) },
	}
	return &served{
		config:   c,
		resource: r,
		plugin:   plugin.New(plugin.Options{Resource: c.Name, Watch: a.kubelet, Source: r, Log: a.log, Hooks: hooks}),
	}
}

// show publishes what the ledger lists and registers the resource when its
// time has come. It stays registered from then on.
func (s *served) show(ctx context.Context, a *Agent, group *errgroup.Group, listed ledger.ListedResource) {
	var list []device.Listed
	for _, e := range listed.Devices {
		list = append(list, ledger.Slots(e)...)
	}
	s.resource.publish(s.fitting(a, list), listed.Devices)
	if s.running || !(listed.Register || s.config.Register == config.RegisterAlways) {
		return
	}
	s.running = true
	group.Go(func() error { return s.plugin.Run(ctx) })
}

// fitting cuts a list that the kubelet would refuse: over its limit it ends
// the stream and the resource is gone from the node for good.
func (s *served) fitting(a *Agent, list []device.Listed) []device.Listed {
	size := plugin.MessageSize(list)
	if size <= plugin.MaxMessage {
		s.tooLarge = false
		return list
	}
	if !s.tooLarge {
		s.tooLarge = true
		a.log.Error("list is larger than the kubelet takes: the last devices are left out",
			"resource", s.config.Name, "slots", len(list), "bytes", size, "limit", plugin.MaxMessage)
	}
	for plugin.MessageSize(list) > plugin.MaxMessage {
		list = list[:len(list)*9/10]
	}
	return list
}

// ready is an error if the resource has devices and is not registered.
func (s *served) ready() error {
	list, _ := s.resource.Devices()
	if len(list) == 0 && s.config.Register != config.RegisterAlways {
		return nil
	}
	status, _ := s.plugin.Status()
	if status.Registered {
		return nil
	}
	return fmt.Errorf("resource %s is not registered: %s", s.config.Name, status.Reason)
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
