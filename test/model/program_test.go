package model

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"time"
)

// timeout bounds every operation on a busy machine.
const timeout = time.Minute

// program is the binary under test.
type program struct {
	cmd    *exec.Cmd
	logged int64 // size of the log before the start
	ended  chan struct{}
	err    error
}

func (w *world) start() error {
	log, err := os.OpenFile(filepath.Join(w.dir, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	in := func(name string) string { return filepath.Join(w.dir, name) }
	before, err := log.Stat()
	if err != nil {
		return err
	}
	p := &program{logged: before.Size(), ended: make(chan struct{})}
	p.cmd = exec.Command(binary, "serve", "--config", in("config"), "--sysfs", in("host/sys"), "--dev", in("host/dev"),
		"--kubelet-dir", in("k"), "--pod-resources", in("pods.sock"), "--run-dir", in("run"), "--state-dir", in("state"), "--cdi-dir", in("cdi"),
		"--listen", "127.0.0.1:0", "--log-level", "debug", "--cgroup", w.cgroups.Dir())
	p.cmd.Stderr = log
	p.cmd.Env = append(os.Environ(), "KUBERNETES_SERVICE_HOST=")
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := p.cmd.Start(); err != nil {
		return err
	}
	go func() {
		p.err = p.cmd.Wait()
		close(p.ended)
	}()
	w.program = p
	return nil
}

// stop ends the program by SIGTERM, as systemd and the kubelet do.
func (w *world) stop() error {
	p := w.program
	w.program = nil
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.ended:
	case <-time.After(timeout):
		p.kill()
		return fmt.Errorf("the program did not end within %s of SIGTERM", timeout)
	}
	if p.err != nil && p.started(w) { // until then SIGTERM is not handled
		return fmt.Errorf("after SIGTERM: %w, want exit code 0", p.err)
	}
	return nil
}

// started reports whether the program has logged anything.
func (p *program) started(w *world) bool {
	info, err := os.Stat(filepath.Join(w.dir, "log"))
	return err == nil && info.Size() > p.logged
}

// kill ends the program by SIGKILL. Its sockets stay.
func (w *world) kill() {
	for _, s := range w.sockets() {
		w.orphans[s] = true
	}
	w.program.kill()
	for _, s := range w.sockets() {
		w.orphans[s] = true
	}
	w.program = nil
}

func (p *program) kill() {
	_ = p.cmd.Process.Kill()
	<-p.ended
}

// sockets are the plugins' sockets in the kubelet's directory.
func (w *world) sockets() []string {
	list, _ := filepath.Glob(filepath.Join(w.dir, "k/gdp-*"))
	return list
}

// progress is the time for which threads of the program ran or were runnable (schedstat in
// Documentation/scheduler/sched-stats.rst of the kernel).
func (p *program) progress() (sum time.Duration) {
	tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", p.cmd.Process.Pid))
	for _, task := range tasks {
		stat, _ := os.ReadFile(task)
		var ran, waited time.Duration
		_, _ = fmt.Sscan(string(stat), &ran, &waited)
		sum += ran + waited
	}
	return sum
}

// idleNoise is the progress of an idle Go runtime in a tick.
const idleNoise = time.Millisecond

// files counts the open files.
func (p *program) files() int {
	list, _ := os.ReadDir(fmt.Sprintf("/proc/%d/fd", p.cmd.Process.Pid))
	return len(list)
}

// resident is the resident memory in MiB.
func (p *program) resident() int {
	status, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	_, rest, _ := bytes.Cut(status, []byte("VmRSS:"))
	if f := bytes.Fields(rest); len(f) > 0 {
		kb, _ := strconv.Atoi(string(f[0]))
		return kb >> 10
	}
	return 0
}

// goroutines ends the program with a dump and counts them.
func (w *world) goroutines() int {
	p := w.program
	w.program = nil
	log := filepath.Join(w.dir, "log")
	before, _ := os.Stat(log)
	_ = p.cmd.Process.Signal(syscall.SIGQUIT)
	<-p.ended
	text, _ := os.ReadFile(log)
	return bytes.Count(text[before.Size():], []byte("\ngoroutine "))
}
