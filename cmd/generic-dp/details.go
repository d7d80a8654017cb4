package main

import (
	"fmt"
	"slices"

	"github.com/generic-dp/generic-dp/internal/device"
	"github.com/generic-dp/generic-dp/internal/tools/cli"
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

// contents describes everything that a container gets from a device, one fact in each line. Lines
// are compared as text, so each line must contain everything that matters about its fact.
func contents(o *device.Offer) []string {
	var facts []string
	// A container depends on both paths of a node: the host's path says which device it is.
	for _, f := range factsOf(editsOf(o), func(path string) string { return path }) {
		facts = append(facts, f.String())
	}
	for _, name := range o.CDIDevices {
		facts = append(facts, "CDI device "+name)
	}
	for _, e := range o.Annotations {
		facts = append(facts, fmt.Sprintf("annotation %s=%s", e.Key, e.Value))
	}
	return append(facts, settingsOf(o)...)
}

// settingsOf describes the settings of a device that are not lists. A setting without effect has
// no line.
func settingsOf(o *device.Offer) []string {
	var facts []string
	if len(o.NUMA) > 0 {
		facts = append(facts, "numa "+cli.JoinInts(o.NUMA))
	}
	if o.CDI {
		facts = append(facts, "cdi = true")
	}
	if o.AlsoCDI {
		facts = append(facts, `cdi = "auto"`)
	}
	if o.HealthDir != "" {
		facts = append(facts, "health_dir "+o.HealthDir)
	}
	// A device may become unusable by an edit that changes nothing else, such as the removal of
	// dangerous = true.
	if o.Problem != "" {
		facts = append(facts, "cannot be used: "+o.Problem)
	}
	return facts
}
