package vm

import (
	"slices"
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
