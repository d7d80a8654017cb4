// Package vm runs the program under test on emulated hardware: a machine in QEMU with a
// Debian kernel, whose init process is package guest. The test plugs hardware, and the
// kernel does the rest.
package vm

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/rpc"
	"net/rpc/jsonrpc"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/generic-dp/generic-dp/test/e2e/vm/wire"
)

const (
	// binEnv names the program under test, by default bin/generic-dp of the repository.
	// It must be static.
	binEnv = "GENERIC_DP_BIN"
	// logsEnv names a directory that keeps the logs of all machines. Without it only failed
	// tests show theirs.
	logsEnv = "GENERIC_DP_E2E_LOGS"

	// bootLimit is the timeout of a boot, which takes some five seconds.
	bootLimit = 2 * time.Minute
	// callLimit is the timeout of calls, in addition to their own waits.
	callLimit = time.Minute
	// tail is how much of a log a failing test shows.
	tail = 80
)

// modules are the sets of kernel modules of a machine.
var modules = map[string][]string{
	"first":   {"virtio_pci", "virtio_console"},
	"usb":     {"xhci-pci", "ftdi_sio"},
	"storage": {"usb-storage", "sg", "sd_mod"},
	"sound":   {"snd-usb-audio"},
	"net":     {"e1000e"},
}

// Machine is a running machine.
type Machine struct {
	cmd   *exec.Cmd
	ended chan struct{}
	qmp   *qmp
	guest *rpc.Client

	mu      sync.Mutex
	plugged []*Plugged // ever plugged in
}

// Boot starts a machine with the default devices and the devices of QEMU's arguments
// args, and returns when its init process answers. On a busy host an emulated kernel may
// crash on its own timing measurements, so that a failed boot is repeated once.
//
// Its one CPU takes 2 ns per instruction, independently of the load of this host: the
// machine's clock counts instructions (-icount in qemu(1)). That is the speed of a slow
// board, and durations measure work.
func Boot(t testing.TB, args ...string) *Machine {
	t.Helper()
	start := time.Now()
	dir := t.TempDir()
	kernel, initramfs := image(t, dir)
	console := consoleLog(t, dir)
	m, err := launch(t, console, kernel, initramfs, args)
	if err != nil {
		t.Logf("the boot failed and is repeated: %v", err)
		text, _ := os.ReadFile(console)
		showLog(t, "console", string(text))
		m, err = launch(t, console, kernel, initramfs, args)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("boot in %.1f s", time.Since(start).Seconds())
	return m
}

// launch starts a machine, and returns when its init process answers.
func launch(t testing.TB, console, kernel, initramfs string, args []string) (*Machine, error) {
	t.Helper()
	m := &Machine{ended: make(chan struct{})}
	monitor, monitorEnd := pair(t)
	guest, guestEnd := pair(t)
	m.cmd = exec.Command("qemu-system-x86_64", append([]string{
		"-machine", "q35", "-accel", "tcg,thread=single", "-icount", "shift=1", "-smp", "1", "-m", "1G",
		"-object", "memory-backend-ram,id=m0,size=512M", "-numa", "node,nodeid=0,cpus=0,memdev=m0",
		"-object", "memory-backend-ram,id=m1,size=512M", "-numa", "node,nodeid=1,memdev=m1",
		"-nodefaults", "-no-user-config", "-display", "none", "-no-reboot",
		"-kernel", kernel, "-initrd", initramfs,
		"-append", "console=ttyS0 quiet loglevel=4 panic=-1 no_timer_check",
		"-serial", "file:" + console,
		"-chardev", "socket,id=monitor,fd=3", "-mon", "chardev=monitor,mode=control",
		"-chardev", "socket,id=guest,fd=4",
		"-device", "virtio-serial-pci,bus=pcie.0,addr=0x1e", "-device", "virtserialport,chardev=guest,name=guest",
	}, args...)...)
	m.cmd.ExtraFiles = []*os.File{monitorEnd, guestEnd}
	var stderr strings.Builder
	m.cmd.Stderr = &stderr
	if err := m.cmd.Start(); err != nil {
		t.Fatalf("%v: run deps.sh", err)
	}
	monitorEnd.Close()
	guestEnd.Close()
	go func() {
		_ = m.cmd.Wait() // see ProcessState
		close(m.ended)
	}()
	t.Cleanup(func() {
		// Init powers the machine off when the connection closes.
		guest.Close()
		select {
		case <-m.ended:
		case <-time.After(callLimit):
			t.Error("the machine does not power off")
			_ = m.cmd.Process.Kill()
			<-m.ended
		}
		monitor.Close()
	})
	var err error
	if m.qmp, err = dialQMP(monitor); err != nil {
		_ = m.cmd.Process.Kill()
		<-m.ended
		return nil, fmt.Errorf("%w: QEMU: %v: %s", err, m.cmd.ProcessState, stderr.String())
	}
	m.guest = jsonrpc.NewClient(guest)
	if err := m.try(bootLimit, "Ping", wire.None{}, &wire.None{}); err != nil {
		_ = m.cmd.Process.Kill()
		<-m.ended
		return nil, fmt.Errorf("ping: %w: QEMU: %s", err, stderr.String())
	}
	return m, nil
}

// pair makes two connected sockets: one for the test, one for QEMU.
func pair(t testing.TB) (net.Conn, *os.File) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	mine := os.NewFile(uintptr(fds[0]), "socket")
	defer mine.Close()
	conn, err := net.FileConn(mine)
	if err != nil {
		t.Fatal(err)
	}
	return conn, os.NewFile(uintptr(fds[1]), "socket")
}

// moduleDir is the directory of the module of these tests.
func moduleDir() string {
	_, file, _, _ := runtime.Caller(0)
	return filepath.Dir(file)
}

// program returns the path of the program under test.
func program(t testing.TB) string {
	t.Helper()
	path := os.Getenv(binEnv)
	if path == "" {
		path = filepath.Join(moduleDir(), "../../../bin/generic-dp")
	}
	if _, err := os.Stat(path); err != nil {
		t.Fatalf("no program to test: %v: run make build, or set %s", err, binEnv)
	}
	return path
}

// image returns a kernel and an initramfs for it.
func image(t testing.TB, dir string) (image, initramfs string) {
	t.Helper()
	here := moduleDir()
	out, err := exec.Command(filepath.Join(here, "deps.sh"), "--kernel").Output()
	if err != nil {
		t.Fatalf("deps.sh --kernel: %v", err)
	}
	k, err := openKernel(strings.TrimSpace(string(out)))
	if err != nil {
		t.Fatal(err)
	}
	init := filepath.Join(dir, "init")
	build := exec.Command("go", "build", "-buildvcs=false", "-tags", "grpcnotrace", "-ldflags", "-s -w", "-o", init, "./guest")
	build.Dir = here
	build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH=amd64")
	if text, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build the guest: %v\n%s", err, text)
	}
	initramfs = filepath.Join(dir, "initramfs")
	f, err := os.Create(initramfs)
	if err != nil {
		t.Fatal(err)
	}
	err = writeInitramfs(f, k, map[string]string{"init": init, "generic-dp": program(t)}, modules)
	if err := errors.Join(err, f.Close()); err != nil {
		t.Fatal(err)
	}
	return k.image, initramfs
}

// consoleLog returns the file for the messages of kernel and init.
func consoleLog(t testing.TB, dir string) string {
	t.Helper()
	path := filepath.Join(dir, "console.log")
	t.Cleanup(func() {
		if t.Failed() {
			text, _ := os.ReadFile(path)
			showLog(t, "console", string(text))
		}
		keepLog(t, "console", path)
	})
	return path
}

// showLog shows the end of a log.
func showLog(t testing.TB, name, text string) {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	skipped := max(0, len(lines)-tail)
	t.Logf("=== %s (%d lines before these)\n%s", name, skipped, strings.Join(lines[skipped:], "\n"))
}

// keepLog copies a log to the directory of logsEnv, if it is set.
func keepLog(t testing.TB, name, path string) {
	root := os.Getenv(logsEnv)
	if root == "" {
		return
	}
	dir := filepath.Join(root, strings.ReplaceAll(t.Name(), "/", "_"))
	from, err := os.Open(path)
	if err != nil {
		t.Log(err)
		return
	}
	defer from.Close()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Log(err)
		return
	}
	to, err := os.CreateTemp(dir, name+"-*.log")
	if err != nil {
		t.Log(err)
		return
	}
	defer to.Close()
	if _, err := io.Copy(to, from); err != nil {
		t.Log(err)
	}
}

// call calls the guest and fails the test on errors.
func (m *Machine) call(t testing.TB, method string, args, reply any) {
	t.Helper()
	m.within(t, callLimit, method, args, reply)
}

// within is call with another timeout.
func (m *Machine) within(t testing.TB, limit time.Duration, method string, args, reply any) {
	t.Helper()
	if err := m.try(limit, method, args, reply); err != nil {
		t.Fatalf("%s: %v", method, err)
	}
}

// try calls the guest and returns errors.
func (m *Machine) try(limit time.Duration, method string, args, reply any) error {
	call := m.guest.Go(wire.Service+"."+method, args, reply, make(chan *rpc.Call, 1))
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-call.Done:
		return call.Error
	case <-m.ended:
		return fmt.Errorf("the machine has ended: %v", m.cmd.ProcessState)
	case <-timer.C:
		return fmt.Errorf("no answer within %v", limit)
	}
}
