package importer

import (
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// source is a configuration in the input.
type source struct {
	*value
	format Format
	// flag is set for the value of a --device flag of generic-device-plugin.
	flag bool
	// path is where it was found: "spec.values.config"; empty for a whole document.
	path string
	// file is the last element of path.
	file     string
	workload *workload
}

// lastApplied is an annotation of kubectl, which has the whole object once more.
const lastApplied = "kubectl.kubernetes.io/last-applied-configuration"

// find finds the configurations in the input. If one of them cannot be converted, it drops
// all.
func (c *conversion) find() {
	forced := c.options.Format
	documents, unreadable := c.readDocuments()
	isPlainText := len(documents) == 1 && documents[0].isWholeInput()
	isYAML := len(unreadable) == 0 && !isPlainText
	broken := c.problems
	c.problems = nil
	c.searchPlain = forced.plain()
	c.search(documents)
	// Without a configuration of a plugin, the input may be about plain containers. If it
	// names the file of a plugin, it is a DaemonSet of that plugin.
	isPlugin := len(c.sources) > 0 || c.configFile() != ""
	if forced == Auto && !isPlugin && len(c.problems) == 0 {
		c.searchPlain = true
		c.workloads = nil
		c.search(documents)
	}
	if len(c.sources) == 0 && forced != Auto {
		c.forceFormat(documents)
	}
	if len(c.sources) == 0 {
		c.reportNothingFound(isYAML, append(broken, unreadable...))
		return
	}
	// What is between command lines does not matter, unlike what is between YAML.
	hasEmbedded := len(documents) > 1
	if len(unreadable) > 0 && hasEmbedded {
		reason := strings.TrimPrefix(unreadable[0].text, c.file+": ")
		c.differs("Imported from the YAML and the command lines in it, since the whole is not YAML: %s", reason)
	}
	for _, p := range broken {
		c.differs("not imported: %s", strings.TrimPrefix(p.text, c.file+": "))
	}
	c.refuseOtherFormats()
}

// readDocuments returns the YAML documents of the input, or the text of the input where it
// is not YAML. unreadable says why it is not YAML. Configurations in it that are not YAML
// are problems of the conversion.
func (c *conversion) readDocuments() (documents []*value, unreadable []problem) {
	whole := c.wholeText()
	if isQuadlet(c.text) || isUdevRules(c.text) {
		return []*value{whole}, nil
	}
	documents = c.parse(c.text, "", 0)
	if len(c.problems) == 0 {
		// YAML joins the lines of plain text, but command lines need them.
		if len(documents) == 1 && documents[0].scalar() && documents[0].Style == 0 {
			return []*value{whole}, nil
		}
		return documents, nil
	}
	unreadable = c.problems
	c.problems = nil
	return append(c.embedded(), whole), unreadable
}

// wholeText is the text of the input as a scalar.
func (c *conversion) wholeText() *value {
	node := &yaml.Node{
		Kind:  yaml.ScalarNode,
		Tag:   "!!str",
		Value: c.text,
		Line:  1,
	}
	return &value{Node: node, c: c}
}

// search finds the configurations in documents. Settings of a workload apply to what is below
// it, so that every document begins without any.
func (c *conversion) search(documents []*value) {
	for _, document := range documents {
		c.walk(document, "", &workload{})
	}
}

// forceFormat takes every document as a configuration of the requested format.
func (c *conversion) forceFormat(documents []*value) {
	for _, document := range documents {
		// Only units and rules are text: any other text in the input is a part of it.
		isTextFormat := c.options.Format == Udev || c.options.Format == Quadlet
		isOtherText := document.scalar() && !isTextFormat
		if document.null() || isOtherText {
			continue
		}
		c.found(source{
			value:    document,
			format:   c.options.Format,
			workload: &workload{},
		})
	}
}

// refuseOtherFormats reports sources of another format than the requested one, and sources
// that are templates. It drops all sources then.
func (c *conversion) refuseOtherFormats() {
	forced := c.options.Format
	for _, s := range c.sources {
		isOther := forced != Auto && s.format != forced
		if isOther {
			s.report("is a configuration of %s: want %s only", s.format.plugin(), forced.plugin())
		}
		// Of a chart's values, only the devices matter.
		if isOther || !s.format.plain() && s.template() {
			c.sources = nil
			return
		}
	}
}

// configFile is the file that the arguments of a plugin name.
func (c *conversion) configFile() string {
	return c.first(func(w *workload) string { return w.config })
}

// reportNothingFound says why nothing was found. The first of the syntax errors is of a
// configuration in the input, if there is one that is broken.
func (c *conversion) reportNothingFound(isYAML bool, syntaxErrors []problem) {
	none := "no configuration of " + c.options.Format.plugin() + " found"
	if len(c.problems) > 0 {
		return
	}
	if file := c.configFile(); file != "" {
		c.problem(0, none+": the arguments name the file "+file+", import that")
		return
	}
	kind := c.foreignKind(isYAML)
	isProgram := strings.HasPrefix(kind, "is a program")
	hasBroken := len(syntaxErrors) > 1
	switch {
	case kind != "" && (isProgram || !hasBroken):
		c.problem(0, kind)
	case c.templateIn(c.text, 0):
	case hasBroken:
		c.problems = syntaxErrors[:1]
	case len(syntaxErrors) > 0:
		c.problems = syntaxErrors
	default:
		c.problem(0, none)
	}
}

// found adds a configuration. Messages about it begin at its top.
func (c *conversion) found(s source) {
	s.file = s.key
	s.value = &value{Node: s.Node, c: c}
	c.sources = append(c.sources, s)
}

// walk finds the configurations in a value at a path of the input: in the values of
// charts, in objects of the Kubernetes API, in arguments, and in the text of any of them.
func (c *conversion) walk(v *value, path string, in *workload) {
	in = c.enter(v, in)
	if format := c.detect(v); format != Auto {
		c.found(source{
			value:    v,
			format:   format,
			path:     path,
			workload: in,
		})
		return
	}
	switch {
	case v.scalar():
		c.walkText(v, path, in)
	case v.list():
		c.walkArgs(v.items(), path, in)
	case v.mapping():
		c.walkMapping(v, path, in)
	}
}

// walkMapping finds the configurations in the fields of a mapping. Objects of the Kubernetes
// API are named by kind and name in messages, since a path would not tell them apart.
func (c *conversion) walkMapping(v *value, path string, in *workload) {
	name := v.get("metadata").get("name")
	if v.has("kind") && name.scalar() {
		path = v.get("kind").Value + "/" + name.Value + " "
	} else if path != "" {
		path += "."
	}
	fields, err := v.fields()
	if err != nil {
		v.report("%s", err)
	}
	hasCommand := v.get("command").list()
	for _, f := range fields {
		switch {
		case f.key == lastApplied:
		case f.key == "command" && f.list():
			// The arguments continue the command.
			words := append(f.items(), v.get("args").items()...)
			c.walkArgs(words, path+"args", in)
		case f.key == "args" && hasCommand:
		default:
			c.walk(f, path+f.key, in)
		}
	}
}

// holds reports whether a list has a mapping with a key.
func (v *value) holds(key string) bool {
	if !v.list() {
		return false
	}
	for _, n := range v.Content {
		if v.child(n, "").has(key) {
			return true
		}
	}
	return false
}

// foundIn says where the configurations were found.
func foundIn(sources []source) string {
	var places []string
	for _, s := range sources {
		if s.path != "" {
			places = addOnce(places, s.path)
		}
	}
	if len(places) == 0 {
		return ""
	}
	const most = 8
	if more := len(places) - most; more > 0 {
		places = append(places[:most], fmt.Sprintf("%d more places", more))
	}
	return " (" + strings.Join(places, ", ") + ")"
}

// unrendered reports a line of a template.
func (c *conversion) unrendered(line int, text string) {
	c.problem(line, fmt.Sprintf("line %d: %.80q is a template: import what it renders, such as the output of helm template", line, strings.TrimSpace(text)))
}

// isTemplate finds actions of templates, but not the {{PLACEHOLDER}} of Akri, and the substitutions of
// reStructuredText, "version: |release|".
func isTemplate(text string) bool {
	return fullMatch(`(?s).*\{(\{-?[ .$]|%).*`, text) || fullMatch(`\s*[\w-]+:\s+\|[\w.-]+\|\s*`, text)
}

// templateIn reports the first line of a template in a text, if there is one.
func (c *conversion) templateIn(text string, linesBefore int) bool {
	for i, line := range strings.Split(text, "\n") {
		isComment := strings.HasPrefix(strings.TrimSpace(line), "#")
		if isTemplate(line) && !isComment {
			c.unrendered(linesBefore+1+i, line)
			return true
		}
	}
	return false
}

// template reports whether a value has text of a template, and reports that text.
func (v *value) template() bool {
	if v.Kind == yaml.ScalarNode && isTemplate(v.Value) {
		v.c.unrendered(v.Line, v.Value)
		return true
	}
	return slices.ContainsFunc(v.Content, func(n *yaml.Node) bool {
		return v.child(n, "").template()
	})
}
