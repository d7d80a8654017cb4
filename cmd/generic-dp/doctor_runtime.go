package main

import (
	"fmt"
	"io"
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
	// config is its main configuration file, and dropIns is a glob of files that are read after
	// it. A missing file means the defaults.
	config  string
	dropIns string
	// cdiSetting is the setting that makes it resolve CDI names, up to its value and without white
	// space. setting is how people write it. Empty means that it always does.
	cdiSetting, setting string
	// isContainerd is set for containerd, which only has CDI enabled by default since 2.0.
	isContainerd bool
	// isStandalone is set if people run containers with it without Kubernetes.
	isStandalone bool
}

// containerd returns the description of a containerd.
func containerd(name, path, config, dropIns string) containerRuntime {
	return containerRuntime{
		name:         name,
		path:         path,
		config:       config,
		dropIns:      dropIns,
		cdiSetting:   "enable_cdi=",
		setting:      "enable_cdi = true",
		isContainerd: true,
	}
}

// containerRuntimes are the runtimes that doctor knows. A host may have several of them: each is
// checked, since doctor does not know which one the kubelet uses.
var containerRuntimes = []containerRuntime{
	containerd("containerd", "/run/containerd/containerd.sock", "/etc/containerd/config.toml", "/etc/containerd/conf.d/*.toml"),
	containerd("containerd of k3s", "/run/k3s/containerd/containerd.sock",
		"/var/lib/rancher/k3s/agent/etc/containerd/config.toml", "/var/lib/rancher/k3s/agent/etc/containerd/config*.d/*.toml"),
	containerd("containerd of microk8s", "/var/snap/microk8s/common/run/containerd.sock", "/var/snap/microk8s/current/args/containerd.toml", ""),
	// k0s writes its part of the configuration to its run directory, with what it has imported.
	containerd("containerd of k0s", "/run/k0s/containerd.sock", "/etc/k0s/containerd.toml", "/etc/k0s/containerd.d/*.toml"),
	{
		name:    "CRI-O",
		path:    "/run/crio/crio.sock",
		config:  "/etc/crio/crio.conf",
		dropIns: "/etc/crio/crio.conf.d/*",
	},
	{
		name:         "docker",
		path:         "/run/docker.sock",
		config:       "/etc/docker/daemon.json",
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
		if d.exists(r.path) {
			found = true
			d.cdiSupport(r)
		}
	}
	if found {
		return
	}
	fix := "install one, such as containerd, CRI-O or podman"
	if d.options(io.Discard).InPod {
		fix = "mount the host's root, and name it with --root"
	}
	d.add(warning, "runtime", fix, "no container runtime found")
}

// cdiSupport checks whether a runtime resolves CDI names. A runtime that does not is a problem only if
// the configuration needs CDI: otherwise, containers get all devices without it.
func (d *doctor) cdiSupport(r containerRuntime) {
	const check = "runtime"
	settings := d.readSettings(r.config) + d.readSettings(r.dropIns)
	value := lastValue(settings, r.cdiSetting)
	isEnabled := strings.HasPrefix(value, "true")
	isDisabled := strings.HasPrefix(value, "false")
	// containerd 1 has configurations of version 2. It only resolves CDI names on request.
	mayBeOld := r.isContainerd && (settings == "" || strings.Contains(settings, "version=2"))
	fix := fmt.Sprintf("set %s in %s, and restart the runtime", r.setting, r.config)
	switch {
	case isDisabled && d.usesCDI():
		d.add(problem, check, fix, r.name+" does not resolve CDI names")
	case isDisabled:
		d.add(warning, check, fix, r.name+" does not resolve CDI names")
	case mayBeOld && !isEnabled && d.usesCDI():
		d.add(warning, check, fix, r.name+" before 2.0 only resolves CDI names if enable_cdi is set")
	default:
		d.ok(check, r.name)
	}
	// The list replaces the default directories of CDI specs.
	list, _, isSet := strings.Cut(lastValue(settings, "cdi_spec_dirs=["), "]")
	dirs := strings.FieldsFunc(list, func(c rune) bool {
		return strings.ContainsRune("\"',\n", c)
	})
	if isSet && d.usesCDI() && !slices.ContainsFunc(dirs, d.isSpecDir) {
		d.add(problem, "CDI directory", fmt.Sprintf("add %s to that list in %s, and restart the runtime", d.paths.CDIDir, r.config),
			fmt.Sprintf("%s only reads CDI specs in %s, not in %s", r.name, strings.Join(dirs, ", "), d.paths.CDIDir))
	}
}

// isSpecDir reports whether a directory is the directory of this program's CDI specs.
func (d *doctor) isSpecDir(dir string) bool {
	// /var/run is a link to /run.
	plain := func(dir string) string {
		return strings.TrimPrefix(filepath.Clean(dir), "/var")
	}
	return plain(dir) == plain(d.paths.CDIDir)
}

// readSettings reads the files of a glob below the root of the host, without comments and white
// space. The result is empty for an empty glob. The text is searched instead of parsed, since the
// tables of the settings differ between versions.
func (d *doctor) readSettings(glob string) string {
	if glob == "" {
		return ""
	}
	files, _ := filepath.Glob(filepath.Join(d.root, glob)) // an invalid pattern has no files
	var b strings.Builder
	for _, file := range files {
		text, _ := os.ReadFile(file) // a file that cannot be read means the defaults
		b.WriteString(withoutComments(string(text)))
	}
	return b.String()
}

// lastValue returns the text after the last place of a setting, empty if there is none: a later line
// overrides an earlier one. The end of the text is the last place of an empty setting.
func lastValue(settings, setting string) string {
	i := strings.LastIndex(settings, setting)
	if i < 0 {
		return ""
	}
	return settings[i+len(setting):]
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
	isDefault := d.isSpecDir("/run/cdi") || d.isSpecDir(cdi.StaticDir)
	if d.usesCDI() && !isDefault {
		dir := filepath.Clean(d.paths.CDIDir)
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
