package config

import (
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"unicode"

	"tags.cncf.io/container-device-interface/pkg/parser"

	"github.com/generic-dp/generic-dp/internal/device"
	"github.com/generic-dp/generic-dp/internal/pattern"
)

// parseText parses a string with variables: ${name} is one, $${ is a literal "${", any
// other $ is literal.
func parseText(s string) (device.Text, error) {
	const escape = `, or "$${" for a literal "${"`
	if len(s) > maxText {
		return nil, fmt.Errorf("is longer than %d bytes", maxText)
	}
	if strings.Count(s, "${") > maxVariables {
		return nil, fmt.Errorf("has more than %d variables", maxVariables)
	}
	var text device.Text
	var literal strings.Builder
	for s != "" {
		before, rest, found := strings.Cut(s, "${")
		if before, escaped := strings.CutSuffix(before, "$"); escaped && found {
			literal.WriteString(before + "${")
			s = rest
			continue
		}
		literal.WriteString(before)
		if s = rest; !found {
			break
		}
		name, rest, closed := strings.Cut(rest, "}")
		if !closed || strings.ContainsAny(name, "${") {
			return nil, errors.New(`has an unclosed variable: want "${name}"` + escape)
		} else if name == "" {
			return nil, errors.New(`has a variable without a name: want "${name}"` + escape)
		}
		text = append(append(text, device.Literal(literal.String())...), device.Part{Var: name})
		literal.Reset()
		s = rest
	}
	return append(text, device.Literal(literal.String())...), nil
}

// variable is a variable of texts.
type variable struct {
	name string
	// sample replaces its value where the form of a text is checked.
	sample string
	// device is set if its value depends on the device, and single if no two devices
	// share it.
	device, single bool
	// from is the first stage with a value for it.
	from stage
}

// stage is when a text is completed: from its stage on, a variable is known.
type stage int

const (
	atName     stage = iota // of the resource
	atListing               // of a device, and in its CDI spec
	atAllocate              // for each container
	afterPath               // for each container, after container.path
)

// unknownAt are the rules for variables of later stages.
var unknownAt = [...]string{
	atListing:  "which is derived from the name",
	atAllocate: "which is only available in env, annotations and, without container.cdi, container.path",
	afterPath:  "which is only available in env and annotations",
}

// Variables with a meaning for the checks of texts.
const (
	resourceVar   = "resource"
	virtualVar    = "virtual"
	attrPrefix    = "attr:"
	varPrefix     = "var:"
	devnodePrefix = "devnode:"
)

// variables in the order of suggestion, except for attr:NAME, var:NAME and the
// wildcards of globs.
var variables = sync.OnceValue(allVariables)

func allVariables() []variable {
	all := []variable{
		{
			name:   "id",
			sample: "x",
			device: true,
			single: true,
		},
		{name: device.IndexVar, sample: "0", from: atAllocate},
		{name: device.CountVar, sample: "1", from: atAllocate},
		{name: resourceVar, sample: "example.com/x", from: atListing},
		{name: "RESOURCE", sample: "X", from: atListing},
		{name: "RESOURCE_KUBEVIRT", sample: "X", from: atListing},
		{name: "node_name", sample: "x"},
		{
			name:   "devnode",
			sample: "/dev/x",
			device: true,
			single: true,
		},
		{
			name:   "kernel",
			sample: "x",
			device: true,
			single: true,
		},
		{
			name:   "container_path",
			sample: "/dev/x",
			device: true,
			single: true,
			from:   afterPath,
		},
		{name: "numa", sample: "0", device: true},
		{
			name:   virtualVar,
			sample: "x",
			device: true,
			single: true,
		},
		{
			name:   "cdi.name",
			sample: "example.com/x=x",
			device: true,
			single: true,
		},
		{
			name:   "cdi.device",
			sample: "x",
			device: true,
			single: true,
		},
		{
			name:   "cdi.kind",
			sample: "example.com/x",
			device: true,
			single: true,
		},
	}
	for _, a := range device.Attributes() {
		all = append(all, variable{name: a.Name(), sample: "x", device: true})
	}
	return all
}

// variableNames lists the variables for a message, shortened.
func variableNames() (names []string) {
	for _, v := range variables() {
		if !strings.Contains(v.name, ".") {
			names = append(names, v.name)
		}
	}
	return append(
		names,
		"usb.KEY",
		"pci.KEY",
		"net.KEY",
		"mdev.KEY",
		"cdi.name",
		"cdi.device",
		"cdi.kind",
		attrPrefix+"NAME",
		varPrefix+"NAME",
		devnodePrefix+"GLOB",
		"1",
	)
}

// variableNamed finds a variable by name; a number is a wildcard of the glob.
func variableNamed(name string) (variable, bool) {
	all := variables()
	if i := slices.IndexFunc(all, func(v variable) bool { return v.name == name }); i >= 0 {
		return all[i], true
	}
	if strings.HasPrefix(name, devnodePrefix) {
		return variable{
			name:   name,
			sample: "/dev/x",
			device: true,
			single: true,
		}, true
	}
	_, numbered := wildcardNumber(name)
	known := numbered || strings.HasPrefix(name, attrPrefix) || strings.HasPrefix(name, varPrefix)
	return variable{name: name, sample: "x", device: true}, known
}

// checkVariable returns the rule that the name of a variable violates, to be appended
// to it, or empty.
func (r *reader) checkVariable(name string) (rule, hint string) {
	if attribute, ok := strings.CutPrefix(name, attrPrefix); ok {
		return wildAttribute.check(attribute), ""
	}
	if glob, ok := strings.CutPrefix(name, devnodePrefix); ok {
		p, rule, hint := nodeGlob.parse(glob)
		if p.Negative() {
			return negated, ""
		}
		return rule, hint
	}
	if _, ok := variableNamed(name); ok {
		return "", ""
	}
	var names, ending []string
	for _, v := range variables() {
		names = append(names, v.name)
		if strings.HasSuffix(v.name, "."+name) {
			ending = append(ending, "${"+v.name+"}")
		}
	}
	if n := nearest(name, names); n != "" {
		hint = didYouMean("${" + n + "}")
	} else if len(ending) > 0 {
		hint = didYouMean(ending...)
	} else {
		hint = r.once("the variables are " + list(variableNames()))
	}
	return "is an unknown variable", hint
}

// wildcardNumber is n for the variable of the n-th wildcard.
func wildcardNumber(name string) (n int, ok bool) {
	if !consists(name, decimal) || name[0] == '0' {
		return 0, false
	}
	n, err := strconv.Atoi(name)
	return n, err == nil
}

// perDevice reports whether a text has a variable that depends on the device.
func perDevice(text device.Text) bool {
	return slices.ContainsFunc(text.Vars(), func(name string) bool {
		v, known := variableNamed(name)
		return known && v.device
	})
}

// role is the use of a text with variables.
type role struct {
	want string
	// at is when it is completed. inSpec: with container.cdi it is written to a spec, at
	// the listing.
	at     stage
	inSpec bool
	// check returns the rule that the text violates: as written, and with samples for
	// its variables.
	check func(written, sample string) (rule, hint string)
}

// The roles of texts.
var (
	resourceName = role{want: `a name such as "gpu" or "vendor.example/gpu"`, at: atName}
	nodePath     = role{
		want:   `a path such as "/dev/zigbee"`,
		at:     atAllocate,
		inSpec: true,
		check:  pathOrDirectory,
	}
	companionNode  = role{want: `a path such as "/dev/kfd"`, at: atListing, check: pathBelowDev}
	companionPath  = role{want: `a path such as "/dev/kfd"`, at: atListing, check: pathOrDirectory}
	mountPath      = role{want: "an absolute path", at: atListing, check: absolutePath}
	entryValue     = role{want: "a string", at: afterPath}
	annotationKey  = role{want: "a string", at: afterPath, check: annotationName}
	envKey         = role{want: "a string", at: afterPath, check: envName}
	cdiDevice      = role{want: `a name such as "nvidia.com/gpu=0"`, at: atListing, check: qualifiedName}
	attributeValue = role{want: "a string", at: atListing}
	netName        = role{want: `a name such as "can0"`, at: atListing, check: interfaceName}
	tcpAddress     = role{want: `HOST:PORT such as "10.0.0.5:554"`, at: atListing, check: addressForm}
)

// textUse is a text that is checked when its whole resource is known.
type textUse struct {
	at      value
	written string
	text    device.Text
	role    role
}

// text reads v as a text with variables, nil if it is invalid.
func (v value) text(r role) (text device.Text) {
	v.checked(r.want, func(s string) (rule, hint string) {
		parsed, err := parseText(s)
		if err != nil {
			return err.Error(), ""
		}
		for _, name := range parsed.Vars() {
			if rule, hint := v.r.checkVariable(name); rule != "" {
				return "has " + quote("${"+name+"}") + ", which " + rule, hint
			}
		}
		text = parsed
		v.r.texts = append(v.r.texts, textUse{
			at:      v,
			written: s,
			text:    text,
			role:    r,
		})
		return "", ""
	})
	return text
}

// checkTexts checks the texts of a resource. sound is set if its keys have no problem, so
// that its globs are valid.
func (v value) checkTexts(r *Resource, sound bool) {
	for _, u := range v.r.texts {
		r.Variables = append(r.Variables, u.text.Vars()...)
		if rule, hint := u.check(r, sound); rule != "" {
			u.at.report(quote(u.written)+" "+rule, hint)
		}
	}
}

func (u *textUse) check(r *Resource, sound bool) (rule, hint string) {
	at := u.role.at
	if u.role.inSpec && r.Container.CDI {
		at = atListing
	}
	for _, name := range u.text.Vars() {
		v, _ := variableNamed(name)
		if v.from > at {
			return fmt.Sprintf(`has "${%s}", %s`, name, unknownAt[v.from]), ""
		}
		if rule := checkSource(name, r); sound && rule != "" {
			return rule, ""
		}
	}
	if u.role.check == nil {
		return "", ""
	}
	return u.role.check(u.written, sample(u.text))
}

// sample is a text with samples for its variables.
func sample(text device.Text) string {
	return text.Expand(func(name string) (string, bool) {
		v, known := variableNamed(name)
		return v.sample, known
	}).String()
}

// checkWildcards returns why the n-th wildcard has no value in some match.
func checkWildcards(n int, r *Resource) string {
	fewer := func(a pattern.Alternative) bool {
		return a.Wildcards() < n
	}
	for i := range r.Match {
		if all := r.Match[i].Glob.Alternatives(); len(all) == 0 || slices.ContainsFunc(all, fewer) {
			return fmt.Sprintf(`has "${%d}", but match %d has no glob with that many wildcards: every pattern of every match needs them`,
				n, i+1)
		}
	}
	return ""
}

// checkSource returns why a variable of one kind of match has no value.
func checkSource(name string, r *Resource) string {
	if n, ok := wildcardNumber(name); ok {
		return checkWildcards(n, r)
	}
	if strings.HasPrefix(name, "cdi.") && r.find((*Match).fromCDI) < 0 {
		return fmt.Sprintf(`has "${%s}", but no match has cdi_device`, name)
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
	slices.Sort(known)
	if !isVar {
		return `has "${virtual}", but no match has virtual`
	} else if len(known) == 0 {
		return fmt.Sprintf(`has "${%s}", but no virtual device has vars`, name)
	}
	return fmt.Sprintf(`has "${%s}", but no virtual device has it: want one of %s`, name, list(slices.Compact(known)))
}

// pathOrDirectory is an absolute path, with a final "/" for a directory of nodes.
func pathOrDirectory(written, sample string) (rule, hint string) {
	if len(sample) > 1 && strings.HasSuffix(written, "/") {
		sample = strings.TrimSuffix(sample, "/")
	}
	return absolutePath(written, sample)
}

func pathBelowDev(written, sample string) (rule, hint string) {
	switch {
	case strings.HasPrefix(sample, devDir) && strings.HasSuffix(sample, "/"):
		return "is a directory: want the device nodes in it", didYouMean(strings.TrimRight(written, "/") + "/*")
	case strings.HasPrefix(sample, devDir):
		return absolutePath(written, sample)
	case strings.HasPrefix(sample, "/"):
		hint = `as = "mount" injects files and directories`
	default:
		below := devDir + strings.TrimPrefix(written, "dev/")
		if rule, _ := absolutePath(below, devDir+strings.TrimPrefix(sample, "dev/")); rule == "" {
			hint = didYouMean(below)
		}
	}
	return "is not below /dev: want the path of a device node", hint
}

// absolutePath checks a path as written, with samples for its variables or wildcards.
func absolutePath(written, sample string) (rule, hint string) {
	switch {
	case !strings.HasPrefix(sample, "/"):
		return `is not an absolute path: it must begin with "/"`, ""
	case slices.Contains(strings.Split(sample, "/"), ".."):
		return `has "..", which is not allowed in a path`, ""
	case strings.ContainsFunc(sample, unicode.IsControl):
		return "has a control character, which is not allowed in a path", ""
	case path.Clean(sample) != sample:
		return `is not a clean path: want single slashes, no "." and no "/" at the end`, didYouMean(path.Clean(written))
	}
	return "", ""
}

func interfaceName(_, sample string) (rule, hint string) {
	if !device.ValidNetName(sample) {
		rule = fmt.Sprintf(`is not a valid interface name: want a name such as "can0" with at most %d characters`, device.MaxNetName)
	}
	return rule, ""
}

// annotationName returns the rule that the key of an annotation violates, or empty.
func annotationName(_, key string) (rule, hint string) {
	domain, name, ok := strings.Cut(key, "/")
	if !ok {
		domain = "x"
		name = key
	}
	if !isSubdomain(domain) || len(domain) > maxSubdomain || !isName(name) || len(name) > maxNamePart {
		return `is not a valid annotation key: want a key such as "example.com/name" with at most 63 characters after the domain`, ""
	}
	if by := interpretedBy(annotations, key, false); by != "" {
		if strings.HasPrefix(key, "cdi.k8s.io/") {
			hint = "use container.cdi_devices to inject CDI devices"
		}
		return "is interpreted by " + by + ": use a domain of your own", hint
	}
	return "", ""
}

func envName(written, sample string) (rule, hint string) {
	if isIdentifier(sample) {
		return "", ""
	}
	if strings.Contains(written, "${"+resourceVar+"}") {
		hint = didYouMean("${RESOURCE}")
	}
	return `is not a valid environment variable name: it must consist of letters, digits and "_", and not begin with a digit`, hint
}

func qualifiedName(_, sample string) (rule, hint string) {
	if !parser.IsQualifiedName(sample) {
		return notQualified, ""
	}
	return "", ""
}
