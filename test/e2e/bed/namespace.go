package bed

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/generic-dp/generic-dp/test/e2e/isolate"
)

// namespace is the isolated view of the machine of all processes in a bed, see package
// isolate. It lives as long as its first process, which ends when the test process
// closes its end of the standard input.
type namespace struct {
	cmd   *exec.Cmd
	pidfd int
}

// newNamespace starts the first process, tool, and ends it with the test.
func newNamespace(t testing.TB, tool, logDir string) *namespace {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Fatal("a bed needs root, for its namespaces")
	}
	log, err := os.Create(filepath.Join(logDir, "namespace.log"))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	n := &namespace{cmd: exec.Command(tool, "hold"), pidfd: -1}
	n.cmd.Dir = "/"
	n.cmd.Stderr = log
	n.cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: isolate.Flags, PidFD: &n.pidfd}
	stdin, err := n.cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := n.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := n.cmd.Start(); err != nil {
		t.Fatalf("new namespaces: %v", err)
	}
	t.Cleanup(func() {
		stdin.Close()
		// The kernel kills all processes in the namespaces before this returns.
		_ = n.cmd.Wait()
		unix.Close(n.pidfd)
	})
	if line, err := bufio.NewReader(stdout).ReadString('\n'); err != nil || line != "ready\n" {
		text, _ := os.ReadFile(log.Name())
		t.Fatalf("prepare namespaces: %q %v\n%s", line, err, text)
	}
	return n
}

// path returns the path by which the test reaches a path inside. Sockets can be dialed
// and served there too.
func (n *namespace) path(path string) string {
	return filepath.Join(fmt.Sprintf("/proc/%d/root", n.cmd.Process.Pid), path)
}

// do calls f on a thread inside. Goroutines that f starts are outside, processes that
// it starts are inside; their parent is the test, so that it sees their process IDs and
// exit states. A program such as nsenter, which must fork to enter a PID namespace,
// would prevent that.
func (n *namespace) do(f func() error) error {
	result := make(chan error, 1)
	go func() {
		// Never unlocked: the runtime discards a thread whose goroutine exits locked,
		// so that nothing else runs inside.
		runtime.LockOSThread()
		if unix.Gettid() == unix.Getpid() {
			// /proc/self shows the namespaces of this thread, the main thread. Keep it
			// unchanged and use another one.
			defer runtime.UnlockOSThread()
			result <- n.do(f)
			return
		}
		result <- func() error {
			// A thread that shares its root directory cannot change its mount
			// namespace.
			if err := unix.Unshare(unix.CLONE_FS); err != nil {
				return fmt.Errorf("unshare: %w", err)
			}
			if err := unix.Setns(n.pidfd, isolate.Flags); err != nil {
				return fmt.Errorf("enter namespaces: %w", err)
			}
			return f()
		}()
	}()
	return <-result
}

// start starts a command inside.
func (n *namespace) start(cmd *exec.Cmd) error { return n.do(cmd.Start) }
