package config

// top is what one file has at its top level.
type top struct {
	domain    string
	resources []value
}

var topTable = table[top]{name: "top", keys: []key[top]{
	{name: "domain", form: anyText, read: func(v value, t *top) { t.domain = v.readDomain() }},
	{name: "resource", form: listOf(tableForm("resource")), read: readResourceList, table: resourceTable},
}}

func readResourceList(v value, t *top) {
	items, ok := elements(v.raw)
	if !ok {
		v.mistyped("a list of tables", "every resource begins with a line [[resource]]")
	}
	t.resources = v.onlyTables(items, "")
	for i := range t.resources {
		r := &t.resources[i]
		table, _ := r.raw.(map[string]any)
		if name, ok := table["name"].(string); ok {
			r.place = r.where() + " (" + quote(name) + ")"
		}
	}
}

// readTop reads the top level of all files, and returns their resources. The
// domain may stand in any of the files, but is one for all.
func (w *walk) readTop(files []File) (resources []value) {
	domainFile := ""
	for i, f := range files {
		source, tables := w.decode(f, i)
		if tables == nil {
			continue
		}
		var t top
		v := value{w: w, source: source, element: true, raw: tables}
		readTable(v, topTable, &t)
		resources = append(resources, t.resources...)
		switch {
		case t.domain == "" || t.domain == w.domain:
		case w.domain == "":
			w.domain, domainFile = t.domain, f.Name
		default:
			v.child("domain").report(quote(t.domain)+" differs from that of "+domainFile+": want one domain for the whole configuration",
				`a resource of another domain has it in its name: "vendor.example/gpu"`)
		}
	}
	// What seems to be missing may be in what is wrong so far.
	w.undecided = len(w.reports) > 0
	if len(resources) == 0 && !w.undecided {
		file := "configuration"
		if len(files) == 1 {
			file = files[0].Name
		}
		w.reports = append(w.reports, report{Problem: Problem{File: file, Text: "no resource: want one or more [[resource]]"}})
	}
	return resources
}

// readDomain is v as a domain, empty where it is none.
func (v value) readDomain() string {
	s, ok := v.text(`a domain such as "example.com"`)
	if !ok {
		return ""
	}
	if rule := checkDomain(s); rule != "" {
		v.report(quote(s)+" "+rule, "")
		return ""
	}
	return s
}
