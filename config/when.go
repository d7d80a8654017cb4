package config

import (
	"path"
	"strings"

	"github.com/generic-dp/generic-dp/pattern"
)

// whenTable is the keys of when.
var whenTable = table[When]{name: "when", keys: []key[When]{
	{name: "node_name", form: conditionForm, read: func(v value, w *When) { w.NodeName = v.values(plain) }},
	{name: "exists", form: conditionForm, read: func(v value, w *When) { w.Exists = v.patterns(existsGlob) }},
}}

func readWhen(v value, r *Resource) {
	r.When = new(When)
	readTable(v, whenTable, r.When)
	if m, ok := v.raw.(map[string]any); ok && len(m) == 0 {
		v.report("an empty table: want node_name or exists", "")
	}
}

// existsGlob is what scans and events tell about: what else comes or goes on
// a host is not seen.
var existsGlob = kind{
	mode: pattern.Path, want: `a path or pattern such as "/dev/kfd" or "/sys/module/nvidia", or a list of them`,
	check: func(a pattern.Alternative) (rule, hint string) {
		elements := a.Shape()
		below := strings.HasPrefix(elements, devDir) || strings.HasPrefix(elements, "/sys/")
		if !below || path.Clean(elements) != elements {
			return `is not a clean path below /dev or /sys: want one such as "/dev/kfd" or "/sys/module/nvidia"`, ""
		}
		return "", ""
	},
}
