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

// smarterFormat are lists of smarter-device-manager:
//
//   - devicematch: ^ttyUSB[0-9]*$
//     nummaxdevices: 1
//
// Each node, link and directory that an expression matches is a resource, named after its
// path below /dev with "_" for "/" (sanitizeName in its main.go): /dev/snd/timer is
// smarter-devices/snd_timer. It has nummaxdevices slots, and always the same node.
//
// Expressions become globs, whose nodes share one [[resource]] with a variable in its name,
// if all their names have one form:
//
//	^ttyUSB[0-9]*$     name = "${kernel}", match.glob = "/dev/ttyUSB*"
//	^snd/control.*$    name = "snd_${kernel}", match.glob = "/dev/snd/control*"
//	^serial/by-id/.*$  name = "serial_by-id_${1}", match.glob = "/dev/serial/by-id/*"
//	^snd$              name = "snd", each = "all", match.glob = "/dev/snd/**"
//
// The plugin lists /dev once, when it starts (readDevDirectory). Ours follows events, so that
// a resource appears with its node.
type smarterFormat struct{}

// detect recognizes a list by the key that every entry has.
func (smarterFormat) detect(v *value) bool { return v.holds("devicematch") }

// convert converts the entries of all lists, numbered through for messages.
func (smarterFormat) convert(c *conversion, sources []source) {
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

// smarterEntry converts an entry to one or several resources, since the name of a resource is
// made of the path.
func (c *conversion) smarterEntry(v *value, domain string, in *workload) {
	var e struct {
		DeviceMatch   string
		NumMaxDevices int
	}
	if !v.decode(&e) {
		return
	}
	if e.DeviceMatch == "" {
		v.report(`devicematch is missing: set a regular expression such as "^video[0-9]*$"`)
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
	re := regexp.MustCompile(e.DeviceMatch)
	lister := smarterLister{domain, re, e.NumMaxDevices}
	c.before = append(c.before, lister.devices)
	resources := smarterResources(v, expressions)
	if len(expressions) > 0 {
		resources = addSmarterDirectories(v, resources, re)
	}
	for _, r := range resources {
		for _, d := range differences {
			r.differs(v, "%s", d)
		}
		r.setCount(v, e.NumMaxDevices)
		c.addSmarter(v, r, domain, in)
	}
}

// addSmarter adds a resource of an entry, unless it has no name or an earlier entry has it.
func (c *conversion) addSmarter(v *value, r *resource, domain string, in *workload) {
	if rule := checkName(domain + r.Name); rule != "" {
		v.differs("not imported: %s", rule)
		return
	}
	name := domain + r.Name
	isFixed := !strings.Contains(r.Name, "${")
	isTaken := slices.ContainsFunc(c.resources, func(other *resource) bool {
		return other.Name == name && other.workload == in
	})
	if isFixed && isTaken {
		v.differs("not imported: an earlier entry also selects %q", r.Name)
		return
	}
	if strings.Contains(r.Name, kernelName) {
		c.comment("A symlink that an expression matches has the name of the node that it points to, unless it has a resource of its own below.")
	}
	if hasLinkNames(r) {
		r.differs(v, `differs: a "." in the name of a symlink stays in the name of the resource, any other character that names lack becomes "-", and 63 characters remain; smarter-device-manager writes "_" for such characters, and the kubelet refuses longer names`)
	}
	// A directory is a resource beside the nodes in it. Two entries for one node give it the
	// same name, and the first entry gets it.
	r.mayShare = r.mayShare || r.Each == "all" || strings.HasSuffix(r.Match[0].Glob[0], linkSuffix)
	r.Name = name
	c.add(v, r, in)
}

// hasLinkNames reports whether the name of a resource is made of the names of symlinks in
// directories of udev.
func hasLinkNames(r *resource) bool {
	dir := path.Dir(r.Match[0].Glob[0])
	return isLinkDirectory(dir) && strings.Contains(r.Name, "${")
}

// addSmarterDirectories adds the directories that an expression matches. Each is a resource
// with all nodes below it, beside the resources of these nodes (readDevDirectory in main.go
// of smarter-device-manager lists directories as well).
func addSmarterDirectories(v *value, resources []*resource, re *regexp.Regexp) []*resource {
	numbered := ""
	for _, dir := range allDirectories() {
		name := strings.TrimPrefix(dir, "/dev/")
		// From a directory of links containers get no nodes.
		hasNodes := !hasNoNodes(dir) && !isLinkDirectory(dir)
		isKnown := slices.ContainsFunc(resources, func(r *resource) bool {
			return r.Name == smarterName(name)
		})
		if !hasNodes || isKnown || !re.MatchString(name) {
			continue
		}
		if fullMatch(`.*/(adapter)?[0-9]+`, dir) {
			numbered = name
			continue
		}
		if a, err := parseGlob(dir); err == nil {
			resources = append(resources, smarterPath(a))
		}
	}
	if numbered != "" {
		v.differs(`not imported: directories such as %q as resources with all nodes in them: add the resources that pods request, with each = "all" and match.glob = "/dev/%s/**"`, numbered, numbered)
	}
	for _, r := range resources {
		if r.Name == "bus_usb" || r.Name == "bus" {
			r.excludeDangerousUSB(v)
		}
	}
	return resources
}

// kernelName is the variable for the last element of a path.
const kernelName = "${kernel}"

// maxGlobs limits the globs of an expression.
const maxGlobs = 64

// smarterForm are the globs of an expression whose nodes have names of one form.
type smarterForm struct {
	name string
	// wild is the resource for all globs.
	wild resource
	// fixed are resources for the globs without wildcards.
	fixed []*resource
	globs int
}

// resources are the resources of the form: one for each path if no glob has wildcards.
func (f *smarterForm) resources() []*resource {
	if len(f.fixed) == f.globs {
		return f.fixed
	}
	return []*resource{&f.wild}
}

// smarterResources makes the resources of an expression.
func smarterResources(v *value, expressions []expression) (resources []*resource) {
	var forms []*smarterForm
	// All alternatives of an entry share the limit: each multiplies what a scan compares.
	left := maxGlobs
	for _, e := range expressions {
		globs := e.globs()
		left -= len(globs)
		if left < 0 {
			v.differs("not imported: the expression stands for more than %d patterns", maxGlobs)
			return nil
		}
		for _, g := range globs {
			forms = addForm(v, forms, g, e.others)
		}
	}
	for _, f := range forms {
		resources = append(resources, f.resources()...)
	}
	return resources
}

// globs are the globs below /dev of an alternative of an expression.
func (e expression) globs() []string {
	glob := "/dev/" + e.glob
	if e.others != "" {
		return []string{glob}
	}
	return splitNumbers(expandAnything(glob))
}

// addForm adds a glob to the form that its nodes have.
func addForm(v *value, forms []*smarterForm, glob, others string) []*smarterForm {
	if path.Clean(glob) != glob {
		v.differs("not imported: %.80q is no path below /dev", strings.TrimPrefix(glob, "/dev/"))
		return forms
	}
	a, err := parseGlob(glob)
	if err != nil {
		v.differs("not imported: %v", err)
		return forms
	}
	name := smarterNames(a)
	i := slices.IndexFunc(forms, func(f *smarterForm) bool { return f.name == name })
	if i < 0 {
		i = len(forms)
		forms = append(forms, &smarterForm{
			name: name,
			wild: resource{Name: name},
		})
	}
	f := forms[i]
	f.globs++
	f.keepLinkNames(a)
	if _, ok := a.Literal(); ok {
		f.fixed = append(f.fixed, smarterPath(a))
	}
	f.wild.addGlob(glob, others)
	return forms
}

// keepLinkNames injects the nodes of links under the names of the links, as
// smarter-device-manager does, and not under the kernel's names.
func (f *smarterForm) keepLinkNames(a pattern.Alternative) {
	containerPath := ""
	if isLinkGlob(a.String()) {
		containerPath = captured(a.Shape(), escapeVariables)
	}
	if f.globs == 1 {
		f.wild.Container.Path = containerPath
	} else if f.wild.Container.Path != containerPath {
		f.wild.Container.Path = ""
	}
}

// isLinkGlob reports whether a glob selects links, and no nodes by the kernel's names.
func isLinkGlob(glob string) bool {
	return strings.HasSuffix(glob, linkSuffix) || isLinkDirectory(path.Dir(glob))
}

// addGlob selects the nodes of a glob, except for the nodes of others.
func (r *resource) addGlob(glob, others string) {
	if others != "" {
		r.Match = append(r.Match, match{Glob: []string{glob, "!/dev/" + others}})
		return
	}
	last := len(r.Match) - 1
	if last < 0 || r.Match[last].hasExceptions() {
		r.Match = append(r.Match, match{Glob: []string{glob}})
		return
	}
	r.Match[last].Glob = addOnce(r.Match[last].Glob, glob)
}

// hasExceptions reports whether the last glob excludes nodes.
func (m match) hasExceptions() bool {
	return strings.HasPrefix(m.Glob[len(m.Glob)-1], "!")
}

// splitNumbers splits names that end in a wildcard into the names of the kernel and the
// names of links: a node that has both is a resource of either name.
func splitNumbers(globs []string) (all []string) {
	for _, g := range globs {
		for _, dotted := range dottedGlobs(g) {
			all = addOnce(all, dotted)
		}
		name, star := strings.CutSuffix(g, "*")
		hasOtherWildcards := strings.ContainsAny(path.Base(name), `*?[\`)
		if !star || hasOtherWildcards || strings.HasSuffix(name, "/") {
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

// dottedGlobs are globs for the nodes with "." in the kernel's name, if a glob selects such
// nodes: smarter-device-manager writes "_" for it, and our variable for the kernel's name
// does not. Only spidev has such names (spidev_probe in drivers/spi/spidev.c).
func dottedGlobs(glob string) []string {
	a, err := parseGlob(glob)
	if err != nil || !a.Match("/dev/spidev0.0") || strings.Contains(glob, ".") {
		return nil
	}
	if _, isFixed := a.Literal(); isFixed {
		return nil
	}
	return []string{"/dev/spidev*.*"}
}

// smarterNames is the name of the nodes of a glob, with variables for the wildcards of
// directories, which are never empty, and for the name of the node or of a link to it.
func smarterNames(a pattern.Alternative) string {
	if host, _ := a.Literal(); isDirectory(host) {
		return host
	}
	shape := strings.TrimPrefix(a.Shape(), "/dev/")
	dir := shape[:strings.LastIndex(shape, "/")+1]
	last := path.Base(shape)
	if isNamedByMatch(a, dir, last) {
		return captured(shape, smarterName)
	}
	return captured(dir, smarterName) + kernelName
}

// isNamedByMatch reports whether the name of a resource is what the wildcards of a glob
// match, and not the kernel's name of the node: for links, for directories with wildcards,
// and for names with a character that names of resources lack.
func isNamedByMatch(a pattern.Alternative, dir, last string) bool {
	glob := a.String()
	_, isFixed := a.Literal()
	name := path.Base(glob)
	inWildDirectory := strings.Contains(dir, "*") && (name == "*" || !strings.Contains(name, "*"))
	literals := strings.ReplaceAll(last, "*", "")
	needsReplacement := !isFixed && smarterName(literals) != literals
	return isLinkGlob(glob) || inWildDirectory || needsReplacement
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
		r.Each = "all"
		r.Match = []match{{Glob: []string{host + "/**"}}}
		return r
	}
	r.Container.Path = escapeVariables(host)
	r.Match = []match{{Glob: []string{a.String()}}}
	return r
}

// smarterLister lists the devices of an entry: each path that the expression matches
// (findDevicesPattern in main.go of smarter-device-manager).
type smarterLister struct {
	domain     string
	expression *regexp.Regexp
	slots      int
}

// devices lists every path below /dev that the expression matches somewhere: it is not
// anchored.
func (s smarterLister) devices(h *host) (devices []Device) {
	for _, p := range h.paths {
		name := strings.TrimPrefix(p, "/dev/")
		nodes := h.at(p, p)
		if len(nodes) == 0 || !s.expression.MatchString(name) {
			continue
		}
		devices = append(devices, Device{
			Resource: s.domain + smarterName(name),
			Slots:    s.slots,
			Nodes:    nodes,
		})
	}
	return devices
}
