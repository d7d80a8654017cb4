package config

import (
	"math"
	"strconv"
	"strings"

	"github.com/generic-dp/generic-dp/internal/device"
)

// maxUnixID is the highest ID of a user or group. The number above it stands for "unchanged"
// (chown(2)).
const maxUnixID = math.MaxUint32 - 1

// readOwner reads the table owner. Keys that are not set stay nil: the runtime decides about them.
func readOwner(v value) *device.Owner {
	o := new(device.Owner)
	v.read(func(t *table) {
		t.unixID("uid", &o.UID, "number of a user")
		t.unixID("gid", &o.GID, "number of a group")
		bind(t, "mode", stringForm, &o.Mode, value.mode, "permissions, three octal digits")
	})
	if v.isEmpty() {
		v.report("the table is empty: want at least one of uid, gid and mode", "")
	}
	return o
}

// unixID binds a key to the ID of a user or group. A pointer distinguishes root, which is 0, from
// an ID that is not set.
func (t *table) unixID(name string, into **uint32, help string) {
	read := func(v value) *uint32 {
		id := uint32(v.integer(0, maxUnixID))
		return &id
	}
	bind(t, name, integerForm(0, maxUnixID), into, read, help)
}

// mode reads v as permission bits. It returns nil if they are invalid. They are a string because
// TOML has no octal numbers with a leading zero: 0660 is a syntax error, and 660 is another mode.
func (v value) mode() *uint32 {
	const (
		want      = `three octal digits such as "0660"`
		minDigits = 3
		// setuid, setgid and the sticky bit are refused.
		maxBits = 0o777
	)
	if n, isInt := v.raw.(int64); isInt {
		v.mistyped(want, baseHint(n, minDigits, octalBase))
		return nil
	}
	var mode *uint32
	v.checked(want, func(s string) (rule, hint string) {
		bits, err := strconv.ParseUint(s, 8, 32)
		if err != nil || bits > maxBits || len(s) < minDigits {
			return "is not a mode: want " + want, ""
		}
		mode = new(uint32)
		*mode = uint32(bits)
		return "", ""
	})
	return mode
}

// hookNames are the stages of hooks (OCI runtime specification, "POSIX-platform Hooks").
var hookNames = []string{"prestart", "createRuntime", "createContainer", "startContainer", "poststart", "poststop"}

// readHook reads a hook, with the keys of the CDI specification. The arguments begin with the name
// of the program, like argv of execve(2).
func readHook(v value) device.Hook {
	var h device.Hook
	v.read(func(t *table) {
		words(t, "hook_name", &h.Name, hookNames, "when the hook runs")
		t.require("hook_name", `a stage such as "createContainer"`, "")
		// The runtime does not search PATH: the OCI runtime specification requires an absolute
		// path.
		readPath := func(v value) string {
			return v.absolute(`a path such as "/usr/bin/nvidia-ctk"`)
		}
		bind(t, "path", stringForm, &h.Path, readPath, "absolute path of the program on the host")
		t.require("path", "the path of a program on the host", "")
		readArgs := func(v value) []string {
			return v.literals("a string or a list of strings")
		}
		bind(t, "args", stringsForm, &h.Args, readArgs, "arguments of the program, beginning with its name")
		bind(t, "env", stringsForm, &h.Env, value.hookEnv, `environment of the program: "NAME=VALUE"`)
		t.integer("timeout", &h.Timeout, 1, math.MaxInt32, "seconds after which the program is killed")
	})
	return h
}

// hookEnv reads v as the environment of a hook.
func (v value) hookEnv() []string {
	env := v.literals(`a list such as ["DEBUG=1"]`)
	for _, s := range env {
		// The value may be empty and may contain "=".
		name, _, hasValue := strings.Cut(s, "=")
		if !hasValue || name == "" {
			v.report(quote(s)+` is not NAME=VALUE: want a variable such as "DEBUG=1"`, "")
		}
	}
	return env
}
