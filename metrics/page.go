package metrics

import (
	"fmt"
	"html"
	"io"
	"strconv"
	"strings"
	"time"
)

// style is small: colours of the reader's own choice, tables that can be scrolled
// sideways where the screen is narrow.
const style = `:root{color-scheme:light dark;--line:#c8ccd0;--soft:#59636e;--bad:#b3261e;--good:#1a6b2f}
@media(prefers-color-scheme:dark){:root{--line:#3d444d;--soft:#9aa4ae;--bad:#ff8a80;--good:#7ddb93}}
body{font:15px/1.5 system-ui,sans-serif;margin:1.5rem auto;padding:0 1rem;max-width:80rem}
h1{font-size:1.4rem;margin:0}h2{font-size:1.1rem;margin:2rem 0 .5rem}
p{margin:.25rem 0}.soft{color:var(--soft)}.bad{color:var(--bad)}.good{color:var(--good)}
.wide{overflow-x:auto;margin-bottom:1.25rem}table{border-collapse:collapse;width:100%}
caption{text-align:left;font-weight:600;padding:.25rem 0}caption span{font-weight:400}
th,td{text-align:left;vertical-align:top;padding:.25rem .75rem .25rem 0;border-bottom:1px solid var(--line)}
thead th{color:var(--soft);font-weight:600}tbody th{font-weight:400}
code,td,tbody th{font-variant-numeric:tabular-nums}code{font-family:ui-monospace,monospace;font-size:.9em}
p code,li code{overflow-wrap:anywhere}td.n,td code,th code{white-space:nowrap}
thead th:nth-child(1){width:24%}thead th:nth-child(2){width:9%}thead th:nth-child(3),thead th:nth-child(4){width:6%}thead th:nth-child(5){width:20%}
.log thead th{width:auto}`

// page writes HTML. What it is given as text is escaped.
type page struct{ strings.Builder }

// text writes a text.
func (p *page) text(s string) { p.WriteString(html.EscapeString(s)) }

// tag writes an element with a text; class may be empty.
func (p *page) tag(name, class, text string) {
	p.WriteString("<" + name)
	if class != "" {
		p.WriteString(` class="` + class + `"`)
	}
	p.WriteString(">")
	p.text(text)
	p.WriteString("</" + name + ">")
}

// table begins a table, with a note beside its caption. end ends it.
func (p *page) table(class, caption, note string, columns ...string) (end func()) {
	// A region that can be scrolled has to be reached with the keyboard.
	p.WriteString(`<div class="` + class + `" role="region" tabindex="0" aria-label="`)
	p.text(caption)
	p.WriteString(`"><table><caption>`)
	p.text(caption)
	if note != "" {
		p.WriteString(" ")
		p.tag("span", "soft", note)
	}
	p.WriteString("</caption><thead><tr>")
	for _, c := range columns {
		p.WriteString(`<th scope="col">`)
		p.text(c)
		p.WriteString("</th>")
	}
	p.WriteString("</tr></thead><tbody>\n")
	return func() { p.WriteString("</tbody></table></div>\n") }
}

// codes is a cell with one code a line.
func (p *page) codes(list ...string) {
	p.WriteString("<td>")
	for i, s := range list {
		if i > 0 {
			p.WriteString("<br>")
		}
		p.tag("code", "", s)
	}
	p.WriteString("</td>")
}

// problems is a list under a heading; nothing where there is none.
func (p *page) problems(heading string, list []Problem) {
	if len(list) == 0 {
		return
	}
	p.tag("h2", "bad", heading)
	p.WriteString("<ul>")
	for _, one := range list {
		p.WriteString("<li>")
		if one.Subject != "" {
			p.tag("code", "", one.Subject)
			p.text(": ")
		}
		p.text(one.Reason)
		p.WriteString("</li>")
	}
	p.WriteString("</ul>\n")
}

// writePage writes the status page.
func writePage(w io.Writer, s Status, now time.Time) error {
	p := &page{}
	title := "generic-dp"
	if s.NodeName != "" {
		title += " on " + s.NodeName
	}
	p.WriteString(`<!DOCTYPE html><html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width,initial-scale=1">`)
	p.tag("title", "", title)
	p.WriteString("<style>" + style + "</style></head><body><main>\n")
	p.tag("h1", "", title)
	p.head(s, now)
	p.problems("The configuration on disk is broken: the last good one is served", lines(s.Config.Problems))
	p.problems("Not ready", lines(s.NotReady))
	p.problems("Problems on this host", s.Problems)
	p.problems("Missing sources of events: everything is looked at each minute", s.Degraded)
	p.tag("h2", "", "Resources")
	if s.HeldUnknown != "" {
		p.tag("p", "soft", "Who holds what is not known: "+s.HeldUnknown)
	}
	for _, r := range s.Resources {
		p.resource(r, s)
	}
	if len(s.Resources) == 0 {
		p.tag("p", "soft", "None yet.")
	}
	p.events(s.Events)
	p.WriteString(`<p class="soft">The same for programs: <a href="/status.json">/status.json</a>, <a href="/metrics">/metrics</a></p></main></body></html>` + "\n")
	_, err := io.WriteString(w, p.String())
	return err
}

// head says what runs, since when, with what.
func (p *page) head(s Status, now time.Time) {
	p.WriteString("<p>")
	if len(s.NotReady) == 0 {
		p.tag("strong", "good", "Ready.")
	} else {
		p.tag("strong", "bad", "Not ready.")
	}
	p.text(fmt.Sprintf(" Version %s, %s for %s.", s.Version, s.Command, now.Sub(s.Started).Round(time.Second)))
	if s.Kubelet != nil {
		switch {
		case !s.Kubelet.Present:
			p.text(" The kubelet's socket is not there.")
		case s.Kubelet.Restarts > 0:
			p.text(fmt.Sprintf(" Restarts of the kubelet: %d.", s.Kubelet.Restarts))
		}
	}
	p.WriteString("</p>\n<p>Configuration ")
	p.tag("code", "", s.Config.Path)
	p.text(fmt.Sprintf(", generation %d, loaded %s, hash ", s.Config.Generation, stamp(s.Config.Loaded)))
	p.tag("code", "", s.Config.Hash[:min(12, len(s.Config.Hash))])
	p.WriteString("</p>\n")
}

// resource is the table of one resource.
func (p *page) resource(r Resource, s Status) {
	note := "1 slot"
	if n := r.Slots.Healthy + r.Slots.Unhealthy; n != 1 {
		note = fmt.Sprintf("%d slots", n)
	}
	if r.Slots.Held != nil {
		note += fmt.Sprintf(", %d held, %d free", *r.Slots.Held, *r.Slots.Free)
	}
	switch {
	case s.Kubelet == nil || len(r.Devices) == 0 && !r.Registered:
	case r.Registered:
		note += ", registered"
	default:
		note += ", not registered: " + r.Reason
	}
	if r.Retired {
		note += ", being retired: the configuration has it no more"
	}
	columns := []string{"ID", "Health", "Slots", "NUMA", "On the host"}
	if s.Kubelet != nil && s.HeldUnknown == "" {
		columns = append(columns, "Held by")
	}
	end := p.table("wide", r.Name, note, append(columns, "Reason")...)
	for _, d := range r.Devices {
		p.WriteString(`<tr><th scope="row">`)
		p.tag("code", "", d.ID)
		class := "n good"
		if d.Health != Healthy {
			class = "n bad"
		}
		p.WriteString("</th>")
		p.tag("td", class, d.Health)
		p.tag("td", "n", strconv.Itoa(d.Slots))
		p.tag("td", "n", strings.Trim(strings.ReplaceAll(fmt.Sprint(d.NUMA), " ", ", "), "[]"))
		p.codes(d.Host()...)
		if s.Kubelet != nil && s.HeldUnknown == "" {
			p.codes(d.Holders()...)
		}
		p.tag("td", "", d.Reason)
		p.WriteString("</tr>\n")
	}
	if len(r.Devices) == 0 {
		p.WriteString(`<tr><td class="soft" colspan="` + strconv.Itoa(len(columns)+1) + `">No device matches on this host.</td></tr>`)
	}
	end()
}

// events is the table of what happened, the latest first.
func (p *page) events(events []Event) {
	p.tag("h2", "", "Events")
	if len(events) == 0 {
		p.tag("p", "soft", "None yet.")
		return
	}
	end := p.table("wide log", "What happened last", "newest first, times in UTC", "Time", "Resource", "ID", "What")
	for i := len(events) - 1; i >= 0; i-- {
		e := events[i]
		p.WriteString("<tr>")
		p.tag("td", "n", stamp(e.Time))
		p.tag("td", "", e.Resource)
		p.codes(e.ID)
		p.tag("td", "", e.What)
		p.WriteString("</tr>\n")
	}
	end()
}

// Host lists what a container is given, by its place on the host: nodes,
// interfaces, CDI devices, and paths where there is none of these.
func (d *Device) Host() []string {
	all := append(append(append([]string{}, d.Nodes...), d.Interfaces...), d.CDIDevices...)
	if len(all) == 0 {
		return d.Mounts
	}
	return all
}

// Holders lists the containers that hold the device as "namespace/pod/container",
// with the slot where there are several.
func (d *Device) Holders() []string {
	var all []string
	for _, h := range d.Held {
		text := h.Namespace + "/" + h.Pod + "/" + h.Container
		if slot, ok := strings.CutPrefix(h.ID, d.ID+"::"); ok {
			text += " (slot " + slot + ")"
		}
		all = append(all, text)
	}
	return all
}

// lines are problems that say themselves what they are about.
func lines(texts []string) []Problem {
	var list []Problem
	for _, t := range texts {
		list = append(list, Problem{Reason: t})
	}
	return list
}

// stamp is a time as the log has it, to the second.
func stamp(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05") }
