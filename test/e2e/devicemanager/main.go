// Package devicemanager drives the kubelet's own device manager inside the test
// process: registration, lists, admission and restarts of the kubelet in
// milliseconds and without containers.
//
// The path of its socket is a constant, so that the test binary re-executes itself in
// new namespaces, where /var/lib/kubelet is empty. Every package that uses this one
// needs
//
//	func TestMain(m *testing.M) { os.Exit(devicemanager.Main(m)) }
//
// and there is one manager at a time in a process: such tests do not run in parallel
// with each other, their packages do.
package devicemanager

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"syscall"
	"testing"

	"k8s.io/klog/v2"

	"github.com/generic-dp/generic-dp/test/e2e/isolate"
)

// insideEnv marks the test binary inside the new namespaces.
const insideEnv = "GENERIC_DP_E2E_INSIDE"

// Main runs the tests of a package in new namespaces and returns the exit code.
func Main(m *testing.M) int {
	if os.Getenv(insideEnv) == "" {
		return runInside()
	}
	if err := isolate.Prepare(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	klog.SetSlogLogger(slog.New(slog.NewTextHandler(&output, &slog.HandlerOptions{
		Level: slog.Level(-4), // like -v=4 of a kubelet
	})))
	return m.Run()
}

// runInside re-executes the test binary with the same arguments.
func runInside() int {
	if os.Geteuid() != 0 {
		fmt.Fprintln(os.Stderr, "these tests need root, for their namespaces")
		return 1
	}
	// For the kernel, the end of the thread that started a process is the end of its
	// parent.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
	cmd.Args[0] = os.Args[0]
	cmd.Env = append(os.Environ(), insideEnv+"=1")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: isolate.Flags, Pdeathsig: syscall.SIGKILL}
	err := cmd.Run()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		return max(exit.ExitCode(), 1)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// output is the output of klog, one per process. It belongs to the running test.
var output switchable

// switchable is a writer whose destination can change.
type switchable struct {
	mu sync.Mutex
	to io.Writer
}

func (s *switchable) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.to == nil {
		return len(p), nil
	}
	return s.to.Write(p)
}

// switchTo changes the destination; nil discards.
func (s *switchable) switchTo(w io.Writer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.to = w
}
