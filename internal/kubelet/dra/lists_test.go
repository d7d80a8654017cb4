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
	p.until("published", func([]slice) bool { return watches(p.server) == 1 })
	p.stop()
	p.timing.refill = time.Hour
	before := lists(p.server)
	p.run()
	p.until("watched again", func([]slice) bool { return watches(p.server) == 2 })
	foreign := func(i int) {
		p.server.Put(slicesPath+"/foreign", kubeapitest.Object{
			"metadata": kubeapitest.Object{"name": "foreign"},
			"spec":     kubeapitest.Object{"driver": Driver, "nodeName": testNode, "edit": fmt.Sprint(i)},
		})
	}
	for i := range p.timing.burst {
		foreign(i)
		p.until("listed", func([]slice) bool { return lists(p.server) == before+2+i })
	}
	for i := range 100 {
		foreign(1000 + i)
	}
	p.server.EndWatches() // the next session lists again
	p.until("watched again", func([]slice) bool { return watches(p.server) == 3 })
	if got, want := lists(p.server)-before, 1+p.timing.burst+1; got > want {
		t.Errorf("%d lists, want at most %d", got, want)
	}
}
