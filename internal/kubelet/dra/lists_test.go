package dra

import (
	"fmt"
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

// After the end of a watch a node without a change takes its time. A change of its devices is
// published soon.
func TestWatchEndsWithoutHurry(t *testing.T) {
	t.Parallel()
	p := start(t, newServer(t))
	p.Set(devices("a"))
	p.until("published", has("a"))
	p.until("watched", func([]slice) bool { return watches(p.server) == 1 })
	p.stop()
	p.timing.calm = 1000 * time.Hour
	p.run()
	p.until("watched again", func([]slice) bool { return watches(p.server) == 2 })
	// The program has seen an event of this watch, and its slices are right.
	p.server.Delete(slicesPath + "/" + sliceName(testNode, 0))
	p.until("published again", has("a"))
	p.server.EndWatches()
	p.Set(devices("b"))
	p.until("published", has("b"))
}
