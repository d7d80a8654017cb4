package vm

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/generic-dp/generic-dp/test/e2e/vm/wire"
)

// listedInMilliseconds limits the time from a dongle's node to the kubelet's list.
func listedInMilliseconds(t *testing.T, m *Machine) {
	const plugs, poll = 50, 5 * time.Second
	const wantHalf, wantAll = 20 * time.Millisecond, 100 * time.Millisecond
	m.Serve(t, serialByNode)
	var latencies []time.Duration
	id := node(bySerial("FTALPHA"))
	before := m.Usage(t)
	for range plugs {
		p := m.Plug(t, dongle("1", "FTALPHA"))
		list := m.Healthy(t, serial, id)
		var at time.Time
		m.call(t, "Appeared", wire.Appeared{Name: "ttyUSB0"}, &at)
		latencies = append(latencies, list.At.Sub(at))
		p.Pull(t)
		m.Want(t, wire.Want{Resource: serial, Unhealthy: []string{id}})
	}
	slices.Sort(latencies)
	p50, p99 := latencies[plugs/2], latencies[plugs*99/100]
	t.Logf("from /dev/ttyUSB0 to the kubelet's list, %d plugs: p50 %.1f ms, p99 %.1f ms; a poll every %v: mean %v, worst %v; %.1f ms of CPU time for a plug and a pull",
		plugs, ms(p50), ms(p99), poll, poll/2, poll, ms((m.Usage(t).CPU-before.CPU)/plugs))
	if p50 > wantHalf || p99 > wantAll {
		t.Errorf("p50 is %v and p99 %v; want at most %v and %v: %v", p50, p99, wantHalf, wantAll, latencies)
	}
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// goroutine is the start of a goroutine's stack in the output of SIGQUIT.
var goroutine = regexp.MustCompile(`(?m)^goroutine [1-9][0-9]* `)

func churn(t *testing.T, m *Machine) {
	const cycles, half = 200, 100
	m.Serve(t, serialByNode)
	buses := slices.Sorted(maps.Keys(controllers))
	// cycle plugs in a dongle, unplugs it, and returns its ID.
	cycle := func(t *testing.T, bus, name string) string {
		id := node(bySerial(name))
		p := m.Plug(t, Device{Driver: "usb-serial", Bus: bus, Port: "1", Serial: name})
		m.Want(t, wire.Want{Resource: serial, Healthy: []string{id}, More: true})
		p.Pull(t)
		m.Want(t, wire.Want{Resource: serial, Unhealthy: []string{id}, More: true})
		return id
	}
	// quit ends the program and counts its goroutines.
	quit := func() int {
		written := len(m.Log(t))
		m.call(t, "Stop", syscall.SIGQUIT, &wire.None{})
		return len(goroutine.FindAllString(m.Log(t)[written:], -1))
	}
	cycle(t, buses[0], "FTALPHA")
	few := quit()
	m.call(t, "Serve", wire.Serve{Config: serialByNode}, &wire.None{})

	// Most dongles are known ones. All controllers at once, since the kernel takes half a
	// second for each plug.
	var mu sync.Mutex
	gone := map[string]bool{}
	run := func(from, to int) {
		t.Run(fmt.Sprintf("%d to %d", from+1, to), func(t *testing.T) {
			for i, bus := range buses {
				t.Run(bus, func(t *testing.T) {
					t.Parallel()
					for n := from + i; n < to; n += len(buses) {
						id := cycle(t, bus, fmt.Sprintf("FT%s%d", bus, n%40))
						mu.Lock()
						gone[id] = true
						mu.Unlock()
					}
				})
			}
		})
	}
	start := time.Now()
	run(0, half)
	before := m.Usage(t)
	run(half, cycles)
	after := m.Usage(t)
	t.Logf("%d plugs and pulls in %.0f s, %v of CPU time each; after half and all of them: %.1f and %.1f MB of its own, %d and %d files, %d and %d threads",
		cycles, time.Since(start).Seconds(), ((after.CPU - before.CPU) / (cycles - half)).Round(100*time.Microsecond),
		mb(before.Anonymous), mb(after.Anonymous), before.Files, after.Files, before.Tasks, after.Tasks)
	// Room for a running scan. A leak in each cycle would be a hundred.
	const slack = 5
	if after.Files > before.Files+slack {
		t.Errorf("%d open files after %d cycles, %d after all; want %d more at most", before.Files, half, after.Files, slack)
	}
	if after.Tasks > before.Tasks+slack {
		t.Errorf("%d threads after %d cycles, %d after all; want %d more at most", before.Tasks, half, after.Tasks, slack)
	}
	if after.Anonymous > before.Anonymous+before.Anonymous/4+2<<20 {
		t.Errorf("%.1f MB after %d cycles, %.1f MB after all; want 2 MB and a quarter more at most", mb(before.Anonymous), half, mb(after.Anonymous))
	}

	// The final list: plugged devices are healthy, all others unhealthy.
	var here []string
	for _, bus := range buses {
		here = append(here, node(bySerial("FTLAST"+bus)))
		m.Plug(t, Device{Driver: "usb-serial", Bus: bus, Port: "1", Serial: "FTLAST" + bus})
	}
	m.Want(t, wire.Want{Resource: serial, Healthy: here, Unhealthy: slices.Collect(maps.Keys(gone))})
	found := m.Devices(t)
	var seen []string
	for _, d := range found[serial] {
		seen = append(seen, d.ID)
	}
	slices.Sort(seen)
	if !slices.Equal(seen, here) {
		t.Errorf("generic-dp devices finds %q; want %q", seen, here)
	}
	if links := m.Links(t); len(links) != len(here) {
		t.Errorf("links are %v; want one for each of %q", links, here)
	}
	many := quit()
	t.Logf("%d goroutines after the first plug, %d after all", few, many)
	if few == 0 || many > few+slack {
		t.Errorf("%d goroutines after the first plug, %d after all; want %d more at most", few, many, slack)
	}
}
