package main

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"text/tabwriter"
	"time"
)

// Benchmarks of the whole process beside test/floor, and if their variables name a binary, beside squat's
// plugin (GENERIC_DP_PEER_BIN) and another version of ours (GENERIC_DP_BEFORE_BIN). The programs take turns, so that other work on the machine affects all of them alike.

// program is a device plugin that serves resources example.com/r0, r1 and so on, of ten slots each.
type program struct {
	name   string
	binary string
	// args returns the arguments for a number of resources, with all files below dir.
	args func(b *testing.B, dir string, resources int) []string
}

// programs are the programs to compare, the one of the first figure first.
func programs(b *testing.B) []program {
	b.Helper()
	all := []program{
		{name: "ours", binary: os.Getenv("GENERIC_DP_BIN"), args: ourArgs},
		{name: "floor", binary: buildFloor(b), args: func(_ *testing.B, dir string, resources int) []string {
			return []string{"--kubelet-dir", filepath.Join(dir, "k"), "--resources", strconv.Itoa(resources)}
		}},
	}
	if before := os.Getenv("GENERIC_DP_BEFORE_BIN"); before != "" {
		all = append(all, program{name: "before", binary: before, args: ourArgs})
	}
	if peer := os.Getenv("GENERIC_DP_PEER_BIN"); peer != "" {
		all = append(all, program{name: "squat's", binary: peer, args: squatArgs})
	}
	return all
}

// buildFloor builds test/floor with our tags and without other tricks.
func buildFloor(b *testing.B) string {
	b.Helper()
	binary := filepath.Join(b.TempDir(), "floor")
	build := exec.Command("go", "build", "-tags", "grpcnotrace,nethttpomithttp2", "-ldflags", "-s -w", "-o", binary, "../../test/floor")
	if out, err := build.CombinedOutput(); err != nil {
		b.Fatalf("%v: %s", err, out)
	}
	return binary
}

func ourArgs(b *testing.B, dir string, resources int) []string {
	b.Helper()
	text := "domain = \"example.com\"\n"
	for i := range resources {
		text += fmt.Sprintf("[[resource]]\nname = \"r%d\"\ncount = 10\nshared = true\nmatch.glob = \"/dev/null\"\n", i)
	}
	config := filepath.Join(dir, "config.toml")
	place(b, config, text)
	return serveArgs(dir, config)
}

func squatArgs(_ *testing.B, dir string, resources int) []string {
	args := []string{"--domain", "example.com", "--plugin-directory", filepath.Join(dir, "k"), "--listen", "127.0.0.1:0", "--log-level", "warn"}
	for i := range resources {
		args = append(args, "--device", fmt.Sprintf(`{"name": "r%d", "groups": [{"count": 10, "paths": [{"path": "/dev/null"}]}]}`, i))
	}
	return args
}

// figures are measurements by name, and by program.
type figures map[string]map[string][]float64

func (f figures) add(program, figure string, value float64) {
	if f[figure] == nil {
		f[figure] = map[string][]float64{}
	}
	f[figure][program] = append(f[figure][program], value)
}

// report prints minimum, median and maximum of each figure and each program, and what the median of ours
// is of theirs.
func (f figures) report(b *testing.B, programs []program) {
	b.Helper()
	var table strings.Builder
	w := tabwriter.NewWriter(&table, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "FIGURE\tPROGRAM\tMIN\tMEDIAN\tMAX\tOURS/IT")
	for _, figure := range slices.Sorted(maps.Keys(f)) {
		ours := quantile(f[figure]["ours"], 0.5)
		for _, p := range programs {
			values := f[figure][p.name]
			median := quantile(values, 0.5)
			fmt.Fprintf(w, "%s\t%s\t%.4g\t%.4g\t%.4g\t%.2f\n", figure, p.name, values[0], median, values[len(values)-1], ours/median)
		}
	}
	_ = w.Flush() // a builder takes everything
	fmt.Printf("\n%s: %d runs\n%s", b.Name(), b.N, table.String())
	b.ReportMetric(0, "ns/op")
}

// quantile returns a quantile of values, which it sorts.
func quantile[T cmp.Ordered](values []T, q float64) T {
	slices.Sort(values)
	return values[int(q*float64(len(values)-1))]
}

// BenchmarkBesideStart starts each program until the kubelet has all lists. After a start, the programs have
// two seconds for work that follows it.
func BenchmarkBesideStart(b *testing.B) {
	all := programs(b)
	for _, resources := range []int{2, 100} {
		b.Run(strconv.Itoa(resources), func(b *testing.B) {
			f := figures{}
			for b.Loop() {
				for _, program := range all {
					p := newProcessOf(b, program, resources)
					took := p.start()
					f.add(program.name, "start-ms", milliseconds(took))
					f.add(program.name, "cpu-ms", milliseconds(p.cpu()))
					time.Sleep(2 * time.Second)
					f.add(program.name, "rss-MB", p.resident()*1.048576)
					p.kill()
				}
			}
			f.report(b, all)
		})
	}
}

// BenchmarkBesideIdle counts the context switches of all threads in the first 20 s after the kubelet has all
// lists, in which programs do what they put off, and in the next 30 s.
func BenchmarkBesideIdle(b *testing.B) {
	all := programs(b)
	f := figures{}
	for b.Loop() {
		before := map[*process]float64{}
		for _, program := range all {
			p := newProcessOf(b, program, 2)
			p.start()
			before[p] = p.switches()
		}
		time.Sleep(20 * time.Second)
		for p := range before {
			now := p.switches()
			f.add(p.program.name, "switches-20s", now-before[p])
			before[p] = now
		}
		time.Sleep(30 * time.Second)
		for p := range before {
			f.add(p.program.name, "switches-30s-after", p.switches()-before[p])
			p.kill()
		}
	}
	f.report(b, all)
}

// BenchmarkBesideAllocate calls Allocate of each program over the socket.
func BenchmarkBesideAllocate(b *testing.B) {
	const calls = 200
	f := figures{}
	var started []*process
	all := programs(b)
	for _, program := range all {
		p := newProcessOf(b, program, 2)
		p.start()
		defer p.kill()
		started = append(started, p)
	}
	for b.Loop() {
		for _, p := range started {
			list, _ := p.kubelet.Latest(p.names[0])
			before := p.cpu()
			var took []time.Duration
			for range calls {
				began := time.Now()
				if _, err := p.kubelet.Allocate(context.Background(), p.names[0], list.Devices[0].ID); err != nil {
					b.Fatal(err)
				}
				took = append(took, time.Since(began))
			}
			f.add(p.program.name, "p50-ms", milliseconds(quantile(took, 0.5)))
			f.add(p.program.name, "p99-ms", milliseconds(quantile(took, 0.99)))
			f.add(p.program.name, "cpu-µs", milliseconds(p.cpu()-before)*1000/calls)
		}
	}
	f.report(b, all)
}

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// cpu is the CPU time of all threads of the process that still exist.
func (p *process) cpu() time.Duration {
	p.b.Helper()
	files, err := filepath.Glob(filepath.Join("/proc", strconv.Itoa(p.cmd.Process.Pid), "task/*/schedstat"))
	must(p.b, err)
	var total time.Duration
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			continue // the thread has ended
		}
		nanoseconds, err := strconv.ParseInt(strings.Fields(string(text))[0], 10, 64)
		must(p.b, err)
		total += time.Duration(nanoseconds)
	}
	return total
}
