package importer

import (
	"fmt"
	"path"
	"regexp"
	"strconv"
	"strings"
)

// squatDomain is the default domain of generic-device-plugin before 0.2.0.
const squatDomain = "squat.ai"

// squatName is what generic-device-plugin takes as the name of a device.
var squatName = regexp.MustCompile(`^[a-z0-9][-a-z0-9]*[a-z0-9]$`)

// squatDevice is one device of generic-device-plugin: a resource.
type squatDevice struct {
	at     value
	name   string
	groups []squatGroup
}

// squatGroup is one kind of device of a resource: what its paths match is
// paired by position, or all that its usb matches is one device.
type squatGroup struct {
	at    value
	count int
	paths []squatPath
	usb   []squatUSB
}

type squatPath struct {
	at        value
	path      string // as it is written
	glob      string // as the language has it
	literal   bool   // path has no wildcards
	mountPath string
	// permissions of a device node, as the language orders them.
	permissions     string
	readOnly, mount bool
	limit           int
	optional        bool
}

type squatUSB struct {
	vendor, product, serial string
}

// squat converts the configurations of generic-device-plugin.
func (im *importing) squat(sources []source) {
	var devices []squatDevice
	for _, s := range sources {
		if s.flag {
			devices = append(devices, s.at.squatDevice(len(devices)+1, true, im.noteUnknown))
			continue
		}
		s.at.readKeys(true, map[string]reader{
			"devices":          func(v value) { devices = append(devices, v.squatDevices(len(devices))...) },
			"device":           func(v value) { devices = append(devices, v.squatDevices(len(devices))...) },
			"domain":           func(v value) { im.domain = v.text("a domain") },
			"plugin-directory": im.flagNote("--kubelet-dir"),
			"listen":           im.flagNote("--listen"),
			"log-level":        im.flagNote("--log-level"),
			"config":           func(value) {},
			"version":          func(value) {},
		}, im.noteUnknown)
	}
	domain := im.chooseDomain(im.domain, squatDomain,
		`These names had the domain "squat.ai" up to version 0.2.0, whose default is "devic.es": write the one that pods ask for, or import with --domain.`)
	if len(devices) == 0 && len(im.problems) == 0 {
		im.problems = append(im.problems, im.file+": no devices: want at least one")
	}
	if len(im.problems) > 0 {
		return
	}
	im.out.domain = domain
	seen := make(map[string]bool)
	for _, d := range devices {
		if seen[d.name] {
			d.at.report(fmt.Sprintf("%q is the name of two devices: want a name of its own for each", d.name))
			continue
		}
		seen[d.name] = true
		im.out.resources = append(im.out.resources, d.convert(im)...)
	}
	im.shareOverlaps(func(*resource) bool { return true })
	im.headMounts()
}

// flagNote is a reader of a key that is a flag of this program.
func (im *importing) flagNote(flag string) reader {
	return func(v value) {
		im.warnAhead("", fmt.Sprintf("not carried over: %s = %q is said by the flag %s", v.place, v.node.Value, flag))
	}
}

// chooseDomain is the domain of names that have none of their own: what the
// input says, what the options say, or the default, with a comment.
func (im *importing) chooseDomain(said, otherwise, comment string) string {
	domain := said
	switch {
	case im.options.Domain != "":
		domain = im.options.Domain
	case said == "":
		im.head(comment)
		domain = otherwise
	}
	if rule := checkDomain(domain); rule != "" {
		im.problems = append(im.problems, fmt.Sprintf("%s: the domain %q %s", im.file, domain, rule))
	}
	return domain
}

// subdomain is what Kubernetes takes as the domain of a resource, and
// namePart as its name.
var (
	subdomain = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`)
	namePart  = regexp.MustCompile(`^[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$`)
)

// checkDomain returns what a domain breaks, or empty.
func checkDomain(domain string) string {
	const longest = 253 - len("requests.")
	if !subdomain.MatchString(domain) || len(domain) > longest || strings.HasSuffix(domain, "kubernetes.io") || strings.HasPrefix(domain, "requests.") {
		return `can't be that of a resource: want a DNS subdomain such as "example.com"`
	}
	return ""
}

// checkName returns what the name of a resource behind its domain breaks, or
// empty.
func checkName(name string) string {
	if !namePart.MatchString(name) {
		return `can't be the name of a resource: want at most 63 letters, digits, "-", "_" and ".", beginning and ending with a letter or digit`
	}
	return ""
}

// noteUnknown records a key that nothing reads.
func (im *importing) noteUnknown(f field) {
	im.warnAhead(f.value.place, fmt.Sprintf("not carried over: unknown key %q", f.key))
}

// squatDevices reads the list of a file, of which there are some before.
func (v value) squatDevices(before int) []squatDevice {
	v.place = ""
	if !v.list() {
		v.at("devices").report(v.what() + ": want a list of devices")
		return nil
	}
	var out []squatDevice
	for i, e := range v.items() {
		out = append(out, e.squatDevice(before+i+1, false, v.im.noteUnknown))
	}
	return out
}

// squatDevice reads one device, the number-th; flag says that it is the value
// of a flag.
func (v value) squatDevice(number int, flag bool, unknown func(field)) squatDevice {
	d := squatDevice{}
	place := fmt.Sprintf("device %d", number)
	if name, ok := v.get("name", true); ok && name.scalar() {
		d.name = strings.TrimSpace(name.node.Value)
		place += fmt.Sprintf(" (%q)", d.name)
	}
	v = v.at(place)
	d.at = v
	v.readKeys(true, map[string]reader{
		"name": func(n value) {
			switch {
			case !n.scalar():
				n.text("a name")
			case !squatName.MatchString(d.name):
				n.report(fmt.Sprintf("%q is no name of a device: want at least two lower-case letters, digits and \"-\", beginning and ending with a letter or digit", d.name))
			case checkName(d.name) != "":
				n.report(fmt.Sprintf("%q %s", d.name, checkName(d.name)))
			}
		},
		"groups": func(g value) {
			if !g.list() {
				g.report(g.what() + ": want a list of groups")
			}
			for i, e := range g.items() {
				e.place = v.place
				d.groups = append(d.groups, e.at(fmt.Sprintf("group %d", i+1)).squatGroup(flag, unknown))
			}
		},
	}, func(f field) {
		if f.key == "count" {
			v.im.warnAhead(v.place, `not carried over: "count" beside "groups", which has no effect there: it belongs into each group`)
			return
		}
		f.value.place = v.place
		unknown(f)
	})
	if d.name == "" && v.mapping() {
		v.report("no name: want one")
	}
	return d
}

func (v value) squatGroup(flag bool, unknown func(field)) squatGroup {
	g := squatGroup{at: v, count: 1}
	each := func(into func(e value)) reader {
		return func(l value) {
			if !l.list() {
				l.report(l.what() + ": want a list")
			}
			name := l.place[strings.LastIndex(l.place, ": ")+2:]
			for i, e := range l.items() {
				e.place = v.place
				into(e.at(fmt.Sprintf("%s %d", strings.TrimSuffix(name, "s"), i+1)))
			}
		}
	}
	v.readKeys(true, map[string]reader{
		"count": func(c value) { g.count = max(c.number(), 1) },
		"paths": each(func(e value) { g.paths = append(g.paths, e.squatPath(unknown)) }),
		"usb": each(func(e value) {
			if u, ok := e.squatUSB(flag, unknown); ok {
				g.usb = append(g.usb, u)
			}
		}),
	}, unknown)
	if len(g.paths) > 0 && len(g.usb) > 0 {
		v.report("both paths and usb: want one of them")
	}
	return g
}

func (v value) squatPath(unknown func(field)) squatPath {
	p := squatPath{at: v, limit: 1}
	permissions := ""
	v.readKeys(true, map[string]reader{
		"path":      func(s value) { p.path = s.text("a path") },
		"mountPath": func(s value) { p.mountPath = s.text("a path") },
		"permissions": func(s value) {
			permissions = s.text("some of \"r\", \"w\" and \"m\"")
		},
		"readOnly": func(s value) { p.readOnly = s.boolean() },
		"type": func(s value) {
			switch t := s.text(`"Device" or "Mount"`); t {
			case "Device", "":
			case "Mount":
				p.mount = true
			default:
				s.report(fmt.Sprintf("%q: want \"Device\" or \"Mount\"", t))
			}
		},
		"limit":    func(s value) { p.limit = max(s.number(), 1) },
		"optional": func(s value) { p.optional = s.boolean() },
	}, unknown)
	if !v.mapping() {
		return p
	}
	var ok bool
	if permissions == "" {
		permissions = "mrw"
	}
	if p.permissions, ok = orderedPermissions(permissions); !ok && !p.mount {
		v.report(fmt.Sprintf("permissions: %q: want some of \"r\", \"w\" and \"m\", each once", permissions))
	}
	pattern, literal, rule := goGlob(p.path)
	switch {
	case p.path == "":
		v.report("no path: want one")
	case rule != "":
		v.report(fmt.Sprintf("path: %q %s", p.path, rule))
	}
	if m := strings.TrimSuffix(p.mountPath, "/"); p.mountPath != "" && (!path.IsAbs(p.mountPath) || m != "" && path.Clean(m) != m || m == "") {
		v.report(fmt.Sprintf("mountPath: %q is not an absolute, clean path: want one such as \"/dev/zigbee\"", p.mountPath))
	}
	p.glob, p.literal = pattern, literal
	return p
}

// orderedPermissions are permissions in the order of the language.
func orderedPermissions(s string) (string, bool) {
	out := ""
	for _, p := range "rwm" {
		if strings.ContainsRune(s, p) {
			out += string(p)
		}
	}
	return out, out != "" && len(out) == len(s)
}

func (v value) squatUSB(flag bool, unknown func(field)) (u squatUSB, ok bool) {
	before := len(v.im.problems)
	v.readKeys(true, map[string]reader{
		"vendor":  func(s value) { u.vendor = s.squatID(flag) },
		"product": func(s value) { u.product = s.squatID(flag) },
		"serial":  func(s value) { u.serial = s.text("a serial number") },
	}, unknown)
	if len(v.im.problems) > before {
		return u, false
	}
	if u.vendor == "" || u.product == "" {
		v.report("without vendor or product: want both, as four hexadecimal digits")
		return u, false
	}
	return u, true
}

// squatID is v as the four digits of an ID. What is written without quotes is
// a number to YAML, which is not what it looks like: 0403 is octal.
func (v value) squatID(flag bool) string {
	text := v.text("four hexadecimal digits")
	id, err := strconv.ParseUint(strings.TrimPrefix(strings.ToLower(text), "0x"), 16, 16)
	if err != nil {
		if text != "" {
			v.report(fmt.Sprintf("%q is not a hexadecimal ID: want four digits such as \"10c4\"", text))
		}
		return ""
	}
	out := fmt.Sprintf("%04x", id)
	if tag := v.node.ShortTag(); tag != "!!int" && tag != "!!float" {
		return out
	}
	read := "a number that is no ID"
	if n, err := strconv.ParseUint(text, 0, 64); err == nil {
		if flag {
			// A flag's value becomes JSON on its way, and its decimal digits are
			// taken for hexadecimal ones.
			n, err = strconv.ParseUint(strconv.FormatUint(n, 10), 16, 64)
		}
		if err == nil {
			read = fmt.Sprintf("%04x", n)
		}
	}
	if read != out {
		v.im.warnAhead(v.place, fmt.Sprintf("%s without quotes is read as %s by %s: here it is the ID %s", text, read, Squat.project(), out))
	}
	return out
}
