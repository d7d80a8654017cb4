package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/generic-dp/generic-dp/config"
	"github.com/generic-dp/generic-dp/internal/device"
)

// details returns how what a container gets of a device differs between two configurations: a line for
// each loss, with a minus, and for each addition, with a plus.
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

// contents describes everything that a container gets of a device, one fact in each line. The words are
// keys of the configuration where one exists.
func contents(o *device.Offer) []string {
	var facts []string
	add := func(format string, args ...any) {
		facts = append(facts, fmt.Sprintf(format, args...))
	}
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
	for _, e := range o.Env {
		add("env %s=%s", e.Key, e.Value)
	}
	for _, e := range o.Annotations {
		add("annotations %s=%s", e.Key, e.Value)
	}
	for _, h := range o.Hooks {
		add("hooks %s %s", h.Name, strings.Join(append([]string{h.Path}, h.Args...), " "))
	}
	for _, id := range o.AdditionalGIDs {
		add("additional_gids %d", id)
	}
	facts = append(facts, settingsOf(o)...)
	return facts
}

// settingsOf describes the settings of a device that are no lists.
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
	if o.Problem != "" {
		facts = append(facts, "cannot be used: "+o.Problem)
	}
	return facts
}

// ownerOf describes the owner of a node, as far as the configuration sets it.
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

// changedSettings returns how settings of a resource differ that no device shows: "prefer: numa to
// packed".
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

// setting is a key of a resource with its value as text.
type setting struct{ key, value string }

// settings returns the settings of a resource that no device shows.
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

// healthOf describes health checks.
func healthOf(h *config.Health) string {
	if h == nil {
		return "none"
	}
	var checks []string
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
