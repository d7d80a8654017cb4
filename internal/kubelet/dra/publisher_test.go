package dra

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/generic-dp/generic-dp/cdi"
	"github.com/generic-dp/generic-dp/internal/kubelet/kubeapi"
	"github.com/generic-dp/generic-dp/internal/testing/kubeapitest"
)

const testNode = "node-1"

// published is a Plugin that publishes to a fake API server.
type published struct {
	*Plugin
	*List
	t      testing.TB
	server *kubeapitest.Server
	stop   func()
	// changed has an element after Problem has changed.
	changed chan struct{}
}

// start starts one that retries fast.
func start(t testing.TB, server *kubeapitest.Server) *published {
	p := &published{t: t, server: server, changed: make(chan struct{}, 1), List: new(List)}
	p.Plugin = New(Quiet(Options{
		API: kubeapi.New(server.Config), Node: testNode, Devices: p.List,
		Claims: &cdi.Writer{Dir: t.TempDir()}, Metadata: t.TempDir(), Log: slog.New(slog.DiscardHandler),
		Changed: func() {
			select {
			case p.changed <- struct{}{}:
			default:
			}
		},
	}))
	p.timing.jitter = time.Millisecond
	p.timing.calm = time.Millisecond
	p.timing.retry = 5 * time.Millisecond
	p.timing.maxRetry = 20 * time.Millisecond
	p.timing.refill = 10 * time.Millisecond
	p.accept()
	p.run()
	return p
}

// startWith starts one that has published devices with these IDs.
func startWith(t testing.TB, ids ...string) *published {
	t.Helper()
	p := start(t, newServer(t))
	p.publishes(ids...)
	return p
}

// publishes sets the devices, and returns the slices that have exactly them.
func (p *published) publishes(ids ...string) []slice {
	p.t.Helper()
	p.Set(devices(ids...))
	return p.until("published", has(ids...))
}

// accept registers the driver, as a kubelet does.
func (p *published) accept() { p.update(func(now *state) { now.accepted = true }) }

func (p *published) run() {
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		if err := p.Publish(ctx); err != nil {
			p.t.Error(err)
		}
	})
	p.stop = sync.OnceFunc(func() {
		cancel()
		running.Wait()
	})
	p.t.Cleanup(p.stop)
}

func newServer(t testing.TB) *kubeapitest.Server {
	s := kubeapitest.New(t)
	s.Put("/api/v1/nodes/"+testNode, kubeapitest.Object{"metadata": kubeapitest.Object{"uid": "node-uid"}})
	return s
}

// until waits until the server's slices satisfy ok.
func (p *published) until(what string, ok func([]slice) bool) []slice {
	p.t.Helper()
	deadline := time.After(20 * time.Second)
	for {
		changed := p.server.Changed()
		all := serverSlices(p.t, p.server)
		if ok(all) {
			return all
		}
		select {
		case <-changed:
		case <-p.changed:
		case <-deadline:
			text, _ := json.Marshal(all)
			p.t.Fatalf("not %s: %s; problem %q", what, text, p.Problem(""))
		}
	}
}

// serverSlices are the server's, by name.
func serverSlices(t testing.TB, server *kubeapitest.Server) (out []slice) {
	t.Helper()
	objects := server.Objects(slicesPath)
	for _, path := range slices.Sorted(maps.Keys(objects)) {
		text, err := json.Marshal(objects[path])
		var s slice
		if err := errors.Join(err, json.Unmarshal(text, &s)); err != nil {
			t.Error(err)
		}
		out = append(out, s)
	}
	return out
}

// has reports whether slices are one whole pool with exactly the devices of these IDs.
func has(ids ...string) func([]slice) bool {
	slices.Sort(ids)
	return func(all []slice) bool {
		var found []string
		for _, s := range all {
			if s.Spec.Pool != (pool{Name: PoolName(testNode), Generation: all[0].Spec.Pool.Generation, ResourceSliceCount: len(all)}) {
				return false
			}
			for _, d := range s.Spec.Devices {
				found = append(found, *d.Attributes["id"].String)
			}
		}
		slices.Sort(found)
		return slices.Equal(found, ids)
	}
}

func devices(ids ...string) []Device {
	var out []Device
	for _, id := range ids {
		out = append(out, Device{Resource: "example.com/a", ID: id, Slots: 1})
	}
	return out
}

func numbered(n int) (ids []string) {
	for i := range n {
		ids = append(ids, "d"+strconv.Itoa(i))
	}
	return ids
}

// writes are the requests that changed something, or tried to.
func writes(s *kubeapitest.Server) (out []kubeapitest.Request) {
	for _, r := range s.Requests() {
		if r.Method != http.MethodGet {
			out = append(out, r)
		}
	}
	return out
}

func TestOneDeviceIsOneWrite(t *testing.T) {
	t.Parallel()
	p := start(t, newServer(t))
	ids := numbered(200)
	all := devices(ids...)
	p.Set(all)
	first := p.until("published", has(ids...))
	if len(first) != 4 {
		t.Fatalf("%d slices, want 4 of 64 devices at most", len(first))
	}
	before := len(writes(p.server))
	all[77].State = Unhealthy
	p.Set(all)
	p.until("tainted", func(all []slice) bool {
		for _, s := range all {
			for _, d := range s.Spec.Devices {
				if d.Name == "d77" && len(d.Taints) == 1 && d.Taints[0].Effect == "NoSchedule" {
					return has(ids...)(all)
				}
			}
		}
		return false
	})
	if now := writes(p.server); len(now) != before+1 {
		t.Errorf("%d writes, want 1", len(now)-before)
	}
	// Others change slices where one comes and one goes: no generation has a device twice.
	after := p.publishes(append(ids[1:], "new")...)
	if got, want := after[0].Spec.Pool.Generation, first[0].Spec.Pool.Generation+1; got != want {
		t.Errorf("generation %d, want %d", got, want)
	}
	before = len(writes(p.server))
	p.stop()
	p = start(t, p.server)
	p.publishes(append(ids[1:], "new", "newer")...)
	p.Set(devices(append(ids[1:], "new", "newer")...))
	p.stop()
	if now := writes(p.server); len(now) != before+1 {
		t.Errorf("%d writes, want only the last slice", len(now)-before)
	}
}

// Consumers see each write by itself: in a whole pool no device is twice, whatever comes and
// goes, and whatever fails.
func TestNoDeviceIsTwiceInAPool(t *testing.T) {
	t.Parallel()
	server := newServer(t)
	server.Fault(func(r *http.Request, _ kubeapitest.Object) int {
		generation, whole := int64(0), map[int64][]slice{}
		for _, s := range serverSlices(t, server) {
			g := s.Spec.Pool.Generation
			generation, whole[g] = max(generation, g), append(whole[g], s)
		}
		seen := map[string]bool{}
		for _, s := range whole[generation] {
			for _, d := range s.Spec.Devices {
				if seen[d.Name] && s.Spec.Pool.ResourceSliceCount == len(whole[generation]) {
					t.Errorf("generation %d has %s twice", generation, d.Name)
				}
				seen[d.Name] = true
			}
		}
		if r.Method != http.MethodGet {
			failures := []int{0, 0, 0, http.StatusTooManyRequests, http.StatusServiceUnavailable}
			return failures[rand.IntN(len(failures))]
		}
		return 0
	})
	p := start(t, server)
	ids := numbered(200)
	for i := range 20 {
		first := rand.IntN(len(ids) / 2)
		last := rand.IntN(len(ids) - first)
		if i%4 > 0 {
			last = len(ids) - 1 - rand.IntN(10) // most lists need the same number of slices
		}
		some := slices.Clone(ids[min(first, last):max(first, last)])
		p.publishes(some...)
		if i%5 == 0 {
			p.stop()
			p = start(t, server)
		}
	}
}

func TestOthersChangesAreUndone(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*kubeapitest.Server, map[string]kubeapitest.Object){
		"one deleted": func(s *kubeapitest.Server, all map[string]kubeapitest.Object) {
			s.Delete(slices.Sorted(maps.Keys(all))[0])
		},
		"all deleted": func(s *kubeapitest.Server, all map[string]kubeapitest.Object) {
			for path := range all {
				s.Delete(path)
			}
		},
		"device edited": func(s *kubeapitest.Server, all map[string]kubeapitest.Object) {
			for path, o := range all {
				o["spec"].(kubeapitest.Object)["devices"].([]any)[0].(kubeapitest.Object)["name"] = "other"
				s.Put(path, o)
			}
		},
		"unknown field": func(s *kubeapitest.Server, all map[string]kubeapitest.Object) {
			for path, o := range all {
				o["spec"].(kubeapitest.Object)["allNodes"] = true
				s.Put(path, o)
			}
		},
		"generation raised": func(s *kubeapitest.Server, all map[string]kubeapitest.Object) {
			path := slices.Sorted(maps.Keys(all))[0]
			all[path]["spec"].(kubeapitest.Object)["pool"].(kubeapitest.Object)["generation"] = 99
			s.Put(path, all[path])
		},
		"owner removed": func(s *kubeapitest.Server, all map[string]kubeapitest.Object) {
			for path, o := range all {
				delete(o["metadata"].(kubeapitest.Object), "ownerReferences")
				s.Put(path, o)
			}
		},
		"owner replaced": func(s *kubeapitest.Server, all map[string]kubeapitest.Object) {
			for path, o := range all {
				owner := o["metadata"].(kubeapitest.Object)["ownerReferences"].([]any)[0].(kubeapitest.Object)
				owner["kind"] = "Pod"
				s.Put(path, o)
			}
		},
		"foreign slice": func(s *kubeapitest.Server, all map[string]kubeapitest.Object) {
			for _, o := range all {
				o["metadata"].(kubeapitest.Object)["name"] = "foreign"
				s.Put(slicesPath+"/foreign", o)
				break
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := start(t, newServer(t))
			ids := numbered(70)
			p.publishes(ids...)
			before := len(writes(p.server))
			// A copy: the server's own objects are immutable.
			var copied map[string]kubeapitest.Object
			text, _ := json.Marshal(p.server.Objects(slicesPath))
			must(t, json.Unmarshal(text, &copied))
			change(p.server, copied)
			p.until("undone", func(all []slice) bool {
				text, _ := json.Marshal(p.server.Objects(slicesPath))
				foreign := func(s slice) bool {
					return len(s.Metadata.OwnerReferences) != 1 || s.Metadata.OwnerReferences[0].Kind != "Node"
				}
				undone := has(ids...)(all) && !bytes.Contains(text, []byte("allNodes")) && !slices.ContainsFunc(all, foreign)
				return len(writes(p.server)) > before && undone
			})
		})
	}
}

// The same while the API server is unreachable: its garbage collector would delete the slices
// owned by the former node.
func TestNodeIsMadeAgainUnseen(t *testing.T) {
	t.Parallel()
	p := start(t, newServer(t))
	all := p.publishes("a")
	p.server.Stop()
	node := "/api/v1/nodes/" + testNode
	p.server.Delete(slicesPath + "/" + all[0].Metadata.Name)
	p.server.Delete(node)
	p.server.Put(node, kubeapitest.Object{"metadata": kubeapitest.Object{"uid": "another"}})
	p.server.Start()
	all = p.until("back", has("a"))
	if got := all[0].Metadata.OwnerReferences[0].UID; got != "another" {
		t.Errorf("owned by %q, want the new node", got)
	}
}

func TestDroppedFieldsAreNotWrittenForEver(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	s.Fault(func(_ *http.Request, o kubeapitest.Object) int {
		spec, _ := o["spec"].(kubeapitest.Object)
		list, _ := spec["devices"].([]any)
		for _, d := range list {
			delete(d.(kubeapitest.Object), "taints")
		}
		return 0
	})
	p := start(t, s)
	all := devices("a")
	all[0].State = Unhealthy
	p.Set(all)
	p.until("published", has("a"))
	p.Set(append(all, devices("b")...))
	p.until("published", has("a", "b"))
	s.EndWatches() // the next session compares everything again
	p.Set(append(all, devices("b", "c")...))
	p.until("published", has("a", "b", "c"))
	if got := writes(s); len(got) != 3 {
		t.Errorf("%d writes, want 3: %v", len(got), got)
	}
}

func TestWatchEnds(t *testing.T) {
	t.Parallel()
	p := startWith(t, "a")
	for i, end := range []func(){p.server.EndWatches, func() { p.server.Compact(); p.server.EndWatches() }, p.server.Compact} {
		end()
		id := "n" + strconv.Itoa(i)
		all := p.publishes(id)
		p.server.Delete(slicesPath + "/" + all[0].Metadata.Name)
		p.until("back", has(id))
	}
}

func TestStormIsCoalesced(t *testing.T) {
	t.Parallel()
	p := start(t, newServer(t))
	p.stop()
	p.timing.refill = time.Hour
	p.run()
	for i := range p.timing.burst {
		ids := numbered(1 + i)
		p.publishes(ids...)
	}
	for i := range 1000 {
		p.Set(devices(numbered(1 + i)...))
	}
	before := watches(p.server)
	p.server.EndWatches()
	p.until("watched again", func([]slice) bool { return watches(p.server) > before })
	if got := len(writes(p.server)); got != p.timing.burst {
		t.Errorf("%d writes, want %d", got, p.timing.burst)
	}
}

// Nothing is published before the kubelet knows the driver: a pod that is bound earlier waits for
// a minute. Slices of an earlier instance stay.
func TestPublishesWhenRegistered(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	first := start(t, s)
	first.publishes("a")
	first.stop()
	before := len(writes(s))

	p := start(t, s)
	p.stop()
	p.registered = make(chan struct{})
	p.once = sync.Once{}
	p.state = state{}
	p.run()
	p.Set(devices("a", "b"))
	if n := len(writes(s)) - before; n > 0 {
		t.Errorf("%d writes before the registration, want none", n)
	}
	p.accept()
	p.until("published", has("a", "b"))
}

// must ends the test after an error of its own steps.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
