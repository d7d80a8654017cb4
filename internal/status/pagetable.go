package status

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

const (
	// maxOpen is the number of devices up to which a page shows all of them unfolded.
	maxOpen = 12
	// maxProblems is the number of devices of a resource that are shown although the
	// resource is folded.
	maxProblems = 50
)

// column is a column of the table of resources.
type column struct {
	// title is the head of the column, and the label of its cells on narrow screens.
	title string
	// resource is the cell of a resource.
	resource func(*Resource) []string
	// device is the cell of a device.
	device func(*Device) []string
}

// columns are the columns between the name and the reason. A column that is empty in all rows is
// left out.
func (p page) columns(resources []Resource) []column {
	// A device without a number of slots has one.
	all := []column{
		{
			title: "Slots",
			resource: func(r *Resource) []string {
				return []string{strconv.Itoa(r.Slots.All())}
			},
			device: func(d *Device) []string {
				if d.Slots == 1 {
					return nil
				}
				return []string{strconv.Itoa(d.Slots)}
			},
		},
		{
			title:    "Held by",
			resource: heldCell,
			device:   (*Device).Holders,
		},
		{
			title:  "Nodes",
			device: (*Device).Host,
		},
		{
			title: "NUMA",
			device: func(d *Device) []string {
				if len(d.NUMA) == 0 {
					return nil
				}
				list := strings.ReplaceAll(fmt.Sprint(d.NUMA), " ", ", ")
				return []string{strings.Trim(list, "[]")}
			},
		},
	}
	return slices.DeleteFunc(all, func(c column) bool {
		return c.isEmpty(resources)
	})
}

// isEmpty reports whether all cells of the column are empty. Resources without devices have no
// cells, see withoutDevices.
func (c column) isEmpty(resources []Resource) bool {
	for i := range resources {
		r := &resources[i]
		if c.resource != nil && len(r.Devices) > 0 && len(c.resource(r)) > 0 {
			return false
		}
		for j := range r.Devices {
			if len(c.device(&r.Devices[j])) > 0 {
				return false
			}
		}
	}
	return true
}

// heldCell counts the held slots, if they are known.
func heldCell(r *Resource) []string {
	if r.Slots.Held == nil {
		return nil
	}
	return []string{fmt.Sprintf("%d held, %d free", *r.Slots.Held, *r.Slots.Free)}
}

// table writes the table of resources.
type table struct {
	page
	// columns are the columns between the health and the reason.
	columns []column
	// isOpen is set if all devices are unfolded at first.
	isOpen bool
	// commonReason is why no resource is registered. An alert has it.
	commonReason string
}

// width is the number of columns after the first one. They are the columns of the table, health and
// reason.
func (t table) width() int {
	return len(t.columns) + 2
}

// resources writes the table of resources. Each has a row that unfolds its devices. Resources
// without devices share the last row.
func (p page) resources() {
	p.element("h2", "Resources")
	if len(p.status.Resources) == 0 {
		p.element(`p class="soft"`, "None yet.")
		return
	}
	// The filter must not change which reason all resources share.
	commonReason := p.status.CommonReason()
	p.status.ProblemsFirst()
	shown := p.filtered()
	if len(shown) == 0 {
		p.element(`p class="soft"`, "Nothing matches the filter.")
		return
	}
	devices := 0
	for _, r := range shown {
		devices += len(r.Devices)
	}
	t := table{
		page:         p,
		columns:      p.columns(shown),
		isOpen:       devices <= maxOpen || p.filter != "",
		commonReason: commonReason,
	}
	t.WriteString("<table><thead><tr>")
	t.element(`th scope="col"`, "Resource, ID")
	t.element(`th scope="col"`, "Health")
	for _, c := range t.columns {
		t.element(`th scope="col"`, c.title)
	}
	t.element(`th scope="col"`, "Reason")
	t.WriteString("</tr></thead>\n")
	for i := range shown {
		r := &shown[i]
		if t.full(len(shown)-i, "resources") {
			break
		}
		// ProblemsFirst has sorted the resources without devices to the end.
		if len(r.Devices) == 0 {
			t.withoutDevices(shown[i:])
			break
		}
		t.resource(r)
	}
	t.WriteString("</table>\n")
}

// filtered returns the resources that match the filter. A resource that only matches by some of
// its devices has only these devices. The resources of the status stay as they are.
func (p page) filtered() []Resource {
	if p.filter == "" {
		return p.status.Resources
	}
	var shown []Resource
	for _, r := range p.status.Resources {
		if p.matches(r.Title(), r.Reason, r.NoDevices) {
			shown = append(shown, r)
			continue
		}
		r.Devices = slices.Clone(r.Devices) // the table of pods reads all devices
		r.Devices = slices.DeleteFunc(r.Devices, func(d Device) bool {
			return !p.matchesDevice(&d)
		})
		if len(r.Devices) > 0 {
			shown = append(shown, r)
		}
	}
	return shown
}

// matchesDevice reports whether a device matches the filter.
func (p page) matchesDevice(d *Device) bool {
	return p.matches(d.ID, d.Product, d.Health, d.Reason) ||
		p.matches(d.Host()...) ||
		p.matches(d.Holders()...)
}

// full reports whether the page is full, and if so writes how much is left out. left is the number
// of things that are not written yet, and of is their plural.
func (t table) full(left int, of string) bool {
	if t.Len() < maxPage {
		return false
	}
	t.WriteString("<tr>")
	open := fmt.Sprintf(`td colspan="%d"`, t.width()+1)
	t.element(open, fmt.Sprintf("%d more %s: filter them, or see /status.json", left, of))
	t.WriteString("</tr>\n")
	return true
}

// group begins a group of rows: its first row unfolds the others. key identifies the group when
// the script replaces the page. It leaves the row and the group open, for the other cells and rows.
func (t table) group(class, key, name string, isOpen bool) {
	t.WriteString(`<tbody><tr class="` + class + `"><th scope="rowgroup">`)
	t.WriteString("<details" + attribute("data-key", key))
	if isOpen {
		t.WriteString(" open")
	}
	t.WriteString(">")
	t.element("summary", name)
	t.WriteString("</details></th>")
}

// cell writes a cell. Its label is the title of the column, for screens without a head.
func (t table) cell(title string, lines []string) {
	if len(lines) == 0 {
		t.WriteString("<td></td>")
		return
	}
	t.WriteString("<td" + attribute("data-label", title) + ">")
	t.lines(lines)
	t.WriteString("</td>")
}

// resource writes a resource and its devices. Devices with problems are visible while the others
// are folded.
func (t table) resource(r *Resource) {
	// The class decides the colour of the row, see page.css.
	problems := r.Problems()
	class := Healthy
	health := Healthy
	switch {
	case r.Retired:
		class = Retiring
		health = Retiring
	case problems == len(r.Devices):
		class = Unhealthy
		health = Unhealthy
	case problems > 0:
		class = Unhealthy
		health = fmt.Sprintf("%d of %d %s", problems, len(r.Devices), Unhealthy)
	}
	// Nobody needs to see the devices that were removed on purpose.
	isOpen := t.isOpen && !r.Retired
	t.group(class, r.Title(), r.Title(), isOpen)
	t.cell("Health", []string{health})
	for _, c := range t.columns {
		if c.resource == nil {
			t.cell("", nil)
			continue
		}
		t.cell(c.title, c.resource(r))
	}
	t.registration(r)
	t.WriteString("</tr>\n")
	for i := range r.Devices {
		if t.full(len(r.Devices)-i, "devices") {
			break
		}
		t.device(&r.Devices[i], i < maxProblems)
	}
}

// registration writes the last cell of a resource. Its text is in an alert if all resources have
// the same reason.
func (t table) registration(r *Resource) {
	isUnregistered := t.status.Kubelet != nil && !r.Registered && !r.Retired
	switch {
	case r.Retired:
		t.reason("no longer configured", SectionRetiring)
	case isUnregistered && t.commonReason == "":
		t.reason("not registered: "+r.Reason, SectionRegistration)
	default:
		t.reason("", "")
	}
}

// reason writes a cell with a reason and a link to its section.
func (t table) reason(text string, help Section) {
	if text == "" {
		t.WriteString("<td></td>")
		return
	}
	t.WriteString(`<td data-label="Reason">`)
	t.text(text)
	t.WriteString(" ")
	t.help(help)
	t.WriteString("</td>")
}

// device writes a device. A problem is visible while the resource is folded, if isShown is set.
func (t table) device(d *Device, isShown bool) {
	class := d.Health
	if isShown && d.Health == Unhealthy {
		class += " shown"
	}
	t.WriteString(`<tr class="` + class + `"><th scope="row">`)
	t.element("code", d.ID)
	if d.Product != "" {
		t.WriteString("<br>")
		t.element("small", d.Product)
	}
	t.WriteString("</th>")
	t.health(d)
	for _, c := range t.columns {
		t.cell(c.title, c.device(d))
	}
	t.reason(d.Reason, d.Help)
	t.WriteString("</tr>\n")
}

// health writes the health of a device and since when it has it.
func (t table) health(d *Device) {
	t.WriteString(`<td data-label="Health">`)
	t.text(d.Health)
	if !d.Since.IsZero() {
		since := stamp(d.Since) + " UTC"
		t.WriteString("<br>")
		t.element("time"+attribute("title", "since "+since), "for "+ago(d.Since, t.now))
	}
	t.WriteString("</td>")
}

// withoutDevices writes the resources without devices, which share a row that unfolds them. The row
// is unfolded if there is nothing else to see, or if a filter has found them.
func (t table) withoutDevices(resources []Resource) {
	isOnly := len(resources) == len(t.status.Resources)
	name := fmt.Sprintf("%d without a device", len(resources))
	t.group("soft", "/without", name, isOnly || t.filter != "")
	fmt.Fprintf(t, `<td colspan="%d"></td></tr>`+"\n", t.width())
	for i := range resources {
		if t.full(len(resources)-i, "resources") {
			return
		}
		r := &resources[i]
		t.WriteString("<tr>")
		t.element(`th scope="row"`, r.Title())
		fmt.Fprintf(t, `<td colspan="%d">`, t.width())
		t.text(cmp.Or(r.NoDevices, "no device matches on this host"))
		t.WriteString(" ")
		t.help(SectionNoDevice)
		t.WriteString("</td></tr>\n")
	}
}
