package config

import (
	"cmp"
	"slices"
)

// Parse validates the text of files, which are one configuration, in the
// order of their names. The error is of type Problems and has everything that
// is wrong with all of them.
func Parse(files ...File) (*Config, error) { return new(walk).parse(files) }

// ParseForCDI is Parse for where CDI specs are all that containers get of this
// program: as if every resource said container.cdi = true.
func ParseForCDI(files ...File) (*Config, error) {
	w := walk{allCDI: true}
	return w.parse(files)
}

// walk is the state of reading one configuration: what was found wrong so far,
// and what keys are compared with that stand elsewhere.
type walk struct {
	reports []report
	found   int      // reports, also those that are not kept
	needs   []report // that --allow may make none
	// keys of the language; see language.
	keys   []string
	domain string
	// undecided says that a missing domain is not worth a message: it may be
	// in what could not be read, or was reported to be missing.
	undecided bool
	// allCDI injects every resource by CDI names, whatever it says.
	allCDI bool
	// alternatives is how many patterns there are so far.
	alternatives int
	// listed are the hints that were given once.
	listed []string
	// texts are those with variables of the resource that is being read, and
	// matches where its matches stand.
	texts   []textUse
	matches []value
}

// once is a long hint the first time, then empty.
func (w *walk) once(hint string) string {
	if slices.Contains(w.listed, hint) {
		return ""
	}
	w.listed = append(w.listed, hint)
	return hint
}

func (w *walk) report(r report) {
	if w.found++; w.found <= maxFound {
		w.reports = append(w.reports, r)
	}
}

// language lists the dotted keys of all tables but those in tables with keys of the
// user's own: "resource.match.usb.id".
func (w *walk) language() []string {
	if w.keys == nil {
		w.keys = *describe().keys
	}
	return w.keys
}

func (w *walk) parse(files []File) (*Config, error) {
	files = slices.SortedStableFunc(slices.Values(files), func(a, b File) int {
		return cmp.Compare(a.Name, b.Name)
	})
	cfg := &Config{Hash: hash(files)}
	for _, f := range files {
		cfg.Files = append(cfg.Files, f.Name)
	}
	named := make(map[string]*Resource)
	for _, v := range w.readTop(files) {
		r := readResource(v)
		if other := named[r.Name]; other != nil {
			v.child("name").checkSameName(&r, other)
		}
		if r.Name != "" {
			named[r.Name] = &r
		}
		cfg.Resources = append(cfg.Resources, r)
	}
	if err := w.problems(); err != nil {
		return nil, err
	}
	for _, r := range inOrder(w.needs) {
		cfg.needs = append(cfg.needs, need{r.Problem, r.allowed})
	}
	return cfg, nil
}

// checkSameName reports that r has the name of another resource, unless when or
// variables may tell them apart.
func (v value) checkSameName(r, other *Resource) {
	already := quote(r.Name) + " is already the name of " + other.Place
	switch {
	case len(r.NameText) > 0 || other.When != nil && r.When != nil:
	case other.When != nil || r.When != nil:
		v.report(already+", and one of them has no when: want when for both, so that one is left",
			`when.node_name = "!gpu-*" is every node but those`)
	default:
		v.report(already+": want a name of its own", "to offer several kinds of hardware under one name, give one resource a list of matches")
	}
}

// top is what one file has at its top level.
type top struct {
	domain    string
	resources []value
}

func (f *top) bind(t *table) {
	t.key("domain", stringForm, func(v value) { f.domain = v.checked(`a domain such as "example.com"`, checkDomain) },
		"prefix of every resource name that has none: a DNS subdomain of your own, one for the whole configuration")
	t.key("resource", func() form {
		return form{"type": "array", "items": t.below("resource", func(v value) { readResource(v) })}
	}, func(v value) { f.resources = v.resources() },
		"something that pods can ask for. A device goes to the first active resource, in file order, that selects it")
}

// resources is v as [[resource]] tables, whose places have their names.
func (v value) resources() []value {
	if _, isList := elements(v.raw); !isList {
		v.mistyped("a list of tables", "every resource begins with a line [[resource]]")
		return nil
	}
	out := v.tables("")
	for i := range out {
		r := &out[i]
		if name, ok := r.child("name").raw.(string); ok {
			r.place = r.where() + " (" + quote(name) + ")"
		}
	}
	return out
}

// readTop reads the top level of all files, and returns their resources. The
// domain may stand in any of the files, but is one for all.
func (w *walk) readTop(files []File) (resources []value) {
	domainFile := ""
	for i, f := range files {
		src, tables := w.decode(f, i)
		if tables == nil {
			continue
		}
		var t top
		v := value{w: w, source: src, raw: tables}
		v.read(t.bind)
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
	// Whatever is missing may be in a file that could not be read.
	w.undecided = w.found > 0
	if len(resources) == 0 && !w.undecided {
		all := &source{name: "configuration"}
		if len(files) == 1 {
			all.name = files[0].Name
		}
		w.report(report{source: all, at: noPosition, Problem: Problem{Text: "no resource: want one or more [[resource]]"}})
	}
	return resources
}
