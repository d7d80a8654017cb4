package config

import (
	"math"
	"path"
	"strings"

	"github.com/generic-dp/generic-dp/device"
)

// hookTable is the keys of container.hooks, those of the CDI specification.
var hookTable = table[device.Hook]{name: "hook", keys: []key[device.Hook]{
	{name: "hook_name", form: oneOfWords(hookNames...), want: `when it runs, such as "createContainer"`, read: func(v value, h *device.Hook) { h.Name = oneOf(v, hookNames...) }},
	{name: "path", form: anyText, want: "the program on the host", read: func(v value, h *device.Hook) { h.Path = v.hookPath() }},
	{name: "args", form: oneOrMore(anyText), read: func(v value, h *device.Hook) { h.Args = v.literals("a string or a list of strings") }},
	{name: "env", form: oneOrMore(anyText), read: func(v value, h *device.Hook) { h.Env = v.hookEnv() }},
	{name: "timeout", form: integerForm(1, math.MaxInt32), read: func(v value, h *device.Hook) { h.Timeout = int(v.integer(1, math.MaxInt32)) }},
}}

// hookNames are when a hook may run (OCI runtime specification, "POSIX-platform
// Hooks").
var hookNames = []string{"prestart", "createRuntime", "createContainer", "startContainer", "poststart", "poststop"}

// hooks is v as one hook or a list of them.
func (v value) hooks() []device.Hook {
	var out []device.Hook
	for _, e := range v.tables("") {
		var h device.Hook
		readTable(e, hookTable, &h)
		out = append(out, h)
	}
	return out
}

func (v value) hookPath() string {
	s, ok := v.literal("an absolute path")
	if ok && (!strings.HasPrefix(s, "/") || path.Clean(s) != s || s == "/") {
		v.report(quote(s)+` is not an absolute, clean path: want one such as "/usr/bin/nvidia-ctk"`, "")
	}
	return s
}

func (v value) hookEnv() []string {
	env := v.literals(`a list such as ["DEBUG=1"]`)
	for _, s := range env {
		if name, _, ok := strings.Cut(s, "="); !ok || name == "" {
			v.report(quote(s)+` is not NAME=VALUE: want one such as "DEBUG=1"`, "")
		}
	}
	return env
}

// literal is v as a string without variables: it is told to others who fill
// nothing in.
func (v value) literal(want string) (string, bool) {
	s, ok := v.text(want)
	if !ok {
		return "", false
	}
	text, err := parseText(s)
	switch {
	case err != nil:
		v.report(quote(s)+" "+err.Error(), "")
		return "", false
	case len(text.Vars()) > 0:
		v.report(quote(s)+" has a variable: want a text without", `write "$${" for a literal "${"`)
		return "", false
	}
	return text.String(), true
}

// literals is v as a list of strings without variables, or one.
func (v value) literals(want string) []string {
	var out []string
	for _, e := range v.items() {
		if s, ok := e.literal(want); ok {
			out = append(out, s)
		}
	}
	return out
}
