package importer

import (
	"cmp"
	"fmt"
	"path"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/generic-dp/generic-dp/internal/pattern"
)

// squatName is what generic-device-plugin accepts as the name of a device.
const squatName = `[a-z0-9][-a-z0-9]*[a-z0-9]`

// squatGroup is a group of a resource, which is called a device: the n-th nodes of its
// paths are the n-th device, or everything that usb matches is one.
type squatGroup struct {
	at    *value
	count int
	paths []squatPath
	usb   []squatUSB
}

type squatPath struct {
	Path, MountPath, Permissions, Type string
	ReadOnly, Optional                 bool
	Limit                              int

	host      string // the path if it has no wildcards
	directory bool   // of device nodes
	match     match
}

type squatUSB struct{ Vendor, Product, Serial string }

// squat converts configurations of generic-device-plugin.
func (c *conversion) squat(sources []source) {
	n := 0
	for _, s := range sources {
		devices, domain := []*value{s.value}, ""
		if s.list() {
			devices = s.items()
		} else if !s.device {
			var config struct {
				Devices, Device                           []*value
				Domain                                    string
				PluginDirectory, Listen, LogLevel, Status *value
				Config, Version                           *value
			}
			s.decode(&config)
			devices, domain = append(config.Devices, config.Device...), config.Domain
			for i, v := range []*value{config.PluginDirectory, config.Listen, config.LogLevel} {
				if flags := []string{"--kubelet-dir", "--listen", "--log-level"}; v != nil {
					s.differs("not imported: %s = %s: use the flag %s", v.key, v.describe(), flags[i])
				}
			}
		}
		domain = c.squatDomain(s, domain)
		for _, d := range devices {
			n++
			v := d.named("device", n)
			name, groups := readSquatDevice(v, s.device)
			c.squatResources(v, domain+"/"+name, groups, s.workload)
		}
	}
	if n == 0 {
		c.problem(0, "no devices: want at least one")
	}
	if len(c.mounts) > 0 {
		slices.Sort(c.mounts)
		c.comment("The mounts need the flag --allow=" + strings.Join(c.mounts, ","))
	}
}

// The default domains of generic-device-plugin: before 0.2.0, and since.
const oldSquatDomain, newSquatDomain = "squat.ai", "devic.es"

// squatDomain is the domain of the devices of a configuration: the flag, else what the
// file says, else the default of the version, which only tags of releases tell.
func (c *conversion) squatDomain(s source, configured string) string {
	found := cmp.Or(s.workload.domain, configured, c.first(func(w *workload) string { return w.domain }))
	if found != "" || c.options.Domain != "" {
		return c.domainOr(found)
	}
	if s.path == "genericDevicePlugin" {
		return c.domainOr("device.microshift.io")
	}
	tag := cmp.Or(s.workload.tag, c.first(func(w *workload) string { return w.tag }))
	switch release := `([a-z0-9]+-)?v?`; {
	case fullMatch(release+`0\.[01](\..*)?@?`, tag):
		return oldSquatDomain
	case fullMatch(release+`[0-9]+\.[0-9]+(\..*)?@?`, tag):
		return newSquatDomain
	}
	// The manifests beside it usually have the requests of pods.
	if old := strings.Contains(c.text, oldSquatDomain); old != strings.Contains(c.text, newSquatDomain) {
		if old {
			return oldSquatDomain
		}
		return newSquatDomain
	}
	guess := oldSquatDomain // releases came late: most configurations are older
	if tag == "latest" {
		guess = newSquatDomain
	}
	c.differs("The domain %q is a guess: the default was %q before version 0.2.0 and is %q since. Set the one that pods request, or import with --domain.",
		guess, oldSquatDomain, newSquatDomain)
	return guess
}

// readSquatDevice decodes a device; flag is set for the value of a flag.
func readSquatDevice(v *value, flag bool) (name string, groups []squatGroup) {
	var d struct {
		Name   string
		Count  *value
		Groups []*value
	}
	if !v.decode(&d) {
		return "", nil
	}
	switch {
	case d.Name == "":
		v.report("no name: want one")
	case !fullMatch(squatName, d.Name):
		v.get("name").report(`%q is no name of a device: want at least two lower-case letters, digits and "-", beginning and ending with a letter or digit`, d.Name)
	}
	if d.Count != nil {
		v.differs(`not imported: "count" beside "groups" has no effect: it belongs in each group`)
	}
	for _, e := range d.Groups {
		if g := readSquatGroup(e, flag); len(g.paths)+len(g.usb) > 0 {
			groups = append(groups, g)
		}
	}
	if len(groups) == 0 {
		v.differs("not imported: no paths and no usb to select")
	}
	return d.Name, groups
}

func readSquatGroup(v *value, flag bool) squatGroup {
	var g struct {
		Count            int
		Paths, USB, USBs []*value // MicroShift has usbs
	}
	v.decode(&g)
	g.USB = append(g.USB, g.USBs...)
	group := squatGroup{at: v, count: max(g.Count, 1)}
	for _, e := range g.Paths {
		p, ok := readSquatPath(e)
		if !ok {
			continue // reported
		}
		if p.match.As == "" && !strings.HasPrefix(p.Path, "/dev/") {
			e.differs("not imported: %q as a device: device nodes are below /dev", p.Path)
			continue
		}
		group.paths = append(group.paths, p)
	}
	for _, e := range g.USB {
		if u := readSquatUSB(e, flag); u.Product != "" {
			group.usb = append(group.usb, u)
		}
	}
	if len(g.Paths) > 0 && len(g.USB) > 0 {
		v.report("both paths and usb: want one of them")
	}
	return group
}

func readSquatPath(v *value) (p squatPath, ok bool) {
	p = squatPath{Permissions: "mrw", Type: "Device", Limit: 1}
	if !v.decode(&p) {
		return p, false
	}
	m := &p.match
	if p.Type != "Device" && p.Type != "Mount" {
		v.get("type").report(`%q: want "Device" or "Mount"`, p.Type)
	}
	if p.Type == "Mount" {
		m.As, m.ReadOnly = "mount", &p.ReadOnly
	} else {
		for _, r := range "rwm" {
			if strings.ContainsRune(p.Permissions, r) {
				m.Permissions += string(r)
			}
		}
		if len(m.Permissions) != len(p.Permissions) {
			v.get("permissions").report(`%q: want some of "r", "w" and "m", each once`, p.Permissions)
		}
	}
	if dir := strings.TrimSuffix(p.MountPath, "/"); p.MountPath != "" && (!path.IsAbs(dir) || path.Clean(dir) != dir) {
		v.get("mountPath").report(`%q is not an absolute, clean path: want one such as "/dev/zigbee"`, p.MountPath)
	}
	if p.Path == "" {
		v.report("no path: want one")
		return p, false
	}
	a, err := fromGoGlob(p.Path)
	if err != nil {
		v.get("path").report("%v", err)
		return p, false
	}
	p.host, _ = a.Literal()
	m.Glob = []string{a.String()}
	p.directory = m.As == "" && isDirectory(p.host)
	at := p.MountPath
	switch {
	case at == "" && strings.Contains(p.Path, "/by-") && p.host == "":
		// A container needs the names of these links: the kernel's names change.
		m.ContainerPath = captured(a.Shape(), escapeVariables)
	case at == "" && !p.directory && m.As == "":
		at = p.host
	case p.host != "" && strings.HasSuffix(at, "/"):
		at += path.Base(p.host)
	}
	if p.directory {
		m.Glob = []string{p.host + "/**"}
		if at != "" {
			at += "/"
		}
	}
	m.ContainerPath = cmp.Or(m.ContainerPath, escapeVariables(at))
	if m.As != "" {
		v.c.mounts = addOnce(v.c.mounts, "mount:"+cmp.Or(p.host, path.Dir(a.Prefix()+"x")))
		if at == p.host {
			m.ContainerPath = ""
		}
	}
	return p, true
}

func readSquatUSB(v *value, flag bool) (u squatUSB) {
	if !v.decode(&u) {
		return u
	}
	if u.Vendor == "" || u.Product == "" {
		v.differs("not imported: without vendor or product it selects nothing: want both, as four hexadecimal digits")
		return squatUSB{}
	}
	u.Vendor, u.Product = v.get("vendor").squatID(u.Vendor, flag), v.get("product").squatID(u.Product, flag)
	return u
}

// squatID returns the four digits of an ID. One without quotes is a number in YAML,
// with another value: 0403 is octal.
func (v *value) squatID(text string, flag bool) string {
	n, err := strconv.ParseUint(strings.TrimPrefix(strings.ToLower(text), "0x"), 16, 16)
	if err != nil {
		v.report(`%q is not a hexadecimal ID: want four digits such as "10c4"`, text)
		return ""
	}
	id := fmt.Sprintf("%04x", n)
	if tag := v.ShortTag(); tag != "!!int" && tag != "!!float" {
		return id
	}
	base := 16
	if flag {
		base = 10 // it is converted to JSON first, and its decimal digits are read as hexadecimal ones
	}
	read := "a number that is no ID"
	if n, err := strconv.ParseUint(text, 0, 64); err == nil {
		read = fmt.Sprintf("%04s", strconv.FormatUint(n, base))
	}
	if read != id {
		v.differs("%s without quotes means %s to generic-device-plugin; imported as %s", text, read, id)
	}
	return id
}

// squatForm is what a device of a group consists of.
type squatForm string

const (
	nodeForm     squatForm = "node"     // each node or path
	poolForm     squatForm = "all"      // all nodes
	withForm     squatForm = "with"     // each node, with companions
	hardwareForm squatForm = "hardware" // the nodes of one hardware, with companions
)

func (g squatGroup) form() squatForm {
	wild := 0
	for _, p := range g.paths {
		if p.host == "" {
			wild++
		}
	}
	switch n := len(g.paths); {
	case len(g.usb) > 1, n == 1 && g.paths[0].directory, n > 1 && wild == 0:
		return poolForm
	case n <= 1:
		return nodeForm
	case wild == 1:
		return withForm
	}
	return hardwareForm
}

// sameShape reports whether two groups of several paths differ only in the paths.
func (g squatGroup) sameShape(other squatGroup) bool {
	return len(g.paths) > 1 && slices.EqualFunc(g.paths, other.paths, func(p, q squatPath) bool {
		m, n := p.match, q.match
		return m.As+n.As == "" && m.Permissions == n.Permissions && p.Optional == q.Optional &&
			(m.ContainerPath == n.ContainerPath || p.MountPath == "" && q.MountPath == "")
	})
}

// squatResources makes the resources of a device: groups of one form share a resource if
// possible.
func (c *conversion) squatResources(device *value, name string, groups []squatGroup, in *workload) {
	var parts [][]squatGroup
	for _, g := range groups {
		c.before = append(c.before, g.before(name))
		form := g.form()
		i := slices.IndexFunc(parts, func(p []squatGroup) bool {
			return p[0].form() == form && (form == nodeForm || form == poolForm && p[0].sameShape(g))
		})
		if i < 0 {
			i, parts = len(parts), append(parts, nil)
		}
		parts[i] = append(parts[i], g)
	}
	for i, part := range parts {
		r := &resource{Name: name, mayShare: true}
		if i > 0 {
			r.Name = fmt.Sprintf("%s-%d", name, i+1)
			r.differs(device, "differs: %s becomes the resource %q, since it forms devices differently", part[0].at.key, path.Base(r.Name))
		}
		r.addGroups(device, part)
		r.dropCaptured(device)
		r.hoist()
		c.add(device, r, in)
	}
}

// addGroups sets what the resource of a device selects.
func (r *resource) addGroups(device *value, groups []squatGroup) {
	form := groups[0].form()
	if form == poolForm && len(groups) > 1 {
		form = hardwareForm
	}
	switch {
	case form == poolForm:
		r.Each = "all"
	case form == hardwareForm:
		r.Each = "device"
		r.differs(device, "differs: nodes of the same hardware are a device; generic-device-plugin pairs them by position in sorted lists")
	case slices.ContainsFunc(groups, func(g squatGroup) bool { return len(g.usb) > 0 }):
		// The bus node is the device, since another resource may have the others.
		r.Each = "node"
	}
	count := groups[0].count
	for _, g := range groups {
		count = min(count, g.count)
	}
	r.setCount(device, count)
	for i, g := range groups {
		if g.count > count {
			r.differs(device, "differs: count %d of %s is imported as %d: a resource has one count: under another name it keeps its own", g.count, g.at.key, count)
		}
		for _, u := range g.usb {
			r.addUSB(u)
			if form == nodeForm && u.Serial == "" {
				r.differs(device, `differs: each %s:%s is a device; generic-device-plugin makes one of all that are plugged in (each = "all" does it)`, u.Vendor, u.Product)
			}
		}
		for k, p := range g.paths {
			switch {
			case form == withForm && p.host != "", form == hardwareForm && p.host != "" && len(groups) == 1:
				r.addCompanion(device, p)
			case form == hardwareForm && i > 0:
				m := &r.Match[k]
				m.Glob = append(m.Glob, p.match.Glob...)
				if m.ContainerPath != p.match.ContainerPath {
					m.ContainerPath = ""
				}
			default:
				r.addPath(p, !p.Optional && (form == hardwareForm || form == poolForm && len(g.paths) > 1))
			}
		}
	}
}

// addUSB selects the bus nodes of USB devices.
func (r *resource) addUSB(u squatUSB) {
	m := match{Glob: []string{"/dev/bus/usb/**"}, Permissions: "rw"}
	m.USB.ID = u.Vendor + ":" + u.Product
	if u.Serial != "" {
		m.USB.Serial = []string{pattern.Quote(u.Serial)}
	}
	r.Match = append(r.Match, m)
}

// addPath selects the nodes of a path, in the previous match if they differ only in the
// glob.
func (r *resource) addPath(p squatPath, required bool) {
	m := p.match
	m.Required = required
	if n := len(r.Match); n > 0 && (r.Each == "" || r.Each == "node") {
		last := r.Match[n-1]
		glob := last.Glob
		if last.Glob = m.Glob; reflect.DeepEqual(last, m) {
			r.Match[n-1].Glob = append(glob, m.Glob...)
			return
		}
	}
	r.Match = append(r.Match, m)
}

// addCompanion adds a path that accompanies every device.
func (r *resource) addCompanion(device *value, p squatPath) {
	m := p.match
	w := companion{As: m.As, ReadOnly: m.ReadOnly, Permissions: m.Permissions, ContainerPath: m.ContainerPath, Optional: p.Optional}
	host := escapeVariables(p.host)
	switch {
	case m.As != "":
		w.HostPath = host
	case p.directory:
		w.Glob = m.Glob[0]
	default:
		w.Path = host
	}
	if w.ContainerPath == host {
		w.ContainerPath = ""
	}
	if w.Permissions == defaultPermissions {
		w.Permissions = ""
	}
	r.With = append(r.With, w)
	if !p.Optional {
		r.differs(device, "differs: limit %d of %q: here every device gets it", p.Limit, p.Path)
	}
}

// defaultPermissions are the permissions of nodes.
const defaultPermissions = "rw"

// dropCaptured removes the names of links unless all globs of the resource have the same
// number of wildcards, as the language requires.
func (r *resource) dropCaptured(device *value) {
	wildcards := make(map[int]bool)
	for _, m := range r.Match {
		for _, g := range m.Glob {
			if a, err := parseGlob(g); err == nil {
				wildcards[a.Wildcards()] = true
			}
		}
	}
	if len(wildcards) == 1 {
		return
	}
	for i, m := range r.Match {
		if strings.Contains(strings.ReplaceAll(m.ContainerPath, "$${", ""), "${") {
			r.Match[i].ContainerPath = ""
			r.differs(device, "differs: nodes of the symlinks %q have the kernel's names in the container", m.Glob[0])
		}
	}
}

// hoist moves to container the permissions that all matches share, and the path of a single
// match.
func (r *resource) hoist() {
	first := r.Match[0]
	if len(r.Match) == 1 && first.As == "" {
		r.Container.Path, r.Match[0].ContainerPath = first.ContainerPath, ""
	}
	same := !slices.ContainsFunc(r.Match, func(m match) bool { return m.Permissions != first.Permissions })
	if same && first.Permissions != defaultPermissions {
		r.Container.Permissions = first.Permissions
	}
	for i := range r.Match {
		if m := &r.Match[i]; same || m.Permissions == defaultPermissions {
			m.Permissions = ""
		}
	}
}
