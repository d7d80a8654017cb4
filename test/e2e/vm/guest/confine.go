package main

import (
	"fmt"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"
)

// confine executes another program like the DaemonSet: user 0 without capabilities.
func confine(argv []string) error {
	if len(argv) == 0 {
		return fmt.Errorf("confine: no program")
	}
	runtime.LockOSThread()
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("confine: no_new_privs: %w", err)
	}
	for c := uintptr(0); c <= unix.CAP_LAST_CAP; c++ {
		// A kernel may know fewer capabilities than this program.
		if err := unix.Prctl(unix.PR_CAPBSET_DROP, c, 0, 0, 0); err != nil && err != unix.EINVAL {
			return fmt.Errorf("confine: drop capability %d: %w", c, err)
		}
	}
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var none [2]unix.CapUserData
	if err := unix.Capset(&header, &none[0]); err != nil {
		return fmt.Errorf("confine: capset: %w", err)
	}
	return fmt.Errorf("confine: %s: %w", strings.Join(argv, " "), unix.Exec(argv[0], argv, unix.Environ()))
}
