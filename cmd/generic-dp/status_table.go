package main

import (
	"cmp"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/generic-dp/generic-dp/internal/status"
)

// statusText writes the content of the status page as text.
type statusText struct{ w io.Writer }

// put writes lines, wrapped and indented.
func (t statusText) put(indent string, lines ...string) {
	for _, line := range lines {
		wrap(t.w, indent, line)
	}
}

// table writes the status, resources with problems first.
func (r statusReport) table(w io.Writer, _ bool) error {
	t := statusText{w}
	t.head(r.Status)
	for _, alert := range r.Alerts() {
		t.put("", alert.Heading+":")
		t.put("  ", alert.Lines...)
	}
	if r.HeldUnknown != "" {
		t.put("", "Holders are unknown: "+r.HeldUnknown)
	}
	r.ProblemsFirst()
	for _, resource := range r.Resources {
		fmt.Fprintln(w)
		t.resource(resource, r.HeldUnknown == "")
	}
	t.events(r.Events)
	return nil
}

// head writes what serves, since when, and which configuration.
func (t statusText) head(s status.Status) {
	state := "ready"
	if len(s.NotReady) > 0 {
		state = "not ready"
	}
	fmt.Fprintf(t.w, "generic-dp %s, %s, %s since %s\n", s.Version, state, s.Command, stamp(s.Started))
	fmt.Fprintf(t.w, "configuration %s, generation %d, loaded %s\n", s.Config.Path, s.Config.Generation, stamp(s.Config.Loaded))
}

// stamp formats a time.
func stamp(t time.Time) string { return t.UTC().Format(time.DateTime) }

// resource writes a resource with its devices. isHeldKnown is set if the holders are known.
func (t statusText) resource(r status.Resource, isHeldKnown bool) {
	t.put("", r.Title()+": "+summary(r))
	for _, d := range r.Devices {
		used := "?"
		if isHeldKnown {
			used = strconv.Itoa(len(d.Held))
		}
		t.put("  ", fmt.Sprintf("%s, %s/%d used: %s", d.Health, used, d.Slots, d.ID))
		t.device(d)
	}
	if len(r.Devices) == 0 {
		t.put("  ", cmp.Or(r.NoDevices, "no device matches on this host"))
	}
}

// device writes the lines below a device: reason, nodes, NUMA nodes and holders.
func (t statusText) device(d status.Device) {
	const indent = "    "
	t.put(indent, d.Reason)
	t.put(indent, strings.Join(d.Host(), " "))
	if len(d.NUMA) > 0 {
		t.put(indent, "NUMA "+joinInts(d.NUMA))
	}
	var holders []string
	for _, h := range d.Held {
		holders = append(holders, "held by "+h.Namespace+"/"+h.Pod+"/"+h.Container)
	}
	t.put(indent, fold(holders, 0)...)
}

// events writes the latest events, oldest first.
func (t statusText) events(events []status.Event) {
	if len(events) > 0 {
		fmt.Fprintln(t.w)
	}
	var lines []string
	for _, e := range events {
		words := []string{stamp(e.Time), e.Resource, e.ID, e.What}
		lines = append(lines, strings.Join(words, " "))
	}
	t.put("", fold(lines, len(time.DateTime))...)
}

// summary describes a resource in a few words.
func summary(r status.Resource) string {
	if len(r.Devices) == 0 {
		return "no device"
	}
	slots := r.Slots.All()
	usage := count(len(r.Devices), "device") + ", " + count(slots, "slot")
	if r.Slots.Held != nil {
		usage = fmt.Sprintf("%d/%d used", *r.Slots.Held, slots)
	}
	words := []string{usage}
	if r.Slots.Unhealthy > 0 {
		words = append(words, fmt.Sprintf("%d unhealthy", r.Slots.Unhealthy))
	}
	if r.Retired {
		words = append(words, "no longer configured")
	}
	return strings.Join(words, ", ")
}

// fold replaces consecutive lines that are equal by the last of them and their number: "... x3". The
// first bytes of the lines, a time, may differ.
func fold(lines []string, first int) []string {
	var folded []string
	for len(lines) > 0 {
		repeats := 1
		for repeats < len(lines) && lines[repeats][first:] == lines[0][first:] {
			repeats++
		}
		line := lines[repeats-1]
		if repeats > 1 {
			line += " x" + strconv.Itoa(repeats)
		}
		folded = append(folded, line)
		lines = lines[repeats:]
	}
	return folded
}

// columns is the width of the narrowest common terminal.
const columns = 80

// wrap writes words in lines that fit the terminal, unless a single word is longer.
func wrap(w io.Writer, indent, text string) {
	line := ""
	continued := indent + "  "
	for _, word := range strings.Fields(text) {
		isFull := len(indent)+len(line)+1+len(word) > columns
		if line != "" && isFull {
			fmt.Fprintln(w, indent+line)
			line = ""
			indent = continued
		}
		if line != "" {
			line += " "
		}
		line += word
	}
	if line != "" {
		fmt.Fprintln(w, indent+line)
	}
}
