package matchers

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/generic-dp/generic-dp/device"
)

// scope is what variables can be asked of: a device of a resource.
type scope struct {
	b    *builder
	id   string
	numa []int
	s    selected
	// paths of the nodes in the container, once they are known: ${container_path}.
	paths []device.Text
}

// entry fills in a name or value of the environment or of an annotation.
// Where a variable has several values, as ${devnode} has for a device of
// several nodes, they are joined with commas.
func (c *scope) entry(t device.Text) (device.Text, error) {
	return c.expand(t, func(name string) (device.Text, error) {
		values, err := c.values(name, c.s.picks)
		if err != nil {
			return nil, err
		}
		var joined device.Text
		for i, v := range values {
			if i > 0 {
				joined = append(joined, device.Part{Literal: ","})
			}
			joined = append(joined, v...)
		}
		return joined, nil
	})
}

// path fills in a path, of a node in the container where picks is that node,
// else of the whole device. Each variable must have one value. What hardware
// says of itself can't add elements to a path: anyone can make a USB stick
// whose serial number is "../../etc".
func (c *scope) path(t device.Text, picks []pick) (device.Text, error) {
	out, err := c.expand(t, func(name string) (device.Text, error) {
		values, err := c.values(name, picks)
		if err != nil {
			return nil, err
		}
		if len(values) > 1 {
			return nil, fmt.Errorf("${%s} has several values: %q and %q", name, values[0], values[1])
		}
		v := values[0].String()
		bus, _, ofHardware := strings.Cut(name, ".")
		if ofHardware && (bus == "usb" || bus == "pci") && (strings.Contains(v, "/") || strings.Trim(v, ".") == "") {
			return nil, fmt.Errorf("${%s} is %q, which can't be part of a path", name, v)
		}
		return values[0], nil
	})
	if err != nil {
		return nil, err
	}
	sample := strings.TrimSuffix(out.Expand(func(string) (string, bool) { return "0", true }).String(), "/")
	if !strings.HasPrefix(sample, "/") || slices.ContainsFunc(strings.Split(sample[1:], "/"), func(e string) bool { return e == "" || e == "." || e == ".." }) {
		return nil, fmt.Errorf("%q is not a clean, absolute path", out)
	}
	return out, nil
}

// expand puts values in the place of variables, and leaves those open that
// depend on the container.
func (c *scope) expand(t device.Text, value func(name string) (device.Text, error)) (device.Text, error) {
	var out device.Text
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
func (c *scope) values(name string, picks []pick) ([]device.Text, error) {
	var values []string
	reason := ""
	switch name {
	case "id":
		values = []string{c.id}
	case "resource":
		values = []string{c.b.r.Name}
	case "RESOURCE":
		values = []string{strings.NewReplacer("/", "_", ".", "_", "-", "_").Replace(strings.ToUpper(c.b.r.Name))}
	case "RESOURCE_KUBEVIRT":
		values = []string{strings.NewReplacer("/", "_", ".", "_").Replace(strings.ToUpper(c.b.r.Name))}
	case "node_name":
		values = []string{c.b.opts.NodeName}
		reason = "the name of the node is not known: want --node-name"
	case "numa":
		var nodes []string
		for _, n := range c.numa {
			nodes = append(nodes, strconv.Itoa(n))
		}
		values = []string{strings.Join(nodes, ",")}
		reason = "no NUMA node is reported"
	case "devnode":
		for _, p := range picks {
			values = append(values, p.node.Path)
		}
		reason = "the device has no node"
	case "kernel":
		for _, p := range picks {
			values = append(values, p.node.Kernel)
		}
		reason = "the device has no node"
	case "container_path":
		if len(c.paths) > 0 {
			return c.paths, nil
		}
		reason = "the device has no node"
	default:
		values, reason = c.ofHardware(name, picks)
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

// ofHardware is what a variable of the hardware or of a wildcard stands for.
func (c *scope) ofHardware(name string, picks []pick) (values []string, reason string) {
	if n, err := strconv.Atoi(name); err == nil && n > 0 {
		for _, p := range picks {
			if found := c.b.ix.captures(p.match.Glob, p.node); n <= len(found) {
				values = append(values, found[n-1])
			}
		}
		return values, fmt.Sprintf("wildcard %d of the glob stands for nothing", n)
	}
	bus, key, _ := strings.Cut(name, ".")
	h := c.s.hardware
	switch {
	case h == nil:
		return nil, "the device has no hardware"
	case bus == "usb" && h.USB == nil:
		return nil, describe(h) + " is no USB device"
	case bus == "usb" && (key == interfaceKey || key == interfaceClassKey):
		return c.ofInterfaces(h, key, picks), describe(h) + " has no such interface"
	case bus == "usb":
		return []string{usbValue(h, key)}, describe(h) + " has no " + noun(key)
	case bus == "pci" && function(h) == nil:
		return nil, describe(h) + " is not on a PCI bus"
	case bus == "pci" && c.s.group != nil:
		for _, f := range c.s.group.functions {
			values = append(values, pciValue(f, key))
		}
		return values, describe(h) + " has no " + noun(key)
	case bus == "pci":
		return []string{pciValue(h, key)}, describe(function(h)) + " has no " + noun(key)
	}
	return nil, "it is not known"
}

// ofInterfaces is the interfaces of a device's nodes; those of the whole
// device where no node has one.
func (c *scope) ofInterfaces(h *device.Hardware, key string, picks []pick) []string {
	var values []string
	for _, p := range picks {
		if p.node.Interface >= 0 {
			values = append(values, interfaceValues(h, p.node, key)...)
		}
	}
	if values == nil {
		values = interfaceValues(h, nil, key)
	}
	return values
}

// noun is a key in words.
func noun(key string) string {
	if key == "serial" {
		return "serial number"
	}
	return strings.ReplaceAll(key, "_", " ")
}
