// Package process runs programs for a test: their output goes to files, and they end
// with the test.
package process

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/generic-dp/generic-dp/test/e2e/wait"
)

// stopLimit is how long a program may take to end after SIGTERM.
const stopLimit = 10 * time.Second

// Spec is a program to run.
type Spec struct {
	// Name is the name of the log file, without ".log". Programs with the same name
	// append to one file.
	Name string
	// Argv is the program, as an absolute path, and its arguments.
	Argv []string
	// Env is added to the environment of the test.
	Env []string
	// LogDir is where the log file is, see [LogDir].
	LogDir string
	// Start starts the command, if [exec.Cmd.Start] is not sufficient.
	Start func(*exec.Cmd) error
}

// Process is a running or ended program.
type Process struct {
	name   string
	log    string
	offset int64 // of this process's output in log
	cmd    *exec.Cmd
	ended  chan struct{}
}

// Start starts a program. It is killed at the end of the test if it still runs.
func Start(t testing.TB, s Spec) *Process {
	t.Helper()
	p := &Process{
		name:  s.Name,
		log:   filepath.Join(s.LogDir, s.Name+".log"),
		cmd:   exec.Command(s.Argv[0], s.Argv[1:]...),
		ended: make(chan struct{}),
	}
	out, err := os.OpenFile(p.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	fmt.Fprintf(out, "--- %s %s\n", time.Now().Format("15:04:05.000"), strings.Join(s.Argv, " "))
	if st, err := out.Stat(); err == nil {
		p.offset = st.Size()
	}
	// A file, not a pipe: no copying, and no loss when children that inherited it live
	// on.
	p.cmd.Stdout, p.cmd.Stderr = out, out
	p.cmd.Env = append(os.Environ(), s.Env...)
	p.cmd.Dir = "/"
	start := s.Start
	if start == nil {
		start = (*exec.Cmd).Start
	}
	if err := start(p.cmd); err != nil {
		t.Fatalf("start %s: %v", s.Name, err)
	}
	go func() {
		_ = p.cmd.Wait() // see ProcessState
		close(p.ended)
	}()
	t.Cleanup(p.Kill)
	return p
}

// Pid returns the process's ID as the test sees it.
func (p *Process) Pid() int { return p.cmd.Process.Pid }

// Ended is closed when the process has ended.
func (p *Process) Ended() <-chan struct{} { return p.ended }

// Running reports whether the process runs.
func (p *Process) Running() bool {
	select {
	case <-p.ended:
		return false
	default:
		return true
	}
}

// Signal sends a signal to a running process.
func (p *Process) Signal(t testing.TB, sig syscall.Signal) {
	t.Helper()
	if err := p.cmd.Process.Signal(sig); err != nil {
		t.Fatalf("%s: %v", p.name, err)
	}
}

// Stop sends SIGTERM and returns the exit code. The process must end soon.
func (p *Process) Stop(t testing.TB) int {
	t.Helper()
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		t.Fatalf("%s: %v", p.name, err)
	}
	return p.Wait(t, stopLimit)
}

// Wait waits for the end of the process and returns its exit code, -1 if it was
// ended by a signal.
func (p *Process) Wait(t testing.TB, limit time.Duration) int {
	t.Helper()
	wait.Closed(t, limit, "end of "+p.name, p.ended)
	return p.cmd.ProcessState.ExitCode()
}

// Kill kills the process, if it runs, and waits for its end.
func (p *Process) Kill() {
	_ = p.cmd.Process.Kill()
	<-p.ended
}

// Log returns the output of this process so far.
func (p *Process) Log() string {
	text, err := os.ReadFile(p.log)
	if err != nil {
		return ""
	}
	return string(text[min(p.offset, int64(len(text))):])
}

// WaitLog waits until the process has written text.
func (p *Process) WaitLog(t testing.TB, limit time.Duration, text string) {
	t.Helper()
	wait.Until(t, limit, fmt.Sprintf("%q in the log of %s", text, p.name), func() error {
		running := p.Running() // before the log is read, so that the final output counts
		if strings.Contains(p.Log(), text) {
			return nil
		}
		if !running {
			return fmt.Errorf("%s has ended: %v", p.name, p.cmd.ProcessState)
		}
		return errors.New("not in the log")
	})
}
