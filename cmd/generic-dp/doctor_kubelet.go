package main

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// kubelets are the directories of kubelets: of k3s, microk8s and k0s, and the kubelet's own default
// of --root-dir. The defaults of the flags are below the last one.
var kubelets = []string{
	"/var/lib/rancher/k3s/agent/kubelet",
	"/var/snap/microk8s/common/var/lib/kubelet",
	"/var/lib/k0s/kubelet",
	"/var/lib/kubelet",
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
	// A socket that exists but does not answer belongs to a kubelet, wherever its directory is.
	isMissing := errors.Is(err, fs.ErrNotExist)
	isWithoutKubelet := isMissing && !slices.ContainsFunc(kubelets, d.exists)
	if isWithoutKubelet && slices.ContainsFunc(containerRuntimes, d.isStandalone) {
		d.ok(check, "no Kubernetes on this host: generic-dp serve --no-kubelet serves podman, docker and nerdctl")
		return
	}
	// *net.OpError would repeat the path.
	text := fmt.Sprintf("%s: %v", socket, errors.Unwrap(err))
	if isMissing {
		text = "no socket " + socket
	}
	d.add(problem, check, d.kubeletFix(), text)
	d.podResources()
}

// exists reports whether the host has a path.
func (d *doctor) exists(path string) bool {
	_, err := os.Stat(filepath.Join(d.root, path))
	return err == nil
}

// kubeletFix says how to get a kubelet's socket on this host: flags for a kubelet with another
// directory, unless the flags name it. The default directory may remain from an earlier
// installation, so it is never suggested.
func (d *doctor) kubeletFix() string {
	for _, kubelet := range kubelets[:len(kubelets)-1] {
		plugins := filepath.Join(kubelet, "device-plugins")
		if d.exists(plugins) && filepath.Clean(d.paths.KubeletDir) != plugins {
			return fmt.Sprintf("--kubelet-dir %s --pod-resources %s/pod-resources/kubelet.sock", plugins, kubelet)
		}
	}
	return "start the kubelet; a host without it only needs generic-dp serve --no-kubelet, for podman, docker and nerdctl"
}

// isStandalone reports whether the host has a tool that runs containers without Kubernetes.
func (d *doctor) isStandalone(r containerRuntime) bool { return r.isStandalone && d.exists(r.path) }

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
