package importer

import (
	"cmp"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// squatName is what generic-device-plugin accepts as the name of a device.
const squatName = `[a-z0-9][-a-z0-9]*[a-z0-9]`

// squatFormat are configurations of generic-device-plugin: files, flags, and values of
// charts.
//
//	devices:
//	- name: serial
//	  groups:
//	  - count: 2
//	    paths:
//	    - path: /dev/ttyUSB*
//	    - path: /dev/kvm
//	      limit: 9
//	      optional: true
//	  - usb:
//	    - vendor: "10c4"
//	      product: "ea60"
//
// What the plugin calls a device is a resource here, and a flag --device has one of them.
// The n-th matches of the paths of a group are one device with count slots, while everything
// that usb selects is one device (discoverPath and discoverUSB in deviceplugin). The forms
// that this takes are squatForm.
//
// Decoding is not strict: the plugin ignores a key that it does not know.
type squatFormat struct{}

// detect recognizes configurations by groups, which devices of other programs do not have. A
// mapping with an image has the values of a chart, and the devices are one of its keys.
func (squatFormat) detect(v *value) bool {
	isDeviceKey := v.key == "devices" || v.key == "device"
	if isDeviceKey && v.holds("groups") {
		return true // the other keys of the mapping belong to a chart
	}
	hasDevices := v.get("devices").holds("groups") || v.get("device").holds("groups")
	return hasDevices && !v.has("image") || isSquatDevice(v)
}

// isSquatDevice reports whether a value is a single device, as in a --device flag.
func isSquatDevice(v *value) bool {
	groups := v.get("groups")
	return v.get("name").scalar() && (groups.holds("paths") || groups.holds("usb"))
}

// squatDevice is a device with the source that it is from.
type squatDevice struct {
	at     *value
	name   string
	groups []squatGroup
	in     source
	// configured is the domain that its file sets.
	configured string
}

// convert converts the devices of all sources. They are read first, because the names of all
// devices help to find the domain that pods request.
func (squatFormat) convert(c *conversion, sources []source) {
	var devices []squatDevice
	for _, s := range sources {
		c.reportOtherFlags(s)
		listed, domain := listSquatDevices(s)
		isFlag := s.flag || isSquatDevice(s.value)
		for _, d := range listed {
			v := d.named("device", len(devices)+1)
			name, groups := readSquatDevice(v, isFlag)
			devices = append(devices, squatDevice{
				at:         v,
				name:       name,
				groups:     groups,
				in:         s,
				configured: domain,
			})
		}
	}
	if len(devices) == 0 {
		c.problem(0, "there are no devices: at least one is required")
	}
	var names []string
	for _, d := range devices {
		names = append(names, d.name)
	}
	for _, d := range devices {
		if len(d.groups) == 0 {
			continue // reported
		}
		domain := c.squatDomain(d.in, d.configured, names)
		c.squatResources(d.at, domain+"/"+d.name, d.groups, d.in.workload)
	}
	if len(c.mounts) > 0 {
		slices.Sort(c.mounts)
		c.comment("The mounts need the flag --allow=" + strings.Join(c.mounts, ","))
	}
}

// reportOtherFlags reports flags of the workload that are flags of generic-dp as well,
// unless they have their defaults.
func (c *conversion) reportOtherFlags(s source) {
	for _, flag := range []string{"plugin-directory", "listen", "log-level"} {
		text := s.workload.others[flag]
		if text == "" && flag == "plugin-directory" {
			text = c.first(func(w *workload) string { return w.others[flag] })
		}
		known := otherFlags[flag]
		if text != "" && strings.TrimSuffix(text, "/") != known.initial {
			c.differs("not imported: --%s=%s: use the flag %s", flag, text, known.ours)
		}
	}
}

// listSquatDevices lists the devices of a source, and the domain that it sets.
func listSquatDevices(s source) (devices []*value, domain string) {
	if s.list() {
		return s.items(), ""
	}
	if s.flag || isSquatDevice(s.value) {
		return []*value{s.value}, ""
	}
	var config struct {
		Devices         []*value
		Device          []*value
		Domain          string
		PluginDirectory *value
		Listen          *value
		LogLevel        *value
		Status          *value
		Config          *value
		Version         *value
	}
	s.decode(&config)
	s.reportFileFlag(config.PluginDirectory, "plugin-directory")
	s.reportFileFlag(config.Listen, "listen")
	s.reportFileFlag(config.LogLevel, "log-level")
	return append(config.Devices, config.Device...), config.Domain
}

// reportFileFlag reports a flag in a configuration file, where flags may be set as well.
func (s source) reportFileFlag(v *value, flag string) {
	if v != nil {
		s.differs("not imported: %s = %s: use the flag %s", v.key, v.describe(), otherFlags[flag].ours)
	}
}

// The default domains of generic-device-plugin: before 0.2.0, and since.
const (
	oldSquatDomain = "squat.ai"
	newSquatDomain = "devic.es"
)

// squatDomain is the domain of the devices of a configuration: the flag, otherwise what the
// file says, otherwise the default of the version, otherwise what pods request. It reports
// a domain that nothing tells.
func (c *conversion) squatDomain(s source, configured string, names []string) string {
	set := cmp.Or(s.workload.domain, configured, c.first(func(w *workload) string { return w.domain }))
	if set != "" || c.options.Domain != "" {
		return c.domainOr(set)
	}
	// MicroShift embeds the plugin, with a domain of its own.
	if s.path == "genericDevicePlugin" {
		return "device.microshift.io"
	}
	tag := cmp.Or(s.workload.tag, c.first(func(w *workload) string { return w.tag }))
	// Images of releases have tags such as 0.2.0, v0.2 and amd64-0.2.0. Others, such as latest
	// and hashes of commits, were built from either side of the change.
	const release = `([a-z0-9]+-)?v?`
	if fullMatch(release+`0\.[01](\..*)?@?`, tag) {
		return oldSquatDomain
	}
	if fullMatch(release+`[0-9]+\.[0-9]+(\..*)?@?`, tag) {
		return newSquatDomain
	}
	if domain := c.requestedDomain(names); domain != "" {
		return domain
	}
	c.unknownSquatDomain()
	return oldSquatDomain
}

// unknownSquatDomain reports once that the domain is unknown.
func (c *conversion) unknownSquatDomain() {
	text := fmt.Sprintf("the domain of the resources is unknown: the default was %q before version 0.2.0 of generic-device-plugin and is %q since, and no image with a version and no pod that requests them was found: import with --domain=%s or --domain=%s",
		oldSquatDomain, newSquatDomain, oldSquatDomain, newSquatDomain)
	reported := slices.ContainsFunc(c.problems, func(p problem) bool {
		return strings.HasSuffix(p.text, text)
	})
	if !reported {
		c.problem(0, text)
	}
}

// requestedDomain is the one domain with which pods in the input, or in the files beside
// it, request resources with these names. It is empty if there is none, or several.
func (c *conversion) requestedDomain(names []string) string {
	found := requestedDomains(c.text, names)
	if len(found) == 0 {
		// Comments and labels of the input may name the domain as well.
		hasOld := strings.Contains(c.text, oldSquatDomain)
		hasNew := strings.Contains(c.text, newSquatDomain)
		switch {
		case hasOld && !hasNew:
			return oldSquatDomain
		case hasNew && !hasOld:
			return newSquatDomain
		}
	}
	if len(found) == 0 && c.options.Neighbours != nil {
		for _, text := range c.options.Neighbours() {
			for _, domain := range requestedDomains(text, names) {
				found = addOnce(found, domain)
			}
		}
		if len(found) == 1 {
			c.comment(fmt.Sprintf("The domain %q is from pods in the same directory.", found[0]))
		}
	}
	if len(found) != 1 {
		return ""
	}
	return found[0]
}

// requestedDomains lists the domains of requests of resources with these names in a text.
func requestedDomains(text string, names []string) (domains []string) {
	request := regexp.MustCompile(`(?m)(?:^|[\s"'{,])([a-z0-9-]+(?:\.[a-z0-9-]+)+)/([a-z0-9-]+)["']?\s*[:=]`)
	for _, m := range request.FindAllStringSubmatch(text, -1) {
		if slices.Contains(names, m[2]) {
			domains = addOnce(domains, m[1])
		}
	}
	return domains
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
	if d.Name == "" {
		v.report("the name is missing")
	} else if !fullMatch(squatName, d.Name) {
		v.get("name").report(`%q is not a valid name of a device: use at least two lower-case letters, digits and "-", beginning and ending with a letter or digit`, d.Name)
	}
	if d.Count != nil {
		v.differs(`not imported: "count" beside "groups" has no effect: it belongs in each group`)
	}
	for _, e := range d.Groups {
		g := readSquatGroup(e, flag)
		if len(g.paths)+len(g.usb) > 0 {
			groups = append(groups, g)
		}
	}
	if len(groups) == 0 {
		v.differs("not imported: no paths and no usb to select")
	}
	return d.Name, groups
}

// readSquatGroup decodes a group. Paths outside of /dev are only accepted as mounts: a device
// elsewhere is no device node that a kernel made.
func readSquatGroup(v *value, flag bool) squatGroup {
	var g struct {
		Count int
		Paths []*value
		USB   []*value
		USBs  []*value // of MicroShift
	}
	v.decode(&g)
	group := squatGroup{
		at:    v,
		count: max(g.Count, 1),
	}
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
	usb := append(g.USB, g.USBs...)
	for _, e := range usb {
		if u := readSquatUSB(e, flag); u.Product != "" {
			group.usb = append(group.usb, u)
		}
	}
	if len(g.Paths) > 0 && len(usb) > 0 {
		v.report("sets both paths and usb: only one of them is allowed")
	}
	return group
}

// squatPath is a path of a group.
type squatPath struct {
	// Path is a pattern of Go's path.Match.
	Path string
	// MountPath is the path in the container; with "/" at its end, the name of the match is
	// added.
	MountPath   string
	Permissions string
	// Type is "Device" or "Mount".
	Type     string
	ReadOnly bool
	// Optional leaves the path out of devices while nothing matches it.
	Optional bool
	// Limit is how many devices may have the same match.
	Limit int

	// host is the path if it has no wildcards.
	host string
	// directory is set for a directory of device nodes.
	directory bool
	match     match
}

// readSquatPath decodes a path. ok is false if the path has no use.
func readSquatPath(v *value) (p squatPath, ok bool) {
	p = squatPath{
		Permissions: "mrw",
		Type:        "Device",
		Limit:       1,
	}
	if !v.decode(&p) {
		return p, false
	}
	p.readType(v)
	dir := strings.TrimSuffix(p.MountPath, "/")
	isClean := path.IsAbs(dir) && path.Clean(dir) == dir
	if p.MountPath != "" && !isClean {
		v.get("mountPath").report(`%q is not an absolute, clean path such as "/dev/zigbee"`, p.MountPath)
	}
	if p.Path == "" {
		v.report("the path is missing")
		return p, false
	}
	a, err := fromGoGlob(p.Path)
	if err != nil {
		v.get("path").report("%v", err)
		return p, false
	}
	p.host, _ = a.Literal()
	p.directory = p.match.As == "" && isDirectory(p.host)
	p.match.Glob = []string{a.String()}
	if p.directory {
		p.match.Glob = []string{p.host + "/**"}
	}
	p.match.ContainerPath = p.containerPath(a.Shape())
	if p.match.As != "" {
		// The permission for a pattern is that for the directory before the first wildcard.
		prefix := path.Dir(a.Prefix() + "x")
		v.c.mounts = addOnce(v.c.mounts, "mount:"+cmp.Or(p.host, prefix))
		if p.match.ContainerPath == escapeVariables(p.host) {
			p.match.ContainerPath = ""
		}
	}
	return p, true
}

// readType sets what the type of the path and the permissions mean.
func (p *squatPath) readType(v *value) {
	if p.Type == "Mount" {
		p.match.As = "mount"
		p.match.ReadOnly = &p.ReadOnly
		return
	}
	if p.Type != "Device" {
		v.get("type").report(`%q: want "Device" or "Mount"`, p.Type)
	}
	for _, r := range "rwm" {
		if strings.ContainsRune(p.Permissions, r) {
			p.match.Permissions += string(r)
		}
	}
	if len(p.match.Permissions) != len(p.Permissions) {
		v.get("permissions").report(`%q: want some of "r", "w" and "m", each once`, p.Permissions)
	}
}

// containerPath is the path in the container. generic-device-plugin uses the names of the
// matches, which are symbolic links where a rule of udev named them; the default of ours is
// the kernel's name.
func (p *squatPath) containerPath(shape string) string {
	isMount := p.match.As != ""
	intoDir := strings.HasSuffix(p.MountPath, "/")
	hasWildcards := p.host == ""
	matchesLinks := hasWildcards && !isMount && !isKernelNode(p.Path)
	inLinkDirectory := hasWildcards && strings.Contains(p.Path, "/by-")
	at := p.MountPath
	switch {
	case intoDir && (matchesLinks || inLinkDirectory):
		return escapeVariables(at) + captured(path.Base(shape), escapeVariables)
	case at == "" && (matchesLinks || inLinkDirectory):
		return captured(shape, escapeVariables)
	case at == "" && !p.directory && !isMount:
		at = p.host
	case intoDir && !hasWildcards:
		at += path.Base(p.host)
	}
	if p.directory && at != "" {
		at += "/"
	}
	return escapeVariables(at)
}

// squatUSB selects USB devices.
type squatUSB struct {
	// Vendor and Product are hexadecimal IDs.
	Vendor  string
	Product string
	// Serial is compared as a whole; empty is any.
	Serial string
}

// readSquatUSB decodes a selector of USB devices. It is empty if it selects nothing.
func readSquatUSB(v *value, flag bool) (u squatUSB) {
	if !v.decode(&u) {
		return u
	}
	if u.Vendor == "" || u.Product == "" {
		v.differs("not imported: it selects nothing without both vendor and product, of four hexadecimal digits each")
		return squatUSB{}
	}
	u.Vendor = v.get("vendor").squatID(u.Vendor, flag)
	u.Product = v.get("product").squatID(u.Product, flag)
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
	tag := v.ShortTag()
	isNumber := tag == "!!int" || tag == "!!float"
	if !isNumber {
		return id
	}
	base := 16
	if flag {
		// A flag is converted to JSON first, and the decimal digits of the number are read
		// as hexadecimal digits.
		base = 10
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
