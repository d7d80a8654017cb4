package main

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// distribution is a way to run a kubelet. doctor uses it to say how to start the kubelet of this
// host and where its sockets are.
type distribution struct {
	name string
	// processes are the names of its processes (proc_pid_comm(5)), which have at most 15 bytes.
	// It is empty if the process has the same name as another distribution's.
	processes []string
	// unit is its systemd unit, without suffix.
	unit string
	// restart is the command that restarts it. It is empty if that is "systemctl restart UNIT".
	restart string
	// kubelet is the directory of its kubelet.
	kubelet string
}

// defaultKubelet is the kubelet's own default of --root-dir. The defaults of the flags are below
// it.
const defaultKubelet = "/var/lib/kubelet"

// distributions are the distributions that doctor knows. The kubelet's own unit comes last, because
// the others may have it as well.
var distributions = []distribution{
	{
		name:      "k3s",
		processes: []string{"k3s-server", "k3s"},
		unit:      "k3s",
		kubelet:   "/var/lib/rancher/k3s/agent/kubelet",
	},
	{
		name:      "k3s agent",
		processes: []string{"k3s-agent"},
		unit:      "k3s-agent",
		kubelet:   "/var/lib/rancher/k3s/agent/kubelet",
	},
	{
		name:      "microk8s",
		processes: []string{"kubelite"},
		unit:      "snap.microk8s.daemon-kubelite",
		restart:   "snap restart microk8s.daemon-kubelite",
		kubelet:   "/var/snap/microk8s/common/var/lib/kubelet",
	},
	{
		name:      "k0s",
		processes: []string{"k0s"},
		unit:      "k0sworker",
		kubelet:   "/var/lib/k0s/kubelet",
	},
	{
		name:    "k0s controller",
		unit:    "k0scontroller",
		kubelet: "/var/lib/k0s/kubelet",
	},
	{
		name:      "kubelet",
		processes: []string{"kubelet"},
		unit:      "kubelet",
		kubelet:   defaultKubelet,
	},
}

// startCommand returns the command that starts or restarts a distribution. systemctl restart also
// starts a stopped unit.
func (k distribution) startCommand() string {
	if k.restart != "" {
		return k.restart
	}
	return "systemctl restart " + k.unit
}

// processNames returns the names of the running processes of the host. It reads /proc below root,
// since the /proc of a pod only has the pod's own processes. The result is nil if /proc is not
// mounted there.
func (d *doctor) processNames() []string {
	files, _ := filepath.Glob(filepath.Join(d.root, "proc/[0-9]*/comm")) // the pattern is valid
	var names []string
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			continue // the process has ended
		}
		names = append(names, strings.TrimSpace(string(text)))
	}
	return names
}

// unitDirs are the directories of systemd units (systemd.unit(5)). Distributions of Linux install
// units below usr/lib or lib, and installers, such as the k3s script, below etc.
var unitDirs = []string{"etc/systemd/system", "run/systemd/system", "usr/local/lib/systemd/system", "usr/lib/systemd/system", "lib/systemd/system"}

// hasUnit reports whether the host has a systemd unit, running or not. name has no suffix. It
// only looks at files, because systemd cannot be reached from a pod.
func (d *doctor) hasUnit(name string) bool {
	return slices.ContainsFunc(unitDirs, func(dir string) bool {
		_, err := os.Stat(filepath.Join(d.root, dir, name+".service"))
		return err == nil
	})
}

// installed returns the distribution of this host: the running one, or else the one with a unit.
// It returns nil if there is none. A running process is the better evidence, because units of an
// earlier installation may remain.
func (d *doctor) installed() *distribution {
	running := d.processNames()
	for i := range distributions {
		isRunning := func(process string) bool {
			return slices.Contains(running, process)
		}
		if slices.ContainsFunc(distributions[i].processes, isRunning) {
			return &distributions[i]
		}
	}
	for i := range distributions {
		if d.hasUnit(distributions[i].unit) {
			return &distributions[i]
		}
	}
	return nil
}

// dial returns an error if nothing listens on a Unix socket. A socket file without a listener
// remains after a crash, so its existence proves nothing. The error wraps fs.ErrNotExist if there
// is no file.
func dial(path string) error {
	conn, err := net.DialTimeout("unix", path, time.Second)
	if err != nil {
		return err
	}
	return conn.Close()
}

// kubelet checks the socket on which the kubelet accepts registrations, and the socket that shows
// which containers hold devices. A host without Kubernetes needs neither.
func (d *doctor) kubelet() {
	const check = "kubelet"
	socket := filepath.Join(d.paths.KubeletDir, "kubelet.sock")
	err := dial(socket)
	if err == nil {
		d.ok(check, socket+" answers")
		d.podResources()
		return
	}
	installed := d.installed()
	// A socket that exists but does not answer belongs to a kubelet, even if doctor knows none.
	isMissing := errors.Is(err, fs.ErrNotExist)
	d.isWithoutKubelet = isMissing && installed == nil
	if d.isWithoutKubelet && d.hasContainerTool() {
		d.ok(check, "no Kubernetes on this host: generic-dp serve --no-kubelet serves podman, docker and nerdctl")
		return
	}
	// *net.OpError would repeat the path.
	text := fmt.Sprintf("%s: %v", socket, errors.Unwrap(err))
	if isMissing {
		text = "no socket " + socket
	}
	d.add(problem, check, d.kubeletFix(installed), text)
	d.podResources()
}

// hasContainerTool reports whether the host has a tool that runs containers without Kubernetes.
func (d *doctor) hasContainerTool() bool {
	return slices.ContainsFunc(containerRuntimes, func(r containerRuntime) bool {
		_, err := os.Stat(filepath.Join(d.root, r.path))
		return err == nil && r.isStandalone
	})
}

// kubeletFix says how to get a kubelet's socket on this host: flags for a kubelet with another
// directory, or else a command. installed is nil if the host has no known distribution.
func (d *doctor) kubeletFix(installed *distribution) string {
	for _, k := range distributions {
		dir := filepath.Join(k.kubelet, "device-plugins")
		isNamed := filepath.Clean(d.paths.KubeletDir) == dir
		_, err := os.Stat(filepath.Join(d.root, dir))
		// The default directory may remain from an earlier installation, so it is never
		// suggested.
		if err == nil && !isNamed && k.kubelet != defaultKubelet {
			return fmt.Sprintf("--kubelet-dir %s --pod-resources %s/pod-resources/kubelet.sock", dir, k.kubelet)
		}
	}
	if installed != nil {
		return installed.startCommand()
	}
	return "install Kubernetes; a host without it only needs generic-dp serve --no-kubelet, for podman, docker and nerdctl"
}

// podResources checks the socket that shows which containers hold devices. Without it, devices
// are still served, so it is a warning.
func (d *doctor) podResources() {
	const check = "pod resources"
	err := dial(d.paths.PodResources)
	if err != nil {
		text := fmt.Sprintf("%s: holders of devices are unknown: %v", d.paths.PodResources, err)
		d.add(warning, check, "name the socket with --pod-resources", text)
		return
	}
	d.ok(check, d.paths.PodResources+" answers")
}
