package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/generic-dp/generic-dp/internal/testing/kubelettest"
)

// Benchmarks of the whole process: the real binary with a fake kubelet, over real sockets.

const twoResources = `
domain = "example.com"
[[resource]]
name = "null"
count = 10
match.glob = "/dev/null"
[[resource]]
name = "zero"
count = 10
match.glob = "/dev/zero"
`

var names = []string{"example.com/null", "example.com/zero"}

// process is a running device plugin.
type process struct {
	b       *testing.B
	dir     string
	program program
	args    []string
	// names are its resources.
	names   []string
	config  string
	kubelet *kubelettest.Kubelet
	cmd     *exec.Cmd
}

// newProcess returns our program with two resources, which has not started.
func newProcess(b *testing.B) *process {
	b.Helper()
	p := newProcessOf(b, program{name: "ours", binary: os.Getenv("GENERIC_DP_BIN"), args: ourArgs}, 0)
	p.names = names
	p.config = filepath.Join(p.dir, "config.toml")
	place(b, p.config, twoResources)
	return p
}

// newProcessOf returns a program with resources, which has not started, and its kubelet.
func newProcessOf(b *testing.B, program program, resources int) *process {
	b.Helper()
	if program.binary == "" {
		b.Skip("GENERIC_DP_BIN does not name the binary: use make bench, which builds it like a release")
	}
	p := &process{b: b, dir: kubelettest.TempDir(b), program: program}
	p.args = program.args(b, p.dir, resources)
	for i := range resources {
		p.names = append(p.names, fmt.Sprintf("example.com/r%d", i))
	}
	p.kubelet = kubelettest.New(kubelettest.Options{Dir: filepath.Join(p.dir, "k")})
	must(b, p.kubelet.Start())
	b.Cleanup(p.kubelet.Stop)
	return p
}

// serveArgs are the arguments of serve with all files below dir.
func serveArgs(dir, config string) []string {
	return []string{"serve", "--config", config, "--allow=dangerous", "--kubelet-dir", filepath.Join(dir, "k"),
		"--run-dir", filepath.Join(dir, "run"), "--state-dir", filepath.Join(dir, "state"), "--pod-resources", filepath.Join(dir, "none"), "--listen", "127.0.0.1:0"}
}

// start starts the process and returns when the kubelet has all first lists.
func (p *process) start() time.Duration {
	p.b.Helper()
	p.cmd = exec.Command(p.program.binary, p.args...)
	began := time.Now()
	must(p.b, p.cmd.Start())
	p.wait(10)
	return time.Since(began)
}

// kill ends a process that need not end well.
func (p *process) kill() {
	p.b.Helper()
	must(p.b, p.cmd.Process.Kill())
	_ = p.cmd.Wait()
	p.kubelet.Stop()
}

// wait returns when each resource has n allocatable devices.
func (p *process) wait(n int) {
	p.b.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	for _, name := range p.names {
		must(p.b, p.kubelet.WaitAllocatable(ctx, name, n))
	}
}

func (p *process) stop() {
	p.b.Helper()
	must(p.b, p.cmd.Process.Signal(syscall.SIGTERM))
	must(p.b, p.cmd.Wait())
	p.wait(0)
}

// resident is VmRSS of the process in MiB.
func (p *process) resident() float64 {
	p.b.Helper()
	status, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(p.cmd.Process.Pid), "status"))
	must(p.b, err)
	_, rest, _ := bytes.Cut(status, []byte("VmRSS:"))
	kb, err := strconv.Atoi(string(bytes.Fields(rest)[0]))
	must(p.b, err)
	return float64(kb) / 1024
}

// quantiles reports p50 and p99 in milliseconds.
func quantiles(b *testing.B, took []time.Duration, of string) {
	b.ReportMetric(milliseconds(quantile(took, 0.50)), "p50-ms/"+of)
	b.ReportMetric(milliseconds(quantile(took, 0.99)), "p99-ms/"+of)
	b.ReportMetric(0, "ns/op")
}

// The time from the kubelet's socket until it has both lists.
func BenchmarkProcessKubeletRestart(b *testing.B) {
	p := newProcess(b)
	p.start()
	defer p.stop()
	var took []time.Duration
	for b.Loop() {
		p.kubelet.Stop()
		began := time.Now()
		must(b, p.kubelet.Start())
		p.wait(10)
		took = append(took, time.Since(began))
	}
	quantiles(b, took, "restart")
	b.ReportMetric(p.resident(), "rss-MiB")
}

// switches counts the context switches of all threads so far.
func (p *process) switches() float64 {
	p.b.Helper()
	files, err := filepath.Glob(filepath.Join("/proc", strconv.Itoa(p.cmd.Process.Pid), "task/*/status"))
	must(p.b, err)
	total := 0
	for _, file := range files {
		status, err := os.ReadFile(file)
		if err != nil {
			continue // the thread has ended
		}
		for line := range bytes.Lines(status) {
			if name, n, _ := bytes.Cut(line, []byte(":")); bytes.HasSuffix(name, []byte("voluntary_ctxt_switches")) {
				count, err := strconv.Atoi(string(bytes.TrimSpace(n)))
				must(p.b, err)
				total += count
			}
		}
	}
	return float64(total)
}
