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
	// path is where it was found: "spec.values.config"; empty for a whole document.
	path string
}

// setFlag records a flag of a plugin that says something about its resources. The input has one
// plugin, whose configuration may be in a ConfigMap, and its flags in a DaemonSet.
func (c *conversion) setFlag(name, text string) {
	c.flags[name] = cmp.Or(c.flags[name], text)
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
		c.walk(v, "")
	}
	if len(c.found) > 0 {
		return nil
	}
	none := errors.New("no configuration of a known plugin found, see kubectl generic-dp import --help; if the arguments of a plugin name a file, import that file")
	return cmp.Or(c.broken, none)
}

// walk searches a value at a path of the input.
func (c *conversion) walk(v *value, path string) {
	for _, f := range formats() {
		if f.detect(v) {
			c.addSource(v, f, path)
			return
		}
	}
	switch {
	case v.scalar():
		c.walkText(v, path)
	case v.list():
		for _, item := range v.items() {
			c.walk(item, path)
		}
	case v.mapping():
		c.walkMapping(v, path)
	}
}

// addSource adds a configuration. Messages about it begin with its own name.
func (c *conversion) addSource(v *value, f format, path string) {
	c.found = append(c.found, source{
		value:  &value{Node: v.Node, c: v.c, key: v.key},
		format: f,
		path:   path,
	})
}

// walkText searches YAML in a text, such as the data of a ConfigMap.
func (c *conversion) walkText(v *value, path string) {
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
			c.walk(document, path)
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
	c.setFlag("domain", v.get("env").get("DOMAIN").string())
	if v.has("devices") {
		c.setFlag("domain", v.get("domain").string()) // in a file of generic-device-plugin
	}
	for _, variable := range v.get("env").items() {
		if variable.get("name").string() == "DOMAIN" {
			c.setFlag("domain", variable.get("value").string())
		}
	}
	for _, f := range v.fields() {
		switch {
		case f.key == manifest.LastApplied:
		case f.key == "command", f.key == "args":
			c.walkArgs(f.items(), path+f.key)
		default:
			c.walk(f, path+f.key)
		}
	}
}

// walkArgs searches the arguments of a container: --device has a configuration of
// generic-device-plugin.
func (c *conversion) walkArgs(args []*value, path string) {
	for i, arg := range args {
		name, text, hasValue := strings.Cut(arg.string(), "=")
		if !hasValue && i+1 < len(args) {
			arg = args[i+1]
			text = arg.string()
		}
		switch flag := strings.TrimLeft(name, "-"); flag {
		case "device":
			c.addDevice(arg.with(text), path)
		case "domain", "resource-prefix":
			c.setFlag(flag, text)
		}
	}
}

// addDevice adds the value of a --device flag.
func (c *conversion) addDevice(arg *value, path string) {
	documents, err := arg.documents()
	isDevice := err == nil && len(documents) == 1 && isSquat(documents[0])
	if isDevice {
		c.addSource(documents[0].named("device"), formats()[0], path)
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
