package status

import (
	"bytes"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"fmt"
	"html"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/generic-dp/generic-dp/internal/device"
)

// style follows the reader's colour scheme. On narrow screens each row is a card.
//
//go:embed page.css
var style string

// script refreshes and filters the page, and copies IDs. The page works without it.
//
//go:embed page.js
var script string

// policy is the Content-Security-Policy of the page: only its own style and script, and only
// requests to this program.
var policy = sync.OnceValue(func() string {
	return strings.Join([]string{
		"default-src 'none'",
		"style-src " + hashSource(style),
		"script-src " + hashSource(script),
		"connect-src 'self'",
		"form-action 'self'",
		"base-uri 'none'",
		"frame-ancestors 'none'",
	}, "; ")
})

// hashSource is the source of an element with this text, for a Content-Security-Policy.
func hashSource(text string) string {
	sum := sha256.Sum256([]byte(text))
	return "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
}

const (
	// maxPage ends lists of devices, resources and pods, so that a page takes little memory.
	maxPage = 512 << 10
	// maxLines is the number of lines in a cell: more would hide the rest of the page.
	maxLines = 8
)

// page builds HTML by hand: html/template adds 2.6 MB to the binary. Its methods append to the
// buffer, which never fails.
type page struct {
	*bytes.Buffer
	// status is what the page shows. The page sorts its lists.
	status Status
	now    time.Time
	// filter is the text that shown resources, devices and events contain. Empty shows all.
	filter string
}

// text writes escaped text. A device chooses some of it: a mark that reverses the order of
// text would change how the rest of the page reads.
func (p page) text(s string) {
	printable := device.Printable(s, "")
	p.WriteString(html.EscapeString(printable))
}

// element writes an element with escaped text. open is its name and attributes. open must not
// contain anything that was not escaped.
func (p page) element(open, text string) {
	p.WriteString("<" + open + ">")
	p.text(text)
	p.end(open)
}

// end writes the end of an element. open is the text that began it.
func (p page) end(open string) {
	name, _, _ := strings.Cut(open, " ")
	p.WriteString("</" + name + ">")
}

// lines writes escaped lines of text, at most maxLines of them.
func (p page) lines(lines []string) {
	for i, line := range lines {
		if i > 0 {
			p.WriteString("<br>")
		}
		// The rest is in /status.json.
		if i == maxLines {
			p.text(fmt.Sprintf("and %d more", len(lines)-i))
			return
		}
		p.text(line)
	}
}

// attribute is an attribute of an element, with a space before it.
func attribute(name, value string) string {
	printable := device.Printable(value, "")
	return " " + name + `="` + html.EscapeString(printable) + `"`
}

// help writes a link to a section of the documentation, unless it is empty.
func (p page) help(s Section) {
	if s == "" {
		return
	}
	address := s.URL(p.status.Version)
	p.element(`a class="help" rel="noreferrer" target="_blank"`+attribute("href", address), "What to do")
}

// writePage writes the status page. An empty filter shows everything. now is the time that ages are
// relative to.
func writePage(w *bytes.Buffer, s Status, filter string, now time.Time) {
	p := page{
		Buffer: w,
		status: s,
		now:    now,
		filter: strings.ToLower(strings.TrimSpace(filter)),
	}
	title := "generic-dp"
	if node := s.Node(); node != "" {
		title = node + " – generic-dp"
	}
	// Everything outside of "state" stays while the script replaces the state.
	p.WriteString(`<!DOCTYPE html><html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width,initial-scale=1">`)
	p.element("title", title)
	p.WriteString("<style>" + style + "</style></head><body><main>\n")
	p.header()
	p.WriteString(`<div id="state">` + "\n")
	p.summary()
	p.alerts()
	p.WriteString("\n")
	p.resources()
	p.pods()
	p.events()
	p.WriteString("</div>\n" + `<footer>For programs: <a href="/status.json">/status.json</a>, <a href="/metrics">/metrics</a></footer>`)
	p.WriteString("</main><script>" + script + "</script></body></html>\n")
}

// header writes what stays while the script replaces the state.
func (p page) header() {
	p.WriteString("<header>")
	node := p.status.Node()
	if node == "" {
		p.element("h1", "generic-dp")
	} else {
		p.WriteString(`<h1>`)
		p.text(node)
		p.element(`span class="soft"`, " generic-dp")
		p.WriteString(`</h1>`)
	}
	// Without the script, the form requests the page with a filter. The script shows the label,
	// which only works with it.
	p.WriteString(`<form action="/">`)
	p.WriteString(`<input type="search" name="filter" aria-label="Filter" placeholder="Filter: ID, node, pod, reason" autocomplete="off"` + attribute("value", p.filter) + `>`)
	p.WriteString(`<button>Filter</button>`)
	p.WriteString(`<label hidden><input type="checkbox" name="live" checked> Refresh every 5 s</label>`)
	p.WriteString("</form></header>\n")
}

// summary writes the state of the process and its configuration, and counts devices.
func (p page) summary() {
	s := p.status
	p.WriteString(`<p class="head">`)
	if len(s.NotReady) == 0 {
		p.element(`strong class="badge good"`, "Ready")
	} else {
		p.element(`strong class="badge bad"`, "Not ready")
	}
	p.element(`span id="age"`, " as of "+stamp(p.now)+" UTC")
	p.WriteString(` <a id="again" href="` + p.address() + `">Refresh</a></p>` + "\n")
	p.counts()
	p.WriteString(`<p class="soft">`)
	p.text(fmt.Sprintf("Version %s, %s, up for %s.", s.Version, s.Command, ago(s.Started, p.now)))
	if s.Kubelet != nil && !s.Kubelet.Present {
		p.text(" The kubelet's socket is missing.")
	}
	if s.Kubelet != nil && s.Kubelet.Restarts > 0 {
		p.text(fmt.Sprintf(" Kubelet restarts: %d.", s.Kubelet.Restarts))
	}
	p.text(" Configuration ")
	p.element("code", s.Config.Path)
	p.text(fmt.Sprintf(", generation %d, loaded %s, hash ", s.Config.Generation, stamp(s.Config.Loaded)))
	hash := s.Config.Hash
	p.element("code", hash[:min(12, len(hash))])
	p.WriteString(".</p>\n")
	if s.HeldUnknown != "" {
		p.element(`p class="soft"`, "Holders are unknown: "+s.HeldUnknown)
	}
}

// address is the address of the page with its filter. It is escaped for an attribute.
func (p page) address() string {
	if p.filter == "" {
		return "/"
	}
	return html.EscapeString("/?filter=" + url.QueryEscape(p.filter))
}

// counts writes the numbers of devices, as the table lists them. Slots are only counted where they
// are held or free.
func (p page) counts() {
	// The numbers are about the whole program, whatever the filter is.
	all := 0
	byHealth := map[string]int{}
	held := 0
	free := 0
	for _, r := range p.status.Resources {
		all += len(r.Devices)
		for health, n := range r.devicesByHealth() {
			byHealth[health] += n
		}
		if r.Slots.Held != nil {
			held += *r.Slots.Held
			free += *r.Slots.Free
		}
	}
	p.WriteString("<dl>")
	p.count("Devices", all, "")
	p.count(Healthy, byHealth[Healthy], "")
	p.count(Unhealthy, byHealth[Unhealthy], "bad")
	if byHealth[Retiring] > 0 {
		p.count(Retiring, byHealth[Retiring], "soft")
	}
	if p.status.HeldUnknown == "" {
		p.count("Held slots", held, "")
		p.count("Free slots", free, "")
	}
	p.WriteString("</dl>\n")
}

// count writes a number with its name, and in the colour of class if it is not zero.
func (p page) count(name string, n int, class string) {
	open := "dd"
	if n > 0 && class != "" {
		open += ` class="` + class + `"`
	}
	p.WriteString("<div>")
	p.element("dt", name)
	p.element(open, strconv.Itoa(n))
	p.WriteString("</div>")
}

// alerts writes the problems that do not belong to one device.
func (p page) alerts() {
	for _, alert := range p.status.Alerts(p.now) {
		p.WriteString(`<section class="alert">`)
		p.element("h2", alert.Heading)
		p.WriteString("<p>")
		p.lines(alert.Lines)
		p.WriteString(" ")
		p.help(alert.Help)
		p.WriteString("</p></section>")
	}
}

// events writes the latest events, the newest first.
func (p page) events() {
	var shown []Event
	for _, e := range p.status.Events {
		if p.matches(e.Resource, e.ID, e.What) {
			shown = append(shown, e)
		}
	}
	if len(shown) == 0 {
		return
	}
	// Events are folded: they explain a problem, but do not announce it.
	p.WriteString(`<details data-key="events"><summary>`)
	p.element("h2", "Events")
	p.element(`span class="soft"`, fmt.Sprintf(" the latest %d, newest first, in UTC", len(shown)))
	p.WriteString("</summary><ol>\n")
	for _, e := range slices.Backward(shown) {
		p.WriteString("<li>")
		p.element("time", stamp(e.Time))
		p.text(strings.TrimRight(" "+e.Resource+" "+e.ID, " ") + " " + e.What)
		p.WriteString("</li>\n")
	}
	p.WriteString("</ol></details>\n")
}

// matches reports whether one of the texts contains the filter.
func (p page) matches(texts ...string) bool {
	if p.filter == "" {
		return true
	}
	return slices.ContainsFunc(texts, func(text string) bool {
		return strings.Contains(strings.ToLower(text), p.filter)
	})
}

// stamp formats a time to the second, in UTC.
func stamp(t time.Time) string {
	return t.UTC().Format(time.DateTime)
}

// ago is how long ago a time was, such as "45 s", "12 min", "5 h" or "3 d". A time in the future is
// 0 s ago.
func ago(t, now time.Time) string {
	const day = 24 * time.Hour
	passed := max(0, now.Sub(t))
	switch {
	case passed >= 2*day:
		return fmt.Sprintf("%d d", passed/day)
	case passed >= 2*time.Hour:
		return fmt.Sprintf("%d h", passed/time.Hour)
	case passed >= 2*time.Minute:
		return fmt.Sprintf("%d min", passed/time.Minute)
	}
	return fmt.Sprintf("%d s", passed/time.Second)
}
