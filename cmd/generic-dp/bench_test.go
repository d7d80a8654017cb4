package main

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/generic-dp/generic-dp/internal/kubelettest"
)

// The figures of the whole process: the real binary before a stand-in for the
// kubelet, over real sockets.

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

// process is a running binary with two resources.
type process struct {
	b       *testing.B
	dir     string
	binary  string
	kubelet *kubelettest.Kubelet
	cmd     *exec.Cmd
}

func newProcess(b *testing.B) *process {
	b.Helper()
	dir, err := os.MkdirTemp("", "gdp") // a socket's path has at most 107 bytes
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = os.RemoveAll(dir) })
	p := &process{b: b, dir: dir, binary: filepath.Join(dir, "generic-dp")}
	build := exec.Command("go", "build", "-trimpath", "-tags", "grpcnotrace", "-ldflags", "-s -w", "-o", p.binary, ".")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		b.Fatalf("%v\n%s", err, out)
	}
	if err := os.WriteFile(filepath.Join(dir, "config.toml"), []byte(twoResources), 0o600); err != nil {
		b.Fatal(err)
	}
	p.kubelet = kubelettest.New(kubelettest.Options{Dir: filepath.Join(dir, "k")})
	if err := p.kubelet.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(p.kubelet.Stop)
	return p
}

// start returns when the kubelet has the first list of both resources.
func (p *process) start() time.Duration {
	p.b.Helper()
	p.cmd = exec.Command(p.binary, "serve", "--config", filepath.Join(p.dir, "config.toml"), "--kubelet-dir", filepath.Join(p.dir, "k"),
		"--run-dir", filepath.Join(p.dir, "run"), "--state-dir", filepath.Join(p.dir, "state"), "--pod-resources", filepath.Join(p.dir, "none"), "--listen", "")
	began := time.Now()
	if err := p.cmd.Start(); err != nil {
		p.b.Fatal(err)
	}
	p.wait(10)
	return time.Since(began)
}

// wait returns when both resources have n allocatable devices.
func (p *process) wait(n int) {
	p.b.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	for _, name := range names {
		if err := p.kubelet.WaitAllocatable(ctx, name, n); err != nil {
			p.b.Fatal(err)
		}
	}
}

func (p *process) stop() {
	p.b.Helper()
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		p.b.Fatal(err)
	}
	if err := p.cmd.Wait(); err != nil {
		p.b.Fatal(err)
	}
	p.wait(0)
}

// resident is VmRSS of the process in MB.
func (p *process) resident() float64 {
	p.b.Helper()
	status, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(p.cmd.Process.Pid), "status"))
	if err != nil {
		p.b.Fatal(err)
	}
	_, rest, _ := bytes.Cut(status, []byte("VmRSS:"))
	kb, err := strconv.Atoi(string(bytes.Fields(rest)[0]))
	if err != nil {
		p.b.Fatal(err)
	}
	return float64(kb) / 1000
}

// quantiles reports p50 and p99 in milliseconds.
func quantiles(b *testing.B, took []time.Duration, of string) {
	slices.Sort(took)
	at := func(q float64) float64 {
		return float64(took[int(q*float64(len(took)-1))].Microseconds()) / 1000
	}
	b.ReportMetric(at(0.50), "p50-ms/"+of)
	b.ReportMetric(at(0.99), "p99-ms/"+of)
	b.ReportMetric(0, "ns/op")
}

func BenchmarkProcessStartToFirstLists(b *testing.B) {
	p := newProcess(b)
	var took []time.Duration
	for b.Loop() {
		took = append(took, p.start())
		p.stop()
	}
	quantiles(b, took, "start")
}

func BenchmarkProcessAllocate(b *testing.B) {
	p := newProcess(b)
	p.start()
	defer p.stop()
	ctx := context.Background()
	var took []time.Duration
	for b.Loop() {
		began := time.Now()
		if _, err := p.kubelet.Allocate(ctx, names[0], "null"); err != nil {
			b.Fatal(err)
		}
		took = append(took, time.Since(began))
	}
	quantiles(b, took, "allocate")
	b.ReportMetric(p.resident(), "rss-MB")
}

// The time from the kubelet's socket to both lists in its hand.
func BenchmarkProcessKubeletRestart(b *testing.B) {
	p := newProcess(b)
	p.start()
	defer p.stop()
	var took []time.Duration
	for b.Loop() {
		p.kubelet.Stop()
		began := time.Now()
		if err := p.kubelet.Start(); err != nil {
			b.Fatal(err)
		}
		p.wait(10)
		took = append(took, time.Since(began))
	}
	quantiles(b, took, "restart")
	b.ReportMetric(p.resident(), "rss-MB")
}
