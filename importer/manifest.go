package importer

import (
	"fmt"
	"slices"
	"strings"
)

// source is a configuration that was found.
type source struct {
	format Format
	at     value
	// flag says that it is the value of a flag: one device of squat.
	flag bool
	// key of the ConfigMap that it is in, empty for none.
	key string
}

// find looks for configurations in a file.
func (im *importing) find(data []byte) []source {
	var out []source
	for _, doc := range im.documents(string(data), 0, "") {
		out = append(out, doc.find("", maxDepth)...)
	}
	return out
}

// find looks for configurations in a document: itself, or what a manifest
// holds.
func (v value) find(key string, depth int) []source {
	if depth == 0 {
		return nil
	}
	if kind, ok := v.get("kind", false); ok && v.mapping() {
		if _, ok := v.get("apiVersion", false); ok {
			return v.findInManifest(kind.node.Value, depth)
		}
	}
	format, flag := v.looksLike()
	switch {
	case format != Auto:
		return []source{{format: format, at: v, flag: flag, key: key}}
	case v.list() && v.flagList():
		return v.findInArgs(v.items())
	case v.list():
		var out []source
		for _, e := range v.items() {
			if f, flag := e.looksLike(); flag {
				out = append(out, source{format: f, at: e, flag: true, key: key})
			}
		}
		if len(out) > 0 {
			return out
		}
	case v.mapping():
		// Charts have the file under this key of their values.
		if c, ok := v.get("config", false); ok {
			return c.findInText("config", key, depth)
		}
	}
	if forced := v.im.options.Format; forced != Auto && (v.mapping() || v.list()) {
		return []source{{format: forced, at: v, key: key}}
	}
	return nil
}

// looksLike finds out whose configuration v is; Auto is nobody's. flag says
// that it is the value of one flag.
func (v value) looksLike() (f Format, flag bool) {
	has := func(key string) bool { _, ok := v.get(key, true); return ok }
	switch {
	case v.mapping() && has("resourceList"):
		return SRIOV, false
	case v.mapping() && (has("devices") || has("device")):
		return Squat, false
	case v.mapping() && has("name") && has("groups"):
		return Squat, true
	case v.list():
		for _, e := range v.items() {
			if _, ok := e.get("devicematch", false); ok {
				return Smarter, false
			}
		}
	}
	return Auto, false
}

// flagList reports whether v is a list of arguments.
func (v value) flagList() bool {
	items := v.items()
	return len(items) > 0 && items[0].scalar() && strings.HasPrefix(items[0].node.Value, "-")
}

// findInText looks into v, which is a configuration or the text of one.
func (v value) findInText(place, key string, depth int) []source {
	if !v.scalar() {
		return v.find(key, depth-1)
	}
	var out []source
	for _, doc := range v.embedded(place) {
		out = append(out, doc.find(key, depth-1)...)
	}
	return out
}

// findInManifest looks into an object of Kubernetes.
func (v value) findInManifest(kind string, depth int) []source {
	var out []source
	switch {
	case strings.HasSuffix(kind, "List"):
		items, _ := v.get("items", false)
		if items.im == nil {
			return nil
		}
		for _, e := range items.items() {
			out = append(out, e.find("", depth-1)...)
		}
	case kind == "ConfigMap":
		data, ok := v.get("data", false)
		if !ok || !data.mapping() {
			return nil
		}
		for _, f := range data.fields() {
			if f.value.scalar() && mayHold(f.value.node.Value) {
				out = append(out, f.value.findInText("data: "+f.key, f.key, depth)...)
			}
		}
	default:
		spec, ok := v.get("spec", false)
		if template, found := spec.path("template", "spec"); ok && found {
			spec = template
		}
		if !ok {
			return nil
		}
		for _, list := range []string{"initContainers", "containers"} {
			containers, _ := spec.get(list, false)
			if containers.im == nil {
				continue
			}
			for _, c := range containers.items() {
				out = append(out, c.findInContainer()...)
			}
		}
	}
	return out
}

// mayHold reports whether a text may be a configuration: a ConfigMap holds
// other files too, which need not be YAML.
func mayHold(text string) bool {
	text = strings.ToLower(text)
	return slices.ContainsFunc([]string{"resourcelist", "devicematch", "device", "groups"}, func(word string) bool { return strings.Contains(text, word) })
}

// path is the value at the end of a path of keys.
func (v value) path(keys ...string) (value, bool) {
	for _, k := range keys {
		if v.im == nil {
			return value{}, false
		}
		var ok bool
		if v, ok = v.get(k, false); !ok {
			return value{}, false
		}
	}
	return v, true
}

// findInContainer looks into the arguments and the environment of a container.
func (v value) findInContainer() []source {
	place := "container"
	if name, ok := v.get("name", false); ok && name.scalar() {
		place = fmt.Sprintf("container %q", name.node.Value)
	}
	var args []value
	for _, key := range []string{"command", "args"} {
		if list, ok := v.get(key, false); ok {
			args = append(args, list.items()...)
		}
	}
	out := v.at(place).findInArgs(args)
	if env, ok := v.get("env", false); ok && len(out) > 0 && v.im.domain == "" {
		// squat's program reads each of its flags from the environment too.
		for _, e := range env.items() {
			if name, ok := e.get("name", false); ok && name.node.Value == "DOMAIN" {
				if val, ok := e.get("value", false); ok && val.scalar() {
					v.im.domain = val.node.Value
				}
			}
		}
	}
	return out
}

// findInArgs looks for the flags that hold a configuration or are about one.
func (v value) findInArgs(args []value) []source {
	var out []source
	for i := 0; i < len(args); i++ {
		if !args[i].scalar() {
			continue
		}
		arg := args[i]
		name, text, inOne := strings.Cut(arg.node.Value, "=")
		flag := strings.TrimLeft(name, "-")
		if flag == name || !slices.Contains([]string{"device", "domain", "resource-prefix"}, flag) {
			continue
		}
		if !inOne {
			if i++; i >= len(args) || !args[i].scalar() {
				arg.at(v.place).report(fmt.Sprintf("%s has no value: want one behind it", name))
				return out
			}
			arg, text = args[i], args[i].node.Value
		}
		switch flag {
		case "domain":
			v.im.domain = text
		case "resource-prefix":
			v.im.prefix = text
		case "device":
			node := *arg.node
			node.Value = text
			arg.node = &node
			for _, doc := range arg.embedded(strings.TrimPrefix(v.place+": --device", ": ")) {
				out = append(out, source{format: Squat, at: doc.at(""), flag: true})
			}
		}
	}
	return out
}
