package importer

import (
	"fmt"
	"path"
	"regexp"
	"strings"
)

// smarterDomain is the domain of all resources of smarter-device-manager.
const smarterDomain = "smarter-devices"

// smarterEntry is one entry of smarter-device-manager: each node that matches
// is a resource of its own.
type smarterEntry struct {
	at         value
	expression string
	count      int
}

// smarter converts the lists of smarter-device-manager. The name of a resource
// is the path below /dev with "_" for "/" (sanitizeName in its main.go).
func (im *importing) smarter(sources []source) {
	var entries []smarterEntry
	for _, s := range sources {
		if !s.at.list() {
			s.at.report(s.at.what() + ": want a list of entries with devicematch and nummaxdevices")
			continue
		}
		for _, e := range s.at.items() {
			e.place = ""
			entries = append(entries, e.smarterEntry(len(entries)+1))
		}
	}
	if len(im.problems) > 0 {
		return
	}
	im.out.domain = smarterDomain
	seen := make(map[string]bool)
	for _, e := range entries {
		for _, r := range e.convert() {
			name := r.pairs.get("name").(string)
			if !strings.Contains(name, "${") {
				if seen[name] {
					im.warnAhead(e.at.place, fmt.Sprintf("not carried over: %q is selected by an entry before too", name))
					continue
				}
				seen[name] = true
			}
			im.out.resources = append(im.out.resources, r)
		}
	}
	// A directory is a resource beside those of the nodes in it. Two entries for
	// one node make the same name, which the first of them has.
	im.shareOverlaps(func(r *resource) bool { return r.pairs.get("each") != nil })
}

func (v value) smarterEntry(number int) smarterEntry {
	place := fmt.Sprintf("entry %d", number)
	if match, ok := v.get("devicematch", false); ok && match.scalar() {
		place += fmt.Sprintf(" (%q)", match.node.Value)
	}
	v = v.at(place)
	e := smarterEntry{at: v}
	v.readKeys(false, map[string]reader{
		"devicematch": func(s value) {
			if s.text("a regular expression") != "" {
				e.expression = s.node.Value
			}
		},
		"nummaxdevices": func(s value) { e.count = s.number() },
	}, v.im.noteUnknown)
	if e.expression == "" && v.mapping() {
		v.report("no devicematch: want a regular expression such as \"^video[0-9]*$\"")
		return e
	}
	if _, _, err := globs(e.expression); err != nil {
		v.report(fmt.Sprintf("devicematch is not a regular expression: %v", err))
	}
	return e
}

// convert makes the resources of an entry: one for each directory with
// wildcards in it, and one for each name without.
func (e smarterEntry) convert() []*resource {
	im := e.at.im
	switch {
	case e.expression == "nvidia-gpu":
		im.warnAhead(e.at.place, "not carried over: GPUs of Jetson boards, which are no device nodes: containers are given NVIDIA_VISIBLE_DEVICES for them")
		return nil
	case e.count == 0:
		im.warnAhead(e.at.place, "not carried over: nummaxdevices is 0, so that it has no devices")
		return nil
	}
	patterns, notes, _ := globs(e.expression)
	var out []*resource
	byName := make(map[string]*resource)
	for _, p := range patterns {
		if p == "" || path.Clean("/"+p) != "/"+p {
			im.warnAhead(e.at.place, fmt.Sprintf("not carried over: %q is no path below /dev", p))
			continue
		}
		if len("/dev/"+p) > maxPattern {
			im.warnAhead(e.at.place, "not carried over: it stands for too much to be a pattern")
			continue
		}
		t := smarterTemplate(p)
		if t.rule != "" {
			im.warnAhead(e.at.place, "not carried over: "+t.rule)
			continue
		}
		if strings.Contains(t.name, "${kernel}") {
			im.head("Where an expression matches links, their resources are named after the nodes that they lead to.")
		}
		r := byName[t.name]
		if r == nil {
			r = &resource{}
			byName[t.name] = r
			out = append(out, r)
			r.pairs.add("name", t.name)
			count := e.count
			const most = 10000
			if count > most {
				r.note(im.warn(e.at.place, fmt.Sprintf("not carried over: %d devices: at most %d are taken", count, most)))
				count = most
			}
			if count > 1 {
				r.pairs.add("count", count)
			}
			if t.all {
				r.pairs.add("each", "all")
			}
			r.pairs.add("match", []table{{{"glob", []string(nil)}}})
			if t.path != "" {
				r.pairs.add("container", table{{"path", literal(t.path)}})
			}
		}
		match := r.pairs.get("match").([]table)
		match[0][0].value = append(match[0][0].value.([]string), t.glob)
	}
	for _, n := range notes {
		for _, r := range out {
			r.note(n)
		}
		if len(out) > 0 {
			im.warn(e.at.place, n)
		}
	}
	return out
}

// smarterName is what one pattern makes.
type smarterName struct {
	glob string
	// name of the resource, with variables where the pattern has wildcards.
	name string
	// path in the container, for a single node: it stays, also where the path
	// on the host is a link.
	path string
	all  bool   // the nodes of a directory
	rule string // what stands against it
}

// smarterTemplate is the resource of a pattern of paths relative to /dev.
func smarterTemplate(pattern string) smarterName {
	full := "/dev/" + pattern
	if beginning(full) == full { // a single path
		host := unescape(full)
		t := smarterName{glob: full, path: host, name: strings.ReplaceAll(strings.TrimPrefix(host, "/dev/"), "/", "_")}
		if rule := checkName(t.name); rule != "" {
			return smarterName{rule: fmt.Sprintf("%q %s", t.name, rule)}
		}
		for _, d := range directories {
			if d == host {
				t.glob, t.path, t.all = deep(d), "", true
			}
		}
		return t
	}
	if !wildDirectory(pattern) {
		// The kernel's name is the last element of a path.
		dir := unescape(pattern[:strings.LastIndex(beginning(pattern), "/")+1])
		return checkedName(smarterName{glob: full, name: literal(strings.ReplaceAll(dir, "/", "_")) + "${kernel}"})
	}
	var name strings.Builder
	for i, captures := 0, 0; i < len(pattern); i++ {
		switch c := pattern[i]; c {
		case '/':
			name.WriteByte('_')
		case '*', '?', '[':
			captures++
			fmt.Fprintf(&name, "${%d}", captures)
			if c == '[' {
				i = classEnd(pattern, i)
			}
		case '\\':
			i++
			name.WriteByte(pattern[i])
		default:
			name.WriteByte(c)
		}
	}
	return checkedName(smarterName{glob: full, name: name.String()})
}

var variable = regexp.MustCompile(`\$\{[a-z0-9]+\}`)

// checkedName is a name, or the rule that it breaks whatever its variables
// stand for.
func checkedName(t smarterName) smarterName {
	if rule := checkName(variable.ReplaceAllString(t.name, "x")); rule != "" {
		return smarterName{rule: fmt.Sprintf("%q %s", t.name, rule)}
	}
	return t
}
