package importer

import (
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// source is a configuration in the input.
type source struct {
	value
	format Format
	// device is set where it is a single device of generic-device-plugin, the
	// value of a --device flag.
	device bool
	// key of the ConfigMap that holds it, if any.
	key string
}

// find lists the configurations in a value: itself, those in its text, or those of a
// manifest. key is the key of the ConfigMap that contains it.
func (v value) find(key string) (sources []source) {
	if v.scalar() {
		for _, document := range v.documents() {
			if !document.scalar() {
				sources = append(sources, document.find(key)...)
			}
		}
		return sources
	}
	if v.has("apiVersion") && v.has("kind") {
		return v.findInObject(v.get("kind").Value)
	}
	format, device := v.detect()
	switch config := v.get("config"); {
	case format != Auto:
		return []source{{v, format, device, key}}
	case v.list():
		sources = findInArgs(v.items())
		for _, e := range v.items() {
			if format, device := e.detect(); device {
				sources = append(sources, source{e, format, device, key})
			}
		}
	case config.Node != nil: // the values of a chart
		sources = config.find(key)
	}
	if forced := v.c.options.Format; len(sources) == 0 && forced != Auto && !v.null() {
		sources = []source{{v, forced, false, key}}
	}
	return sources
}

// detect returns the format of a configuration, Auto if it is none, and whether
// it is a single device of generic-device-plugin.
func (v value) detect() (format Format, device bool) {
	switch {
	case v.has("resourceList"):
		return SRIOV, false
	case v.has("devices") || v.has("device"):
		return Squat, false
	case v.has("name") && v.has("groups"):
		return Squat, true
	case v.list() && slices.ContainsFunc(v.Content, func(n *yaml.Node) bool { return v.child(n, "").has("devicematch") }):
		return Smarter, false
	}
	return Auto, false
}

// mentionsDevices finds texts that may be a configuration: a ConfigMap also
// holds files that are not YAML.
var mentionsDevices = regexp.MustCompile(`(?i)resourceList|device|groups`)

// findInObject searches an object of the Kubernetes API.
func (v value) findInObject(kind string) (sources []source) {
	switch {
	case strings.HasSuffix(kind, "List"):
		for _, e := range v.get("items").items() {
			sources = append(sources, e.find("")...)
		}
	case kind == "ConfigMap":
		data, _ := v.get("data").fields()
		for _, f := range data {
			if f.scalar() && mentionsDevices.MatchString(f.Value) {
				sources = append(sources, f.find(f.key)...)
			}
		}
	default:
		spec := v.get("spec")
		if template := spec.get("template").get("spec"); template.Node != nil {
			spec = template
		}
		for _, list := range []string{"initContainers", "containers"} {
			for _, c := range spec.get(list).items() {
				sources = append(sources, c.findInContainer()...)
			}
		}
	}
	return sources
}

// findInContainer searches the arguments and the environment of a container.
func (v value) findInContainer() []source {
	sources := findInArgs(append(v.get("command").items(), v.get("args").items()...))
	// generic-device-plugin reads each of its flags from the environment, too.
	for _, e := range v.get("env").items() {
		if name, domain := e.get("name"), e.get("value"); len(sources) > 0 && v.c.domain == "" && name.scalar() && name.Value == "DOMAIN" && domain.scalar() {
			v.c.domain = domain.Value
		}
	}
	return sources
}

// findInArgs searches a command line: --device holds a configuration, --domain
// and --resource-prefix are about one.
func findInArgs(args []value) (sources []source) {
	for i := 0; i < len(args); i++ {
		arg := args[i]
		if !arg.scalar() {
			continue
		}
		name, text, hasValue := strings.Cut(arg.Value, "=")
		flag := strings.TrimLeft(name, "-")
		if flag == name || !slices.Contains([]string{"device", "domain", "resource-prefix"}, flag) {
			continue
		}
		if !hasValue {
			if i++; i >= len(args) || !args[i].scalar() {
				arg.report("%s without a value", name)
				return sources
			}
			arg, text = args[i], args[i].Value
		}
		switch flag {
		case "domain":
			arg.c.domain = text
		case "resource-prefix":
			arg.c.prefix = text
		case "device":
			node := *arg.Node
			node.Value = text
			arg.Node = &node
			for _, document := range arg.documents() {
				sources = append(sources, source{document, Squat, true, ""})
			}
		}
	}
	return sources
}
