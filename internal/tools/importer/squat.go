package importer

import (
	"cmp"
	"fmt"
	"path"
	"slices"
	"strings"
)

// Configurations of generic-device-plugin are files, flags, and values of charts:
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

// isSquat recognizes a device by groups, which devices of other programs do not have.
func isSquat(v *value) bool {
	groups := v.get("groups")
	isText := func(group *value) bool { return group.scalar() }
	return v.has("name") && groups.list() && !slices.ContainsFunc(groups.items(), isText)
}

// squat converts a device.
func (c *conversion) squat(s source) {
	var d struct {
		Name   string
		Groups []*value
	}
	s.decode(&d)
	var groups []squatGroup
	for _, e := range d.Groups {
		g := readSquatGroup(e)
		if len(g.paths)+len(g.usb) > 0 {
			groups = append(groups, g)
		}
	}
	if len(groups) == 0 {
		s.lost("no paths and no usb to select")
		return
	}
	c.squatResources(s.value, c.squatDomain(s), d.Name, groups)
}

// squatDomain is the domain of a device: the option, otherwise a flag or what the file says,
// otherwise the newest default of the plugin.
func (c *conversion) squatDomain(s source) string {
	if domain := cmp.Or(c.domain, c.flags["domain"]); domain != "" {
		return domain
	}
	// MicroShift embeds the plugin, with a domain of its own.
	if strings.HasPrefix(s.path, "genericDevicePlugin") {
		return "device.microshift.io"
	}
	const text = "the domain devic.es is the default of generic-device-plugin since version 0.2.0: import with --domain=squat.ai if pods request the default of earlier versions"
	c.warnings = addOnce(c.warnings, c.file+": "+text)
	c.comment(text)
	return "devic.es"
}

// squatGroup is a group of a resource, which generic-device-plugin calls a device: the n-th
// nodes of its paths are the n-th device, or everything that usb matches is one device.
type squatGroup struct {
	at    *value
	count int
	paths []squatPath
	usb   []squatUSB
}

// readSquatGroup decodes a group.
func readSquatGroup(v *value) squatGroup {
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
		if p, ok := readSquatPath(e); ok {
			group.paths = append(group.paths, p)
		}
	}
	for _, e := range append(g.USB, g.USBs...) {
		if u, ok := readSquatUSB(e); ok {
			group.usb = append(group.usb, u)
		}
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
	// isDirectory is set for a directory of device nodes.
	isDirectory bool
	match       match
}

// readSquatPath decodes a path. ok is false if it cannot be imported.
func readSquatPath(v *value) (p squatPath, ok bool) {
	p = squatPath{
		Permissions: "rwm",
		Limit:       1,
	}
	v.decode(&p)
	isMount := p.Type == "Mount"
	isOfDev := strings.HasPrefix(p.Path, "/dev/")
	if !isMount && !isOfDev {
		v.lost("path %q: device nodes are below /dev", p.Path)
		return p, false
	}
	if isMount && isOfDev {
		v.lost("mount of %q: below /dev, a match only selects device nodes; the key with mounts a file, socket or directory for every device", p.Path)
		return p, false
	}
	// The name of a directory may end with "/". With wildcards, it selects only directories.
	host, hasSlash := strings.CutSuffix(p.Path, "/")
	isDir := hasSlash && host != "/dev" && !strings.ContainsAny(host, `*?[\`)
	if isDir {
		p.Path = host
	}
	a, err := parseGlob(translateGlob(p.Path))
	if err != nil {
		v.lost("path %v", err)
		return p, false
	}
	p.host, _ = a.Literal()
	p.match.Glob = []string{a.String()}
	if isMount {
		if !p.ReadOnly {
			p.match.Permissions = "rw"
		}
		// The permission for a pattern is for the directory before the first wildcard.
		v.c.comment("A mount needs mount:" + cmp.Or(p.host, path.Dir(a.Prefix()+"x")) + " in --allow (in the chart: allow)")
	} else {
		p.match.Permissions = p.Permissions
		p.isDirectory = isDir || isDirectory(p.host)
	}
	if p.isDirectory {
		p.match.Glob = []string{p.host + "/**"}
	}
	p.match.ContainerPath = p.containerPath(a.Shape())
	return p, true
}

// containerPath is the path in the container. generic-device-plugin uses the names of the
// matches, which are symbolic links where a rule of udev named them; the default of ours is
// the kernel's name.
func (p *squatPath) containerPath(shape string) string {
	isMount := p.match.isMount()
	intoDir := strings.HasSuffix(p.MountPath, "/")
	hasWildcards := p.host == ""
	matchesLinks := hasWildcards && !isMount && !isKernelNode(p.Path)
	at := p.MountPath
	switch {
	case intoDir && matchesLinks:
		return escapeVariables(at) + captured(path.Base(shape), escapeVariables)
	case at == "" && matchesLinks:
		return captured(shape, escapeVariables)
	case at == "" && !p.isDirectory && !isMount:
		at = p.host
	case intoDir && !hasWildcards:
		at += path.Base(p.host)
	}
	if p.isDirectory && at != "" {
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

// id is vendor and product.
func (u squatUSB) id() string { return u.Vendor + ":" + u.Product }

// readSquatUSB decodes a selector of USB devices. ok is false if it cannot be imported.
func readSquatUSB(v *value) (u squatUSB, ok bool) {
	if !v.decode(&u) || u.Vendor == "" || u.Product == "" {
		v.lost("want both vendor and product")
		return u, false
	}
	u.Vendor = v.get("vendor").squatID()
	u.Product = v.get("product").squatID()
	return u, true
}

// squatID returns the four digits of an ID. An ID without quotes is a number in YAML, with another
// value: 0403 is octal.
func (v *value) squatID() string {
	if v.scalar() && v.ShortTag() != "!!str" {
		v.differs("%s without quotes is another number to generic-device-plugin; imported as it is written", v.Value)
	}
	digits := strings.TrimPrefix(strings.ToLower(v.string()), "0x")
	return fmt.Sprintf("%04s", digits)
}
