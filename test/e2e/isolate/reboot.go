package isolate

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/generic-dp/generic-dp/test/e2e/inspect"
)

// killAll kills every process of the caller's tree except the first one and the caller,
// containers included, and waits until they are gone.
func killAll() error {
	// Outside of a tree this would kill the machine.
	if err := firstIsSelf(); err != nil {
		return err
	}
	const limit = time.Minute
	timeout := time.After(limit)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		// Inside a PID namespace -1 reaches nothing outside. Repeated, since a process
		// may have been about to fork.
		if err := unix.Kill(-1, unix.SIGKILL); errors.Is(err, unix.ESRCH) {
			return nil
		}
		if left, err := others(); err != nil || len(left) == 0 {
			return err
		}
		select {
		case <-tick.C:
		case <-timeout:
			left, _ := others()
			return fmt.Errorf("still running %v after SIGKILL: %v", limit, left)
		}
	}
}

// firstIsSelf checks that the first process of the caller's PID namespace runs
// the same program as the caller.
func firstIsSelf() error {
	self, err := os.Stat("/proc/self/exe")
	if err != nil {
		return err
	}
	first, err := os.Stat("/proc/1/exe")
	if err != nil {
		return err
	}
	if os.Getpid() == 1 || !os.SameFile(self, first) {
		return errors.New("not inside an isolated tree")
	}
	return nil
}

// others lists the processes of the tree except for the first one, the caller, and
// zombies whose parent is outside.
func others() ([]string, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	var left []string
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || pid == 1 || pid == os.Getpid() {
			continue
		}
		stat, err := os.ReadFile("/proc/" + e.Name() + "/stat")
		if err != nil {
			continue // it has exited
		}
		// "7 (name) Z ...", where the name may contain anything.
		_, rest, _ := strings.Cut(string(stat[strings.LastIndexByte(string(stat), ')'):]), " ")
		if !strings.HasPrefix(rest, "Z") {
			left = append(left, string(stat))
		}
	}
	return left, nil
}

// Reboot simulates a reboot of the tree: every process is killed, /run is empty again,
// and everything mounted below the other private directories is unmounted, so that only
// their own files stay.
func Reboot() error {
	if err := killAll(); err != nil {
		return err
	}
	mounts, err := inspect.Mounts("/proc/self")
	if err != nil {
		return err
	}
	for _, m := range mounts {
		for _, dir := range private {
			if strings.HasPrefix(m.Path, dir+"/") {
				err := unix.Unmount(m.Path, unix.MNT_DETACH)
				// It was detached with a mount above it, which may have hidden its directory.
				isDetached := errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOENT)
				if err != nil && !isDetached {
					return fmt.Errorf("unmount %s: %w", m.Path, err)
				}
			}
		}
	}
	if err := unix.Unmount("/run", unix.MNT_DETACH); err != nil {
		return fmt.Errorf("unmount /run: %w", err)
	}
	return mountEmpty("/run")
}
