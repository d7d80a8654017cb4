package main

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/generic-dp/generic-dp/cdi"
	"github.com/generic-dp/generic-dp/config"
)

// containerRuntime is a container runtime, and how to find it on a host.
type containerRuntime struct {
	name string
	// path is its socket, or its program if it has no socket. It is below the root of the host.
	path string
	// config is its configuration file, empty if it has no settings for CDI. The file may be
	// missing, which means the defaults.
	config string
	// cdiSetting is the setting that makes it resolve CDI names, up to its value and without white
	// space. setting is how people write it. Empty means containerd's.
	cdiSetting, setting string
	// isStandalone is set if people run containers with it without Kubernetes.
	isStandalone bool
}

// containerRuntimes are the runtimes that doctor knows. A host may have several of them: each is
// checked, since doctor does not know which one the kubelet uses.
var containerRuntimes = []containerRuntime{
	{
		name:   "containerd",
		path:   "/run/containerd/containerd.sock",
		config: "/etc/containerd/config.toml",
	},
	{
		name:   "containerd of k3s",
		path:   "/run/k3s/containerd/containerd.sock",
		config: "/var/lib/rancher/k3s/agent/etc/containerd/config.toml",
	},
	{
		name:   "CRI-O",
		path:   "/run/crio/crio.sock",
		config: "/etc/crio/crio.conf",
	},
	{
		name:   "docker",
		path:   "/run/docker.sock",
		config: "/etc/docker/daemon.json",

		cdiSetting:   `"cdi":`,
		setting:      `"features": {"cdi": true}`,
		isStandalone: true,
	},
	{
		name:         "podman",
		path:         "/usr/bin/podman",
		isStandalone: true,
	},
}

// usesCDI reports whether a resource of the configuration is injected by CDI names. container.cdi
// = "auto" does not count, because its devices are usable without CDI.
func (d *doctor) usesCDI() bool {
	return slices.ContainsFunc(d.cfg.Resources, func(r config.Resource) bool {
		return r.Container.CDI
	})
}

// runtime finds the container runtimes of the host, and checks whether they resolve CDI names. A
// runtime counts as present if its path exists, whether or not it runs.
func (d *doctor) runtime() {
	found := false
	for _, r := range containerRuntimes {
		_, err := os.Stat(filepath.Join(d.root, r.path))
		if err == nil {
			found = true
			d.cdiSupport(r)
		}
	}
	if !found {
		d.add(warning, "runtime", "in a pod: mount the host's root, and name it with --root", "no container runtime found")
	}
}

// cdiSupport checks whether a runtime resolves CDI names. It is a problem only if the
// configuration needs CDI: otherwise, containers get all devices without it. It searches the text
// of the file instead of parsing it, since the table of the setting differs between versions.
func (d *doctor) cdiSupport(r containerRuntime) {
	const check = "runtime"
	text, _ := os.ReadFile(filepath.Join(d.root, r.config)) // a missing file means defaults
	settings := withoutComments(string(text))
	cdiSetting := cmp.Or(r.cdiSetting, "enable_cdi=")
	isEnabled := strings.Contains(settings, cdiSetting+"true")
	isDisabled := strings.Contains(settings, cdiSetting+"false")
	// containerd 1 has configurations of version 2. It only resolves CDI names on request.
	isOld := strings.Contains(settings, "version=2")
	setting := cmp.Or(r.setting, "enable_cdi = true")
	fix := fmt.Sprintf("set %s in %s, and restart the runtime", setting, r.config)
	if isDisabled {
		status := warning
		if d.usesCDI() {
			status = problem
		}
		d.add(status, check, fix, r.name+" does not resolve CDI names")
		return
	}
	if isOld && !isEnabled && d.usesCDI() {
		d.add(warning, check, fix, r.name+" before 2.0 only resolves CDI names if enable_cdi is set")
		return
	}
	d.ok(check, r.name)
}

// withoutComments returns a TOML text without comments and white space. A line such as "#
// enable_cdi = false" in the default configuration of containerd is not a setting. A # inside a
// string also ends its line, which the settings that doctor searches for never have.
func withoutComments(text string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		line, _, _ = strings.Cut(line, "#")
		b.WriteString(strings.Join(strings.Fields(line), "") + "\n")
	}
	return b.String()
}

// cdiDirectory checks that runtimes read the directory of CDI specs. It adds a finding only if
// the configuration needs CDI and the directory is not one of the defaults of runtimes.
func (d *doctor) cdiDirectory() {
	readByRuntimes := []string{"/var/run/cdi", "/run/cdi", cdi.StaticDir}
	dir := filepath.Clean(d.paths.CDIDir)
	if d.usesCDI() && !slices.Contains(readByRuntimes, dir) {
		d.add(warning, "CDI directory", "--cdi-dir /var/run/cdi", "runtimes only read "+dir+" if they are configured to")
	}
}

// seLinux checks whether SELinux lets containers open devices. The policy denies it to the usual
// type of containers, whatever the owner and mode of a node, unless the boolean
// container_use_devices is set.
func (d *doctor) seLinux() {
	const check = "SELinux"
	isEnforcing := d.readSELinux("enforce") == "1"
	if !isEnforcing {
		d.ok(check, "not enforcing")
		return
	}
	// The file has the current and the pending value: "1 1".
	mayUseDevices := strings.HasPrefix(d.readSELinux("booleans/container_use_devices"), "1")
	if mayUseDevices {
		d.ok(check, "enforcing, containers may use devices")
		return
	}
	d.add(warning, check, "setsebool -P container_use_devices 1",
		"enforcing: containers without an SELinux type of their own cannot open devices")
}

// readSELinux reads a file of selinuxfs, which is mounted below /sys. It returns an empty string
// without SELinux.
func (d *doctor) readSELinux(name string) string {
	text, _ := os.ReadFile(filepath.Join(d.paths.Sysfs, "fs/selinux", name))
	return strings.TrimSpace(string(text))
}
