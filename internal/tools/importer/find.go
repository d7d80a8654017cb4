package importer

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// source is a configuration in the input.
type source struct {
	*value
	format Format
	// device marks a single device of generic-device-plugin, the value of a --device flag.
	device bool
	// path is where it was found: "spec.values.config", empty for a whole document; file
	// is its last element.
	path, file string
	workload   *workload
}

// workload has the settings of a plugin in a manifest, beside its configuration.
type workload struct {
	domain, prefix, config string   // flags
	tag                    string   // of its image
	node                   string   // that it runs on
	labels                 []string // of the nodes that it runs on
}

// lastApplied is an annotation of kubectl: the object once more.
const lastApplied = "kubectl.kubernetes.io/last-applied-configuration"

// find finds the configurations in the input. If one can't be converted, it drops all.
func (c *conversion) find() {
	documents := c.parse(c.text, "", 0)
	if why := c.problems; len(why) > 0 {
		c.problems = nil
		if documents = c.embedded(); len(documents) > 0 {
			c.differs("Imported from the YAML in it: %s", strings.TrimPrefix(why[0].text, c.file+": "))
		} else if len(c.problems) == 0 {
			c.problems = why
		}
	}
	for _, document := range documents {
		c.walk(document, "", &workload{})
	}
	forced := c.options.Format
	if len(c.sources) == 0 && forced != Auto {
		for _, document := range documents {
			if !document.null() {
				c.found(source{value: document, format: forced, workload: &workload{}})
			}
		}
	}
	if len(c.sources) == 0 {
		file := c.first(func(w *workload) string { return w.config })
		switch none := "no configuration of " + forced.plugin() + " found"; {
		case len(c.problems) > 0:
		case file != "":
			c.problem(0, none+": the arguments name the file "+file+", import that")
		case !c.templateIn(c.text, 0):
			c.problem(0, none)
		}
	}
	for _, s := range c.sources {
		if other := forced != Auto && s.format != forced; other || s.template() {
			if other {
				s.report("is a configuration of %s: want %s only", s.format.plugin(), forced.plugin())
			}
			c.sources = nil
			return
		}
	}
}

// walk finds the configurations in a value at a path of the input: in the values of
// charts, in objects of the Kubernetes API, in arguments, and in the text of any of them.
func (c *conversion) walk(v *value, path string, in *workload) {
	in = c.enter(v, in)
	if format, device := v.detect(); format != Auto {
		c.found(source{value: v, format: format, device: device, path: path, workload: in})
		return
	}
	switch {
	case v.scalar():
		c.walkText(v, path, in)
	case v.list():
		c.walkArgs(v.items(), path, in)
	case v.mapping():
		if name := v.get("metadata").get("name"); v.has("kind") && name.scalar() {
			path = v.get("kind").Value + "/" + name.Value + " "
		} else if path != "" {
			path += "."
		}
		fields, err := v.fields()
		if err != nil {
			v.report("%s", err)
		}
		for _, f := range fields {
			switch {
			case f.key == lastApplied:
			case f.key == "command" && f.list(): // continued in args
				c.walkArgs(append(f.items(), v.get("args").items()...), path+"args", in)
			case f.key != "args" || !v.get("command").list():
				c.walk(f, path+f.key, in)
			}
		}
	}
}

// yamlLine is a line that YAML or JSON may have, unlike those of other languages.
const yamlLine = `\s*(-.*|["'[{}\]#].*|[\w./-]+:(\s.*)?)?`

// embedded returns the configurations in another language, such as Terraform, Nix, a shell
// script or Markdown: blocks of lines, each indented at least as far as the first.
func (c *conversion) embedded() (documents []*value) {
	lines, yaml := strings.Split(c.text, "\n"), regexp.MustCompile("^"+yamlLine+"$")
	indent := func(line string) int { return len(line) - len(strings.TrimLeft(line, " \t")) }
	for start, end := 0, 0; start < len(lines); start = end + 1 {
		for end = start; end < len(lines); end++ {
			line := strings.TrimSpace(lines[end])
			if !yaml.MatchString(line) || strings.Contains(line, " = ") || strings.HasSuffix(line, ";") || line != "" && indent(lines[end]) < indent(lines[start]) {
				break
			}
		}
		if text := strings.Join(lines[start:end], "\n"); mentioned(text) {
			documents = append(documents, c.parse(text, "", start)...)
		}
	}
	return documents
}

// found adds a configuration. Messages about it begin at its top.
func (c *conversion) found(s source) {
	s.file = s.key
	s.value = &value{Node: s.Node, c: c}
	c.sources = append(c.sources, s)
}

// detect returns the format of a configuration, Auto if it is none, and whether
// it is a single device of generic-device-plugin.
func (v *value) detect() (format Format, device bool) {
	holds := func(list *value, key string) bool {
		return list.list() && slices.ContainsFunc(list.Content, func(n *yaml.Node) bool { return v.child(n, "").has(key) })
	}
	switch {
	case holds(v, "devicematch"):
		return Smarter, false
	case (v.key == "devices" || v.key == "device") && holds(v, "groups"): // the other keys are a chart's
		return Squat, false
	case !v.mapping():
	case v.get("resourceList").list():
		return SRIOV, false
	case v.get("configList").list():
		return RDMA, false
	case v.get("pciHostDevices").list() || v.get("mediatedDevices").list() || holds(v.get("usb"), "selectors") || v.get("usbHostDevices").list():
		return KubeVirt, false
	case strings.HasPrefix(v.get("apiVersion").string(), akriDomain+"/") && v.get("kind").string() == "Configuration", v.get("discoveryDetails").get("udevRules").list():
		return Akri, false
	case v.get("sharing").has("timeSlicing") || v.get("sharing").has("mps") || v.get("flags").has("migStrategy"):
		return NVIDIA, false
	case (holds(v.get("devices"), "groups") || holds(v.get("device"), "groups")) && !v.has("image"):
		return Squat, false
	case v.get("name").scalar() && (holds(v.get("groups"), "paths") || holds(v.get("groups"), "usb")):
		return Squat, true
	}
	return Auto, false
}

// mentions are words, one of which every configuration has: manifests also hold files that
// are no YAML.
var mentions = []string{"resourcelist", "devicematch", "groups", "configlist", "hostdevices", "akri.sh", "udevrules", "sharing", "migstrategy"}

func mentioned(text string) bool {
	text = strings.ToLower(text)
	return slices.ContainsFunc(mentions, func(m string) bool { return strings.Contains(text, m) })
}

// flagWords are a flag of a command line and its value, which may be in quotes.
const flagWords = `(--[a-z-]+)[= ]('[^']*'|"(?:\\.|[^"\\])*"|[^\s'"]+)`

// walkText searches a text: a command line, YAML or JSON, or an assignment of it, as in
// the literals of a ConfigMap generator.
func (c *conversion) walkText(v *value, path string, in *workload) {
	if !strings.ContainsAny(v.Value, ":{") || !mentioned(v.Value) {
		return
	}
	if before, _, ok := strings.Cut(v.Value, "--device"); ok && !strings.ContainsAny(before, ":{") && !strings.HasPrefix(v.Value, "- ") {
		var args []*value
		for _, m := range regexp.MustCompile(flagWords).FindAllStringSubmatch(v.Value, -1) {
			args = append(args, v.with(m[1]), v.with(strings.ReplaceAll(strings.Trim(m[2], `'"`), `\"`, `"`)))
		}
		c.walkArgs(args, path, in)
		return
	}
	if name, text, ok := strings.Cut(v.Value, "="); ok && fullMatch(`[\w.-]+`, name) {
		v = v.with(text)
		v.key = name
		c.walkText(v, path+"."+name, in)
		return
	}
	for _, document := range v.documents() {
		if !document.scalar() {
			document.key = v.key
			c.walk(document, path, in)
		}
	}
}

// unrendered reports a line of a template.
func (c *conversion) unrendered(line int, text string) {
	c.problem(line, fmt.Sprintf("line %d: %.80q is a template: import what it renders, such as the output of helm template", line, strings.TrimSpace(text)))
}

// isTemplate finds actions of templates, but not the {{PLACEHOLDER}} of Akri.
func isTemplate(text string) bool { return fullMatch(`(?s).*\{(\{-?[ .$]|%).*`, text) }

// templateIn reports the first line of a template in a text, if any.
func (c *conversion) templateIn(text string, linesBefore int) bool {
	for i, line := range strings.Split(text, "\n") {
		if isTemplate(line) && !strings.HasPrefix(strings.TrimSpace(line), "#") {
			c.unrendered(linesBefore+1+i, line)
			return true
		}
	}
	return false
}

// template reports whether a value has text of a template, and reports that.
func (v *value) template() bool {
	if v.Kind == yaml.ScalarNode && isTemplate(v.Value) {
		v.c.unrendered(v.Line, v.Value)
		return true
	}
	return slices.ContainsFunc(v.Content, func(n *yaml.Node) bool { return v.child(n, "").template() })
}

// with is the value with another text.
func (v *value) with(text string) *value {
	node, copied := *v.Node, *v
	node.Value, copied.Node = text, &node
	return &copied
}

// enter returns the workload with the settings of a mapping: image, environment and node
// selector of a container, a pod or the values of a chart.
func (c *conversion) enter(v *value, in *workload) *workload {
	w := *in
	image := v.get("image")
	name := image.string()
	if image.mapping() { // without its repository it is the chart's
		name = cmp.Or(image.get("repository").string(), "/generic-device-plugin") + ":" + image.get("tag").string()
	}
	if strings.Contains(name, "/generic-device-plugin") {
		w.tag = imageTag(name)
	}
	env := v.get("env")
	for _, e := range append(env.items(), env) {
		// generic-device-plugin reads each of its flags from the environment, too.
		if e.get("name").string() == "DOMAIN" {
			w.domain = e.get("value").string()
		} else if domain := e.get("DOMAIN"); domain.scalar() {
			w.domain = domain.Value
		}
	}
	for _, pod := range []*value{v, v.get("pod"), v.get("defaultPodOptions")} {
		if labels, _ := pod.get("nodeSelector").fields(); len(labels) > 0 {
			w.node, w.labels = "", nil
			for _, l := range labels {
				if l.key == "kubernetes.io/hostname" {
					w.node = l.string()
				} else {
					w.labels = append(w.labels, l.key+"="+l.string())
				}
			}
		}
	}
	if w.tag == in.tag && w.domain == in.domain && w.node == in.node && slices.Equal(w.labels, in.labels) && !v.has("args") && !v.has("command") {
		return in
	}
	c.workloads = append(c.workloads, &w)
	return &w
}

// string is the text of a scalar, else empty.
func (v *value) string() string {
	if v.scalar() {
		return v.Value
	}
	return ""
}

// imageTag is the tag of an image; a digest leaves only its "@".
func imageTag(image string) string {
	image, _, pinned := strings.Cut(image, "@")
	_, tag, tagged := strings.Cut(image[strings.LastIndex(image, "/")+1:], ":")
	switch {
	case pinned:
		return tag + "@"
	case !tagged:
		return "latest"
	}
	return tag
}

// walkArgs searches a list, which may be a command line: --device holds a configuration,
// other flags are about one.
func (c *conversion) walkArgs(args []*value, path string, in *workload) {
	for i := 0; i < len(args); i++ {
		arg := args[i]
		name, text, hasValue := strings.Cut(arg.string(), "=")
		flag := strings.TrimLeft(name, "-")
		if flag == name || !slices.Contains([]string{"device", "domain", "resource-prefix", "config", "config-file"}, flag) {
			c.walk(arg, path, in)
			continue
		}
		if !hasValue {
			if i++; i >= len(args) || !args[i].scalar() {
				arg.report("%s without a value", name)
				return
			}
			arg, text = args[i], args[i].Value
		}
		switch flag {
		case "domain":
			in.domain = text
		case "resource-prefix":
			in.prefix = text
		case "config", "config-file":
			in.config = text
		case "device":
			for _, document := range arg.with(text).documents() {
				c.found(source{value: document, format: Squat, device: true, path: path, workload: in})
			}
		}
	}
}

// first returns the first setting of the workloads that is not empty.
func (c *conversion) first(get func(*workload) string) string {
	for _, w := range c.workloads {
		if found := get(w); found != "" {
			return found
		}
	}
	return ""
}

// foundIn says where the configurations were found.
func foundIn(sources []source) string {
	var places []string
	for _, s := range sources {
		if s.path != "" {
			places = addOnce(places, s.path)
		}
	}
	const most = 8
	switch n := len(places); {
	case n == 0:
		return ""
	case n > most:
		places = append(places[:most], fmt.Sprintf("%d more places", n-most))
	}
	return " (" + strings.Join(places, ", ") + ")"
}
