package agent

import (
	"github.com/generic-dp/generic-dp/config"
	"github.com/generic-dp/generic-dp/ledger"
	"github.com/generic-dp/generic-dp/matchers"
)

// reasonInactive is why a resource is retired that the configuration has.
const reasonInactive = "resource is not active on this node: its when does not hold"

// inputs are what the ledger is to know of each resource, and the configuration
// of those that are not being retired, by name. Besides what was matched these are
// the names that no device has now: of resources that are not active, so that the
// reason is the right one, and of devices that may come back, since variables may
// make a name for a device only.
func (l *loop) inputs(v *View) (inputs []ledger.Resource, configs map[string]*config.Resource) {
	configs = map[string]*config.Resource{}
	add := func(name string, c *config.Resource, in ledger.Resource) {
		configs[name] = c
		in.Name, in.Grows, in.ForgetAfter = name, c.Each == config.EachDevice, c.ForgetAfter
		inputs = append(inputs, in)
	}
	for _, m := range v.Matched.Resources {
		add(m.Name, m.Resource, ledger.Resource{Offers: m.Offers})
	}
	inactive := map[*config.Resource]bool{}
	for _, c := range v.Matched.Inactive {
		inactive[c] = true
		if len(c.NameText) == 0 && configs[c.Name] == nil {
			inputs = append(inputs, ledger.Resource{Name: c.Name, Refuse: reasonInactive})
		}
	}
	// What only the kubelet knows of a name is not enough: another program's may be
	// one that the variables can make, too.
	for _, r := range l.state.Remember() {
		name := r.Name
		if configs[name] != nil {
			continue
		}
		for i := range l.config.Resources {
			c := &l.config.Resources[i]
			if !inactive[c] && madeBy(c, name) {
				add(name, c, ledger.Resource{})
				break
			}
		}
	}
	return inputs, configs
}

// madeBy reports whether the variables of a resource's name can result in name.
func madeBy(c *config.Resource, name string) bool {
	return len(c.NameText) > 0 && matchers.Makes(c, name)
}

// vanishing reports whether a name that variables made has no device left. No
// input says so any more, and the ledger ends it when it is asked again.
func vanishing(listed []ledger.ListedResource, configs map[string]*config.Resource) bool {
	for _, r := range listed {
		if c := configs[r.Name]; c != nil && len(c.NameText) > 0 && len(r.Devices) == 0 && len(r.Waiting) == 0 {
			return true
		}
	}
	return false
}
