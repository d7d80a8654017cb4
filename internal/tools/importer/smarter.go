package importer

import (
	"cmp"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/generic-dp/generic-dp/internal/device"
	"github.com/generic-dp/generic-dp/internal/pattern"
)

// Configurations of smarter-device-manager are lists:
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

// isSmarter recognizes a list by the key that every entry has.
func isSmarter(v *value) bool {
	return slices.ContainsFunc(v.items(), func(entry *value) bool { return entry.has("devicematch") })
}

// smarter converts the entries of a list.
func (c *conversion) smarter(s source) {
	domain := cmp.Or(c.domain, "smarter-devices")
	for _, v := range s.items() {
		var e struct {
			DeviceMatch   string
			NumMaxDevices int
		}
		v.decode(&e)
		switch {
		case e.DeviceMatch == "nvidia-gpu":
			v.lost("GPUs of Jetson boards, which have no device nodes: containers get NVIDIA_VISIBLE_DEVICES")
			continue
		case e.DeviceMatch == "" || e.NumMaxDevices == 0:
			v.lost("want devicematch, and nummaxdevices of at least 1")
			continue
		}
		c.smarterEntry(v, domain, e.DeviceMatch, e.NumMaxDevices)
	}
}

// smarterEntry adds the resources of an expression.
func (c *conversion) smarterEntry(v *value, domain, text string, count int) {
	expressions, err := parseRegexp(text)
	if err != nil {
		v.lost("%v", err)
	}
	for _, e := range expressions {
		if e.isOpen {
			v.differs(`without "^", the expression also matches inside of names and in other directories; imported as if it began with "^"`)
		}
		if e.isWider {
			v.differs("a repeated class has become *, which matches any characters")
		}
		for _, glob := range e.globs(v) {
			r, err := smarterResource(v, glob)
			if err != nil {
				v.lost("%v", err)
				continue
			}
			r.Count = validCount(v, count)
			c.add(v, domain, r)
		}
	}
}

// globs are the globs below /dev of an expression. The text at the end of an expression may have
// "/", so that it also matches directories and what is in them.
func (e expression) globs(v *value) []string {
	glob := "/dev/" + e.glob
	prefix, hasStar := strings.CutSuffix(glob, "*")
	if !hasStar || strings.ContainsAny(prefix, `*?[\`) {
		return []string{glob}
	}
	dir, endsDir := strings.CutSuffix(prefix, "/")
	isAbove := func(d string) bool { return d != dir && strings.HasPrefix(d, prefix) }
	if slices.ContainsFunc(directories, isAbove) {
		v.differs("the directories %s* are left out", prefix)
	}
	switch {
	case endsDir:
		return []string{content(dir)}
	case isDirectory(dir):
		return []string{dir, content(dir)}
	case isKernelNode(glob):
		return []string{glob}
	}
	// A wildcard that matches nothing has no variable.
	return []string{prefix, prefix + "?*"}
}

// content is the glob of the nodes in a directory. They may be in numbered directories, as in
// /dev/bus/usb/001.
func content(dir string) string {
	for _, d := range directories {
		hasNumber := withoutNumbers(path.Base(d), "") != path.Base(d)
		if hasNumber && dir != "/dev" && strings.HasPrefix(d, dir+"/") {
			return withoutNumbers(d, "*") + "/*"
		}
	}
	return dir + "/*"
}

// smarterResource is the resource of a glob.
func smarterResource(v *value, glob string) (*resource, error) {
	// The kernel's names of spidev have a ".", for which the plugin writes "_".
	if strings.HasPrefix(glob, "/dev/spidev") && !strings.Contains(glob, ".") {
		glob = "/dev/spidev*.*"
	}
	a, err := parseGlob(glob)
	if err != nil {
		return nil, err
	}
	r := &resource{Match: []match{{Glob: []string{glob}}}}
	host, isFixed := a.Literal()
	if isFixed {
		r.Name = smarterName(strings.TrimPrefix(host, "/dev/"))
		if !isDirectory(host) {
			r.Container.Path = escapeVariables(host)
			return r, nil
		}
		// A directory is a resource beside the nodes in it.
		r.Each = "all"
		r.Match[0].Glob[0] = host + "/**"
		r.excludeDangerousUSB(v, host)
		return r, nil
	}
	r.nameByGlob(v, glob, a)
	return r, nil
}

// nameByGlob names the resource of a glob with wildcards after the nodes that match, or after the
// links that match.
func (r *resource) nameByGlob(v *value, glob string, a pattern.Alternative) {
	shape := strings.TrimPrefix(a.Shape(), "/dev/")
	dir := shape[:strings.LastIndex(shape, "/")+1]
	hasDot := strings.Contains(path.Base(shape), ".")
	// The kernel calls bus/usb/001/002 "1-1", dvb/adapter0/frontend0 "dvb0.frontend0", and cpu/0/msr "msr0".
	hasOtherName := fullMatch(`(bus|dvb|cpu)/.*`, shape)
	if isKernelNode(glob) && !hasDot && !hasOtherName {
		r.Name = captured(dir, smarterName) + "${kernel}"
		return
	}
	r.Name = captured(shape, smarterName)
	if isKernelNode(glob) {
		return
	}
	r.Container.Path = "/dev/" + captured(shape, escapeVariables)
	v.differs(`the names of the symlinks %q keep ".", have "-" for other characters that names lack, and are cut to %d characters; smarter-device-manager writes "_"`, glob, device.MaxName)
}

// smarterName is a path in the name of a resource (sanitizeName in its main.go).
func smarterName(path string) string {
	return regexp.MustCompile(`[^A-Za-z0-9_-]`).ReplaceAllString(path, "_")
}
