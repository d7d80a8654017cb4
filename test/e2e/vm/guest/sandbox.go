package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"
)

// podCgroups is where a kubelet with the cgroupfs driver makes the cgroups of pods.
const podCgroups = "/sys/fs/cgroup/kubepods/burstable"

// startSandbox starts a process of a pod that runs until the machine ends, unless the pod has one.
func startSandbox(uid string) error {
	dir := filepath.Join(podCgroups, "pod"+uid)
	err := os.MkdirAll(filepath.Dir(dir), 0o755)
	if err == nil {
		err = os.Mkdir(dir, 0o755)
	}
	if os.IsExist(err) {
		return nil
	}
	if err != nil {
		return err
	}
	group, err := unix.Open(dir, unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(group)
	pause := exec.Command("/proc/self/exe", "pause")
	pause.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: group}
	return pause.Start()
}
