package config

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/generic-dp/generic-dp/internal/device"
)

// defaultPermissions of device nodes: containers do not need mknod(2).
const defaultPermissions = "rw"

// defaultContainer has the defaults of the keys of container, also if the table is missing.
func defaultContainer() Container { return Container{Permissions: defaultPermissions, AutoCDI: true} }

// readContainer reads the table container.
func readContainer(v value) Container {
	c := defaultContainer()
	v.read(func(t *table) {
		t.text("path", &c.Path, nodePath,
			`path of a node in the container; a "/" at the end is a directory to put nodes in`)
		t.permissions(&c.Permissions, `what a container may do with nodes: some of "r" (read), "w" (write) and "m" (mknod)`)
		t.entries("env", &c.Env, "an environment variable", envKey, "environment variables of the container, by name")
		t.entries("annotations", &c.Annotations, "an annotation", annotationKey, "annotations of the container, by key")
		t.key("cdi", c.readCDI,
			"whether to inject devices by the name of a generated CDI spec, instead of nodes and mounts")
		// The response to Allocate only has nodes, mounts, environment variables, annotations and CDI names
		// (ContainerAllocateResponse in k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1). The next keys need a
		// CDI spec.
		tableOf(t, "owner", &c.Owner, readOwner, `{ gid = 44, mode = "0660" }`, "owner of the nodes in the container; needs CDI")
		t.text("net_name", &c.NetName, netName,
			"name of a network interface in the container, at most 15 characters; needs CDI")
		tables(t, "hooks", &c.Hooks, readHook, `{ hook_name = "createContainer", path = "/usr/bin/hook" }`,
			"hooks, programs of the host that the runtime runs")
		t.count("max_per_container", &c.MaxPerContainer, maxCount,
			"how many slots of one device one container may get")
		bind(t, "health_dir", &c.HealthDir, value.healthDir,
			"path of a read-only directory with the file healthy, which exists while the device is healthy and has not moved")
	})
	// The keys may be in any order, so that what depends on several of them follows here.
	c.resolveCDI()
	// The runtime runs hooks as root, whatever the security context of the pod permits.
	if len(c.Hooks) > 0 {
		v.child("hooks").needs("running programs as root on the host", allowHooks, false)
	}
	return c
}

// readCDI reads v as a boolean or "auto". Any other string is reported as no boolean. AutoCDI and CDI are
// never both set.
func (c *Container) readCDI(v value) {
	c.AutoCDI = v.raw == autoCDI
	if !c.AutoCDI {
		c.CDI = v.boolean(`true, false or "auto"`)
	}
}

// autoCDI is the default of cdi: CDI names where the name of a node matters to programs, and nodes
// elsewhere.
const autoCDI = "auto"

// resolveCDI turns "auto" into true if a key requires a CDI spec.
// It runs before the checks of the resource, which report a key that requires CDI without it.
func (c *Container) resolveCDI() {
	if !c.AutoCDI {
		return
	}
	hasKeyOfCDI := c.Owner != nil || len(c.NetName) > 0
	if hasKeyOfCDI || len(c.Hooks) > 0 {
		c.CDI = true
		c.AutoCDI = false
	}
}

// healthTrees are the directories below which a health directory may be. They are for data of the
// running system: a mount below them hides no program, library or certificate. The secrets of the pod
// are an exception.
var healthTrees = []string{"/run", "/tmp", "/var/run"}

// healthDir reads v as the path of a directory that hides no file that a container needs.
func (v value) healthDir() string {
	dir := v.absolute(`a path such as "/run/device"`)
	for _, tree := range healthTrees {
		below, isBelow := strings.CutPrefix(dir, tree+"/")
		if isBelow && !strings.HasPrefix(below+"/", "secrets/") {
			return dir
		}
	}
	// A relative path is already reported.
	if strings.HasPrefix(dir, "/") {
		v.report(quote(dir) + " may hide files that containers need: want a directory of its own below /run, /tmp or /var/run")
	}
	return dir
}

// absolute reads v as an absolute path without variables.
// It returns the text even if it is not absolute. The problem makes Parse fail.
func (v value) absolute(want string) string {
	s, ok := v.literal(want)
	if !ok {
		return s
	}
	// The text has no variables, so that it is its own sample.
	v.violates(s, absolutePath(s, s))
	return s
}

// permissions binds a key to some of "rwm". The field gets them in that order, so that equal
// permissions are equal strings. The field keeps its default if the value is invalid.
func (t *table) permissions(into *string, help string) {
	const want = `some of "r", "w" and "m"`
	check := func(s string) error {
		sorted := ""
		for _, p := range "rwm" {
			if strings.ContainsRune(s, p) {
				sorted += string(p)
			}
		}
		// sorted has each letter once: a repeated letter or another one makes s longer.
		hasOthers := len(sorted) != len(s)
		if s == "" || hasOthers {
			return broken("is not a set of permissions: want " + want + ", each once")
		}
		*into = sorted
		return nil
	}
	read := func(v value) {
		v.checked(want, check)
	}
	t.key("permissions", read, help)
}

// entries binds a key to a table of environment variables or annotations, whose keys are
// arbitrary. what names an entry in messages.
func (t *table) entries(name string, into *[]device.Entry, what string, keys role, help string) {
	read := func(v value) []device.Entry {
		return v.entries(what, keys)
	}
	bind(t, name, into, read, help)
}

// entries reads v as a table of environment variables or annotations.
// The order is the order of the names, so that the response to Allocate does not change between two
// reads of one text.
func (v value) entries(what string, keys role) []device.Entry {
	var all []device.Entry
	for name, e := range v.userKeys("of strings", "the name of "+what) {
		entry, ok := e.entry()
		if !ok {
			continue
		}
		key := v.key(name)
		// The name of the entry may have variables of its own, such as "DEVICE_${index}".
		entry.Key = key.text(keys)
		// Only a value that differs between devices is joined with the separator. Any other value
		// appears once per container.
		entry.PerDevice = perDevice(entry.Value)
		// Annotations that a program interprets are refused in any case: see annotationName. CheckEnv
		// checks the real names.
		program := interpretedBy(environment, sample(entry.Key))
		if v.name == "env" && program != "" {
			key.needs("environment variable "+quote(name)+", which "+program+" reads,", allowEnv, false)
		}
		all = append(all, entry)
	}
	v.reportTwice(all)
	return all
}

// reportTwice reports a key that is also the value of a key with a variable: "A_1" and "A_${index}" are one
// variable of a container with two devices. Keys that depend on the device are compared in each container.
func (v value) reportTwice(entries []device.Entry) {
	var fixed []string
	for _, e := range entries {
		if len(e.Key.Vars()) == 0 {
			fixed = append(fixed, e.Key.String())
		}
	}
	for _, open := range entries {
		names := open.Key.Vars()
		if len(names) != 1 {
			continue
		}
		before, after, _ := strings.Cut(open.Key.String(), "${"+names[0]+"}")
		for _, name := range fixed {
			number, hasBefore := strings.CutPrefix(name, before)
			number, hasAfter := strings.CutSuffix(number, after)
			if hasBefore && hasAfter && isPlace(names[0], number) {
				v.key(name).report(fmt.Sprintf("%s is also what %s is in some containers", quote(name), quote(open.Key.String())))
			}
		}
	}
}

// isPlace reports whether the variable of a container's device can have a value.
func isPlace(name, value string) bool {
	n, err := strconv.ParseUint(value, 10, 16)
	isNumber := err == nil && strconv.FormatUint(n, 10) == value
	isIndex := name == device.IndexVar
	isCount := name == device.CountVar && n > 0
	return isNumber && (isIndex || isCount)
}

// entry reads v as the value of an environment variable or an annotation: a string or a table.
func (v value) entry() (e device.Entry, ok bool) {
	if v.table() != nil {
		return readEntry(v), true
	}
	e.Value = v.text(entryValue)
	// An empty text is nil as well, but it is a valid value of a variable.
	isEmptyString := v.raw == ""
	return e, e.Value != nil || isEmptyString
}

// readEntry reads a value of env or annotations that is a table. An empty Separator means the
// default, a comma, so that an explicit empty separator must be refused.
func readEntry(v value) device.Entry {
	var e device.Entry
	v.read(func(t *table) {
		t.text("value", &e.Value, entryValue, "the value for one device")
		t.require("value", "the value for one device")
		t.literal("separator", &e.Separator, "text between the values of several devices")
		t.literal("prefix", &e.Prefix, "text before all values")
		t.literal("suffix", &e.Suffix, "text after all values")
	})
	separator := v.child("separator")
	if separator.raw == "" {
		separator.report(`"" is empty: want the text between the values of several devices`, `the default is ","`)
	}
	return e
}

// maxUnixID is the highest ID of a user or group. The number above it stands for "unchanged"
// (chown(2)).
const maxUnixID = math.MaxUint32 - 1

// readOwner reads the table owner. Keys that are not set stay nil: the runtime decides about them.
func readOwner(v value) *device.Owner {
	o := new(device.Owner)
	v.read(func(t *table) {
		t.unixID("uid", &o.UID, "number of a user")
		t.unixID("gid", &o.GID, "number of a group")
		bind(t, "mode", &o.Mode, value.mode, "permissions, three octal digits")
	})
	return o
}

// unixID binds a key to the ID of a user or group. A pointer distinguishes root, which is 0, from
// an ID that is not set.
func (t *table) unixID(name string, into **uint32, help string) {
	read := func(v value) *uint32 {
		id := uint32(v.integer(0, maxUnixID))
		return &id
	}
	bind(t, name, into, read, help)
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
	var mode *uint32
	v.checked(want, func(s string) error {
		bits, err := strconv.ParseUint(s, 8, 32)
		if err != nil || bits > maxBits || len(s) < minDigits {
			return broken("is not a mode: want " + want)
		}
		mode = new(uint32)
		*mode = uint32(bits)
		return nil
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
		t.require("hook_name", `a stage such as "createContainer"`)
		// The runtime does not search PATH: the OCI runtime specification requires an absolute
		// path.
		readPath := func(v value) string {
			return v.absolute(`a path such as "/usr/bin/nvidia-ctk"`)
		}
		bind(t, "path", &h.Path, readPath, "absolute path of the program on the host")
		t.require("path", "the path of a program on the host")
		readTexts := func(v value) []string {
			return v.literals("a string or a list of strings")
		}
		bind(t, "args", &h.Args, readTexts, "arguments of the program, beginning with its name")
		bind(t, "env", &h.Env, value.hookEnv, `environment of the program: "NAME=VALUE"`)
		t.count("timeout", &h.Timeout, math.MaxInt32, "seconds after which the program is killed")
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
			v.report(quote(s) + ` is not NAME=VALUE: want a variable such as "DEBUG=1"`)
		}
	}
	return env
}

// readCompanion reads an element of with. A path outside of /dev is a mount. Below /dev, the host decides
// whether it is a device node or a mount.
func readCompanion(v value) Companion {
	c := Companion{
		Place:       v.fullPlace(),
		Permissions: defaultPermissions,
	}
	v.read(func(t *table) {
		t.key("path", c.readPath, "path of a device node, file, socket or directory, or a pattern")
		t.require("path", `a path such as "/dev/kfd"`)
		t.text("container_path", &c.ContainerPath, companionPath,
			`path in the container; a "/" at the end is a directory to put nodes in`)
		t.boolean("optional", &c.Optional, "whether a device without the companion is Healthy")
		t.permissions(&c.Permissions, `permissions of a device node, or "r" or "rw" of a mount`)
	})
	// Containers only write to files of the host if the author of the configuration says so.
	c.ReadOnly = !v.has("permissions") || !strings.Contains(c.Permissions, "w")
	if c.Mount {
		v.child("permissions").wantMountPermissions(c.Permissions)
	}
	return c
}

// readPath reads v as the path or the pattern of a companion, and records the mount that it
// requests.
func (c *Companion) readPath(v value) {
	written, _ := v.raw.(string)
	parsed, _ := parseText(written) // text reports its problems
	// Variables are not known yet, but the values of most of them have no "/".
	isOfDev := strings.HasPrefix(sample(parsed), devDir)
	if isPattern(parsed) {
		c.Path = v.text(hostGlob)
		c.Glob = v.glob(c.Path, isOfDev)
		c.Mount = !isOfDev
		if c.Mount {
			v.needsMounts(c.Glob)
		}
		return
	}
	c.Path = v.text(hostPath)
	c.Mount = len(c.Path) > 0 && !isOfDev
	if c.Mount {
		v.needsMount(c.Path.String(), c.Path[0].Literal, len(c.Path.Vars()) == 0)
	}
}

// wantMountPermissions reports permissions that a mount cannot have. v may be missing.
func (v value) wantMountPermissions(permissions string) {
	isGiven := v.raw != nil
	if isGiven && permissions != "r" && permissions != "rw" {
		v.report(quote(permissions) + ` is for device nodes: want "r" or "rw" for a mount`)
	}
}
