package matchers

import (
	"slices"

	"github.com/generic-dp/generic-dp/config"
	"github.com/generic-dp/generic-dp/internal/device"
)

// Variable is a variable with its values for a device. The names of the JSON fields are an API.
type Variable struct {
	// Name is the variable as it is written in a configuration: "${usb.serial}".
	Name string `json:"name"`
	// Value has the values of the variable, joined with spaces.
	Value string `json:"value"`
}

// table lists the values of variables that do not depend on the container. It leaves out
// variables without a value and repeated names.
func (b *builder) table(names []string) []Variable {
	var all []Variable
	for i, name := range names {
		isRepeated := slices.Contains(names[:i], name)
		value, err := b.joined(device.Text{{Var: name}}, " ")
		// The value of an open variable is only known when a container is created.
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

// Variables lists the variables of hardware, or of a node of it, that have a value whatever the
// resource. At most one of h and n may be nil. Variables of attributes of sysfs are not in the
// list, because any file of sysfs is one.
func Variables(snap *device.Snapshot, forms device.Forms, opts Options, h *device.Hardware, n *device.Node) []Variable {
	m := newRun(&config.Config{}, snap, forms, opts)
	c := &candidate{hardware: h}
	// The predicate has no conditions, so that ${net.KEY} uses all interfaces of the hardware.
	anything := m.predicate(&config.Match{})
	nodes := []*device.Node{n}
	// Hardware as a whole has the values of all its nodes.
	if n == nil {
		nodes = h.Nodes
	}
	for _, n := range nodes {
		c.picks = append(c.picks, pick{target{h, n}, anything})
	}
	// Only a node without hardware is a single node. Otherwise the ID is the ID of the hardware.
	c.single = h == nil
	b := m.builder(&config.Resource{NUMA: config.NUMA{Auto: true}}, c, "")
	names := []string{"id", "devnode", "kernel", "driver", "numa", "node_name"}
	for _, a := range device.Attributes() {
		names = append(names, a.Name())
	}
	return b.table(names)
}
