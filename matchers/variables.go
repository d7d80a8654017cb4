package matchers

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/generic-dp/generic-dp/device"
)

// scope is what variables can be asked of: a device of a resource.
type scope struct {
	b *builder
	s *selected
	// name of the resource; it is not known to its own variables.
	name string
	id   string
	numa []int
	// paths in the container, once they are known: ${container_path}.
	paths []device.Text
}

// subject is what a variable is asked about: a device as a whole, or one of
// its nodes.
type subject struct {
	picks    []pick
	hardware []*device.Hardware
	paths    []pathPick
	vfio     bool // hardware is functions of IOMMU groups
}

// subject is the whole of a device.
func (s *selected) subject() *subject {
	sub := &subject{picks: s.picks, paths: s.paths}
	for _, h := range s.members() {
		sub.add(s, h)
	}
	return sub
}

// subjectOf is one of the device's nodes.
func (s *selected) subjectOf(p pick) *subject {
	sub := &subject{picks: []pick{p}}
	if p.hardware != nil {
		sub.add(s, p.hardware)
	}
	return sub
}

// add adds hardware of s: the selected functions, where its place is that of
// an IOMMU group.
func (sub *subject) add(s *selected, h *device.Hardware) {
	for _, g := range s.groups {
		if g.hardware == h {
			sub.hardware = append(sub.hardware, g.functions...)
			sub.vfio = true
			return
		}
	}
	sub.hardware = append(sub.hardware, h)
}

// entry fills in a name or value of the environment or of an annotation.
// Where a variable has several values, as ${devnode} has for a device of
// several nodes, they are joined with the separator, which is a comma where it
// is empty.
func (c *scope) entry(t device.Text, separator string) (device.Text, error) {
	return c.expand(t, func(name string) (device.Text, error) {
		values, err := c.values(name, c.s.subject())
		if err != nil {
			return nil, err
		}
		var joined device.Text
		for i, v := range values {
			if i > 0 {
				joined = append(joined, device.Part{Literal: cmp.Or(separator, ",")})
			}
			joined = append(joined, v...)
		}
		return joined, nil
	})
}

// one fills in a text each of whose variables must have one value.
func (c *scope) one(t device.Text, sub *subject) (device.Text, error) {
	return c.expand(t, func(name string) (device.Text, error) {
		values, err := c.values(name, sub)
		if err != nil {
			return nil, err
		}
		if len(values) > 1 {
			return nil, fmt.Errorf("${%s} has several values: %q and %q", name, values[0], values[1])
		}
		return values[0], nil
	})
}

// path fills in a path, of a node in the container where sub is that node,
// else of the whole device. Each variable must have one value. What hardware
// says of itself can't add elements to a path: anyone can make a USB stick
// whose serial number is "../../etc".
func (c *scope) path(t device.Text, sub *subject) (device.Text, error) {
	for _, name := range t.Vars() {
		if !saidByHardware(name) {
			continue
		}
		values, err := c.values(name, sub)
		if err != nil {
			return nil, err
		}
		if v := values[0].String(); len(values) == 1 && (strings.Contains(v, "/") || strings.Trim(v, ".") == "") {
			return nil, fmt.Errorf("${%s} is %q, which can't be part of a path", name, v)
		}
	}
	out, err := c.one(t, sub)
	if err != nil {
		return nil, err
	}
	sample := strings.TrimSuffix(out.Expand(func(string) (string, bool) { return "0", true }).String(), "/")
	if !isClean(sample) {
		return nil, fmt.Errorf("%q is not a clean, absolute path", out)
	}
	return out, nil
}

// isClean reports whether a path is absolute and has no empty element, "." or
// "..".
func isClean(p string) bool {
	rest, more := strings.CutPrefix(p, "/")
	if !more {
		return false
	}
	for more {
		var e string
		if e, rest, more = strings.Cut(rest, "/"); e == "" || e == "." || e == ".." {
			return false
		}
	}
	return true
}

// saidByHardware reports whether a variable stands for what hardware or a
// driver says.
func saidByHardware(name string) bool {
	table, _, ok := strings.Cut(name, ".")
	return strings.HasPrefix(name, attrPrefix) || ok && (table == "usb" || table == "pci" || table == "net" || table == "mdev")
}

// expand puts values in the place of variables, and leaves those open that
// depend on the container.
func (c *scope) expand(t device.Text, value func(name string) (device.Text, error)) (device.Text, error) {
	out := make(device.Text, 0, len(t))
	for _, p := range t {
		if p.Var == "" || p.Var == device.IndexVar || p.Var == device.CountVar {
			out = append(out, p)
			continue
		}
		v, err := value(p.Var)
		if err != nil {
			return nil, err
		}
		if strings.ContainsFunc(v.String(), unicode.IsControl) {
			return nil, fmt.Errorf("${%s} is %q, which has control characters", p.Var, v)
		}
		out = append(out, v...)
	}
	// Joins literals that stand side by side.
	return out.Expand(func(string) (string, bool) { return "", false }), nil
}

// values is what a variable stands for: one value or more, each once, or the
// reason why it has none.
func (c *scope) values(name string, sub *subject) ([]device.Text, error) {
	var values []string
	reason := "the device has no node"
	switch name {
	case "id":
		values, reason = []string{c.id}, "it is made of the name"
	case "resource":
		values = []string{c.name}
	case "RESOURCE":
		values = []string{strings.NewReplacer("/", "_", ".", "_", "-", "_").Replace(strings.ToUpper(c.name))}
	case "RESOURCE_KUBEVIRT":
		values = []string{strings.NewReplacer("/", "_", ".", "_").Replace(strings.ToUpper(c.name))}
	case "node_name":
		values, reason = []string{c.b.opts.NodeName}, noNodeName
	case "numa":
		var nodes []string
		for _, n := range c.numa {
			nodes = append(nodes, strconv.Itoa(n))
		}
		values, reason = []string{strings.Join(nodes, ",")}, "no NUMA node is reported"
	case "devnode":
		for _, p := range sub.nodes() {
			values = append(values, p.node.Path)
		}
	case "kernel":
		for _, p := range sub.nodes() {
			values = append(values, p.node.Kernel)
		}
	case "container_path":
		if len(c.paths) > 0 {
			return c.paths, nil
		}
	default:
		values, reason = c.ofDevice(name, sub)
	}
	var out []device.Text
	for i, v := range values {
		if v != "" && !slices.Contains(values[:i], v) {
			out = append(out, device.Literal(v))
		}
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("${%s} has no value: %s", name, reason)
	}
	return out, nil
}

const noNodeName = "the name of the node is not known: want --node-name"

// nodes are the device nodes among what is picked.
func (s *subject) nodes() []pick {
	return slices.DeleteFunc(slices.Clone(s.picks), func(p pick) bool { return p.node.Net != nil })
}
