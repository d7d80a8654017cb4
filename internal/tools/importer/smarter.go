package importer

import (
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/generic-dp/generic-dp/internal/pattern"
)

// smarterDomain is the domain of all resources of smarter-device-manager.
const smarterDomain = "smarter-devices"

// smarter converts lists of smarter-device-manager: each node that an
// expression matches is a resource, named after its path below /dev with "_"
// for "/" (sanitizeName in its main.go).
func (c *conversion) smarter(sources []source) {
	n := 0
	domain := c.domainOr(smarterDomain)
	for _, s := range sources {
		var list []*value
		s.set(&list)
		for _, e := range list {
			n++
			c.smarterEntry(e.named("entry", n), domain+"/", s.workload)
		}
	}
}

func (c *conversion) smarterEntry(v *value, domain string, in *workload) {
	var e struct {
		DeviceMatch   string
		NumMaxDevices int
	}
	if !v.decode(&e) {
		return
	}
	if e.DeviceMatch == "" {
		v.report(`no devicematch: want a regular expression such as "^video[0-9]*$"`)
		return
	}
	expressions, differences, err := parseRegexp(e.DeviceMatch)
	switch {
	case err != nil:
		v.report("devicematch: %v", err)
		return
	case e.DeviceMatch == "nvidia-gpu":
		v.differs("not imported: GPUs of Jetson boards, which have no device nodes: containers get NVIDIA_VISIBLE_DEVICES")
		return
	case e.NumMaxDevices == 0:
		v.differs("not imported: nummaxdevices is 0: no devices")
		return
	case len(expressions) == 0:
		v.differs("%s", differences[0])
	}
	c.before = append(c.before, smarterBefore(domain, e.DeviceMatch, e.NumMaxDevices))
	resources := smarterResources(v, expressions)
	for _, r := range resources {
		if rule := checkName(domain + r.Name); rule != "" {
			v.differs("not imported: %s", rule)
			continue
		}
		fixed := !strings.Contains(r.Name, "${")
		if fixed && slices.ContainsFunc(c.resources, func(o *resource) bool { return o.Name == domain+r.Name && o.workload == in }) {
			v.differs("not imported: %q is selected by an earlier entry, too", r.Name)
			continue
		}
		if strings.Contains(r.Name, kernelName) {
			c.comment("A symlink that an expression matches has the name of the node that it points to, unless it has a resource of its own below; a \".\" in a name is not \"_\".")
		}
		for _, d := range differences {
			r.differs(v, "%s", d)
		}
		r.setCount(v, e.NumMaxDevices)
		// A directory is a resource beside those of the nodes in it. Two entries for
		// one node give it the same name, and the first one gets it.
		r.mayShare = r.Each == "all" || strings.HasSuffix(r.Match[0].Glob[0], linkSuffix)
		r.Name = domain + r.Name
		c.add(v, r, in)
	}
}

// kernelName is the variable for the last element of a path.
const kernelName = "${kernel}"

// maxGlobs limits the globs of an expression.
const maxGlobs = 64

// smarterResources makes a resource for all globs whose nodes have names of one form, or for
// each path if none has wildcards.
func smarterResources(v *value, expressions []expression) (resources []*resource) {
	type form struct {
		wild  resource
		fixed []*resource
		all   int
	}
	var names []string
	forms, left := make(map[string]*form), maxGlobs
	for _, e := range expressions {
		globs := []string{"/dev/" + e.glob}
		if e.others == "" {
			globs = splitNumbers(expandAnything(globs[0]))
		}
		if left -= len(globs); left < 0 {
			v.differs("not imported: the expression stands for more than %d patterns", maxGlobs)
			return nil
		}
		for _, g := range globs {
			a, err := parseGlob(g)
			switch {
			case path.Clean(g) != g:
				v.differs("not imported: %.80q is no path below /dev", strings.TrimPrefix(g, "/dev/"))
				continue
			case err != nil:
				v.differs("not imported: %v", err)
				continue
			}
			name := smarterForm(a)
			f := forms[name]
			if f == nil {
				f = &form{wild: resource{Name: name}}
				forms[name], names = f, append(names, name)
			}
			f.all++
			if _, ok := a.Literal(); ok {
				f.fixed = append(f.fixed, smarterPath(a))
			}
			f.wild.addGlob(g, e.others)
		}
	}
	for _, name := range names {
		if f := forms[name]; len(f.fixed) == f.all {
			resources = append(resources, f.fixed...)
		} else {
			resources = append(resources, &f.wild)
		}
	}
	return resources
}

// addGlob selects the nodes of a glob, but for those of others.
func (r *resource) addGlob(glob, others string) {
	last := len(r.Match) - 1
	switch {
	case others != "":
		r.Match = append(r.Match, match{Glob: []string{glob, "!/dev/" + others}})
	case last < 0 || strings.HasPrefix(r.Match[last].Glob[len(r.Match[last].Glob)-1], "!"):
		r.Match = append(r.Match, match{Glob: []string{glob}})
	case !slices.Contains(r.Match[last].Glob, glob):
		r.Match[last].Glob = append(r.Match[last].Glob, glob)
	}
}

// splitNumbers splits names that end in a wildcard into those of the kernel and those of
// links: a node that has both is a resource of either name.
func splitNumbers(globs []string) (all []string) {
	for _, g := range globs {
		name, star := strings.CutSuffix(g, "*")
		if !star || strings.ContainsAny(path.Base(name), `*?[\`) || strings.HasSuffix(name, "/") {
			all = addOnce(all, g)
			continue
		}
		if !isDirectory(name) {
			all = addOnce(all, name)
		}
		for _, suffix := range []string{"?", "[0-9]*", linkSuffix} {
			all = addOnce(all, name+suffix)
		}
	}
	return all
}

// linkSuffix is the end of names that the kernel does not give.
const linkSuffix = "[!0-9]?*"

// smarterForm is the name of the nodes of a glob, with variables for the wildcards of
// directories, which are never empty, and for the name of the node or of a link to it.
func smarterForm(a pattern.Alternative) string {
	if host, _ := a.Literal(); isDirectory(host) {
		return host
	}
	shape := strings.TrimPrefix(a.Shape(), "/dev/")
	dir, last := shape[:strings.LastIndex(shape, "/")+1], path.Base(a.String())
	whole := strings.HasSuffix(last, linkSuffix) || strings.Contains(dir, "*") && (last == "*" || !strings.Contains(last, "*"))
	if whole {
		dir = shape
	}
	name := captured(dir, smarterName)
	if whole {
		return name
	}
	return name + kernelName
}

// smarterName is a path in the name of a resource (sanitizeName in its main.go).
func smarterName(path string) string {
	return regexp.MustCompile(`[^A-Za-z0-9_-]`).ReplaceAllString(path, "_")
}

// smarterPath is the resource of a path without wildcards.
func smarterPath(a pattern.Alternative) *resource {
	host, _ := a.Literal()
	r := &resource{Name: smarterName(strings.TrimPrefix(host, "/dev/"))}
	if isDirectory(host) {
		r.Each, r.Match = "all", []match{{Glob: []string{host + "/**"}}}
	} else {
		r.Container.Path, r.Match = escapeVariables(host), []match{{Glob: []string{a.String()}}}
	}
	return r
}
