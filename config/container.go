package config

import (
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/generic-dp/generic-dp/internal/device"
)

// defaultPermissions of device nodes, without mknod.
const defaultPermissions = "rw"

// read binds the keys of container, with its defaults in c.
func (c *Container) read(v value) {
	v.read(func(t *table) {
		t.text("path", &c.Path, nodePath,
			`path of a node in the container; a "/" at the end is a directory to put nodes in`)
		t.permissions(&c.Permissions, `what a container may do with nodes: some of "r" (read), "w" (write) and "m" (mknod)`)
		t.entries("env", &c.Env, "an environment variable", envKey, "environment variables of the container, by name")
		t.entries("annotations", &c.Annotations, "an annotation", annotationKey, "annotations of the container, by key")
		tables(
			t,
			"mounts",
			&c.Mounts,
			readMount,
			`{ host_path = "/run/vendor", container_path = "/run/vendor" }`,
			"bind mounts",
		)
		t.key("cdi", func() form {
			return form{"anyOf": []form{booleanForm(), {"enum": []string{autoCDI}}}}
		},
			func(v value) {
				c.CDI, c.AutoCDI = v.cdi()
			},
			"whether to inject devices by the name of a generated CDI spec, instead of nodes and mounts")
		t.key("cdi_devices", stringsForm, func(v value) {
			c.CDIDevices = v.cdiDevices()
		},
			"names of CDI devices of other specs on the host to pass along with every device")
		t.key("follow", booleanForm, func(v value) {
			c.NoFollow = !v.boolean("true or false")
		},
			"whether the kubelet gets a link that follows the device to its node after a replug")
		t.table("owner", func(v value) {
			c.Owner = readOwner(v)
		}, `{ gid = 44, mode = "0660" }`, "owner of the nodes in the container; needs CDI")
		t.text("net_name", &c.NetName, netName,
			"name of a network interface in the container, at most 15 characters; needs CDI")
		tables(t, "hooks", &c.Hooks, readHook, `{ hook_name = "createContainer", path = "/usr/bin/hook" }`,
			"hooks, programs of the host that the runtime runs")
		t.key("additional_gids", func() form {
			return oneOrMore(integerForm(1, maxUnixID))
		},
			func(v value) {
				c.AdditionalGIDs = v.additionalGIDs()
			},
			"additional groups of the container's processes, by number; needs CDI")
		t.integer(
			"max_per_container",
			&c.MaxPerContainer,
			1,
			maxCount,
			"how many slots of one device one container may get",
		)
		t.key("health_dir", stringForm, func(v value) {
			c.HealthDir = v.healthDir()
		},
			"path of a read-only directory with the file healthy, which exists while all devices of the container are healthy and where they were")
		t.duration(
			"health_hold",
			&c.HealthHold,
			time.Second,
			`"30s" or "1m"`,
			"how long that file stays away at least after a device went or moved",
		)
	})
	if c.AutoCDI && (c.Owner != nil || len(c.NetName)+len(c.Hooks)+len(c.AdditionalGIDs) > 0) {
		c.CDI = true
		c.AutoCDI = false
	}
	if v.has("health_hold") && !v.has("health_dir") {
		v.child("health_hold").report("requires health_dir", `health_dir = "/run/device" is a directory in the container`)
	} else if c.HealthDir != "" && c.HealthHold == 0 {
		c.HealthHold = defaultHealthHold
	}
	if len(c.Hooks) > 0 {
		v.child("hooks").needs(
			"running programs as root on the host",
			allowHooks,
			func(a Allow) bool { return a.Hooks },
		)
	}
}

// systemDirs are directories of containers that a mount must not replace: programs,
// libraries and accounts of the image, the file systems of the kernel, and what the runtime
// and the kubelet put there (/etc/hosts, /run/secrets). The whole tree is needed below
// those in systemTrees, where a read-only directory could also not be created.
var (
	systemDirs = []string{
		"/", "/bin", "/boot", "/dev", "/etc", "/home", "/lib", "/lib32", "/lib64", "/libx32", "/mnt", "/opt", "/root", "/run", "/run/secrets", "/sbin", "/srv",
		"/tmp", "/usr", "/usr/bin", "/usr/lib", "/usr/lib64", "/usr/local", "/usr/local/bin", "/usr/local/lib", "/usr/sbin", "/usr/share",
		"/var", "/var/lib", "/var/log", "/var/run", "/var/run/secrets", "/var/tmp",
	}
	systemTrees = []string{"/dev", "/proc", "/sys", "/run/secrets/kubernetes.io", "/var/run/secrets/kubernetes.io"}
)

// healthDir reads v as the path of a directory that hides nothing which a container needs.
func (v value) healthDir() string {
	dir := v.absolute(`a path such as "/run/device"`)
	isBelow := func(tree string) bool {
		return dir == tree || strings.HasPrefix(dir, tree+"/")
	}
	if slices.Contains(systemDirs, dir) || slices.ContainsFunc(systemTrees, isBelow) {
		v.report(quote(dir)+" would hide files that containers need: want a directory of its own", `health_dir = "/run/device"`)
	}
	return dir
}

const autoCDI = "auto"

// cdi reads v as true, false or "auto".
func (v value) cdi() (always, auto bool) {
	if v.raw == autoCDI {
		return false, true
	}
	return v.boolean(`true, false or "auto"`), false
}

// permissions binds a key to some of "rwm", in that order.
func (t *table) permissions(into *string, help string) {
	const want = `some of "r", "w" and "m"`
	t.key("permissions", stringForm, func(v value) {
		v.checked(want, func(s string) (rule, hint string) {
			out := ""
			for _, p := range "rwm" {
				if strings.ContainsRune(s, p) {
					out += string(p)
				}
			}
			if s == "" || len(out) != len(s) {
				return "is not a set of permissions: want " + want + ", each once", ""
			}
			*into = out
			return "", ""
		})
	}, help)
}

func readMount(v value) Companion {
	m := Companion{Place: v.fullPlace(), Mount: true, ReadOnly: true}
	v.read(func(t *table) {
		t.text("host_path", &m.Path, mountPath, "absolute path on the host")
		t.require("host_path", "an absolute path on the host", "")
		t.text("container_path", &m.ContainerPath, mountPath, "absolute path in the container")
		t.require("container_path", "an absolute path in the container", "")
		t.boolean("read_only", &m.ReadOnly, "whether a mount is read-only")
		t.boolean("optional", &m.Optional, "whether to leave it out while host_path is missing")
	})
	v.child("host_path").needsMountOf(m.Path)
	return m
}

// entries binds a key to a table of environment variables or annotations with arbitrary
// keys; what names an entry in messages.
func (t *table) entries(name string, into *[]device.Entry, what string, keys role, help string) {
	t.key(name, func() form {
		entry := t.belowUserKeys(name, func(v value) {
			readEntry(v)
		})
		return userKeysForm(form{"anyOf": []form{stringForm(), entry}})
	}, func(v value) {
		*into = v.entries(what, keys)
	}, help)
}

func (v value) entries(what string, keys role) []device.Entry {
	var out []device.Entry
	for name, e := range v.userKeys("of strings", "the name of "+what) {
		var entry device.Entry
		if e.keys() != nil {
			entry = readEntry(e)
		} else if entry.Value = e.text(entryValue); entry.Value == nil && e.raw != "" {
			continue
		}
		key := v.key(name)
		entry.Key = key.text(keys)
		if by := interpretedBy(environment, sample(entry.Key), false); by != "" && v.name == "env" {
			key.needs(
				"environment variable "+quote(name)+", which "+by+" reads,",
				allowEnv,
				func(a Allow) bool { return a.Env },
			)
		}
		entry.PerDevice = perDevice(entry.Value)
		out = append(out, entry)
	}
	return out
}

// readEntry reads a value of env or annotations that is a table.
func readEntry(v value) (e device.Entry) {
	v.read(func(t *table) {
		t.text("value", &e.Value, entryValue, "the string for one device")
		t.require("value", "the value for one device", "")
		t.literal("separator", &e.Separator, "between the values of several devices")
		t.literal("prefix", &e.Prefix, "before all of them")
		t.literal("suffix", &e.Suffix, "after all of them")
	})
	if separator := v.child("separator"); separator.raw == "" {
		separator.report(`"" is empty: want the text between the values of several devices`, `the default is ","`)
	}
	return e
}

// maxUnixID: the highest number stands for "unchanged" (chown(2)).
const maxUnixID = math.MaxUint32 - 1

func readOwner(v value) *device.Owner {
	o := new(device.Owner)
	v.read(func(t *table) {
		t.unixID("uid", &o.UID, "number of a user")
		t.unixID("gid", &o.GID, "number of a group")
		t.key("mode", stringForm, func(v value) {
			o.Mode = v.mode()
		}, "permissions, three octal digits")
	})
	if v.isEmpty() {
		v.report("the table is empty: want at least one of uid, gid and mode", "")
	}
	return o
}

func (t *table) unixID(name string, into **uint32, help string) {
	t.key(name, func() form {
		return integerForm(0, maxUnixID)
	}, func(v value) {
		id := uint32(v.integer(0, maxUnixID))
		*into = &id
	}, help)
}

// mode reads v as permission bits.
func (v value) mode() (mode *uint32) {
	const want = `three octal digits such as "0660"`
	if n, isInt := v.raw.(int64); isInt {
		v.mistyped(want, baseHint(n, 3, 8, "0o"))
		return nil
	}
	v.checked(want, func(s string) (rule, hint string) {
		bits, err := strconv.ParseUint(s, 8, 32)
		if err != nil || bits > 0o777 || len(s) < 3 {
			return "is not a mode: want " + want, ""
		}
		mode = new(uint32)
		*mode = uint32(bits)
		return "", ""
	})
	return mode
}

// additionalGIDs reads v as a list of groups, or one. The CDI library drops 0.
func (v value) additionalGIDs() (gids []uint32) {
	for _, e := range v.items() {
		gids = append(gids, uint32(e.integer(1, maxUnixID)))
	}
	return gids
}

// cdiDevices reads v as a name with variables or a list of them.
func (v value) cdiDevices() (names []device.Text) {
	for _, e := range v.items() {
		if text := e.text(cdiDevice); text != nil {
			e.needsCDI(text.String(), text[0].Literal)
			names = append(names, text)
		}
	}
	return names
}

// hookNames are the stages of hooks (OCI runtime specification, "POSIX-platform
// Hooks").
var hookNames = []string{"prestart", "createRuntime", "createContainer", "startContainer", "poststart", "poststop"}

// readHook reads the keys of hooks in the CDI specification.
func readHook(v value) (h device.Hook) {
	v.read(func(t *table) {
		words(t, "hook_name", &h.Name, hookNames, "when it runs")
		t.require("hook_name", `a stage such as "createContainer"`, "")
		t.key("path", stringForm, func(v value) {
			h.Path = v.absolute(`a path such as "/usr/bin/nvidia-ctk"`)
		}, "absolute path of the program on the host")
		t.require("path", "the path of a program on the host", "")
		t.key("args", stringsForm, func(v value) {
			h.Args = v.literals("a string or a list of strings")
		},
			"its arguments, the name of the program first")
		t.key("env", stringsForm, func(v value) {
			h.Env = v.hookEnv()
		}, `its environment: "NAME=VALUE"`)
		t.integer("timeout", &h.Timeout, 1, math.MaxInt32, "seconds until it is stopped")
	})
	return h
}

// absolute reads v as an absolute path without variables.
func (v value) absolute(want string) string {
	s, ok := v.literal(want)
	if rule, _ := absolutePath(s, s); ok && rule != "" {
		v.report(quote(s)+" "+rule, "")
	}
	return s
}

func (v value) hookEnv() []string {
	env := v.literals(`a list such as ["DEBUG=1"]`)
	for _, s := range env {
		if name, _, ok := strings.Cut(s, "="); !ok || name == "" {
			v.report(quote(s)+` is not NAME=VALUE: want a variable such as "DEBUG=1"`, "")
		}
	}
	return env
}

// asMount is the only value of as.
const asMount = "mount"

// as binds a key that selects files and directories instead of nodes.
func (t *table) as(mount *bool, help string) {
	t.key("as", func() form { return form{"enum": []string{asMount}} },
		func(v value) {
			word(v, []string{asMount})
			*mount = true
		}, help)
}

// readCompanion reads a companion of with.
func readCompanion(v value) Companion {
	c := Companion{Place: v.fullPlace(), ReadOnly: true, Permissions: defaultPermissions}
	v.read(func(t *table) {
		// as comes first: it determines the valid paths and globs.
		t.as(&c.Mount, `"mount": files and directories, as bind mounts`)
		path := companionNode
		glob := nodeGlob
		if c.Mount {
			path = mountPath
			glob = mountGlob
		}
		t.text("path", &c.Path, path, "path of a device node")
		t.text("host_path", &c.Path, path, "path of what to mount")
		t.key("glob", stringForm, func(v value) {
			c.Glob = v.glob(glob)
		}, "one pattern without variables, instead of either")
		t.text("container_path", &c.ContainerPath, companionPath,
			`path in the container; a "/" at the end is a directory for it`)
		t.boolean("optional", &c.Optional, "whether a device without it is Healthy")
		t.permissions(&c.Permissions, "permissions of a device node")
		t.boolean("read_only", &c.ReadOnly, "whether a mount is read-only")
	})
	given := slices.DeleteFunc([]string{"host_path", "path", "glob"}, func(key string) bool {
		return !v.has(key)
	})
	switch {
	case len(given) == 0:
		v.report("missing key: want one of path, host_path and glob", "")
	case len(given) > 1:
		v.report(strings.Join(given, " and ")+" cannot be combined: want one of them", "")
	case !c.Mount && given[0] == "host_path":
		v.child("host_path").report(`is only for mounts: use path for a device node, or as = "mount"`, "")
	case !c.Mount:
	case given[0] == "glob":
		v.child("glob").needsMounts(c.Glob)
	default:
		v.child(given[0]).needsMountOf(c.Path)
		if given[0] == "path" {
			v.child("path").note("the path of a mount is called host_path, as in container.mounts; path is still accepted", "")
		}
	}
	if c.Mount && v.has("permissions") {
		v.child("permissions").report("is only for device nodes: use read_only for a mount", "")
	}
	v.refuseReadOnlyNode(c.Mount)
	return c
}

func (v value) refuseReadOnlyNode(mount bool) {
	if !mount && v.has("read_only") {
		v.child("read_only").report(`is only for mounts: use permissions for a device node, or as = "mount"`, `permissions = "r" only allows reading`)
	}
}
