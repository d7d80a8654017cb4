package matchers

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/generic-dp/generic-dp/config"
	"github.com/generic-dp/generic-dp/device"
)

// What is in front of names in ${attr:NAME} and ${var:NAME}.
const (
	attrPrefix = "attr:"
	varPrefix  = "var:"
)

// ofDevice is what a variable stands for that says something of the device
// itself, and why it has no value where that is so.
func (c *scope) ofDevice(name string, sub *subject) (values []string, reason string) {
	if n, err := strconv.Atoi(name); err == nil && n > 0 {
		return c.b.ix.wildcard(n, sub), fmt.Sprintf("wildcard %d of the glob stands for nothing", n)
	}
	if attr, ok := strings.CutPrefix(name, attrPrefix); ok {
		for _, dirs := range sub.attrDirs() {
			values = append(values, c.b.ix.attr(dirs, attr))
		}
		return values, "the device has no such attribute in sysfs"
	}
	if key, ok := strings.CutPrefix(name, varPrefix); ok {
		if c.s.virtual == nil {
			return nil, "the device is not virtual"
		}
		return []string{c.s.virtual.Vars[key]}, fmt.Sprintf("virtual device %q has none of that name in its vars", c.s.virtual.Name)
	}
	table, key, _ := strings.Cut(name, ".")
	switch table {
	case "virtual":
		if c.s.virtual == nil {
			return nil, "the device is not virtual"
		}
		return []string{c.s.virtual.Name}, ""
	case "cdi":
		if c.s.cdi == nil {
			return nil, "the device is none of CDI"
		}
		return []string{cdiValue(c.s.cdi.Name, key)}, "it is not known"
	}
	a, ok := device.FindAttribute(name)
	if !ok {
		return nil, "it is not known"
	}
	if table == "net" {
		for _, n := range sub.interfaces() {
			values = append(values, a.Of(nil, n)...)
		}
		return values, "the device has no network interface that says its " + noun(key)
	}
	if len(sub.hardware) == 0 {
		return nil, "the device has no hardware"
	}
	for _, h := range sub.hardware {
		values = append(values, sub.attribute(a, h)...)
		if reason == "" {
			reason = lacks(h, a)
		}
	}
	return values, reason
}

// attribute is what hardware has for an attribute: if that is one of USB
// interfaces, those of the subject's nodes have it, or all where no node does.
func (s *subject) attribute(a *device.Attribute, h *device.Hardware) []string {
	var values []string
	for _, p := range s.picks {
		if a.Interface != nil && p.node.Hardware == h && p.node.Interface >= 0 {
			values = append(values, a.Of(h, p.node)...)
		}
	}
	if values == nil {
		values = a.Of(h, nil)
	}
	return values
}

// lacks says why hardware has no value for an attribute.
func lacks(h *device.Hardware, a *device.Attribute) string {
	switch {
	case a.Table == "usb" && h.USB == nil:
		return describe(h) + " is no USB device"
	case a.Interface != nil:
		return describe(h) + " has no such interface"
	case a.Table == "mdev" && h.MDev == nil:
		return describe(h) + " is no mediated device"
	case a.Table == "pci" && h.Function() == nil:
		return describe(h) + " is not on a PCI bus"
	case a.Table == "pci":
		h = h.Function()
	}
	return describe(h) + " has no " + noun(a.Key)
}

// wildcard is what the n-th wildcard of the globs stood for.
func (ix *index) wildcard(n int, sub *subject) []string {
	var values []string
	add := func(found []string) {
		if n <= len(found) {
			values = append(values, found[n-1])
		}
	}
	for _, p := range sub.picks {
		add(ix.captures(p.match.Glob, p.node))
	}
	for _, p := range sub.paths {
		add(p.match.Glob.Captures(p.path))
	}
	return values
}

// cdiValue is what the qualified name of a CDI device, "vendor.com/gpu=0", has
// for a key of ${cdi.KEY}.
func cdiValue(name, key string) string {
	kind, id, _ := strings.Cut(name, "=")
	switch key {
	case "name":
		return name
	case "kind":
		return kind
	case "device":
		return id
	}
	return ""
}

// noun is a key in words.
func noun(key string) string {
	if key == "serial" {
		return "serial number"
	}
	return strings.ReplaceAll(key, "_", " ")
}

// usesVariable reports whether a text of a resource has a variable whose name
// begins like that.
func usesVariable(r *config.Resource, prefix string) bool {
	c := &r.Container
	texts := []device.Text{r.NameText, c.Path, c.NetName}
	texts = append(texts, c.CDIDevices...)
	for _, m := range c.Mounts {
		texts = append(texts, m.HostPath, m.ContainerPath)
	}
	for _, e := range append(c.Env[:len(c.Env):len(c.Env)], c.Annotations...) {
		texts = append(texts, e.Key, e.Value)
	}
	for i := range r.Match {
		texts = append(texts, r.Match[i].ContainerPath)
	}
	for i := range r.With {
		texts = append(texts, r.With[i].Path, r.With[i].ContainerPath)
	}
	if r.Health != nil {
		texts = append(texts, r.Health.TCP)
	}
	for _, t := range texts {
		for _, name := range t.Vars() {
			if strings.HasPrefix(name, prefix) {
				return true
			}
		}
	}
	return strings.HasPrefix(r.GroupBy, prefix)
}
