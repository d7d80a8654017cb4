package importer

import (
	"cmp"
	"fmt"
	"path"
	"reflect"
	"regexp"
	"slices"
	"strings"
)

// udevFormat are files of udev rules (man 7 udev):
//
//	SUBSYSTEM=="tty", ATTRS{idVendor}=="0403", ATTRS{serial}=="A10*", SYMLINK+="gps"
//
// Each rule that names a device or sets its owner or mode is a resource: the device that the
// rule's author had in mind. Its node is at the path of the symlink in the container, so that
// a program that opens the symlink runs unchanged.
//
// Conditions on the device itself and on the devices above it (ATTRS and the like) must hold
// for one and the same device above. Ours test the USB device, which is where the attributes
// of nearly all such rules are.
type udevFormat struct{}

// detect recognizes a file by its text, since it is not YAML.
func (udevFormat) detect(v *value) bool { return v.scalar() && isUdevRules(v.Value) }

// isUdevRules reports whether a text is a file of udev rules: a line has a condition and an
// action, and no line is of another language.
func isUdevRules(text string) bool {
	const condition = `(SUBSYSTEMS?|KERNELS?|ATTRS?\{[^}]+\}|ENV\{[^}]+\}|ACTION)\s*[!=]="[^"]*"`
	const action = `(SYMLINK|MODE|GROUP|OWNER|TAG|RUN|ENV\{[^}]+\}|GOTO|NAME|IMPORT\{[^}]+\})\s*[+:]?="`
	rule := regexp.MustCompile(`(?m)^\s*` + condition + `.*` + action)
	if !rule.MatchString(text) {
		return false
	}
	begin := regexp.MustCompile(`^[A-Z_]+(\{[^}]*\})?\s*[-+:!=]?="`)
	for _, line := range joinLines(text) {
		isComment := line.text == "" || strings.HasPrefix(line.text, "#")
		if !isComment && !begin.MatchString(line.text) {
			return false
		}
	}
	return true
}

// udevLine is a line of a file of rules, with the lines that continue it.
type udevLine struct {
	number int // of the first line, from 0
	text   string
}

// joinLines joins the lines that end in a backslash with the lines after them.
func joinLines(text string) (all []udevLine) {
	continued := false
	for i, line := range strings.Split(text, "\n") {
		line = strings.TrimSpace(line)
		rest, continues := strings.CutSuffix(line, `\`)
		if continued {
			all[len(all)-1].text += rest
		} else {
			all = append(all, udevLine{i, rest})
		}
		continued = continues
	}
	return all
}

// convert converts the rules of all files. Names are unique across files, because udev reads
// the files of a directory as one.
func (udevFormat) convert(c *conversion, sources []source) {
	if c.options.Domain == "" {
		c.differs("The domain %q is a placeholder: import with --domain.", placeholderDomain)
	}
	c.comment("The rules may stay for programs on the host: generic-dp finds the devices without them, and containers have them at the path of the symlink.")
	var added []*resource
	for _, s := range sources {
		var jumps udevJumps
		for _, line := range joinLines(s.Value) {
			if line.text == "" || strings.HasPrefix(line.text, "#") {
				continue
			}
			at := s.value.with(line.text)
			at.Line = s.firstLine() + line.number
			at.key = fmt.Sprintf("rule in line %d", at.Line)
			r := c.udevRule(at, line.text, &jumps)
			if r == nil {
				continue
			}
			r.Name = uniqueName(added, nil, c.domainOr(placeholderDomain)+"/"+r.Name)
			added = append(added, r)
			c.add(at, r, s.workload)
		}
	}
}

// udevRule converts a rule, nil if it is about no device.
func (c *conversion) udevRule(at *value, rule string, jumps *udevJumps) *resource {
	filters := parseUdevRule(rule)
	jumps.land(filters)
	name, isAboutDevice := udevName(filters)
	if !isAboutDevice {
		if !jumps.add(at.Line, filters) {
			reportOtherRule(at, filters)
		}
		return nil
	}
	// A rule with GOTO applies before it skips the rules after it.
	defer jumps.add(at.Line, filters)
	skipped := jumps.unclear()
	if skipped != nil {
		at.differs("not imported: GOTO=%q in line %d skips it for some devices", skipped.label, skipped.line)
		return nil
	}
	filters = jumps.narrow(filters)
	for _, f := range filters {
		// These act on the host: they set an attribute of sysfs, or run a program.
		setsAttribute := f.key == "ATTR" && !f.isMatch()
		runs := f.key == "RUN" || f.key == "PROGRAM"
		if setsAttribute || runs {
			at.differs("not imported: %s", f.text)
		}
	}
	m, untestable := ruleMatch(filters, udevValues)
	untestable = cmp.Or(untestable, secondValue(filters))
	if untestable != "" {
		untestable += " in the rule " + rule
	}
	r := &resource{
		Each:     "node",
		mayShare: true,
	}
	r.addMatches(at, untestable, m)
	// The symlink is the name that the author of the rule gave the device.
	r.Name = resourceName(name)
	if name == "" {
		r.Name = nameOfMatch(m)
	}
	// Without a subsystem or a name, a rule is about all nodes of the hardware.
	isHardware := len(m.Glob)+len(m.Subsystem) == 0
	if isHardware {
		r.Each = "device"
	}
	r.setSymlink(at, name, isHardware)
	r.readUdevMode(at, filters)
	return r
}

// reportOtherRule reports a rule that names no device.
func reportOtherRule(at *value, filters []udevFilter) {
	isLabel := slices.ContainsFunc(filters, func(f udevFilter) bool {
		return f.key == "LABEL"
	})
	if isLabel {
		return
	}
	at.differs("not imported: the rule has no SYMLINK, MODE, GROUP, OWNER or TAG")
}

// setSymlink puts the node at the path of the rule's symlink.
func (r *resource) setSymlink(at *value, name string, isHardware bool) {
	if name == "" {
		return
	}
	if isHardware {
		r.differs(at, "differs: the nodes keep the kernel's names in the container: the rule is about all nodes of the hardware, and SYMLINK names one of them: add the subsystem, or a glob")
		return
	}
	isPlain := fullMatch(`[\w./+-]+`, name) && path.Clean(name) == name
	if !isPlain {
		r.differs(at, "differs: the node keeps the kernel's name in the container: SYMLINK %q has substitutions of udev", name)
		r.Name = resourceName(regexp.MustCompile(`[%$](\{[^}]*\}|\w+(\{[^}]*\})?)`).ReplaceAllString(name, ""))
		if r.Name == "" {
			r.Name = "device"
		}
		return
	}
	r.Container.Path = "/dev/" + name
}

// readUdevMode says what remains of the owner of a node.
func (r *resource) readUdevMode(at *value, filters []udevFilter) {
	for _, f := range filters {
		isOwner := f.key == "OWNER" || f.key == "GROUP" || f.key == "MODE"
		if isOwner && !f.isMatch() {
			r.comment("The owner and mode of the node on the host stay as the rule sets them; container.owner sets them in the container.")
		}
	}
}

// udevName is the first symlink of a rule, and whether the rule gives a device a name, an
// owner or a tag.
func udevName(filters []udevFilter) (name string, isAboutDevice bool) {
	for _, f := range filters {
		if f.isMatch() {
			continue
		}
		switch f.key {
		case "SYMLINK":
			if fields := strings.Fields(f.value); name == "" && len(fields) > 0 {
				name = fields[0]
			}
			isAboutDevice = true
		case "MODE", "GROUP", "OWNER", "TAG":
			isAboutDevice = true
		}
	}
	return name, isAboutDevice
}

// nameOfMatch makes a name of what a match selects.
func nameOfMatch(m match) string {
	var parts []string
	for _, list := range [][]string{m.Subsystem, m.USB.Vendor, m.USB.Product, m.USB.Serial} {
		if len(list) == 1 && list[0] != "*" {
			parts = append(parts, list[0])
		}
	}
	if len(m.Glob) == 1 {
		parts = append(parts, path.Base(m.Glob[0]))
	}
	if reflect.ValueOf(m).IsZero() || len(parts) == 0 {
		return "device"
	}
	name := resourceName(strings.Join(parts, "-"))
	if name == "" {
		return "device"
	}
	return name
}

// udevValues are the patterns of a value: alternatives with "|", each a pattern of fnmatch
// (token_match_string in src/udev/udev-rules.c of systemd).
func udevValues(f udevFilter) (values []string) {
	for _, text := range strings.Split(f.value, "|") {
		v := fnmatchValue(text, f.negated())
		if v == "" || v == "!" {
			return nil
		}
		values = append(values, v)
	}
	return values
}
