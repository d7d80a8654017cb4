package config

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"unicode"

	"github.com/generic-dp/generic-dp/device"
	"github.com/generic-dp/generic-dp/pattern"
)

// role is what a text with variables is for: which variables have a value
// there, and what form the result must have.
type role struct {
	want string
	// perContainer says that ${index} and ${count} are known: the text is
	// completed for each container. noCDI: but not with container.cdi, where
	// it is written to a spec before any container asks.
	perContainer, noCDI bool
	// ownPath says that ${container_path} is known.
	ownPath bool
	// naming says that the text makes the name of the resource: what is made
	// of that is not known.
	naming bool
	// check returns what the text breaks: as it is written, and with samples
	// for its variables.
	check func(written, sample string) (rule, hint string)
}

// The roles of texts.
var (
	nodePath       = role{want: `a path such as "/dev/zigbee"`, perContainer: true, noCDI: true, check: pathOrDirectory}
	companionNode  = role{want: `a path such as "/dev/kfd"`, check: pathBelowDev}
	companionPath  = role{want: `a path such as "/dev/kfd"`, check: pathOrDirectory}
	mountHost      = role{want: "an absolute path", check: absolutePath}
	mountContainer = role{want: "an absolute path", check: absolutePath}
	entryValue     = role{want: "a string", perContainer: true, ownPath: true}
	annotationKey  = role{want: "a string", perContainer: true, ownPath: true, check: annotationName}
	envKey         = role{want: "a string", perContainer: true, ownPath: true, check: envName}
	// netName is written to a CDI spec before any container asks.
	netName = role{want: `a name such as "can0"`, check: interfaceName}
)

// textUse is a text whose form is checked when its whole resource is known.
type textUse struct {
	at      value
	written string
	text    device.Text
	role    role
}

// variables is v as a text with variables, to be checked with its resource.
func (v value) variables(r role) device.Text {
	s, ok := v.text(r.want)
	if !ok {
		return nil
	}
	text, err := parseText(s)
	if err != nil {
		v.report(quote(s)+" "+err.Error(), "")
		return nil
	}
	for _, name := range text.Vars() {
		switch rule, hint := v.w.variables.check(name); rule {
		case "":
		case unknownVariable:
			v.report(quote(s)+" has the unknown variable "+quote("${"+name+"}"), hint)
			return nil
		default:
			v.report(quote(s)+" has "+quote("${"+name+"}")+", which "+rule, hint)
			return nil
		}
	}
	v.w.texts = append(v.w.texts, textUse{at: v, written: s, text: text, role: r})
	return text
}

// checkTexts checks the texts of a resource. sound says that nothing else is
// wrong with it, so that its globs can be relied on.
func (w *walk) checkTexts(r *Resource, sound bool) {
	for _, u := range w.texts {
		if rule, hint := w.checkText(u, r, sound); rule != "" {
			u.at.report(quote(u.written)+" "+rule, hint)
		}
	}
}

func (w *walk) checkText(u textUse, r *Resource, sound bool) (rule, hint string) {
	for _, name := range u.text.Vars() {
		n, numbered := wildcardNumber(name)
		perContainer := name == device.IndexVar || name == device.CountVar
		switch {
		case perContainer && !u.role.perContainer:
			return fmt.Sprintf(`has "${%s}", which is known in container.path, env and annotations only: want another variable`, name), ""
		case perContainer && u.role.noCDI && r.Container.CDI:
			return fmt.Sprintf(`has "${%s}", which is not known when a CDI spec is written: want another variable`, name),
				`"${kernel}" and "${usb.serial}" tell devices apart, or leave out container.cdi`
		case name == containerPathVar && !u.role.ownPath:
			return `has "${container_path}", which is known in env and annotations only: want another variable`, ""
		case u.role.naming && slices.Contains(nameVars, name):
			return fmt.Sprintf(`has "${%s}", which is made of the name: want another variable`, name), ""
		case numbered && sound:
			if rule := checkWildcards(n, r); rule != "" {
				return rule, ""
			}
		case sound:
			if rule := checkSource(name, r); rule != "" {
				return rule, ""
			}
		}
	}
	if u.role.check == nil {
		return "", ""
	}
	return u.role.check(u.written, w.variables.sample(u.text))
}

// checkWildcards returns why the n-th wildcard has no value everywhere.
func checkWildcards(n int, r *Resource) string {
	for i := range r.Match {
		fewer := func(a pattern.Alternative) bool { return a.Wildcards() < n }
		if all := r.Match[i].Glob.Alternatives(); len(all) == 0 || slices.ContainsFunc(all, fewer) {
			return fmt.Sprintf(`has "${%d}", but match %d has no glob with as many wildcards: want one in every match, and as many in every pattern`, n, i+1)
		}
	}
	return ""
}

// checkSource returns why a variable that one kind of match alone gives a
// value has none.
func checkSource(name string, r *Resource) string {
	if strings.HasPrefix(name, "cdi.") && !slices.ContainsFunc(r.Match, func(m Match) bool { return !m.CDIDevice.Empty() }) {
		return fmt.Sprintf(`has "${%s}", but no match has cdi_device: want another variable`, name)
	}
	key, isVar := strings.CutPrefix(name, varPrefix)
	if name != virtualVar && !isVar {
		return ""
	}
	var known []string
	for i := range r.Match {
		for _, d := range r.Match[i].Virtual {
			if _, ok := d.Vars[key]; ok || !isVar {
				return ""
			}
			known = slices.AppendSeq(known, maps.Keys(d.Vars))
		}
	}
	if !isVar {
		return `has "${virtual}", but no match has virtual: want another variable`
	}
	if len(known) == 0 {
		return fmt.Sprintf(`has "${%s}", but no virtual device has vars: want another variable`, name)
	}
	slices.Sort(known)
	return fmt.Sprintf(`has "${%s}", but no virtual device has it: want one of %s`, name, list(slices.Compact(known)))
}

// pathOrDirectory is an absolute path, with a "/" behind where it is a
// directory to put nodes in.
func pathOrDirectory(written, sample string) (rule, hint string) {
	if len(sample) > 1 && strings.HasSuffix(sample, "/") && strings.HasSuffix(written, "/") {
		written, sample = written[:len(written)-1], sample[:len(sample)-1]
	}
	rule, hint = absolutePath(written, sample)
	if hint != "" && !strings.HasPrefix(sample, "/") {
		hint = didYouMean(devDir + strings.TrimPrefix(written, "dev/"))
	}
	return rule, hint
}

func isAlnum(b byte) bool { return isDigit(b) || 'a' <= b && b <= 'z' || 'A' <= b && b <= 'Z' }

func pathBelowDev(written, sample string) (rule, hint string) {
	if rule, hint := absolutePath(written, sample); rule != "" {
		return rule, hint
	}
	if !strings.HasPrefix(sample, devDir) {
		return "is not below /dev: want the path of a device node", `as = "mount" gives files and directories`
	}
	return "", ""
}

func absolutePath(written, sample string) (rule, hint string) {
	switch {
	case !strings.HasPrefix(sample, "/"):
		if written != "" && isAlnum(written[0]) {
			hint = didYouMean("/" + written)
		}
		return "is not an absolute path: want one that begins with \"/\"", hint
	case slices.Contains(strings.Split(sample, "/"), ".."):
		return `has "..": want a path without it`, ""
	case strings.ContainsFunc(sample, unicode.IsControl):
		return "has a control character: want a path without", ""
	case path.Clean(sample) != sample:
		return "is not a clean path: want single slashes, no \".\" and none at the end", didYouMean(path.Clean(written))
	}
	return "", ""
}

// interfaceName is the name of a network interface as the kernel takes it
// (dev_valid_name in net/core/dev.c).
func interfaceName(_, sample string) (rule, hint string) {
	const longest = 15 // IFNAMSIZ less the terminating NUL
	switch {
	case sample == "" || sample == "." || sample == ".." || strings.ContainsFunc(sample, notInInterface):
		return `is not the name of a network interface: want one such as "can0"`, ""
	case len(sample) > longest:
		return fmt.Sprintf("is too long for a network interface: want at most %d characters", longest), ""
	}
	return "", ""
}

func notInInterface(r rune) bool {
	return unicode.IsSpace(r) || unicode.IsControl(r) || r == '/' || r == ':'
}

func annotationName(_, sample string) (rule, hint string) { return checkAnnotation(sample) }

func envName(written, sample string) (rule, hint string) {
	if identifier.MatchString(sample) {
		return "", ""
	}
	if strings.Contains(written, "${"+resourceVar+"}") {
		hint = didYouMean("${RESOURCE}")
	}
	return `is not the name of an environment variable: want letters, digits and "_", not beginning with a digit`, hint
}
