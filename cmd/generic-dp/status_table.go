package main

import (
	"cmp"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/generic-dp/generic-dp/internal/status"
	"github.com/generic-dp/generic-dp/internal/tools/cli"
)

// statusText writes the content of the status page as text. Errors of writing are ignored: the
// rest would fail as well.
type statusText struct{ w io.Writer }

// put writes lines, wrapped and indented. It skips empty lines, so that callers need not check
// for optional texts.
func (t statusText) put(indent string, lines ...string) {
	for _, line := range lines {
		cli.Wrap(t.w, indent, line)
	}
}

// Table writes the status. What an administrator must act on comes last, because the end of a long
// text is what a terminal shows. It changes the order of r.Resources.
func (r *statusReport) Table(w io.Writer, _ bool) error {
	t := statusText{w}
	t.head(r.Status)
	t.events(r.Events)
	r.ProblemsLast()
	for _, resource := range r.Resources {
		fmt.Fprintln(w)
		t.resource(resource, r.HeldUnknown == "")
	}
	alerts := r.Alerts(time.Now())
	if len(alerts) > 0 || r.HeldUnknown != "" {
		fmt.Fprintln(w)
	}
	for _, alert := range alerts {
		t.put("", alert.Heading+":")
		t.put("  ", alert.Lines...)
	}
	if r.HeldUnknown != "" {
		t.put("", "Holders are unknown: "+r.HeldUnknown)
	}
	return nil
}

// head writes what serves, since when, and which configuration. The reasons for "not ready" are
// among the alerts.
func (t statusText) head(s status.Status) {
	state := "ready"
	if len(s.NotReady) > 0 {
		state = "not ready"
	}
	node := ""
	if s.NodeName != "" {
		node = " on " + s.NodeName
	}
	t.put("", fmt.Sprintf("generic-dp %s%s, %s, %s since %s", s.Version, node, state, s.Command, stamp(s.Started)))
	t.put("", fmt.Sprintf("configuration %s, generation %d, loaded %s", s.Config.Path, s.Config.Generation, stamp(s.Config.Loaded)))
}

// stamp formats a time with its zone: the zone of the machine, which is UTC in most containers.
func stamp(t time.Time) string { return t.Local().Format(time.DateTime + " MST") }

// resource writes a resource with its devices. isHeldKnown is set if the holders are known:
// otherwise, the number of used slots is a question mark.
func (t statusText) resource(r status.Resource, isHeldKnown bool) {
	t.put("", r.Title()+": "+summary(r))
	for _, d := range r.Devices {
		used := "?"
		if isHeldKnown {
			used = strconv.Itoa(len(d.Held))
		}
		t.put("  ", fmt.Sprintf("%s, %s of %s used: %s", d.Health, used, cli.Count(d.Slots, "slot"), d.ID))
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
		t.put(indent, "NUMA "+cli.JoinInts(d.NUMA))
	}
	holders := cli.Few(d.Holders())
	if len(holders) > 0 {
		t.put(indent, "held by "+strings.Join(holders, ", "))
	}
}

// events writes the latest events, oldest first. The status page has more of them.
func (t statusText) events(events []status.Event) {
	if len(events) > 0 {
		fmt.Fprintln(t.w)
	}
	const most = 10
	for _, e := range events[max(0, len(events)-most):] {
		t.put("", strings.Join([]string{stamp(e.Time), e.Resource, e.ID, e.What}, " "))
	}
}

// summary describes a resource in a few words. Without known holders, it says how many devices
// and slots there are instead of how many slots are used.
func summary(r status.Resource) string {
	if len(r.Devices) == 0 {
		return "no device"
	}
	slots := r.Slots.All()
	usage := cli.Count(len(r.Devices), "device") + ", " + cli.Count(slots, "slot")
	if r.Slots.Held != nil {
		usage = fmt.Sprintf("%d of %s used", *r.Slots.Held, cli.Count(slots, "slot"))
	}
	words := []string{usage}
	if r.Slots.Unhealthy > 0 {
		words = append(words, cli.Count(r.Slots.Unhealthy, "slot")+" unhealthy")
	}
	if r.Retired {
		words = append(words, "no longer configured")
	}
	return strings.Join(words, ", ")
}
