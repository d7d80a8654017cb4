package agent_test

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/generic-dp/generic-dp/internal/kubelet/dra"
	"github.com/generic-dp/generic-dp/internal/testing/kubelettest"
)

// BenchmarkPrepare measures NodePrepareResources over a real socket, the request to the API
// server included, on nodes with many devices and prepared claims. One claim after the other
// is prepared and unprepared; "pods" does so for 20 pods at once.
func BenchmarkPrepare(b *testing.B) {
	for _, size := range []struct{ devices, claims, pods int }{
		{devices: 10, claims: 0, pods: 1},
		{devices: 1000, claims: 200, pods: 1},
		{devices: 1000, claims: 200, pods: 20},
	} {
		b.Run(fmt.Sprintf("devices=%d/claims=%d/pods=%d", size.devices, size.claims, size.pods), func(b *testing.B) {
			benchmarkPrepare(b, size.devices, size.claims, size.pods)
		})
	}
}

func benchmarkPrepare(b *testing.B, devices, prepared, pods int) {
	n, api := newDRANode(b, "domain = \"example.com\"\napi = \"dra\"\n[[resource]]\nname = \"stick\"\nmatch.glob = \"/dev/stick-*\"\ncontainer.env.STICK = \"${id}\"\n")
	var ids []string
	for i := range devices {
		ids = append(ids, "stick-"+strconv.Itoa(i))
	}
	n.addNodes(ids...)
	n.serve()
	n.untilDriver()
	n.eventually("slices", func() bool { return len(published(api)) == devices })
	for i := range prepared {
		c := allocate(api, "held-"+strconv.Itoa(i), dra.DeviceName(ids[i]))
		if _, err := n.kubelet.PrepareClaim(b.Context(), dra.Driver, c); err != nil {
			b.Fatal(err)
		}
	}
	claims := make([]kubelettest.ResourceClaim, pods)
	for i := range claims {
		claims[i] = allocate(api, "new-"+strconv.Itoa(i), dra.DeviceName(ids[len(ids)-1-i%len(ids)]))
	}
	var (
		mu    sync.Mutex
		times []time.Duration
	)
	once := func(c kubelettest.ResourceClaim) {
		began := time.Now()
		_, err := n.kubelet.PrepareClaim(context.Background(), dra.Driver, c)
		took := time.Since(began)
		if err != nil {
			b.Error(err)
		}
		if err := n.kubelet.UnprepareClaim(context.Background(), c.UID); err != nil {
			b.Error(err)
		}
		mu.Lock()
		times = append(times, took)
		mu.Unlock()
	}
	for b.Loop() {
		var running sync.WaitGroup
		for _, c := range claims {
			running.Go(func() { once(c) })
		}
		running.Wait()
	}
	slices.Sort(times)
	b.ReportMetric(float64(times[len(times)/2].Microseconds())/1000, "p50-ms")
	b.ReportMetric(float64(times[len(times)*99/100].Microseconds())/1000, "p99-ms")
	b.ReportMetric(0, "ns/op")
}
