package config

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"unicode"

	"github.com/generic-dp/generic-dp/internal/device"
	"github.com/generic-dp/generic-dp/internal/pattern"
)

// parseText parses a string with variables: ${name} is a variable. Before "{", "$$" is a literal "$":
// "$${" is a literal "${", and "$$${name}" is a "$" and the variable. Any other "$" is literal.
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
		s = rest
		if !found {
			literal.WriteString(before)
			break
		}
		plain := strings.TrimRight(before, "$")
		dollars := len(before) - len(plain) + 1
		literal.WriteString(plain + strings.Repeat("$", dollars/2))
		// All of them are escaped, so that the "{" is literal, too.
		isEscaped := dollars%2 == 0
		if isEscaped {
			literal.WriteString("{")
			continue
		}
		name, rest, closed := strings.Cut(rest, "}")
		// A "$" or "{" before the "}" means that the brace of an earlier variable is missing.
		if !closed || strings.ContainsAny(name, "${") {
			return nil, errors.New(`has an unclosed variable: want "${name}"` + escape)
		}
		if name == "" {
			return nil, errors.New(`has a variable without a name: want "${name}"` + escape)
		}
		text = append(text, device.Literal(literal.String())...)
		text = append(text, device.Part{Var: name})
		// The next literal begins after the variable.
		literal.Reset()
		s = rest
	}
	return append(text, device.Literal(literal.String())...), nil
}

// variable is a variable of texts.
type variable struct {
	name string
	// sample stands for its value when the form of a text is checked.
	sample string
	// perDevice is set if the value depends on the device.
	perDevice bool
	// from is the first stage at which the variable has a value.
	from stage
}

// stage is when the variables of a text are replaced by their values. A variable has a value from
// its own stage on.
type stage int

const (
	atName     stage = iota // of the resource
	atListing               // of a device, and in its CDI spec
	atAllocate              // for each container
	afterPath               // for each container, after container.path
)

// unknownAt are the rules for variables of a stage in a text of an earlier stage. There is no rule
// for atName, which is the first stage. A rule continues a sentence that begins with the variable.
var unknownAt = [...]string{
	atListing:  "which is derived from the name",
	atAllocate: "which is only available in env, annotations and, without container.cdi, container.path",
	afterPath:  "which is only available in env and annotations",
}

// Names of variables that the checks of texts distinguish.
const (
	resourceVar = "resource"
	virtualVar  = "virtual"
)

// variables returns the variables in the order in which messages suggest them. It does not contain
// variables with arguments and the wildcards of globs. The samples have the form of real values, because
// the checks of paths, names and addresses see them in place of the variables.
var variables = sync.OnceValue(func() []variable {
	all := []variable{
		{"id", "x", true, atName},
		// The variables of the container and of the resource. RESOURCE and RESOURCE_KUBEVIRT are
		// the name in the form of an identifier, for names of environment variables.
		{device.IndexVar, "0", false, atAllocate},
		{device.CountVar, "1", false, atAllocate},
		{resourceVar, "example.com/x", false, atListing},
		{"RESOURCE", "X", false, atListing},
		{"RESOURCE_KUBEVIRT", "X", false, atListing},
		{"node_name", "x", false, atName},
		{"devnode", "/dev/x", true, atName},
		{"kernel", "x", true, atName},
		{"driver", "x", true, atName},
		{"container_path", "/dev/x", true, afterPath},
		{"numa", "0", true, atName},
		{virtualVar, "x", true, atName},
		{"cdi.name", "example.com/x=x", true, atName},
		{"cdi.device", "x", true, atName},
		{"cdi.kind", "example.com/x", true, atName},
	}
	for _, a := range device.Attributes() {
		all = append(all, variable{a.Name(), "x", true, atName})
	}
	return all
})

// variablesWithArgument are variables whose names are these prefixes and an argument. The sample of a
// capacity is no identifier, so that it is refused in the name of a variable.
var variablesWithArgument = []variable{
	{device.AttrPrefix, "x", true, atName},
	{device.VarPrefix, "x", true, atName},
	{device.DevnodePrefix, "/dev/x", true, atName},
	{device.CapacityPrefix, "0.5", true, afterPath},
}

// variableNamed returns the variable with a name. A number is a wildcard of the glob. known is
// false for an unknown name. The names of arguments are not checked: see checkVariable.
func variableNamed(name string) (variable, bool) {
	for _, v := range variables() {
		if v.name == name {
			return v, true
		}
	}
	for _, v := range variablesWithArgument {
		if strings.HasPrefix(name, v.name) {
			return v, true
		}
	}
	_, isWildcard := wildcardNumber(name)
	return variable{name, "x", true, atName}, isWildcard
}

// checkVariable returns the rule that the name of a variable violates. It does not check whether the
// matches have the variable: see Resource.provides.
func (r *reader) checkVariable(name string) error {
	if attribute, ok := strings.CutPrefix(name, device.AttrPrefix); ok {
		return wildAttribute.check(attribute)
	}
	if glob, ok := strings.CutPrefix(name, device.DevnodePrefix); ok {
		// devnode:GLOB is the path of the device's node that the glob matches.
		_, err := r.parsePositive(nodeGlob, glob)
		return err
	}
	if _, ok := variableNamed(name); ok {
		return nil
	}
	return broken("is an unknown variable", variableHint(name))
}

// variableHint suggests variables in place of an unknown name: one with a similar name, or the
// attributes of hardware with the name as their key.
func variableHint(name string) string {
	var names []string
	var withTable []string
	for _, v := range variables() {
		names = append(names, v.name)
		if strings.HasSuffix(v.name, "."+name) {
			withTable = append(withTable, v.name)
		}
	}
	// A typing error is more likely than a missing table.
	similar, _ := nearest(name, names)
	if similar != "" {
		return didYouMean(similar)
	}
	if len(withTable) > 0 {
		return didYouMean(withTable...)
	}
	return "config/reference.toml has all variables"
}

// wildcardNumber returns n for the variable of the n-th wildcard, from 1. ok is false for other
// variables, and for numbers with leading zeros.
func wildcardNumber(name string) (n int, ok bool) {
	isNumber := consists(name, decimal)
	if !isNumber || name[0] == '0' {
		return 0, false
	}
	n, err := strconv.Atoi(name)
	return n, err == nil
}

// perDevice reports whether a text has a variable that depends on the device. Unknown variables,
// which are reported elsewhere, do not count.
func perDevice(text device.Text) bool {
	return slices.ContainsFunc(text.Vars(), func(name string) bool {
		v, known := variableNamed(name)
		return known && v.perDevice
	})
}

// role is the use of a text with variables.
type role struct {
	// want describes the valid texts, for messages.
	want string
	// at is the stage at which the variables are replaced.
	at stage
	// inSpec is set if the text is written to the CDI spec with container.cdi. Then its
	// variables are replaced at the listing.
	inSpec bool
	// check returns the rule that the text violates. It gets the text as written, and the text
	// with samples for its variables. It is nil if any text is valid.
	check func(written, sample string) error
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
	hostPath       = role{want: `a path such as "/dev/kfd"`, at: atListing, check: pathOnHost}
	hostGlob       = role{want: `a path such as "/dev/kfd"`, at: atListing, check: variablesInPattern}
	companionPath  = role{want: `a path such as "/dev/kfd"`, at: atListing, check: pathOrDirectory}
	entryValue     = role{want: "a string", at: afterPath}
	annotationKey  = role{want: "a string", at: afterPath, check: annotationName}
	envKey         = role{want: "a string", at: afterPath, check: envName}
	attributeValue = role{want: "a string", at: atListing}
	netName        = role{want: `a name such as "can0"`, at: atListing, check: interfaceName}
	tcpAddress     = role{want: `HOST:PORT such as "10.0.0.5:554"`, at: atListing, check: addressForm}
)

// textUse is a text that is checked after its whole resource was read. Only then are the matches
// known, and whether the container gets CDI names.
type textUse struct {
	at      value
	written string
	text    device.Text
	role    role
}

// text reads v as a text with variables. It returns nil if the text is invalid. A valid text is
// recorded in reader.texts, for checkTexts.
func (v value) text(r role) (text device.Text) {
	v.checked(r.want, func(s string) error {
		parsed, err := parseText(s)
		if err != nil {
			return err
		}
		// One unknown variable is enough for a message about the text.
		for _, name := range parsed.Vars() {
			err := v.r.checkVariable(name)
			if err != nil {
				return fmt.Errorf("has %s, which %w", quote("${"+name+"}"), err)
			}
		}
		text = parsed
		v.r.texts = append(v.r.texts, textUse{
			at:      v,
			written: s,
			text:    text,
			role:    r,
		})
		return nil
	})
	return text
}

// checkTexts checks the texts of a resource. sound is set if the resource has no problem so far:
// only then its globs and virtual devices are known.
func (v value) checkTexts(r *Resource, sound bool) {
	for _, u := range v.r.texts {
		// Texts with problems count as well: the configuration is refused anyway.
		r.Variables = append(r.Variables, u.text.Vars()...)
		u.at.violates(u.written, u.check(r, sound))
	}
}

// check returns the first rule that the text violates: a text with an unavailable variable has no valid
// sample.
func (u *textUse) check(r *Resource, sound bool) error {
	at := u.role.at
	// A CDI spec is written when the device is listed, before any container exists.
	if u.role.inSpec && r.Container.CDI {
		at = atListing
	}
	for _, name := range u.text.Vars() {
		v, _ := variableNamed(name)
		if v.from > at {
			return fmt.Errorf(`has "${%s}", %s`, name, unknownAt[v.from])
		}
		// A match with a problem may have a glob or virtual devices that could not be read.
		if !sound {
			continue
		}
		if !r.provides(name) {
			return notProvided(name)
		}
	}
	if u.role.check == nil {
		return nil
	}
	return u.role.check(u.written, sample(u.text))
}

// sample returns a text with samples for its variables.
func sample(text device.Text) string {
	return text.Expand(func(name string) (string, bool) {
		v, known := variableNamed(name)
		return v.sample, known
	}).String()
}

// notProvided returns the rule for a variable without a value in its resource.
func notProvided(name string) error {
	return fmt.Errorf(`has "${%s}", which the resource does not provide`, name)
}

// provides reports whether a variable can have a value: the resource has a match of the necessary kind, or
// the capacity. Other variables may be empty on a host, which is not checked here.
func (r *Resource) provides(name string) bool {
	n, isWildcard := wildcardNumber(name)
	key, isVar := strings.CutPrefix(name, device.VarPrefix)
	capacity, isCapacity := strings.CutPrefix(name, device.CapacityPrefix)
	switch {
	case isWildcard:
		// Every alternative needs the wildcard, because any of them may select the device.
		hasFewer := func(a pattern.Alternative) bool {
			return a.Wildcards() < n
		}
		return r.find(func(m *Match) bool {
			all := m.Glob.Alternatives()
			return len(all) == 0 || slices.ContainsFunc(all, hasFewer)
		}) < 0
	case isVar:
		hasValue := func(d Virtual) bool {
			_, ok := d.Vars[key]
			return ok
		}
		// One device with the variable is enough here.
		return r.find(func(m *Match) bool {
			return slices.ContainsFunc(m.Virtual, hasValue)
		}) >= 0
	case isCapacity:
		return r.API == APIDRA && slices.ContainsFunc(r.Capacity, func(c Capacity) bool {
			return c.Name == capacity
		})
	case strings.HasPrefix(name, "cdi."):
		return r.find((*Match).fromCDI) >= 0
	case name == virtualVar:
		return r.find((*Match).isVirtual) >= 0
	}
	return true
}

// pathOrDirectory checks an absolute path. A "/" at its end means a directory to put nodes in.
func pathOrDirectory(written, sample string) error {
	if len(sample) > 1 && strings.HasSuffix(written, "/") {
		sample = strings.TrimSuffix(sample, "/")
	}
	return absolutePath(written, sample)
}

// hostPrefix is where the pod of the program mounts directories of the host. It appears in the
// flags of the DaemonSet, and many people copy it into the configuration.
const hostPrefix = "/host"

const notBelowDev = "is not below /dev: want the path of a device node"

// pathBelowDev checks the path of a device node on the host.
func pathBelowDev(written, sample string) error {
	switch {
	// The cases go from nearly right to wrong, so that each gets the most specific hint.
	case strings.HasPrefix(sample, devDir) && strings.HasSuffix(sample, "/"):
		return broken("is a directory: want the device nodes in it", didYouMean(strings.TrimRight(written, "/")+"/*"))
	case strings.HasPrefix(sample, devDir):
		return absolutePath(written, sample)
	case strings.HasPrefix(sample, hostPrefix+devDir):
		return broken(notBelowDev, "paths are paths of the host: "+didYouMean(strings.TrimPrefix(written, hostPrefix)))
	case strings.HasPrefix(sample, "/"):
		return broken(notBelowDev, "a match of files and directories to mount has no path below /dev")
	}
	return absolutePath(written, sample)
}

// pathOnHost checks the path of a device node, file or directory on the host.
func pathOnHost(written, sample string) error {
	isOfPod := strings.HasPrefix(sample, hostPrefix+devDir)
	if strings.HasPrefix(sample, "/") && !isOfPod {
		return absolutePath(written, sample)
	}
	return pathBelowDev(written, sample)
}

// variablesInPattern checks the variables of a pattern. A "\" before a variable would only escape the first
// character of its value.
func variablesInPattern(written, _ string) error {
	if strings.Contains(written, `\${`) {
		return broken(`has a "\" before a variable, whose value is literal anyway`)
	}
	return nil
}

// absolutePath checks a path as written, with samples for its variables or wildcards. written is
// only used for hints. ".." is refused even where it is harmless, because checks of prefixes rely
// on it.
func absolutePath(written, sample string) error {
	switch {
	case !strings.HasPrefix(sample, "/"):
		return broken(`is not an absolute path: it must begin with "/"`)
	case slices.Contains(strings.Split(sample, "/"), ".."):
		return broken(`has "..", which is not allowed in a path`)
	case strings.ContainsFunc(sample, unicode.IsControl):
		return broken("has a control character, which is not allowed in a path")
	case path.Clean(sample) != sample:
		return broken(`is not a clean path: want single slashes, no "." and no "/" at the end`, didYouMean(path.Clean(written)))
	}
	return nil
}

// interfaceName checks the name of a network interface, by the rules of the kernel (dev_valid_name
// in net/core/dev.c).
func interfaceName(_, sample string) error {
	if device.ValidNetName(sample) {
		return nil
	}
	return fmt.Errorf(`is not a valid interface name: want a name such as "can0" with at most %d characters`, device.MaxNetName)
}

// annotationName checks the key of an annotation (ValidateAnnotations in
// k8s.io/apimachinery/pkg/api/validation).
func annotationName(_, key string) error {
	domain, name, ok := strings.Cut(key, "/")
	if !ok {
		// A key may have no domain. Any valid one takes its place.
		domain = "x"
		name = key
	}
	isValidDomain := isSubdomain(domain) && len(domain) <= maxSubdomain
	isValidName := isName(name) && len(name) <= maxNamePart
	if !isValidDomain || !isValidName {
		return broken(`is not a valid annotation key: want a key such as "example.com/name" with at most 63 characters after the domain`)
	}
	if by := interpretedBy(annotations, key); by != "" {
		// Such an annotation would inject CDI devices that --allow does not permit.
		hint := ""
		if strings.HasPrefix(key, "cdi.k8s.io/") {
			hint = "match.cdi_device selects CDI devices of the host"
		}
		return broken("is interpreted by "+by+": use a domain of your own", hint)
	}
	return nil
}

// envName checks the name of an environment variable. Shells only accept identifiers, although the
// kernel and Kubernetes accept more.
func envName(written, sample string) error {
	if isIdentifier(sample) {
		return nil
	}
	hint := ""
	if strings.Contains(written, "${"+resourceVar+"}") {
		hint = didYouMean("${RESOURCE}")
	}
	return broken(`is not a valid environment variable name: it must consist of letters, digits and "_", and not begin with a digit`, hint)
}
