package importer

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// sriovPrefix is the default domain of sriov-network-device-plugin.
const sriovPrefix = "intel.com"

// sriovPool is one resource of sriov-network-device-plugin.
type sriovPool struct {
	at              value
	prefix, name    string
	kind            string // deviceType
	excludeTopology bool
	selectors       []sriovSelector
	// info is the additionalInfo for all devices; others counts those for
	// single ones.
	info   []field
	others int
	node   string // that it is for, where a ConfigMap has a key for each
}

// sriovSelector is one selector object: all that is set must hold.
type sriovSelector struct {
	at                                      value
	vendors, devices, drivers               []string
	addresses, acpiIndexes                  []string
	pfNames, rootDevices                    []string
	linkTypes, ddpProfiles, pKeys, auxTypes []string
	vdpaType                                string
	isRDMA, needVhostNet                    bool
}

// The values of deviceType.
const (
	sriovNet         = "netDevice"
	sriovAccelerator = "accelerator"
	sriovAux         = "auxNetDevice"
)

// sriov converts the configurations of sriov-network-device-plugin.
func (im *importing) sriov(sources []source) {
	var pools []sriovPool
	for _, s := range sources {
		before := len(pools)
		s.at.readKeys(true, map[string]reader{"resourceList": func(v value) {
			v.place = ""
			if !v.list() {
				v.at("resourceList").report(v.what() + ": want a list of resources")
			}
			for i, e := range v.items() {
				p := e.sriovPool(i + 1)
				if len(sources) > 1 {
					p.node = s.key
				}
				pools = append(pools, p)
			}
		}}, im.noteUnknown)
		if len(pools) == before && len(im.problems) == 0 {
			s.at.report("no resourceList: want at least one resource")
		}
	}
	needsDefault := false
	for _, p := range pools {
		needsDefault = needsDefault || p.prefix == ""
	}
	prefix := ""
	if needsDefault {
		prefix = im.chooseDomain(im.prefix, sriovPrefix,
			`These names had the domain "intel.com", unless the plugin runs with --resource-prefix: write the one that pods ask for, or import with --domain.`)
	}
	if len(im.problems) > 0 {
		return
	}
	im.out.domain = prefix
	if len(sources) > 1 {
		im.head("The keys of the ConfigMap are taken for names of nodes; generic-dp has to know its own: --node-name.")
	}
	seen := make(map[string]bool)
	for _, p := range pools {
		full := p.fullName(prefix)
		if seen[p.node+"/"+full] {
			p.at.report(fmt.Sprintf("%q is the name of two resources: want a name of its own for each", full))
			continue
		}
		seen[p.node+"/"+full] = true
		im.out.resources = append(im.out.resources, p.convert(im, prefix))
	}
}

// fullName is the name with its domain.
func (p *sriovPool) fullName(prefix string) string {
	if p.prefix != "" {
		prefix = p.prefix
	}
	return prefix + "/" + p.name
}

func (v value) sriovPool(number int) sriovPool {
	p := sriovPool{kind: sriovNet}
	place := fmt.Sprintf("resource %d", number)
	if name, ok := v.get("resourceName", true); ok && name.scalar() {
		place += fmt.Sprintf(" (%q)", name.node.Value)
	}
	v = v.at(place)
	p.at = v
	v.readKeys(true, map[string]reader{
		"resourceName": func(s value) {
			p.name = s.text("a name")
			if rule := checkName(p.name); p.name != "" && rule != "" {
				s.report(fmt.Sprintf("%q %s", p.name, rule))
			}
		},
		"resourcePrefix": func(s value) {
			p.prefix = s.text("a domain")
			if rule := checkDomain(p.prefix); p.prefix != "" && rule != "" {
				s.report(fmt.Sprintf("%q %s", p.prefix, rule))
			}
		},
		"deviceType": func(s value) {
			switch kind := s.text("a kind of device"); kind {
			case "", sriovNet, sriovAccelerator, sriovAux:
				if kind != "" {
					p.kind = kind
				}
			default:
				s.report(fmt.Sprintf("%q: want %q, %q or %q", kind, sriovNet, sriovAccelerator, sriovAux))
			}
		},
		"excludeTopology": func(s value) { p.excludeTopology = s.boolean() },
		"selectors": func(s value) {
			if s.mapping() {
				s.place = v.place
				p.selectors = append(p.selectors, s.at("selector").sriovSelector())
				return
			}
			if !s.list() {
				s.report(s.what() + ": want a selector or a list of them")
			}
			for i, e := range s.items() {
				e.place = v.place
				p.selectors = append(p.selectors, e.at(fmt.Sprintf("selector %d", i+1)).sriovSelector())
			}
		},
		"additionalInfo": func(s value) {
			if !s.mapping() {
				s.report(s.what() + ": want a mapping")
				return
			}
			for _, f := range s.fields() {
				switch {
				case !f.value.mapping():
					f.value.at(f.key).report(f.value.what() + ": want a mapping")
				case f.key == "*":
					p.info = f.value.fields()
				default:
					p.others++
				}
			}
			for _, f := range p.info {
				if !f.value.scalar() {
					f.value.at(f.key).report(f.value.what() + ": want a string")
				}
			}
		},
	}, v.im.noteUnknown)
	if v.mapping() {
		if p.name == "" {
			v.report("no resourceName: want one")
		}
		if len(p.selectors) == 0 {
			v.report("no selectors: want at least one")
		}
	}
	return p
}

// The forms of what selectors hold.
var (
	fourHex    = regexp.MustCompile(`^[0-9a-fA-F]{4}$`)
	pciAddress = regexp.MustCompile(`^[0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7]$`)
)

// areRanges reports whether a text is numbers and ranges of numbers.
func areRanges(s string) bool {
	for part := range strings.SplitSeq(s, ",") {
		first, last, ranged := strings.Cut(part, "-")
		if !ranged {
			last = first
		}
		lo, err := strconv.ParseUint(first, 10, 16)
		hi, err2 := strconv.ParseUint(last, 10, 16)
		if err != nil || err2 != nil || lo > hi {
			return false
		}
	}
	return true
}

func (v value) sriovSelector() sriovSelector {
	s := sriovSelector{at: v}
	list := func(into *[]string, want string) reader {
		return func(l value) { *into = l.texts(want) }
	}
	checked := func(into *[]string, form *regexp.Regexp, want string) reader {
		return func(l value) {
			*into = l.texts(want)
			for i, e := range *into {
				(*into)[i] = strings.ToLower(strings.TrimPrefix(e, "0x"))
				if !form.MatchString((*into)[i]) {
					l.report(fmt.Sprintf("%q: want %s", e, want))
				}
			}
		}
	}
	functions := func(into *[]string, want string) reader {
		return func(l value) {
			*into = l.texts(want)
			for _, e := range *into {
				if pf, vfs, ranged := strings.Cut(e, "#"); strings.TrimSpace(pf) == "" || ranged && !areRanges(vfs) {
					l.report(fmt.Sprintf("%q: want %s, with virtual functions such as \"#0,2-7\" or without", e, want))
				}
			}
		}
	}
	v.readKeys(true, map[string]reader{
		"vendors":      checked(&s.vendors, fourHex, "four hexadecimal digits"),
		"devices":      checked(&s.devices, fourHex, "four hexadecimal digits"),
		"drivers":      list(&s.drivers, "names of drivers"),
		"pciAddresses": checked(&s.addresses, pciAddress, `addresses such as "0000:3b:02.1"`),
		"acpiIndexes":  list(&s.acpiIndexes, "indexes"),
		"pfNames":      functions(&s.pfNames, "network interfaces"),
		"rootDevices":  functions(&s.rootDevices, "PCI addresses"),
		"linkTypes":    list(&s.linkTypes, `kinds of links such as "ether"`),
		"ddpProfiles":  list(&s.ddpProfiles, "names of profiles"),
		"pKeys":        list(&s.pKeys, "partition keys"),
		"auxTypes":     list(&s.auxTypes, "kinds of auxiliary devices"),
		"vdpaType": func(t value) {
			if s.vdpaType = t.text(`"vhost" or "virtio"`); s.vdpaType != "vhost" && s.vdpaType != "virtio" && s.vdpaType != "" {
				t.report(fmt.Sprintf("%q: want \"vhost\" or \"virtio\"", s.vdpaType))
			}
		},
		"isRdma":       func(b value) { s.isRDMA = b.boolean() },
		"needVhostNet": func(b value) { s.needVhostNet = b.boolean() },
	}, v.im.noteUnknown)
	if s.isRDMA && s.vdpaType != "" {
		v.report("both isRdma and vdpaType: want one of them")
	}
	return s
}
