package matchers

import (
	"slices"

	"github.com/generic-dp/generic-dp/config"
	"github.com/generic-dp/generic-dp/internal/device"
)

// Variable is a variable with its values for a device.
type Variable struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// table lists the values of variables that do not depend on the container.
func (b *builder) table(names []string) []Variable {
	var all []Variable
	for i, name := range names {
		isRepeated := slices.Contains(names[:i], name)
		value, err := b.joined(device.Text{{Var: name}}, " ")
		isOpen := len(value.Vars()) > 0
		if err != nil || isOpen || isRepeated {
			continue
		}
		all = append(all, Variable{
			Name:  "${" + name + "}",
			Value: value.String(),
		})
	}
	return all
}

// Variables lists the variables of hardware, or of a node of it, that have a value whatever
// the resource.
func Variables(snap *device.Snapshot, forms device.Forms, opts Options, h *device.Hardware, n *device.Node) []Variable {
	m := newRun(&config.Config{}, snap, forms, opts)
	c := &candidate{hardware: h}
	anything := m.predicate(&config.Match{})
	nodes := []*device.Node{n}
	if n == nil {
		nodes = h.Nodes
	}
	for _, n := range nodes {
		c.picks = append(c.picks, pick{
			node:     n,
			match:    anything,
			hardware: h,
		})
	}
	c.single = h == nil
	b := m.builder(&config.Resource{NUMA: config.NUMA{Auto: true}}, c, "")
	names := []string{"id", "devnode", "kernel", "numa", "node_name"}
	for _, a := range device.Attributes() {
		names = append(names, a.Name())
	}
	return b.table(names)
}
