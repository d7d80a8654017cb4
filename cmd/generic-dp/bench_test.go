package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

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

// Loop devices are what comes and goes on any machine, with the kernel's own
// events. The number is one that nobody else uses.
const loopNumber = 237

const loops = `
[[resource]]
name = "loop"
match.glob = "/dev/loop237"
`

var names = []string{"example.com/null", "example.com/zero"}

// process is a running binary with two resources.
type process struct {
	b       *testing.B
	dir     string
	binary  string
	config  string
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
	binary := os.Getenv("GENERIC_DP_BIN")
	if binary == "" {
		b.Skip("GENERIC_DP_BIN does not name the binary: use make bench, whose build is the one that is shipped")
	}
	p := &process{b: b, dir: dir, binary: binary}
	p.config = filepath.Join(dir, "config.toml")
	if err := os.WriteFile(p.config, []byte(twoResources+loops), 0o600); err != nil {
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
	p.cmd = exec.Command(p.binary, "serve", "--config", p.config, "--kubelet-dir", filepath.Join(p.dir, "k"),
		"--run-dir", filepath.Join(p.dir, "run"), "--state-dir", filepath.Join(p.dir, "state"), "--pod-resources", filepath.Join(p.dir, "none"), "--listen", "127.0.0.1:0")
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

// resident is VmRSS of the process in MiB.
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
	return float64(kb) / 1024
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
	b.ReportMetric(p.resident(), "rss-MiB")
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
	b.ReportMetric(p.resident(), "rss-MiB")
}

// What serving costs while nothing happens: memory, and how often any thread
// of it is woken in ten seconds.
func BenchmarkProcessIdle(b *testing.B) {
	for _, n := range []int{2, 10} {
		b.Run(strconv.Itoa(n)+"resources", func(b *testing.B) {
			p := newProcess(b)
			text := twoResources
			for i := 2; i < n; i++ {
				text += fmt.Sprintf("[[resource]]\nname = \"full-%d\"\nmatch.glob = \"/dev/full\"\nexclude.glob = \"/dev/none%d\"\nregister = \"always\"\n", i, i)
			}
			if err := os.WriteFile(p.config, []byte(text), 0o600); err != nil {
				b.Fatal(err)
			}
			p.start()
			defer p.stop()
			for b.Loop() {
				time.Sleep(2 * time.Second) // what starting leaves to do
				before := p.switches()
				time.Sleep(10 * time.Second)
				b.ReportMetric(p.switches()-before, "switches/10s")
				b.ReportMetric(p.resident(), "rss-MiB")
			}
			b.ReportMetric(0, "ns/op")
		})
	}
}

// switches counts the context switches of all threads so far.
func (p *process) switches() float64 {
	p.b.Helper()
	files, err := filepath.Glob(filepath.Join("/proc", strconv.Itoa(p.cmd.Process.Pid), "task/*/status"))
	if err != nil {
		p.b.Fatal(err)
	}
	total := 0
	for _, file := range files {
		status, err := os.ReadFile(file)
		if err != nil {
			continue // the thread has ended
		}
		for line := range bytes.Lines(status) {
			if name, n, _ := bytes.Cut(line, []byte(":")); bytes.HasSuffix(name, []byte("voluntary_ctxt_switches")) {
				count, err := strconv.Atoi(string(bytes.TrimSpace(n)))
				if err != nil {
					p.b.Fatal(err)
				}
				total += count
			}
		}
	}
	return float64(total)
}

// From the kernel's event to the list in the kubelet's hand, for a device that
// comes and one that goes, one at a time: in a storm, lists are 50 ms apart on
// purpose, since the kubelet writes its checkpoint for each. A plugin that polls every 5 s takes 2.5 s on
// average and 5 s at worst, by its own clock.
func BenchmarkProcessHotplug(b *testing.B) {
	control, err := os.OpenFile("/dev/loop-control", os.O_RDWR, 0)
	if err != nil {
		b.Skipf("loop devices can't be made here: %v", err)
	}
	defer control.Close()
	events := nodeEvents(b, "loop"+strconv.Itoa(loopNumber))
	p := newProcess(b)
	p.start()
	defer p.stop()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	var came, went []time.Duration
	for b.Loop() {
		for _, step := range []struct {
			request uintptr
			healthy int
			took    *[]time.Duration
		}{{unix.LOOP_CTL_ADD, 1, &came}, {unix.LOOP_CTL_REMOVE, 0, &went}} {
			time.Sleep(120 * time.Millisecond) // let the window of the last one pass
			if _, _, errno := unix.Syscall(unix.SYS_IOCTL, control.Fd(), step.request, loopNumber); errno != 0 {
				b.Fatal(errno)
			}
			began := <-events // the call itself takes up to 40 ms
			if err := p.kubelet.WaitFor(ctx, func() bool {
				list, n := p.kubelet.Latest("example.com/loop")
				return n > 0 && len(list.Healthy()) == step.healthy
			}); err != nil {
				b.Fatal(err)
			}
			*step.took = append(*step.took, time.Since(began))
		}
	}
	quantiles(b, came, "plug")
	quantiles(b, went, "unplug")
}

// nodeEvents tells when the node /dev/name came and went.
func nodeEvents(b *testing.B, name string) <-chan time.Time {
	b.Helper()
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		b.Fatal(err)
	}
	if _, err := unix.InotifyAddWatch(fd, "/dev", unix.IN_CREATE|unix.IN_DELETE); err != nil {
		b.Fatal(err)
	}
	file := os.NewFile(uintptr(fd), "inotify")
	b.Cleanup(func() { _ = file.Close() })
	events := make(chan time.Time, 1)
	go func() {
		buf := make([]byte, 4096)
		for {
			n, err := file.Read(buf)
			if err != nil {
				return
			}
			if bytes.Contains(buf[:n], []byte(name+"\x00")) {
				events <- time.Now()
			}
		}
	}()
	return events
}
