package config

import (
	"fmt"
	"slices"
	"sort"
)

// Parse validates the text of files, which are one configuration, in name order. The
// error is of type Problems and has the problems of all files.
func Parse(files ...File) (*Config, error) { return new(walk).parse(files) }

// ParseForCDI is Parse for CDI specs without a kubelet: as if every resource had
// container.cdi = true.
func ParseForCDI(files ...File) (*Config, error) {
	w := walk{allCDI: true}
	return w.parse(files)
}

// walk is the state of reading one configuration: the problems so far, and keys that
// stand elsewhere.
type walk struct {
	reports []report
	found   int      // reports, including dropped ones
	needs   []report // that --allow may permit
	notes   []report
	// keys of the language; see language.
	keys []string
	// domain and api are those of resources that set none.
	domain, api setting
	// undecided is set if a missing domain is not worth a message: it may be in an
	// unreadable part, or was reported.
	undecided bool
	// allCDI injects every resource by CDI names, regardless of container.cdi.
	allCDI bool
	// nodes, alternatives, resources and virtual are the numbers of keys and tables, of
	// patterns, of resources and of virtual devices so far.
	nodes, alternatives, resources, virtual int
	// listed are the hints that were given once.
	listed []string
	// texts are the texts with variables of the resource being read, and matches the
	// positions of its matches.
	texts   []textUse
	matches []value
}

// once returns a long hint the first time, then an empty one.
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

// language lists the dotted keys of all tables except those in tables with arbitrary
// keys: "resource.match.usb.id".
func (w *walk) language() []string {
	if w.keys == nil {
		w.keys = *describe().keys
	}
	return w.keys
}

func (w *walk) parse(files []File) (*Config, error) {
	files = slices.Clone(files)
	sort.SliceStable(files, func(i, j int) bool { return files[i].Name < files[j].Name })
	cfg := &Config{Hash: Hash(files)}
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
	if err := problems(w.reports, w.found); err != nil {
		return nil, err
	}
	for _, r := range inOrder(w.notes) {
		cfg.Notes = append(cfg.Notes, r.Problem)
	}
	cfg.needs = inOrder(w.needs)
	return cfg, nil
}

// checkSameName reports that r has the name of another resource, unless when or
// variables may distinguish them.
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

// top is the top level of one file.
type top struct {
	domain    string
	api       API
	resources []value
}

func (f *top) bind(t *table) {
	t.key("domain", stringForm, func(v value) { f.domain = v.checked(`a domain such as "example.com"`, checkDomain) },
		"prefix of every resource name that has none: a DNS subdomain of your own, one for the whole configuration")
	words(t, "api", &f.api, apis, "by which API of the kubelet resources are offered that set none")
	t.key("resource", func() form {
		return form{"type": "array", "items": t.below("resource", func(v value) { readResource(v) })}
	}, func(v value) { f.resources = v.resources() },
		"a resource that pods can request. A device goes to the first active resource, in file order, that selects it")
}

var tooManyResources = fmt.Sprintf("more than %d resources: want fewer", maxResources)

// resources reads v as [[resource]] tables, with their names as places.
func (v value) resources() []value {
	if _, isList := elements(v.raw); !isList {
		v.mistyped("a list of tables", "every resource begins with a line [[resource]]")
		return nil
	}
	out := v.tables("[[resource]]")
	if v.w.resources += len(out); v.w.resources > maxResources {
		v.report(tooManyResources, "")
		return nil
	}
	for i := range out {
		r := &out[i]
		if name, ok := r.child("name").raw.(string); ok {
			r.place = r.where() + " (" + quote(name) + ")"
		}
	}
	return out
}

// setting is a key of the top level of any file that applies to all of them.
type setting struct{ value, file string }

// set reports a second value. want describes the rule.
func (s *setting) set(v value, value, want string) {
	switch {
	case value == "" || value == s.value:
	case s.value == "":
		src, _ := v.find()
		*s = setting{value, src.name}
	default:
		v.report(quote(value)+" differs from that of "+s.file+": want one "+want, "")
	}
}

// readTop reads the top level of all files, and returns their resources.
func (w *walk) readTop(files []File) (resources []value) {
	for i, f := range files {
		src, tables := w.decode(f, i)
		if tables == nil {
			continue
		}
		var t top
		v := value{w: w, source: src, raw: tables}
		v.read(t.bind)
		resources = append(resources, t.resources...)
		w.domain.set(v.child("domain"), t.domain, "domain for the whole configuration; a name may have another")
		w.api.set(v.child("api"), string(t.api), "default for the whole configuration; a resource may have another")
	}
	// A missing key may be in an unreadable file.
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
