//go:build cluster

package dra

import (
	"cmp"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/generic-dp/generic-dp/cdi"
	"github.com/generic-dp/generic-dp/internal/device"
	"github.com/generic-dp/generic-dp/internal/kubelet/kubeapi"
)

var (
	fleetNodes  = flag.Int("scale", 0, "nodes of TestScale")
	fleetClaims = flag.Int("claims", 100, "claims of each kind in TestScale")
)

const (
	devicesOfNode = 16
	editWithin    = time.Minute
	idleFor       = 30 * time.Second
	stormFor      = 20 * time.Second
	scaleLimit    = 5 * time.Minute
)

// fleet is many publishers in one process. A watch of an administrator says what the API server has.
type fleet struct {
	*cluster
	nodes  []*published
	names  []string
	wrote  atomic.Int64 // slices
	failed atomic.Int64 // requests that write

	mu        sync.Mutex
	revisions map[string]int // the attribute "revision" of the stored slice, by node
	changed   chan struct{}
}

// TestScale measures many nodes against an API server: test/scale starts both.
func TestScale(t *testing.T) {
	if *fleetNodes == 0 {
		t.Skip("needs the flag -scale")
	}
	f := &fleet{cluster: newCluster(t), revisions: map[string]int{}, changed: make(chan struct{}, 1)}
	f.log = slog.LevelError
	f.join()
	f.follow()
	f.phase("start of all at once", f.start)
	f.phase("idle", f.idle)
	f.phase("edit of the configuration of all within a minute", f.edit)
	f.phase("storm of changes", f.storm)
	f.phase("restart of the API server", f.restart)
	f.phase("claims for one device each, by serial number", func() string {
		return f.schedule("one", func(i int) string {
			return fmt.Sprintf("device.attributes[%q].serial == %q", Driver, serialOf(i%*fleetNodes, i / *fleetNodes))
		})
	})
	f.phase("claims for any device, by its speed", func() string {
		return f.schedule("any", func(int) string {
			return fmt.Sprintf("device.attributes[%q].speed >= 480", Driver)
		})
	})
}

// phase tells test/scale where a phase begins and ends.
func (f *fleet) phase(name string, run func() string) {
	f.t.Helper()
	wrote := f.wrote.Load()
	failed := f.failed.Load()
	fmt.Printf("scale: begin %s\n", name)
	result := run()
	fmt.Printf("scale: end %s; %d writes, %d failed\n", result, f.wrote.Load()-wrote, f.failed.Load()-failed)
}

// join makes the nodes and their tokens, several at the same time.
func (f *fleet) join() {
	f.t.Helper()
	f.names = make([]string, *fleetNodes)
	f.nodes = make([]*published, *fleetNodes)
	next := make(chan int)
	var workers sync.WaitGroup
	for range 8 {
		workers.Go(func() {
			for i := range next {
				name := fmt.Sprint("node-", i)
				api := f.node(name)
				f.names[i] = name
				f.nodes[i] = f.publisher(api, name)
			}
		})
	}
	for i := range f.nodes {
		next <- i
	}
	close(next)
	workers.Wait()
	f.class("example.com/a")
}

// publisher is a publisher that does not run yet.
func (f *fleet) publisher(api *kubeapi.Client, name string) *published {
	p := &published{List: new(List)}
	p.Plugin = New(Quiet(Options{
		API:     api,
		Node:    name,
		Devices: p.List,
		Claims:  &cdi.Writer{Dir: f.t.TempDir()},
		Log:     slog.New(slog.DiscardHandler),
		Wrote: func(err error) {
			if err != nil {
				f.failed.Add(1)
				return
			}
			f.wrote.Add(1)
		},
	}))
	p.accept()
	return p
}

// serialOf is the serial number of a device.
func serialOf(node, i int) string { return fmt.Sprintf("A%05dB%02d", node, i) }

// devicesOf are the devices of a node, with the attributes of a USB adapter.
func devicesOf(node, revision int) []Device {
	var all []Device
	for i := range devicesOfNode {
		serial := serialOf(node, i)
		all = append(all, Device{
			Resource: "example.com/a",
			ID:       "usb:10c4:ea60:" + serial,
			Slots:    1,
			NUMA:     []int{0},
			Attributes: map[string]device.Typed{
				"serial":   {Text: serial},
				"vendor":   {Text: "10c4"},
				"product":  {Text: "ea60"},
				"driver":   {Text: "cp210x"},
				"port":     {Text: fmt.Sprintf("0000:00:14.0/1.%d", i)},
				"speed":    {Text: "480", Type: device.IntType},
				"revision": {Text: strconv.Itoa(revision), Type: device.IntType},
			},
		})
	}
	return all
}

// follow watches all slices, also over a restart of the API server.
func (f *fleet) follow() {
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		for ctx.Err() == nil {
			version, err := f.List(ctx, slicesPath, f.see)
			if err == nil {
				err = f.Watch(ctx, slicesPath+"?watch=1&resourceVersion="+version, time.Hour, func(e kubeapi.Event) error {
					if e.Type == "" {
						return nil
					}
					return f.see(e.Object)
				})
			}
			if err != nil {
				<-time.After(100 * time.Millisecond)
			}
		}
	})
	f.t.Cleanup(func() {
		cancel()
		running.Wait()
	})
}

// see records a slice.
func (f *fleet) see(object json.RawMessage) error {
	var s slice
	if err := json.Unmarshal(object, &s); err != nil {
		return err
	}
	if len(s.Spec.Devices) == 0 {
		return nil
	}
	f.mu.Lock()
	f.revisions[s.Spec.NodeName] = int(*s.Spec.Devices[0].Attributes["revision"].Int)
	f.mu.Unlock()
	select {
	case f.changed <- struct{}{}:
	default:
	}
	return nil
}

// untilRevision waits until the API server has a revision of all nodes, and returns how long that
// takes after began for all nodes, and for 99 % of them.
func (f *fleet) untilRevision(want int, began time.Time) string {
	f.t.Helper()
	timeout := time.After(scaleLimit)
	var most time.Duration
	for {
		f.mu.Lock()
		have := 0
		for _, revision := range f.revisions {
			if revision == want {
				have++
			}
		}
		f.mu.Unlock()
		if most == 0 && have*100 >= len(f.nodes)*99 {
			most = time.Since(began)
		}
		if have == len(f.nodes) {
			return fmt.Sprintf("all published after %.1f s, 99 %% after %.1f s", time.Since(began).Seconds(), most.Seconds())
		}
		select {
		case <-f.changed:
		case <-timeout:
			f.t.Fatalf("%d of %d nodes have revision %d after %v", have, len(f.nodes), want, scaleLimit)
		}
	}
}

// set gives all nodes a revision of their devices at once.
func (f *fleet) set(revision int) {
	for i, p := range f.nodes {
		p.Set(devicesOf(i, revision))
	}
}

func (f *fleet) start() string {
	f.set(1)
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	f.t.Cleanup(func() {
		cancel()
		running.Wait()
	})
	began := time.Now()
	for _, p := range f.nodes {
		running.Go(func() {
			_ = p.Publish(ctx)
		})
	}
	return f.untilRevision(1, began)
}

func (f *fleet) idle() string {
	<-time.After(idleFor)
	return fmt.Sprintf("%v without a change", idleFor)
}

// edit changes the devices of all nodes at random times: kubelets update a ConfigMap within a minute.
func (f *fleet) edit() string {
	began := time.Now()
	for i, p := range f.nodes {
		time.AfterFunc(rand.N(editWithin), func() {
			p.Set(devicesOf(i, 2))
		})
	}
	return f.untilRevision(2, began)
}

// storm changes a device of every node four times a second.
func (f *fleet) storm() string {
	began := time.Now()
	changes := 0
	for ; time.Since(began) < stormFor; changes++ {
		for i, p := range f.nodes {
			all := devicesOf(i, 2)
			all[changes%len(all)].State = Unhealthy
			p.Set(all)
		}
		<-time.After(250 * time.Millisecond)
	}
	ended := time.Now()
	f.set(3)
	return fmt.Sprintf("%d changes of each node in %v, then: %s", changes, stormFor, f.untilRevision(3, ended))
}

// restart changes all devices while the API server is down, and counts from its return.
func (f *fleet) restart() string {
	fmt.Println("scale: restart")
	f.poll(func() bool { return f.Get(f.t.Context(), "/readyz", nil) != nil })
	f.set(4)
	f.poll(func() bool { return f.Get(f.t.Context(), "/readyz", nil) == nil })
	return f.untilRevision(4, time.Now())
}

// poll waits until a condition holds. There is no event for it.
func (f *fleet) poll(ok func() bool) {
	f.t.Helper()
	for deadline := time.Now().Add(scaleLimit); !ok(); {
		if time.Now().After(deadline) {
			f.t.Fatalf("not within %v", scaleLimit)
		}
		<-time.After(20 * time.Millisecond)
	}
}

// schedule creates pods with a claim each, and waits until they have nodes.
func (f *fleet) schedule(kind string, selector func(i int) string) string {
	f.t.Helper()
	const namespace = "/api/v1/namespaces/default/pods"
	const claims = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims"
	for i := range *fleetClaims {
		name := fmt.Sprint(kind, "-", i)
		f.create(claims, anyObject{
			"metadata": anyObject{"name": name},
			"spec": anyObject{"devices": anyObject{"requests": []any{anyObject{
				"name": "a",
				"exactly": anyObject{
					"deviceClassName": device.ClassName("example.com/a"),
					"selectors":       []any{anyObject{"cel": anyObject{"expression": selector(i)}}},
				},
			}}}},
		})
	}
	began := time.Now()
	for i := range *fleetClaims {
		name := fmt.Sprint(kind, "-", i)
		f.create(namespace, anyObject{
			"metadata": anyObject{"name": name, "labels": anyObject{"kind": kind}},
			"spec": anyObject{
				// The API server taints new nodes as not ready. Nobody removes the taint here.
				"tolerations":    []any{anyObject{"operator": "Exists"}},
				"resourceClaims": []any{anyObject{"name": "a", "resourceClaimName": name}},
				"containers": []any{anyObject{
					"name": "c", "image": "none",
					"resources": anyObject{"claims": []any{anyObject{"name": "a"}}},
				}},
			},
		})
	}
	bound := 0
	deadline := time.Now().Add(scaleLimit)
	for bound < *fleetClaims && time.Now().Before(deadline) {
		var list struct {
			Items []struct {
				Spec struct{ NodeName string }
			}
		}
		if err := f.Get(f.t.Context(), namespace+"?labelSelector=kind%3D"+kind, &list); err != nil {
			f.t.Fatal(err)
		}
		bound = 0
		for _, p := range list.Items {
			if p.Spec.NodeName != "" {
				bound++
			}
		}
		<-time.After(200 * time.Millisecond)
	}
	took := time.Since(began)
	if bound < *fleetClaims {
		f.t.Errorf("%d of %d pods are bound after %v", bound, *fleetClaims, scaleLimit)
	}
	return fmt.Sprintf("%d pods in %.1f s, %.1f a second", bound, took.Seconds(), float64(bound)/cmp.Or(took.Seconds(), 1))
}
