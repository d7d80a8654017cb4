// Command guest is the init process of the emulated machine. It acts as the environment
// of the program under test: the kubelet, and the administrator who loads modules and
// binds drivers. The test calls it over a virtio serial port, see package wire.
package main

import (
	"errors"
	"fmt"
	"io/fs"
	"net/rpc"
	"net/rpc/jsonrpc"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/generic-dp/generic-dp/test/e2e/vm/wire"
)

// port is the connection to the test.
const port = "/dev/vport0p1"

func main() {
	if len(os.Args) > 1 && os.Args[1] == "confine" {
		fmt.Fprintln(os.Stderr, confine(os.Args[2:]))
		os.Exit(1)
	}
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "guest:", err)
	}
	unix.Sync()
	_ = unix.Reboot(unix.LINUX_REBOOT_CMD_POWER_OFF)
}

// run returns when the test has closed the connection.
func run() error {
	if err := mount(); err != nil {
		return err
	}
	if err := loopback(); err != nil {
		return err
	}
	if err := loadModules("/modules/first"); err != nil {
		return err
	}
	var conn *os.File
	err := poll(10*time.Second, func() (err error) {
		conn, err = os.OpenFile(port, os.O_RDWR, 0)
		return err
	})
	if err != nil {
		return err
	}
	names, err := watchNames("/dev")
	if err != nil {
		return err
	}
	server := rpc.NewServer()
	if err := server.RegisterName(wire.Service, &Guest{names: names}); err != nil {
		return err
	}
	server.ServeCodec(jsonrpc.NewServerCodec(conn))
	return nil
}

// mount mounts the usual file systems. Cgroups are version 2 only.
func mount() error {
	for _, m := range []struct{ kind, at string }{
		{"proc", "/proc"}, {"sysfs", "/sys"}, {"devtmpfs", "/dev"}, {"tmpfs", "/run"}, {"cgroup2", "/sys/fs/cgroup"},
	} {
		if err := os.MkdirAll(m.at, 0o755); err != nil {
			return err
		}
		if err := unix.Mount(m.kind, m.at, m.kind, 0, ""); err != nil {
			return fmt.Errorf("mount %s: %w", m.at, err)
		}
	}
	if err := os.MkdirAll("/var", 0o755); err != nil {
		return err
	}
	if err := os.Symlink("/run", "/var/run"); err != nil {
		return err
	}
	return os.WriteFile("/sys/fs/cgroup/cgroup.subtree_control", []byte("+memory +pids +cpu"), 0)
}

// loopback sets up the interface lo.
func loopback() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	lo, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	lo.SetUint16(unix.IFF_UP)
	return unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, lo)
}

// loadModules loads the modules in a directory in name order.
func loadModules(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		f, err := os.Open(dir + "/" + e.Name())
		if err != nil {
			return err
		}
		err = unix.FinitModule(int(f.Fd()), "", 0)
		f.Close()
		if err != nil && !errors.Is(err, fs.ErrExist) {
			return fmt.Errorf("load %s: %w", e.Name(), err)
		}
	}
	return nil
}

// poll calls check until it succeeds, and returns the last error.
func poll(within time.Duration, check func() error) error {
	deadline := time.Now().Add(within)
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for {
		err := check()
		if err == nil || time.Now().After(deadline) {
			return err
		}
		<-tick.C
	}
}
