package matchers

import (
	"cmp"
	"errors"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/generic-dp/generic-dp/internal/device"
	"github.com/generic-dp/generic-dp/internal/pattern"
)

// noNodeName is part of problems and of notes.
const noNodeName = "the name of the node is not known: set --node-name"

// forNode returns a device with only one of its nodes, for the variables in the path of that
// node.
func (c *candidate) forNode(p pick) *candidate {
	one := &candidate{
		picks:    []pick{p},
		hardware: p.hardware,
	}
	// The node of an IOMMU group has the values of the functions of its group.
	if c.vfio && isVFIONode(p.node) {
		one.vfio = true
		one.united = slices.DeleteFunc(slices.Clone(c.members()), func(h *device.Hardware) bool {
			return h.IOMMUGroup() != p.hardware.IOMMUGroup()
		})
	}
	return one
}

// targets lists what has the attributes and drivers of a device: its nodes and network interfaces. For VFIO,
// and for hardware without nodes, that is the hardware: the directory of the node of an IOMMU group has no
// attributes of the hardware.
func (c *candidate) targets() []target {
	var all []target
	if !c.vfio {
		for _, p := range c.picks {
			all = append(all, target{p.node.Hardware, p.node})
		}
	}
	if all == nil {
		for _, h := range c.members() {
			all = append(all, target{hardware: h})
		}
	}
	return all
}

// attrDirs lists, for each target, the sysfs directories that may have its attributes, nearest first.
func (c *candidate) attrDirs() [][]string {
	var all [][]string
	for _, t := range c.targets() {
		if dirs := dirsOf(t); dirs != nil {
			all = append(all, dirs)
		}
	}
	return all
}

// interfaces lists the network interfaces of ${net.KEY}: the interfaces that are devices, or
// else the interfaces of the hardware that its matches select.
func (c *candidate) interfaces() []*device.Node {
	var found []*device.Node
	for _, p := range c.picks {
		if p.isNet() {
			found = append(found, p.node)
		}
	}
	if found != nil {
		return found
	}
	for _, h := range c.members() {
		for _, n := range h.Nets {
			isSelected := slices.ContainsFunc(c.picks, func(by pick) bool {
				return by.match.matchesNet(n)
			})
			if isSelected || len(c.picks) == 0 {
				found = append(found, n)
			}
		}
	}
	return found
}

// joined fills in a value of environment or annotations, for each part of a pool or a group
// that has a value for each variable. Several values, also those of ${devnode} for
// hardware with several nodes, are joined with the separator, by default a comma.
func (b *builder) joined(t device.Text, separator string) (device.Text, error) {
	separator = cmp.Or(separator, ",")
	var all []device.Text
	seen := make(map[string]bool)
	size := 0
	for i := range b.c.parts {
		// A part is filled in as a whole, so that values of one part stay together.
		text, err := b.filled(t, separator, &b.c.parts[i])
		size += text.LiteralSize()
		// The sum is limited while it grows: a pool may have thousands of parts.
		if size > maxTexts {
			return nil, errTooLong
		}
		hasNoValue := errors.As(err, new(noValue))
		if hasNoValue {
			continue
		}
		if err != nil {
			return nil, err
		}
		// Parts with the same value are listed once.
		if !seen[text.String()] {
			seen[text.String()] = true
			all = append(all, text)
		}
	}
	// The device has no parts, or no part has a value. Then the error names the variable.
	if all == nil {
		return b.filled(t, separator, b.c)
	}
	return join(all, separator), nil
}

// filled fills in a text for a device, or a part of one. The error is a noValue if a variable has
// no value.
func (b *builder) filled(t device.Text, separator string, of *candidate) (device.Text, error) {
	return expand(t, func(name string) (device.Text, error) {
		values, err := b.values(name, of)
		return join(values, separator), err
	})
}

// noValue is the error of a variable without a value, or whose value could not be read yet.
type noValue struct {
	text string
	// unread is set if the value could not be read yet. It may exist.
	unread bool
}

// Error returns a text for an administrator, with the variable and the device.
func (n noValue) Error() string { return n.text }

// join joins texts, and their adjacent literals.
func join(texts []device.Text, separator string) (joined device.Text) {
	for i, t := range texts {
		if i > 0 {
			joined = append(joined, device.Literal(separator)...)
		}
		joined = append(joined, t...)
	}
	return joined.Expand(func(string) (string, bool) { return "", false })
}

// single fills in a text whose variables must have one value each.
func (b *builder) single(t device.Text, of *candidate) (device.Text, error) {
	return expand(t, func(name string) (device.Text, error) {
		return b.value(name, of)
	})
}

// value returns the value of a variable that must have one.
func (b *builder) value(name string, of *candidate) (device.Text, error) {
	values, err := b.values(name, of)
	if err != nil {
		return nil, err
	}
	// values returns an error instead of an empty list, so that there is at least one.
	if len(values) > 1 {
		return nil, fmt.Errorf("${%s} has several values: %q and %q", name, values[0], values[1])
	}
	return values[0], nil
}

// text fills in a text like single. It adds an error as a problem of what.
func (b *builder) text(what string, t device.Text, of *candidate) (string, bool) {
	found, err := b.single(t, of)
	if err != nil {
		b.problem("%s: %v", what, err)
	}
	return found.String(), err == nil
}

// valueInPath returns the value of a variable in a path. Attributes of hardware must not add elements: a
// USB stick may have the serial number "../../etc".
func (b *builder) valueInPath(name string, of *candidate) (device.Text, error) {
	value, err := b.value(name, of)
	text := value.String()
	isDots := strings.Trim(text, ".") == ""
	isUnsafe := isDots || strings.Contains(text, "/")
	if err == nil && isUnsafe && isOfHardware(name) {
		return nil, fmt.Errorf("${%s} is %q, which can't be part of a path", name, text)
	}
	return value, err
}

// path fills in a text for a path, like text.
func (b *builder) path(what string, t device.Text, of *candidate) (device.Text, bool) {
	out, err := expand(t, func(name string) (device.Text, error) {
		return b.valueInPath(name, of)
	})
	if err != nil {
		b.problem("%s: %v", what, err)
		return nil, false
	}
	// A final "/" is allowed. It means that the name of the node follows.
	s := strings.TrimSuffix(sample(out), "/")
	isClean := path.Clean(s) == s
	if !isClean || !path.IsAbs(s) {
		b.problem("%s: %q is not a clean, absolute path", what, out)
		return nil, false
	}
	return out, true
}

// isOfHardware reports whether hardware reports the value of a variable.
func isOfHardware(name string) bool {
	_, isAttribute := device.FindAttribute(name)
	return isAttribute || name == "driver" || strings.HasPrefix(name, device.AttrPrefix)
}

// sample returns a text with a number for each open variable.
func sample(t device.Text) string {
	return t.Expand(func(string) (string, bool) { return "0", true }).String()
}

// expand fills in all variables that do not depend on the container.
func expand(t device.Text, value func(name string) (device.Text, error)) (device.Text, error) {
	out := make([]device.Text, 0, len(t))
	for _, p := range t {
		if p.Var == "" || device.IsOfContainer(p.Var) {
			out = append(out, device.Text{p})
			continue
		}
		v, err := value(p.Var)
		if err != nil {
			return nil, err
		}
		// A line break could forge another line in a file or a log.
		if strings.ContainsFunc(v.String(), unicode.IsControl) {
			return nil, fmt.Errorf("${%s} is %q, which has control characters", p.Var, v)
		}
		out = append(out, v)
	}
	return join(out, ""), nil
}

// values lists the values of a variable without repeats. Without a value, the error is a noValue.
func (b *builder) values(name string, of *candidate) ([]device.Text, error) {
	out := b.pathValues(name, of)
	var values []string
	unread := false
	attr, isAttr := strings.CutPrefix(name, device.AttrPrefix)
	if isAttr {
		values, unread = b.attrsOf(of, attr)
	} else {
		values = b.lookUp(name, of)
	}
	// One unread value is enough: the other values alone may be misleading.
	if unread {
		return nil, noValue{
			text:   fmt.Sprintf("${%s} can't be read yet for %s", name, b.c.describe()),
			unread: true,
		}
	}
	// An empty value counts as absent, like an attribute that hardware lacks.
	for _, v := range unique(values) {
		out = append(out, device.Literal(v))
	}
	if len(out) > 0 {
		return out, nil
	}
	if name == "node_name" {
		return nil, noValue{text: fmt.Sprintf("${%s} has no value: %s", name, noNodeName)}
	}
	return nil, noValue{text: fmt.Sprintf("${%s} has no value for %s", name, b.c.describe())}
}

// pathValues lists the values of ${container_path}, and nothing for other variables.
func (b *builder) pathValues(name string, of *candidate) []device.Text {
	if name != "container_path" {
		return nil
	}
	var values []device.Text
	for _, p := range of.picks {
		at, isKnown := b.paths[p.node.Path]
		if isKnown {
			values = append(values, at)
		}
	}
	return values
}

// attrsOf lists the values of an attribute of sysfs.
func (b *builder) attrsOf(of *candidate, name string) (values []string, unread bool) {
	for _, dirs := range of.attrDirs() {
		found, late := b.attr(b.r.Place, "${"+device.AttrPrefix+name+"}", dirs, name)
		values = append(values, strings.TrimSpace(cmp.Or(found...)))
		unread = unread || late
	}
	return values, unread
}

// lookUp lists the values of a variable that is not an attribute of sysfs.
func (b *builder) lookUp(name string, of *candidate) (values []string) {
	// ${1} is the text of the first wildcard.
	if n, err := strconv.Atoi(name); err == nil && n > 0 {
		return b.wildcard(n, of)
	}
	if text, ok := strings.CutPrefix(name, device.DevnodePrefix); ok {
		glob, _ := pattern.Parse(pattern.Path, text) // checked by config
		for _, p := range of.nodes() {
			if !b.isLate(glob) && glob.Match(b.namesOf(p.node)...) {
				values = append(values, p.node.Path)
			}
		}
		return values
	}
	if a, ok := device.FindAttribute(name); ok {
		return attributes(a, of)
	}
	if v := b.c.virtual; v != nil {
		key, isVar := strings.CutPrefix(name, device.VarPrefix)
		switch {
		case isVar:
			return []string{v.Vars[key]}
		case name == "virtual":
			return []string{v.Name}
		}
	}
	if b.c.cdi != nil {
		kind, last, _ := strings.Cut(b.c.cdi.Name, "=")
		switch name {
		case "cdi.name":
			return []string{b.c.cdi.Name}
		case "cdi.kind":
			return []string{kind}
		case "cdi.device":
			return []string{last}
		}
	}
	switch name {
	case "id":
		return []string{b.id}
	case "resource":
		return []string{b.name}
	case "RESOURCE":
		return []string{kubevirtName(strings.ReplaceAll(b.name, "-", "_"))}
	case "RESOURCE_KUBEVIRT":
		return []string{kubevirtName(b.name)}
	case "node_name":
		return []string{b.NodeName}
	case "numa":
		for _, n := range b.numa() {
			values = append(values, strconv.Itoa(n))
		}
		// NUMA nodes are one value, so that ${numa} is allowed where a single value is needed.
		return []string{strings.Join(values, ",")}
	case "driver":
		return b.driversOf(of)
	case "devnode", "kernel":
		for _, p := range of.nodes() {
			if name == "devnode" {
				values = append(values, p.node.Path)
			} else {
				values = append(values, p.node.Kernel)
			}
		}
	}
	return values
}

// driversOf lists the nearest driver of each node and network interface, or of hardware without nodes.
func (b *builder) driversOf(of *candidate) (values []string) {
	for _, t := range of.targets() {
		drivers := b.drivers(t)
		if len(drivers) > 0 {
			values = append(values, drivers[0])
		}
	}
	return values
}

// kubevirtName returns the name of a resource as KubeVirt has it in the names of variables
// (ResourceNameToEnvVar in pkg/util).
func kubevirtName(name string) string {
	return strings.NewReplacer("/", "_", ".", "_").Replace(strings.ToUpper(name))
}

// attributes lists the values of an attribute. Of USB interfaces they are those of the
// device's nodes, or all if no node belongs to one.
func attributes(a *device.Attribute, of *candidate) (values []string) {
	if a.About == device.OfNet {
		for _, n := range of.interfaces() {
			values = append(values, a.Of(nil, n)...)
		}
		return values
	}
	for _, h := range of.members() {
		var found []string
		for _, p := range of.picks {
			if a.About == device.OfInterface && p.node.Hardware == h && p.node.Interface >= 0 {
				found = append(found, a.Of(h, p.node)...)
			}
		}
		// No selected node belongs to an interface.
		if found == nil {
			found = a.Of(h, nil)
		}
		values = append(values, found...)
	}
	return values
}

// wildcard lists what the n-th wildcard of the globs matched.
func (b *builder) wildcard(n int, of *candidate) []string {
	var values []string
	for _, p := range of.picks {
		found := b.captures(p.match.Glob, p.node)
		// Alternatives of a glob may have fewer wildcards.
		if n <= len(found) {
			values = append(values, found[n-1])
		}
	}
	return values
}
