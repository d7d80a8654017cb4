package dra

import (
	"fmt"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/generic-dp/generic-dp/internal/testing/kubeapitest"
)

// lists is the number of lists of slices.
func lists(server *kubeapitest.Server) (n int) {
	for _, r := range server.Requests() {
		isList := r.Method == "GET" && r.Path == slicesPath
		if isList {
			n++
		}
	}
	return n - watches(server)
}

// However often others change the slices, they are listed at a limited rate.
func TestForeignChangesCauseFewLists(t *testing.T) {
	t.Parallel()
	p := start(t, newServer(t))
	p.until("watched", func([]slice) bool { return watches(p.server) == 1 })
	p.stop()
	p.timing.refill = 50 * time.Millisecond
	p.run()
	p.until("watched again", func([]slice) bool { return watches(p.server) == 2 })
	p.Set([]Device{})
	before := lists(p.server)
	began := time.Now()
	for i := range 1000 {
		p.server.Put(slicesPath+"/foreign", kubeapitest.Object{
			"metadata": kubeapitest.Object{"name": "foreign"},
			"spec":     kubeapitest.Object{"driver": Driver, "nodeName": testNode, "edit": fmt.Sprint(i)},
		})
	}
	p.until("undone", func(all []slice) bool { return len(all) == 0 })
	most := p.timing.burst + int(time.Since(began)/p.timing.refill) + 2
	if got := lists(p.server) - before; got > most {
		t.Errorf("%d lists, want at most %d", got, most)
	}
}

// A write that a busy API server puts off is repeated later, without another list and watch.
func TestBusyServerIsAskedLater(t *testing.T) {
	t.Parallel()
	p := startWith(t, "a")
	p.until("watched", func([]slice) bool { return watches(p.server) == 1 })
	before := lists(p.server)
	var refused atomic.Int32
	p.server.Fault(func(r *http.Request, _ kubeapitest.Object) int {
		if r.Method == http.MethodPut && refused.Add(1) <= 3 {
			return http.StatusTooManyRequests
		}
		return 0
	})
	p.publishes("b")
	if refused.Load() != 4 {
		t.Errorf("%d requests, want 4", refused.Load())
	}
	if lists(p.server) != before || watches(p.server) != 1 {
		t.Errorf("%d lists and %d watches, want %d and 1", lists(p.server), watches(p.server), before)
	}
	p.publishes("c")
}

// After the end of a watch a node without a change takes its time. A change of its devices is
// published soon.
func TestWatchEndsWithoutHurry(t *testing.T) {
	t.Parallel()
	p := startWith(t, "a")
	p.until("watched", func([]slice) bool { return watches(p.server) == 1 })
	p.stop()
	p.timing.calm = 1000 * time.Hour
	p.run()
	p.until("watched again", func([]slice) bool { return watches(p.server) == 2 })
	// The program has seen an event of this watch, and its slices are right.
	p.server.Delete(slicesPath + "/" + sliceName(testNode, 0))
	p.until("published again", has("a"))
	p.server.EndWatches()
	p.publishes("b")
}
