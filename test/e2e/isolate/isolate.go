// Package isolate gives a process tree its own view of the machine.
//
// The device plugin directory of a kubelet, /var/lib/kubelet/device-plugins, is a
// constant in its source; a mount namespace changes what it contains. A test that fails
// halfway must leave nothing behind, so the tree has a PID namespace too: when its
// first process exits, the kernel kills all others, and the mounts end with the last of
// them. Its network namespace makes every port free and contains the network devices
// that a test moves.
package isolate

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// Flags are the namespaces of an isolated tree, for [syscall.SysProcAttr].
const Flags = unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWNET

// private are the directories that are initially empty in an isolated tree. The
// kubelet, the container runtime and the CNI plugins write to them unconditionally.
// Missing mount points are made and stay: removing one would detach the mounts of every
// other tree.
var private = []string{
	"/run", // also the runtime's sockets and the names of network namespaces
	"/var/lib/cni",
	"/var/lib/generic-dp",
	"/var/lib/kubelet",
	"/var/log", // the kubelet links containers' logs in /var/log/containers
}

// sysctls are the settings that a kubelet enforces on its machine. It leaves them
// unchanged if they have these values, see setupKernelTunables in
// pkg/kubelet/cm/container_manager_linux.go.
var sysctls = map[string]string{
	"kernel/keys/root_maxbytes": "25000000",
	"kernel/keys/root_maxkeys":  "1000000",
	"kernel/panic":              "10",
	"kernel/panic_on_oops":      "1",
	"vm/overcommit_memory":      "1",
	"vm/panic_on_oom":           "0",
}

// Prepare sets up the view. The first process of the new namespaces calls it before
// anything else.
func Prepare() error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	if err := unix.Mount("proc", "/proc", "proc", 0, ""); err != nil {
		return fmt.Errorf("mount /proc: %w", err)
	}
	for _, dir := range private {
		if err := mountEmpty(dir); err != nil {
			return err
		}
	}
	return errors.Join(mountSysfs(), pretendSysctls(), loopbackUp())
}

// mountEmpty covers dir with a new, empty file system that allows device nodes.
func mountEmpty(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "mode=0755"); err != nil {
		return fmt.Errorf("mount %s: %w", dir, err)
	}
	return nil
}

// mountSysfs mounts the sysfs of the new network namespace: /sys/class/net shows the
// devices of the namespace that mounted it. The cgroups below it stay the same.
func mountSysfs() error {
	const cgroup = "/sys/fs/cgroup"
	fd, err := unix.OpenTree(unix.AT_FDCWD, cgroup, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_RECURSIVE)
	if err != nil {
		return fmt.Errorf("copy the mounts of %s: %w", cgroup, err)
	}
	defer unix.Close(fd)
	if err := unix.Mount("sysfs", "/sys", "sysfs", 0, ""); err != nil {
		return fmt.Errorf("mount /sys: %w", err)
	}
	if err := unix.MoveMount(fd, "", unix.AT_FDCWD, cgroup, unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
		return fmt.Errorf("mount %s: %w", cgroup, err)
	}
	return nil
}

// pretendSysctls covers each setting with a file of the value that the kubelet wants,
// so that the machine keeps its own: a test must not make it reboot on the next kernel
// warning.
func pretendSysctls() error {
	dir, err := os.MkdirTemp("/run", "sysctl-")
	if err != nil {
		return err
	}
	for name, value := range sysctls {
		file := filepath.Join(dir, strings.ReplaceAll(name, "/", "."))
		if err := os.WriteFile(file, []byte(value+"\n"), 0o644); err != nil {
			return err
		}
		setting := filepath.Join("/proc/sys", name)
		err := unix.Mount(file, setting, "", unix.MS_BIND, "")
		if err != nil && !errors.Is(err, unix.ENOENT) { // a kernel without this setting
			return fmt.Errorf("cover %s: %w", setting, err)
		}
	}
	return nil
}

// loopbackUp sets up the loopback device, which is down in a new network namespace.
func loopbackUp() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	req, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	req.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
	if err := unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, req); err != nil {
		return fmt.Errorf("bring up lo: %w", err)
	}
	return nil
}
