// Package model tests the built binary against a model that knows the truth: random
// scripts of what happens to a node (devices that come, go and change places and names,
// kubelets and streams that end, edits, pods, signals, full disks) over real sockets and
// files. GENERIC_DP_BIN is the binary.
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
)

var (
	seed     = flag.Uint64("seed", 0, "seed of the random scripts; 0 is a new one")
	first    = flag.Uint64("first", 0, "number of the first script of that seed")
	scripts  = flag.Uint64("scripts", 0, "how many scripts; 0 is as many as there is time for")
	duration = flag.Duration("duration", time.Minute, "for how long")
	lines    = flag.Int("lines", 40, "lines of a script")
	parallel = flag.Int("nodes", 4, "how many nodes at once")
	waits    = flag.Bool("waits", false, "let minutes pass in scripts")
	shrinks  = flag.Duration("shrink", 3*time.Minute, "how long to shrink a failing script")

	binary = os.Getenv("GENERIC_DP_BIN")
)

func needBinary(t *testing.T) {
	t.Helper()
	if binary == "" {
		t.Skip("GENERIC_DP_BIN does not name the binary: use make model, which builds it")
	}
}

// Every script that once failed, and the stories that the random ones rarely tell.
func TestScripts(t *testing.T) {
	needBinary(t)
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scripts: %v", err)
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

// Random scripts. A failing one is made short and printed: as a file in testdata it is a
// regression test.
func TestRandom(t *testing.T) {
	needBinary(t)
	if *seed == 0 {
		*seed = rand.Uint64N(1_000_000)
	}
	t.Logf("seed %d", *seed)
	fmt.Printf("seed %d\n", *seed) // also if it hangs
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
				s := random(rand.New(rand.NewPCG(*seed, n)), *lines)
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
				s, v = shrink(s, v, time.Now().Add(*shrinks), func(s script) *violation { return run(t, s) })
				t.Errorf("the program's log:\n%sof a short script that fails, to save as testdata/NAME.txt:\n%safter line %d: %v", v.log, s, v.step+1, v)
			}
		})
	}
	nodes.Wait()
	t.Logf("%d steps in %d scripts", steps.Load(), done.Load())
}

// run runs a script on a new node and returns the first violation.
func run(t *testing.T, s script) *violation {
	t.Helper()
	dir, err := os.MkdirTemp("", "gdp") // a socket's path has at most 107 bytes
	if err != nil {
		t.Fatal(err)
	}
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

// step carries out one line and waits until everything holds.
func (w *world) step(line string) *violation {
	moves := w.hw.total()
	running, t := w.program, &w.truth
	verb, _, _ := strings.Cut(strings.TrimPrefix(line, "+"), " ")
	switch {
	case verb == "break" && t.dirty:
		return nil // what was good before it may not have been read
	case verb == "break" && running != nil:
		running.rest(15) // an edit is read after 100 ms without another
	case verb == "kill" && running != nil && t.dirty:
		t.unsaved = true
	case verb == "kill" && running != nil:
		running.rest(3)
	case verb == "stop" && running != nil && w.faulty["state"] == "":
		t.unsaved = false // it saves what it could not save before
	case verb == "start" && running == nil && t.unsaved:
		t.vague, t.twins = true, twinsUnknown
		t.listed = map[string]map[string]life{}
	}
	sure := !t.dirty && !t.unsaved && !t.pending
	if err := w.do(line); err != nil {
		return &violation{rule: "script", what: err.Error()}
	}
	switch verb {
	case "kill", "stop":
		if running != nil && w.program == nil {
			w.trial.ended(w.config, verb == "kill", sure)
		}
	case "plug", "swap":
		if w.hw.total() != moves {
			t.plugs++
		}
		if verb == "swap" {
			t.plugs++
		}
	case "cut":
		t.ends++
		t.cut = true
	case "restart":
		t.ends++
	case "free":
		t.healed = true
		t.pending = false
	case "edit", "touch", "break":
		t.pending = t.pending || w.faulty["cdi"] != ""
	case "start":
		if running == nil {
			t.ends = 0
			t.pending = w.faulty["cdi"] != ""
		}
	}
	return w.wait(line)
}

var twinsUnknown = twins{contested: maybe}

// observes reports whether the kubelet's view shows all that the program sees.
func (w *world) observes() bool {
	return w.up && w.program != nil && !w.config.of["serial"].removed && !w.config.of["serial"].port && len(w.faulty) == 0 && !w.uncertain() && len(w.truth.names) <= 4
}

func (w *world) wait(line string) *violation {
	if strings.HasPrefix(line, "+") {
		w.truth.dirty = true
		w.truth.twins.unseen(w)
		return nil
	}
	return w.settle()
}

// end ends the program in turn by SIGTERM, and by SIGQUIT, which lists its goroutines.
func (w *world) end() *violation {
	if w.program == nil {
		return nil
	}
	if v := w.settle(); v != nil || w.program == nil {
		return v
	}
	if w.pods%2 == 0 {
		w.program.rest(3)
		served := len(w.sockets())
		if n := w.goroutines(); n > 48+8*served {
			return &violation{rule: "leak", what: fmt.Sprintf("%d goroutines for %d resources", n, served)}
		}
		return nil
	}
	if err := w.stop(); err != nil {
		return &violation{rule: "stop", what: err.Error()}
	}
	for _, s := range w.sockets() {
		if !w.orphans[s] {
			return &violation{rule: "leak", what: s + " is left after SIGTERM"}
		}
	}
	return nil
}

// rest waits until the program has done nothing for some ticks: then its state is saved.
func (p *program) rest(ticks int) {
	for quiet := 0; quiet < ticks; quiet++ {
		before := p.progress()
		time.Sleep(tick)
		if p.progress()-before > idling {
			quiet = -1
		}
	}
}

// total counts all changes of the hardware.
func (h *hardware) total() (n int) {
	for _, moves := range h.moves {
		n += moves
	}
	return n
}
