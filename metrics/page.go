package metrics

import (
	"bytes"
	"fmt"
	"html"
	"slices"
	"strconv"
	"strings"
	"time"
)

// style follows the reader's colour scheme; wide tables scroll sideways.
const style = `:root{color-scheme:light dark;--line:#c8ccd0;--soft:#59636e;--bad:#b3261e;--good:#1a6b2f}
@media(prefers-color-scheme:dark){:root{--line:#3d444d;--soft:#9aa4ae;--bad:#ff8a80;--good:#7ddb93}}
body{font:15px/1.5 system-ui,sans-serif;margin:1.5rem auto;padding:0 1rem;max-width:80rem}
h1{font-size:1.4rem;margin:0}h2{font-size:1.1rem;margin:2rem 0 .5rem}
p{margin:.25rem 0}.soft{color:var(--soft)}.bad{color:var(--bad)}.good{color:var(--good)}
.wide{overflow-x:auto;margin-bottom:1.25rem}table{border-collapse:collapse;width:100%}
caption{text-align:left;font-weight:600;padding:.25rem 0}caption span{font-weight:400}
th,td{text-align:left;vertical-align:top;padding:.25rem .75rem .25rem 0;border-bottom:1px solid var(--line)}
thead th{color:var(--soft);font-weight:600}tbody th{font-weight:400}
code,td,tbody th{font-variant-numeric:tabular-nums}code,.code{font-family:ui-monospace,monospace;font-size:.9em}
p code,li{overflow-wrap:anywhere}td.n,.code{white-space:nowrap}
thead th:nth-child(1){width:24%}thead th:nth-child(2){width:9%}thead th:nth-child(3),thead th:nth-child(4){width:6%}thead th:nth-child(5){width:20%}
.log thead th{width:auto}`

// page builds HTML by hand: html/template adds 2.6 MB to the binary.
type page struct{ *bytes.Buffer }

// text writes escaped text.
func (p page) text(s string) { p.WriteString(html.EscapeString(s)) }

// tag writes an element with escaped lines of text; open is its name and attributes.
func (p page) tag(open string, lines ...string) {
	name, _, _ := strings.Cut(open, " ")
	p.WriteString("<" + open + ">")
	for i, line := range lines {
		if i > 0 {
			p.WriteString("<br>")
		}
		p.text(line)
	}
	p.WriteString("</" + name + ">")
}

// table begins a table with a note next to its caption; end ends it.
func (p page) table(class, caption, note string, columns []string) (end func()) {
	// A scrollable region has to be reachable by keyboard.
	p.WriteString(`<div class="` + class + `" role="region" tabindex="0" aria-label="` + html.EscapeString(caption) + `"><table><caption>`)
	p.text(caption + " ")
	p.tag(`span class="soft"`, note)
	p.WriteString("</caption><thead><tr>")
	for _, c := range columns {
		p.tag(`th scope="col"`, c)
	}
	p.WriteString("</tr></thead><tbody>\n")
	return func() { p.WriteString("</tbody></table></div>\n") }
}

// writePage writes the status page.
func writePage(w *bytes.Buffer, s Status, now time.Time) {
	p := page{w}
	title := "generic-dp"
	if s.NodeName != "" {
		title += " on " + s.NodeName
	}
	p.WriteString(`<!DOCTYPE html><html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width,initial-scale=1">`)
	p.tag("title", title)
	p.WriteString("<style>" + style + "</style></head><body><main>\n")
	p.tag("h1", title)
	p.summary(s, now)
	for _, section := range s.Alerts() {
		p.tag(`h2 class="bad"`, section.Heading)
		p.WriteString("<ul>")
		for _, line := range section.Lines {
			p.tag("li", line)
		}
		p.WriteString("</ul>\n")
	}
	p.tag("h2", "Resources")
	if s.HeldUnknown != "" {
		p.tag(`p class="soft"`, "Holders are unknown: "+s.HeldUnknown)
	}
	for _, r := range s.Resources {
		p.resource(r, s)
	}
	if len(s.Resources) == 0 {
		p.tag(`p class="soft"`, "None yet.")
	}
	p.tag("h2", "Events")
	p.events(s.Events)
	p.WriteString(`<p class="soft">For programs: <a href="/status.json">/status.json</a>, <a href="/metrics">/metrics</a></p></main></body></html>` + "\n")
}

// summary writes the state of the process and its configuration.
func (p page) summary(s Status, now time.Time) {
	p.WriteString("<p>")
	if len(s.NotReady) == 0 {
		p.tag(`strong class="good"`, "Ready.")
	} else {
		p.tag(`strong class="bad"`, "Not ready.")
	}
	p.text(fmt.Sprintf(" Version %s, %s, uptime %s.", s.Version, s.Command, now.Sub(s.Started).Round(time.Second)))
	switch {
	case s.Kubelet == nil:
	case !s.Kubelet.Present:
		p.text(" The kubelet's socket is missing.")
	case s.Kubelet.Restarts > 0:
		p.text(fmt.Sprintf(" Kubelet restarts: %d.", s.Kubelet.Restarts))
	}
	p.WriteString("</p>\n<p>Configuration ")
	p.tag("code", s.Config.Path)
	p.text(fmt.Sprintf(", generation %d, loaded %s, hash ", s.Config.Generation, stamp(s.Config.Loaded)))
	p.tag("code", s.Config.Hash[:min(12, len(s.Config.Hash))])
	p.WriteString("</p>\n")
}

// resource writes the table of one resource.
func (p page) resource(r Resource, s Status) {
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
		note += ", retiring: no longer configured"
	}
	columns, holders := []string{"ID", "Health", "Slots", "NUMA", "On the host"}, s.Kubelet != nil && s.HeldUnknown == ""
	if holders {
		columns = append(columns, "Held by")
	}
	columns = append(columns, "Reason")
	end := p.table("wide", r.Name, note, columns)
	defer end()
	for _, d := range r.Devices {
		class := "good"
		if d.Health != Healthy {
			class = "bad"
		}
		p.WriteString("<tr>")
		p.tag(`th scope="row" class="code"`, d.ID)
		p.tag(`td class="n `+class+`"`, d.Health)
		p.tag(`td class="n"`, strconv.Itoa(d.Slots))
		p.tag(`td class="n"`, strings.Trim(strings.ReplaceAll(fmt.Sprint(d.NUMA), " ", ", "), "[]"))
		p.tag(`td class="code"`, d.Host()...)
		if holders {
			p.tag(`td class="code"`, d.Holders()...)
		}
		p.tag("td", d.Reason)
		p.WriteString("</tr>\n")
	}
	if len(r.Devices) == 0 {
		p.WriteString("<tr>")
		p.tag(`td class="soft" colspan="`+strconv.Itoa(len(columns))+`"`, "No device matches on this host.")
		p.WriteString("</tr>")
	}
}

// events writes the table of events, newest first.
func (p page) events(events []Event) {
	if len(events) == 0 {
		p.tag(`p class="soft"`, "None yet.")
		return
	}
	end := p.table("wide log", "Latest events", "newest first, times in UTC", []string{"Time", "Resource", "ID", "Event"})
	defer end()
	for _, e := range slices.Backward(events) {
		p.WriteString("<tr>")
		p.tag(`td class="n"`, stamp(e.Time))
		p.tag("td", e.Resource)
		p.tag(`td class="code"`, e.ID)
		p.tag("td", e.What)
		p.WriteString("</tr>\n")
	}
}

// stamp formats a time to the second, in UTC.
func stamp(t time.Time) string { return t.UTC().Format(time.DateTime) }
