package dra

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/generic-dp/generic-dp/internal/kubeapi"
	"github.com/generic-dp/generic-dp/internal/kubeapitest"
)

// A slice that somebody deleted, of which no event came yet, is created by its update: no API
// is missing.
func TestUpdateOfADeletedSlice(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	n := newNodeSlices(kubeapi.New(s.Config), testNode)
	for _, id := range []string{"a", "b"} {
		specs, _ := n.specs(sorted(devices(id)), time.Now())
		if wrote, err := n.write(t.Context(), specs, func(error) {}); wrote != 1 || err != nil {
			t.Fatalf("%s: %d writes, %v", id, wrote, err)
		}
		path := slicesPath + "/" + sliceName(testNode, 0)
		if s.Objects(slicesPath)[path] == nil {
			t.Fatalf("%s is not published", id)
		}
		s.Delete(path)
	}
}

// A device that the server does not take as it is is left out, and tried again when it is
// another one; the others are published.
func TestRefusedDevice(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	s.Validate(func(o kubeapitest.Object) (causes []kubeapi.Cause) {
		list, _ := o["spec"].(kubeapitest.Object)["devices"].([]any)
		for i, d := range list {
			attributes := d.(kubeapitest.Object)["attributes"].(kubeapitest.Object)
			if attributes["bad"] != nil {
				causes = append(causes, kubeapi.Cause{Field: fmt.Sprintf("spec.devices[%d].attributes[bad].string", i), Message: "Invalid value"})
			}
		}
		return causes
	})
	p := start(t, s)
	p.stop()
	var ok, failed atomic.Int32
	p.Wrote = func(err error) {
		if err != nil {
			failed.Add(1)
		} else {
			ok.Add(1)
		}
	}
	p.run()
	ids := numbered(130)
	all := devices(ids...)
	all[7].Attributes = map[string]string{"bad": "x"}
	all[99].Attributes = map[string]string{"bad": "y"}
	good := slices.DeleteFunc(slices.Clone(ids), func(id string) bool { return id == "d7" || id == "d99" })
	p.Set(all)
	p.until("published without two", has(good...))
	want := map[string]string{"d7": "attributes[bad].string: Invalid value", "d99": "attributes[bad].string: Invalid value"}
	p.until("named", func([]slice) bool { return maps.Equal(p.Refused(), want) })
	if got := p.Problem(); got != "" {
		t.Errorf("problem %q of all devices, want none", got)
	}

	refused := func() (n int) {
		for _, r := range s.Requests() {
			if r.Code == http.StatusUnprocessableEntity {
				n++
			}
		}
		return n
	}
	before := refused()
	if all := len(writes(s)); int(ok.Load()) != all-before || int(failed.Load()) != before {
		t.Errorf("%d writes and %d failures are counted, want %d and %d", ok.Load(), failed.Load(), all-before, before)
	}
	all[7].State = Unhealthy // as what is refused is
	p.Set(append(all, devices("more")...))
	p.until("another one", has(append(good, "more")...))
	if now := refused(); now != before {
		t.Errorf("%d requests more were refused, want none", now-before)
	}
	all[7].Attributes, all[99].Attributes = nil, nil
	p.Set(all)
	p.until("all published", has(ids...))
	p.until("healed", func([]slice) bool { return len(p.Refused()) == 0 })
}
