package importer

import (
	"cmp"
	"maps"
	"slices"
	"strings"
)

// workload has the settings of a plugin in a manifest, beside its configuration.
type workload struct {
	// The flags of the plugin.
	domain string
	prefix string
	config string
	// others are flags of generic-device-plugin that are flags of generic-dp as well, by
	// name.
	others map[string]string
	// tag of its image.
	tag string
	// node is the name of the node that it runs on.
	node string
	// labels of the nodes that it runs on.
	labels []string
}

// equal reports whether two workloads have the same settings.
func (w *workload) equal(other *workload) bool {
	sameFlags := w.domain == other.domain && maps.Equal(w.others, other.others)
	sameNodes := w.node == other.node && slices.Equal(w.labels, other.labels)
	return sameFlags && sameNodes && w.tag == other.tag
}

// setOther sets one of the other flags. A workload shares the flags of the workload that
// contains it until it sets one itself.
func (w *workload) setOther(flag, text string) {
	others := maps.Clone(w.others)
	if others == nil {
		others = make(map[string]string)
	}
	others[flag] = text
	w.others = others
}

// enter returns the workload with the settings of a mapping: image, environment and node
// selector of a container, a pod or the values of a chart.
func (c *conversion) enter(v *value, in *workload) *workload {
	w := *in
	w.readImage(v.get("image"))
	env := v.get("env")
	w.readVariable(env)
	for _, e := range env.items() {
		w.readVariable(e)
	}
	for _, pod := range []*value{v, v.get("pod"), v.get("defaultPodOptions")} {
		w.readNodeSelector(pod.get("nodeSelector"))
	}
	hasFlags := v.has("args") || v.has("command")
	if w.equal(in) && !hasFlags {
		return in
	}
	c.workloads = append(c.workloads, &w)
	return &w
}

// readImage reads the tag of an image of generic-device-plugin. The values of a chart often
// leave out the repository, which is the chart's own then.
func (w *workload) readImage(image *value) {
	name := image.string()
	// Values of charts have the parts of the image as keys.
	if image.mapping() {
		repository := cmp.Or(image.get("repository").string(), "/generic-device-plugin")
		name = repository + ":" + image.get("tag").string()
	}
	if strings.Contains(name, "/generic-device-plugin") {
		w.tag = imageTag(name)
	}
}

// flagVariables are the variables from which generic-device-plugin reads its flags
// (AutomaticEnv and SetEnvKeyReplacer in its config.go).
var flagVariables = map[string]string{
	"PLUGIN_DIRECTORY": "plugin-directory",
	"LISTEN":           "listen",
	"LOG_LEVEL":        "log-level",
}

// readVariable reads flags from an environment: a name with a value, or a mapping of names.
func (w *workload) readVariable(env *value) {
	variable := func(name string) string {
		if env.get("name").string() == name {
			return env.get("value").string()
		}
		return env.get(name).string()
	}
	w.domain = cmp.Or(variable("DOMAIN"), w.domain)
	for name, flag := range flagVariables {
		if text := variable(name); text != "" {
			w.setOther(flag, text)
		}
	}
}

// readNodeSelector reads the nodes on which the pods run. A name of a node becomes a condition
// of the resource; labels are only mentioned, since ours does not read them.
func (w *workload) readNodeSelector(selector *value) {
	labels, _ := selector.fields()
	if len(labels) == 0 {
		return
	}
	w.node = ""
	w.labels = nil
	for _, l := range labels {
		if l.key == "kubernetes.io/hostname" {
			w.node = l.string()
		} else {
			w.labels = append(w.labels, l.key+"="+l.string())
		}
	}
}

// imageTag is the tag of an image. An image with a digest has the tag followed by "@", since
// the digest decides.
func imageTag(image string) string {
	image, _, pinned := strings.Cut(image, "@")
	last := image[strings.LastIndex(image, "/")+1:]
	_, tag, tagged := strings.Cut(last, ":")
	if pinned {
		return tag + "@"
	}
	if !tagged {
		return "latest"
	}
	return tag
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
