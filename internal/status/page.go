package status

import (
	"bytes"
	"cmp"
	_ "embed"
	"fmt"
	"html"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/generic-dp/generic-dp/internal/device"
)

// style follows the reader's colour scheme. On narrow screens each row is a card.
//
//go:embed page.css
var style string

const (
	// maxPage ends lists of devices and resources, so that a page takes little memory.
	maxPage = 512 << 10
	// maxLines is the number of lines in a cell, maxOpen the number of devices of a
	// resource that are unfolded: more would hide the rest of the page.
	maxLines, maxOpen = 8, 50
)

// page builds HTML by hand: html/template adds 2.6 MB to the binary.
type page struct{ *bytes.Buffer }

// text writes escaped text. A device chooses some of it: a mark that reverses the order of
// text would change how the rest of the page reads.
func (p page) text(s string) { p.WriteString(html.EscapeString(device.Printable(s, ""))) }

// tag writes an element with escaped lines of text; open is its name and attributes.
func (p page) tag(open string, lines ...string) {
	name, _, _ := strings.Cut(open, " ")
	p.WriteString("<" + open + ">")
	for i, line := range lines {
		if i > 0 {
			p.WriteString("<br>")
		}
		if i == maxLines {
			p.text(fmt.Sprintf("and %d more", len(lines)-i))
			break
		}
		p.text(line)
	}
	p.WriteString("</" + name + ">")
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
		p.tag("p", section.Lines...)
	}
	p.WriteString("\n")
	p.tag("h2", "Resources")
	p.resources(s)
	p.WriteString("<details><summary>")
	p.tag("h2", "Events")
	p.tag(`span class="soft"`, fmt.Sprintf(" the latest %d, newest first", len(s.Events)))
	p.WriteString("</summary><ol>\n")
	for _, e := range slices.Backward(s.Events) {
		p.tag("li", strings.Join([]string{stamp(e.Time), e.Resource, e.ID, e.What}, " "))
	}
	p.WriteString("</ol></details>\n" + `<p class="soft">Everything, for programs: <a href="/status.json">/status.json</a>, <a href="/metrics">/metrics</a></p></main></body></html>` + "\n")
}

// summary writes the state of the process and its configuration, and counts slots.
func (p page) summary(s Status, now time.Time) {
	p.WriteString("<p>")
	if len(s.NotReady) == 0 {
		p.tag(`strong class="good"`, "Ready")
	} else {
		p.tag(`strong class="bad"`, "Not ready")
	}
	// There is no automatic reload: it would fold rows that somebody reads.
	p.text(" as of " + stamp(now) + " UTC. ")
	p.WriteString(`<a href="/">Refresh</a></p>` + "\n<p>")
	p.text(fmt.Sprintf("Version %s, %s, uptime %s.", s.Version, s.Command, now.Sub(s.Started).Round(time.Second)))
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
	p.WriteString("</p>\n<dl>")
	names := []string{"Slots", "Healthy", "Unhealthy", "Held", "Free"}
	counts := [5]int{}
	for _, r := range s.Resources {
		counts[0] += r.Slots.Healthy + r.Slots.Unhealthy
		counts[1] += r.Slots.Healthy
		counts[2] += r.Slots.Unhealthy
		if r.Slots.Held != nil {
			counts[3] += *r.Slots.Held
			counts[4] += *r.Slots.Free
		}
	}
	if s.HeldUnknown != "" {
		names = names[:3]
	}
	for i, name := range names {
		dd := "dd"
		if name == Unhealthy && counts[i] > 0 {
			dd = `dd class="bad"`
		}
		p.WriteString("<div>")
		p.tag("dt", name)
		p.tag(dd, strconv.Itoa(counts[i]))
		p.WriteString("</div>")
	}
	p.WriteString("</dl>\n")
	if s.HeldUnknown != "" {
		p.tag(`p class="soft"`, "Holders are unknown: "+s.HeldUnknown)
	}
}

// resources writes the table of resources, each with a row that unfolds its devices.
// Resources without devices share the last row.
func (p page) resources(s Status) {
	if len(s.Resources) == 0 {
		p.tag(`p class="soft"`, "None yet.")
		return
	}
	p.WriteString("<table><thead><tr>")
	for _, c := range []string{"Resource, ID", "Health", "Slots", "Held", "NUMA", "Nodes", "Reason"} {
		p.tag(`th scope="col"`, c)
	}
	p.WriteString("</tr></thead>\n")
	s.ProblemsFirst()
	for i, r := range s.Resources {
		if p.full(len(s.Resources)-i, "resources") {
			break
		}
		if len(r.Devices) > 0 {
			p.resource(r, s)
			continue
		}
		if i == 0 || len(s.Resources[i-1].Devices) > 0 {
			p.group("soft", fmt.Sprintf("%d without a device", len(s.Resources)-i), i == 0)
			p.WriteString(`<td colspan="6"></td></tr>` + "\n")
		}
		p.WriteString("<tr>")
		p.tag(`th scope="row"`, r.Title())
		p.tag(`td colspan="6"`, cmp.Or(r.NoDevices, "no device matches on this host"))
		p.WriteString("</tr>\n")
	}
	p.WriteString("</table>\n")
}

// full reports whether the page is full, and if so writes how much is left out.
func (p page) full(left int, of string) bool {
	if p.Len() < maxPage {
		return false
	}
	p.WriteString("<tr>")
	p.tag(`td colspan="7"`, fmt.Sprintf("%d more %s: see /status.json", left, of))
	p.WriteString("</tr>\n")
	return true
}

// group begins a group of rows: its first row unfolds the others.
func (p page) group(class, name string, open bool) {
	details := "<details>"
	if open {
		details = "<details open>"
	}
	p.WriteString(`<tbody><tr class="` + class + `"><th scope="rowgroup">` + details)
	p.tag("summary", name)
	p.WriteString("</details></th>")
}

// cells writes the cells after the name, and ends the row.
func (p page) cells(cells ...[]string) {
	for _, lines := range cells {
		p.tag("td", lines...)
	}
	p.WriteString("</tr>\n")
}

// resource writes a resource and its devices.
func (p page) resource(r Resource, s Status) {
	class := Healthy
	health := Healthy
	held := "?"
	unhealthy := 0
	var host, reasons []string
	for _, d := range r.Devices {
		if d.Health != Healthy {
			unhealthy++
		}
		host = append(host, d.Host()...)
	}
	if unhealthy > 0 {
		class = Unhealthy
		health = fmt.Sprintf("%d of %d %s", unhealthy, len(r.Devices), Unhealthy)
	}
	if len(host) > 1 {
		host = []string{strconv.Itoa(len(host))}
	}
	if r.Slots.Held != nil {
		held = fmt.Sprintf("%d, %d free", *r.Slots.Held, *r.Slots.Free)
	}
	if s.Kubelet != nil && !r.Registered {
		reasons = append(reasons, "not registered: "+r.Reason)
	}
	if r.Retired {
		reasons = append(reasons, "retiring: no longer configured")
	}
	p.group(class, r.Title(), unhealthy > 0 && len(r.Devices) <= maxOpen)
	p.cells(
		[]string{health},
		[]string{strconv.Itoa(r.Slots.Healthy + r.Slots.Unhealthy)},
		[]string{held},
		nil,
		host,
		reasons,
	)
	for i, d := range r.Devices {
		if p.full(len(r.Devices)-i, "devices") {
			break
		}
		p.WriteString(`<tr class="` + d.Health + `">`)
		p.tag(`th scope="row"`, slices.DeleteFunc([]string{d.ID, d.Product}, func(s string) bool { return s == "" })...)
		numa := strings.Trim(strings.ReplaceAll(fmt.Sprint(d.NUMA), " ", ", "), "[]")
		p.cells(
			[]string{d.Health},
			[]string{strconv.Itoa(d.Slots)},
			d.Holders(),
			[]string{numa},
			d.Host(),
			[]string{d.Reason},
		)
	}
}

// stamp formats a time to the second, in UTC.
func stamp(t time.Time) string { return t.UTC().Format(time.DateTime) }
