package config

import (
	"strings"

	"github.com/generic-dp/generic-dp/internal/device"
)

// defaultPermissions of device nodes: containers do not need mknod(2).
const defaultPermissions = "rw"

// read binds the keys of container. c has their defaults. If the table is missing, read is not
// called, and the defaults stay.
func (c *Container) read(v value) {
	v.read(func(t *table) {
		t.text("path", &c.Path, nodePath,
			`path of a node in the container; a "/" at the end is a directory to put nodes in`)
		t.permissions(&c.Permissions, `what a container may do with nodes: some of "r" (read), "w" (write) and "m" (mknod)`)
		t.entries("env", &c.Env, "an environment variable", envKey, "environment variables of the container, by name")
		t.entries("annotations", &c.Annotations, "an annotation", annotationKey, "annotations of the container, by key")
		t.key("cdi", cdiForm, c.readCDI,
			"whether to inject devices by the name of a generated CDI spec, instead of nodes and mounts")
		bind(t, "cdi_devices", stringsForm, &c.CDIDevices, value.cdiDevices,
			"names of CDI devices of other specs on the host to inject along with every device")
		// The response to Allocate only has nodes, mounts, environment variables, annotations and CDI names
		// (ContainerAllocateResponse in k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1). The next keys need a
		// CDI spec.
		tableOf(t, "owner", &c.Owner, readOwner, `{ gid = 44, mode = "0660" }`, "owner of the nodes in the container; needs CDI")
		t.text("net_name", &c.NetName, netName,
			"name of a network interface in the container, at most 15 characters; needs CDI")
		tables(t, "hooks", &c.Hooks, readHook, `{ hook_name = "createContainer", path = "/usr/bin/hook" }`,
			"hooks, programs of the host that the runtime runs")
		t.integer("max_per_container", &c.MaxPerContainer, 1, maxCount,
			"how many slots of one device one container may get")
		bind(t, "health_dir", stringForm, &c.HealthDir, value.healthDir,
			"path of a read-only directory with the file healthy, which exists while the device is healthy and has not moved")
	})
	// The keys may be in any order, so that what depends on several of them follows here.
	c.resolveCDI()
	// The runtime runs hooks as root, whatever the security context of the pod permits.
	if len(c.Hooks) > 0 {
		v.child("hooks").needs("running programs as root on the host", allowHooks)
	}
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
	const example = `health_dir = "/run/device"`
	for _, tree := range healthTrees {
		below, isBelow := strings.CutPrefix(dir, tree+"/")
		if !isBelow {
			continue
		}
		if strings.HasPrefix(below+"/", "secrets/") {
			v.report(quote(dir)+" may hide the secrets of the pod: want a directory of its own", example)
		}
		return dir
	}
	// A relative path is already reported.
	if strings.HasPrefix(dir, "/") {
		v.report(quote(dir)+" may hide files that containers need: want a directory below /run, /tmp or /var/run", example)
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
	if rule, _ := absolutePath(s, s); rule != "" {
		v.report(quote(s)+" "+rule, "")
	}
	return s
}

// permissions binds a key to some of "rwm". The field gets them in that order, so that equal
// permissions are equal strings. The field keeps its default if the value is invalid.
func (t *table) permissions(into *string, help string) {
	const want = `some of "r", "w" and "m"`
	check := func(s string) (rule, hint string) {
		sorted := ""
		for _, p := range "rwm" {
			if strings.ContainsRune(s, p) {
				sorted += string(p)
			}
		}
		// sorted has each letter once: a repeated letter or another one makes s longer.
		hasOthers := len(sorted) != len(s)
		if s == "" || hasOthers {
			return "is not a set of permissions: want " + want + ", each once", ""
		}
		*into = sorted
		return "", ""
	}
	read := func(v value) {
		v.checked(want, check)
	}
	t.key("permissions", stringForm, read, help)
}

// cdiDevices reads v as a name with variables or a list of names.
func (v value) cdiDevices() []device.Text {
	var names []device.Text
	for _, e := range v.items() {
		name := e.text(cdiDevice)
		// text has reported the problem.
		if name == nil {
			continue
		}
		// The literal text before the first variable is the prefix of every result.
		e.needsCDI(name.String(), name[0].Literal)
		names = append(names, name)
	}
	return names
}
