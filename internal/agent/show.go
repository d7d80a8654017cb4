package agent

import (
	"fmt"
	"path/filepath"
	"slices"

	"github.com/generic-dp/generic-dp/cdi"
	"github.com/generic-dp/generic-dp/internal/device"
	"github.com/generic-dp/generic-dp/internal/kubelet/plugin"
	"github.com/generic-dp/generic-dp/internal/ledger"
	"github.com/generic-dp/generic-dp/internal/order"
	"github.com/generic-dp/generic-dp/internal/output"
	"github.com/generic-dp/generic-dp/matchers"
)

// Container is what a container gets of a resource.
type Container struct {
	// Slots are what the kubelet chooses.
	Slots    []string
	Response device.Response
	// Nodes are the nodes that links in the response point to, by the paths of the links.
	Nodes map[string]string
	// Edits are what CDI names of this program stand for, by name.
	Edits map[string]*cdi.Edits
}

// listOf is the state in which serve would publish a matched resource if no container held a device.
func listOf(m *matchers.Offered) *published {
	p := &published{config: m.Resource}
	offers := slices.Clone(m.Offers)
	order.Sort(offers, func(a, b device.Offer) int {
		return device.CompareNatural(a.ID, b.ID)
	})
	for _, o := range offers {
		e := ledger.Entry{
			Offer:   o,
			Healthy: o.Problem == "",
			Reason:  o.Problem,
			Present: true,
			Listed:  o.Slots,
		}
		p.entries = append(p.entries, e)
		p.list = append(p.list, ledger.Slots(e)...)
	}
	return p
}

// Allocate returns what a container gets from serve that requests size slots of a matched resource.
// The resource must have as many healthy slots. Nothing is granted or written.
func (p Paths) Allocate(m *matchers.Offered, size int) (Container, error) {
	listed := listOf(m)
	var healthy []string
	for _, l := range listed.list {
		if l.Healthy {
			healthy = append(healthy, l.ID)
		}
	}
	slots := plugin.Prefer(string(m.Resource.Prefer), listed.list, healthy, nil, size)
	slices.Sort(slots)
	c := Container{
		Slots: slots,
		Nodes: map[string]string{},
		Edits: map[string]*cdi.Edits{},
	}
	offers, err := listed.find(c.Slots)
	if err != nil {
		return c, err
	}
	links := output.Links{Dir: filepath.Join(p.RunDir, linksName)}
	health := output.Health{Dir: filepath.Join(p.RunDir, healthName)}
	r := cdi.Resource{
		Name: m.Name,
		Link: links.Path,
		Host: withoutLinks{hostCheck{p, p.ForeignSpecs()}},
	}
	spec, failed := r.Build(offers)
	for i := range offers {
		o := &offers[i]
		err := failed[o.ID]
		if err != nil && !o.AlsoCDI {
			return c, fmt.Errorf("device %q: %w", o.ID, err)
		}
		// A device that is injected directly needs no name, see dropCDINames.
		o.AlsoCDI = o.AlsoCDI && err == nil
	}
	c.Response, err = r.Respond(offers)
	if err != nil {
		return c, err
	}
	c.Response.Mounts = append(c.Response.Mounts, cdi.HealthMounts(offers, health.Path)...)
	for _, o := range offers {
		for _, link := range output.LinksOf(o) {
			c.Nodes[links.Path(link.ID, link.Key)] = link.Target
		}
	}
	if spec == nil {
		return c, nil
	}
	for i := range spec.Devices {
		d := &spec.Devices[i]
		c.Edits[m.Name+"="+d.Name] = &d.ContainerEdits
	}
	return c, nil
}

// withoutLinks checks nodes instead of their links, which only serve makes.
type withoutLinks struct{ hostCheck }

func (w withoutLinks) Node(_ string, n device.OfferedNode) error {
	return w.hostCheck.Node(n.HostPath, n)
}
