package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/generic-dp/generic-dp/config"
	"github.com/generic-dp/generic-dp/internal/device"
)

// details returns how the contents of a device differ between two configurations: a line for each
// loss, with a minus, and for each addition, with a plus. Losses come first. A changed value is a
// loss and an addition. The result is empty if there is no difference, and never nil.
func details(old, next *device.Offer) []string {
	before := contents(old)
	after := contents(next)
	lines := []string{}
	for _, fact := range before {
		if !slices.Contains(after, fact) {
			lines = append(lines, "- "+fact)
		}
	}
	for _, fact := range after {
		if !slices.Contains(before, fact) {
			lines = append(lines, "+ "+fact)
		}
	}
	return lines
}

// contents describes everything that a container gets from a device, one fact in each line. The
// words are keys of the configuration where one exists. Lines are compared as text, so each line
// must contain everything that matters about its fact.
func contents(o *device.Offer) []string {
	var facts []string
	add := func(format string, args ...any) {
		facts = append(facts, fmt.Sprintf(format, args...))
	}
	// Nodes include companions. A container depends on both paths: the host's path says which
	// device it is.
	for _, n := range o.Nodes {
		add("node %s at %s (%s)", n.HostPath, n.Path, n.Permissions)
	}
	for _, n := range o.Nets {
		add("interface %s %s", n.HostName, n.Name)
	}
	for _, m := range o.Mounts {
		mode := "read-write"
		if m.ReadOnly {
			mode = "read-only"
		}
		add("mount %s at %s (%s)", m.HostPath, m.ContainerPath, mode)
	}
	for _, name := range o.CDIDevices {
		add("cdi_devices %s", name)
	}
	// Variables in values are already replaced by their values for this device.
	for _, e := range o.Env {
		add("env %s=%s", e.Key, e.Value)
	}
	for _, e := range o.Annotations {
		add("annotations %s=%s", e.Key, e.Value)
	}
	for _, h := range o.Hooks {
		add("hooks %s %s", h.Name, strings.Join(append([]string{h.Path}, h.Args...), " "))
	}
	facts = append(facts, settingsOf(o)...)
	return facts
}

// settingsOf describes the settings of a device that are not lists. A setting without effect has
// no line.
func settingsOf(o *device.Offer) []string {
	var facts []string
	if len(o.NUMA) > 0 {
		facts = append(facts, "numa "+joinInts(o.NUMA))
	}
	if o.CDI {
		facts = append(facts, "cdi = true")
	}
	if o.AlsoCDI {
		facts = append(facts, `cdi = "auto"`)
	}
	if o.Owner != nil {
		facts = append(facts, "owner"+ownerOf(o.Owner))
	}
	if o.HealthDir != "" {
		facts = append(facts, fmt.Sprintf("health_dir %s, health_hold %s", o.HealthDir, o.HealthHold))
	}
	if o.Reset != "" {
		facts = append(facts, "reset "+o.Reset)
	}
	// A device may become unusable by an edit that changes nothing else, such as the removal of
	// dangerous = true.
	if o.Problem != "" {
		facts = append(facts, "cannot be used: "+o.Problem)
	}
	return facts
}

// ownerOf describes the owner of a node, as far as the configuration sets it. Each word follows a
// space. nil fields keep the owner of the node on the host.
func ownerOf(o *device.Owner) string {
	text := ""
	if o.UID != nil {
		text += fmt.Sprintf(" uid %d", *o.UID)
	}
	if o.GID != nil {
		text += fmt.Sprintf(" gid %d", *o.GID)
	}
	if o.Mode != nil {
		text += fmt.Sprintf(" mode %04o", *o.Mode)
	}
	return text
}

// changedSettings returns how the settings of a resource differ that no device shows: "prefer:
// numa to packed". The result is never nil.
func changedSettings(old, next *config.Resource) []string {
	before := settings(old)
	lines := []string{}
	for i, s := range settings(next) {
		if s.value != before[i].value {
			lines = append(lines, s.key+": "+before[i].value+" to "+s.value)
		}
	}
	return lines
}

// setting is a key of a resource with its value as text. Values are only compared and shown.
type setting struct{ key, value string }

// settings returns the settings of a resource that no device shows. The length and the order are
// the same for all resources: changedSettings compares by index.
func settings(r *config.Resource) []setting {
	return []setting{
		{"api", string(r.API)},
		{"register", string(r.Register)},
		{"prefer", string(r.Prefer)},
		{"forget_after", r.ForgetAfter.String()},
		{"evict_after", r.EvictAfter.String()},
		{"max_per_container", fmt.Sprint(r.Container.MaxPerContainer)},
		{"health", healthOf(r.Health)},
	}
}

// healthOf describes health checks: "open, tcp 10.0.0.1:80 every 30s". Attributes are sorted,
// because equal checks must have equal texts.
func healthOf(h *config.Health) string {
	if h == nil {
		return "none"
	}
	var checks []string
	// The checks have a fixed order, because equal checks must have equal texts.
	if h.Open {
		checks = append(checks, "open")
	}
	for _, name := range sortedKeys(h.Attr) {
		checks = append(checks, fmt.Sprintf("attr.%s = %q", name, h.Attr[name].Patterns()))
	}
	if len(h.TCP) > 0 {
		checks = append(checks, "tcp "+h.TCP.String())
	}
	return strings.Join(checks, ", ") + " every " + h.Interval.String()
}
