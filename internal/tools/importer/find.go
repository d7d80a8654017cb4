package importer

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/generic-dp/generic-dp/internal/tools/manifest"
)

// source is a configuration in the input.
type source struct {
	*value
	format format
	// flags are the flags of its container.
	flags flags
	// path is where it was found: "spec.values.config"; empty for a whole document.
	path string
}

// flags are the flags of a plugin in a container that say something about its resources, by name.
type flags map[string]string

// flag returns a flag of the container of a source, or of another container of the input: a
// ConfigMap has the configuration of a plugin, and a DaemonSet its flags.
func (c *conversion) flag(s source, name string) string {
	text := s.flags[name]
	for _, other := range c.containers {
		text = cmp.Or(text, other[name])
	}
	return text
}

// find finds the configurations in a text.
func (c *conversion) find(text string) error {
	documents, err := manifest.Documents(text, 0)
	if strings.Contains(text, "[[resource]]") {
		return errors.New("is a configuration of generic-dp, which needs no import")
	}
	if err != nil {
		return err
	}
	for _, document := range documents {
		v := &value{Node: document, c: c}
		c.walk(v, "", flags{})
	}
	if len(c.found) > 0 {
		return nil
	}
	none := errors.New("no configuration of a known plugin found, see kubectl generic-dp import --help; if the arguments of a plugin name a file, import that file")
	return cmp.Or(c.broken, none)
}

// walk searches a value at a path of the input. in are the flags of its container.
func (c *conversion) walk(v *value, path string, in flags) {
	for _, f := range formats() {
		if f.detect(v) {
			c.addSource(v, f, path, in)
			return
		}
	}
	switch {
	case v.scalar():
		c.walkText(v, path, in)
	case v.list():
		for _, item := range v.items() {
			c.walk(item, path, in)
		}
	case v.mapping():
		c.walkMapping(v, path)
	}
}

// addSource adds a configuration. Messages about it begin with its own name.
func (c *conversion) addSource(v *value, f format, path string, in flags) {
	c.found = append(c.found, source{
		value:  &value{Node: v.Node, c: v.c, key: v.key},
		format: f,
		flags:  in,
		path:   path,
	})
}

// walkText searches YAML in a text, such as the data of a ConfigMap.
func (c *conversion) walkText(v *value, path string, in flags) {
	text := strings.ToLower(v.Value)
	mayHaveOne := slices.ContainsFunc(formats(), func(f format) bool {
		return strings.Contains(text, f.word)
	})
	if !mayHaveOne {
		return
	}
	documents, err := v.documents()
	c.broken = cmp.Or(c.broken, err)
	for _, document := range documents {
		if !document.scalar() {
			c.walk(document, path, in)
		}
	}
}

// walkMapping searches the fields of a mapping, which may be a container. Objects of the Kubernetes
// API are named by kind and name in messages, since a path would not distinguish them.
func (c *conversion) walkMapping(v *value, path string) {
	if path != "" {
		path += "."
	}
	name := v.get("metadata").get("name").string()
	if kind := v.get("kind").string(); kind != "" && name != "" {
		path = kind + "/" + name + " "
	}
	own := flags{"domain": v.get("env").get("DOMAIN").string()}
	if v.has("devices") {
		own["domain"] = v.get("domain").string() // in a file of generic-device-plugin
	}
	c.containers = append(c.containers, own)
	for _, variable := range v.get("env").items() {
		if variable.get("name").string() == "DOMAIN" {
			own["domain"] = variable.get("value").string()
		}
	}
	for _, f := range v.fields() {
		switch {
		case f.key == manifest.LastApplied:
		case f.key == "command", f.key == "args":
			c.walkArgs(f.items(), path+f.key, own)
		default:
			c.walk(f, path+f.key, own)
		}
	}
}

// walkArgs searches the arguments of a container: --device has a configuration of
// generic-device-plugin.
func (c *conversion) walkArgs(args []*value, path string, in flags) {
	for i, arg := range args {
		name, text, hasValue := strings.Cut(arg.string(), "=")
		if !hasValue && i+1 < len(args) {
			arg = args[i+1]
			text = arg.string()
		}
		switch flag := strings.TrimLeft(name, "-"); flag {
		case "device":
			c.addDevice(arg.with(text), path, in)
		case "domain", "resource-prefix":
			in[flag] = text
		}
	}
}

// addDevice adds the value of a --device flag.
func (c *conversion) addDevice(arg *value, path string, in flags) {
	documents, err := arg.documents()
	isDevice := err == nil && len(documents) == 1 && isSquat(documents[0])
	if isDevice {
		c.addSource(documents[0].named("device"), formats()[0], path, in)
		return
	}
	arg.lost("--device=%s: want YAML with name and groups", arg.Value)
	c.broken = cmp.Or(c.broken, fmt.Errorf("--device=%s: want YAML with name and groups", arg.Value))
}

// with returns the value with another text.
func (v *value) with(text string) *value {
	node := *v.Node
	node.Value = text
	copied := *v
	copied.Node = &node
	return &copied
}
