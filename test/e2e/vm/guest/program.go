package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/generic-dp/generic-dp/test/e2e/vm/wire"
)

const (
	underTest  = "/generic-dp"
	configFile = "/etc/generic-dp/config.toml"
	logFile    = "/run/serve.log"
	cgroup     = "/sys/fs/cgroup/serve"
)

// program is a running generic-dp serve, with all flags at their defaults.
type program struct {
	cmd   *exec.Cmd
	ended chan struct{}
}

// startProgram starts the program in a new cgroup.
func startProgram(config string) (*program, error) {
	if err := os.MkdirAll(filepath.Dir(configFile), 0o755); err != nil {
		return nil, err
	}
	if err := os.WriteFile(configFile, []byte(config), 0o644); err != nil {
		return nil, err
	}
	if err := os.Mkdir(cgroup, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
		return nil, err
	}
	group, err := unix.Open(cgroup, unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	defer unix.Close(group)
	log, err := os.OpenFile(logFile, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	p := &program{cmd: exec.Command("/proc/self/exe", "confine", underTest, "serve", "--allow=dangerous", "--log-level", "debug"), ended: make(chan struct{})}
	p.cmd.Stdout, p.cmd.Stderr = log, log
	// SIGQUIT writes every goroutine to the log.
	p.cmd.Env = []string{"GOTRACEBACK=all"}
	p.cmd.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: group}
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		_ = p.cmd.Wait() // see ProcessState
		close(p.ended)
	}()
	return p, nil
}

// stop ends the program with a signal and returns its exit state.
func (p *program) stop(sig syscall.Signal) (*os.ProcessState, error) {
	_ = p.cmd.Process.Signal(sig)
	select {
	case <-p.ended:
		return p.cmd.ProcessState, nil
	case <-time.After(10 * time.Second):
		_ = p.cmd.Process.Kill()
		<-p.ended
		return nil, fmt.Errorf("the program still runs 10 s after %v", sig)
	}
}

// usage reads the resource usage of the program.
func (p *program) usage() (wire.Usage, error) {
	var u wire.Usage
	dir := fmt.Sprintf("/proc/%d", p.cmd.Process.Pid)
	files, err := os.ReadDir(dir + "/fd")
	if err != nil {
		return u, err
	}
	u.Files = len(files)
	status, err := keys(dir + "/status")
	if err != nil {
		return u, err
	}
	u.Memory, u.Anonymous = status["VmRSS:"]<<10, status["RssAnon:"]<<10
	tasks, err := os.ReadFile(cgroup + "/pids.current")
	if err != nil {
		return u, err
	}
	if u.Tasks, err = strconv.Atoi(strings.TrimSpace(string(tasks))); err != nil {
		return u, err
	}
	cpu, err := keys(cgroup + "/cpu.stat")
	u.CPU = time.Duration(cpu["usage_usec"]) * time.Microsecond
	return u, err
}

// keys parses lines of a name and a number.
func keys(path string) (map[string]int64, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	values := map[string]int64{}
	for s := bufio.NewScanner(bytes.NewReader(text)); s.Scan(); {
		if f := strings.Fields(s.Text()); len(f) > 1 {
			if n, err := strconv.ParseInt(f[1], 10, 64); err == nil {
				values[f[0]] = n
			}
		}
	}
	return values, nil
}
