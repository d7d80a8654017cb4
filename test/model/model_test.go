// Package model compares the built binary with a model of the truth, over real sockets and
// files, while random scripts plug, pull and swap devices, restart the kubelet, cut streams,
// edit the configuration, admit pods, send signals and fill disks. GENERIC_DP_BIN is the
// binary.
package model

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/generic-dp/generic-dp/internal/testing/kubelettest"
)

var (
	seed      = flag.Uint64("seed", 0, "seed of the random scripts; 0 is random")
	first     = flag.Uint64("first", 0, "number of the seed's first script to run")
	scripts   = flag.Uint64("scripts", 0, "maximum number of scripts; 0 is unlimited")
	duration  = flag.Duration("duration", time.Minute, "time after which no script starts")
	lines     = flag.Int("lines", 40, "lines of a script")
	parallel  = flag.Int("nodes", 4, "number of nodes, each with a script of its own")
	waits     = flag.Bool("waits", false, "add lines that wait for a minute")
	shrinkFor = flag.Duration("shrink", 3*time.Minute, "time limit for shrinking a failing script")

	binary = os.Getenv("GENERIC_DP_BIN")
)

func needBinary(t *testing.T) {
	t.Helper()
	if binary == "" {
		t.Skip("GENERIC_DP_BIN is not set: use make model, which builds the binary")
	}
}

// Scripts that once failed, and sequences that random scripts rarely contain.
func TestScripts(t *testing.T) {
	needBinary(t)
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scripts in testdata: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			t.Parallel()
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			var s script
			for line := range strings.Lines(string(text)) {
				if line = strings.TrimSpace(line); line != "" && line[0] != '#' {
					s = append(s, line)
				}
			}
			if v := run(t, s); v != nil {
				t.Logf("the program's log:\n%s", v.log)
				t.Errorf("after line %d, %q: %v", v.step+1, s[v.step], v)
			}
		})
	}
}

// A failing random script is shrunk and printed: saved in testdata it is a regression test.
func TestRandom(t *testing.T) {
	needBinary(t)
	if *seed == 0 {
		*seed = rand.Uint64N(1_000_000)
	}
	t.Logf("seed %d", *seed)
	fmt.Printf("seed %d\n", *seed) // also shown if the test hangs
	var next, done, steps atomic.Uint64
	next.Store(*first)
	end := time.Now().Add(*duration)
	var nodes sync.WaitGroup
	for range *parallel {
		nodes.Go(func() {
			for time.Now().Before(end) && !t.Failed() {
				n := next.Add(1) - 1
				if *scripts > 0 && n >= *first+*scripts {
					return
				}
				s := randomScript(rand.New(rand.NewPCG(*seed, n)), *lines)
				if *scripts == 1 {
					t.Logf("script %d:\n%s", n, s)
				}
				v := run(t, s)
				done.Add(1)
				if v == nil {
					steps.Add(uint64(len(s)))
					continue
				}
				t.Errorf("script %d of seed %d: after line %d, %q: %v", n, *seed, v.step+1, s[v.step], v)
				s, v = shrink(s, v, time.Now().Add(*shrinkFor), func(s script) *violation { return run(t, s) })
				t.Errorf("the program's log:\n%sof the shrunk script, to save as testdata/NAME.txt:\n%safter line %d: %v", v.log, s, v.step+1, v)
			}
		})
	}
	nodes.Wait()
	t.Logf("%d lines of %d scripts", steps.Load(), done.Load())
}

// run runs a script on a new node and returns the first violation.
func run(t *testing.T, s script) *violation {
	t.Helper()
	dir := kubelettest.TempDir(t)
	w, err := newWorld(t, dir, s)
	if err != nil {
		t.Fatal(err)
	}
	defer w.close()
	fail := func(v *violation, at int) *violation {
		v.step = at
		v.log, _ = os.ReadFile(filepath.Join(dir, "log"))
		return v
	}
	for i, line := range s {
		if v := w.step(line); v != nil {
			return fail(v, i)
		}
	}
	if v := w.end(); v != nil {
		return fail(v, len(s)-1)
	}
	return nil
}

// step carries out one line and, without a "+", waits until every rule holds.
func (w *world) step(line string) *violation {
	moves := w.hw.totalMoves()
	running, t := w.program, &w.truth
	verb, _, _ := strings.Cut(strings.TrimPrefix(line, "+"), " ")
	if verb == "break" && t.unsettled {
		return nil // the program may not have read the last good configuration
	}
	w.prepare(verb)
	sure := !t.unsettled && !t.stateUnsaved && !t.reloadPending
	if err := w.do(line); err != nil {
		return &violation{rule: "script", what: err.Error()}
	}
	switch verb {
	case "kill", "stop":
		if running != nil && w.program == nil {
			w.trial.programEnded(w.config, verb == "kill", sure)
		}
	case "plug", "swap":
		if w.hw.totalMoves() != moves {
			t.plugs++
		}
		if verb == "swap" {
			t.plugs++
		}
	case "cut":
		t.streamEnds++
		t.streamCut = true
	case "restart":
		t.streamEnds++
	case "free":
		t.diskHealed = true
		t.reloadPending = false
	case "edit", "touch", "break":
		t.reloadPending = t.reloadPending || w.faulty["cdi"] != ""
	case "start":
		if running == nil {
			t.streamEnds = 0
			t.reloadPending = w.faulty["cdi"] != ""
		}
	}
	if strings.HasPrefix(line, "+") {
		t.unsettled = true
		t.twins.notObserved(w)
		return nil
	}
	return w.settle()
}

// prepare waits for reads and saves of the program that a line would race with, and records
// whether its state may be unsaved or lost.
func (w *world) prepare(verb string) {
	t := &w.truth
	switch running := w.program != nil; {
	case verb == "break" && running:
		w.program.waitIdle(15) // an edit is read 100 ms after the last one
	case verb == "kill" && running && t.unsettled:
		t.stateUnsaved = true
	case verb == "kill" && running:
		w.program.waitIdle(3)
	case verb == "stop" && running && w.faulty["state"] == "":
		t.stateUnsaved = false // the last save
	case verb == "start" && !running && t.stateUnsaved:
		t.stateLost, t.twins = true, twins{contested: maybe}
		t.listed = map[string]map[string]life{}
	}
}

// observable reports whether the kubelet's lists show every serial that the program sees.
func (w *world) observable() bool {
	return w.kubeletUp && w.program != nil && !w.config.of["serial"].removed && !w.config.of["serial"].port && len(w.faulty) == 0 && !w.configUncertain() && len(w.truth.names) <= 4
}

// end ends the program, after an even number of pods by SIGQUIT, which lists its goroutines,
// and otherwise by SIGTERM.
func (w *world) end() *violation {
	if w.program == nil {
		return nil
	}
	if v := w.settle(); v != nil || w.program == nil {
		return v
	}
	if w.pods%2 == 0 {
		w.program.waitIdle(3)
		served := len(w.sockets())
		if n, limit := w.goroutines(), 48+8*served; n > limit {
			return &violation{rule: "leak", what: fmt.Sprintf("%d goroutines for %d resources, want at most %d", n, served, limit)}
		}
		return nil
	}
	if err := w.stop(); err != nil {
		return &violation{rule: "stop", what: err.Error()}
	}
	for _, s := range w.sockets() {
		if !w.orphans[s] {
			return &violation{rule: "leak", what: "socket " + s + " is left behind after SIGTERM"}
		}
	}
	return nil
}

// waitIdle waits until the program was idle for some ticks: then its state is saved.
func (p *program) waitIdle(ticks int) {
	for quiet := 0; quiet < ticks; quiet++ {
		before := p.progress()
		time.Sleep(tick)
		if p.progress()-before > idleNoise {
			quiet = -1
		}
	}
}

// totalMoves counts all plugs and pulls.
func (h *hardware) totalMoves() (n int) {
	for _, moves := range h.moves {
		n += moves
	}
	return n
}
