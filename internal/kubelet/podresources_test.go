package kubelet

import (
	"context"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	podresourcesv1 "k8s.io/kubelet/pkg/apis/podresources/v1"

	"github.com/generic-dp/generic-dp/internal/testing/kubelettest"
)

// newKubelet returns a stopped kubelet, and the path of its socket.
func newKubelet(t *testing.T) (*kubelettest.Kubelet, string) {
	t.Helper()
	dir := kubelettest.TempDir(t)
	path := filepath.Join(dir, "kubelet.sock")
	k := kubelettest.New(kubelettest.Options{Dir: filepath.Join(dir, "dp"), PodResources: path})
	t.Cleanup(k.Stop)
	return k, path
}

func up(t *testing.T) (*kubelettest.Kubelet, *PodResources) {
	t.Helper()
	k, path := newKubelet(t)
	if err := k.Start(); err != nil {
		t.Fatal(err)
	}
	return k, NewPodResources(path, nil)
}

func TestList(t *testing.T) {
	t.Parallel()
	k, c := up(t)
	claim := func(pod, container, resource string) kubelettest.Request {
		return kubelettest.Request{Namespace: "ns", Pod: pod, Container: container, Resource: resource}
	}
	k.Hold(claim("p", "c", "example.com/gpu"), "a", "b", "a") // as with two NUMA nodes
	k.Hold(claim("p", "sidecar", "example.com/gpu"), "a")
	k.Hold(claim("p", "c", "example.com/fuse"), "fuse::1")
	k.Hold(claim("q", "c", "example.com/gpu"), "c")
	held, err := c.Holders(t.Context(), time.Now())
	if err != nil {
		t.Fatal(err)
	}
	want := Holders{
		"example.com/gpu": {
			"a": {{Namespace: "ns", Pod: "p", Container: "c"}, {Namespace: "ns", Pod: "p", Container: "sidecar"}},
			"b": {{Namespace: "ns", Pod: "p", Container: "c"}},
			"c": {{Namespace: "ns", Pod: "q", Container: "c"}},
		},
		"example.com/fuse": {"fuse::1": {{Namespace: "ns", Pod: "p", Container: "c"}}},
	}
	if diff := cmp.Diff(want, held); diff != "" {
		t.Errorf("held (-want +got):\n%s", diff)
	}
	k.Remove("ns", "p")
	if held, err = c.Holders(t.Context(), time.Now()); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(Holders{"example.com/gpu": {"c": {{Namespace: "ns", Pod: "q", Container: "c"}}}}, held); diff != "" {
		t.Errorf("held (-want +got):\n%s", diff)
	}
}

func TestUnavailable(t *testing.T) {
	t.Parallel()
	k, path := newKubelet(t)
	c := NewPodResources(path, nil)
	check := func(when string) {
		t.Helper()
		const want = "PodResources API is unavailable: "
		if held, err := c.Holders(t.Context(), time.Now()); err == nil || !strings.Contains(err.Error(), want) || held != nil {
			t.Errorf("%s: got %v, %v, want %q", when, held, err, want)
		}
		if ids, err := c.Allocatable(t.Context()); err == nil || !strings.Contains(err.Error(), want) || ids != nil {
			t.Errorf("%s: got %v, %v, want %q", when, ids, err, want)
		}
	}
	check("absent socket")
	for range 2 {
		if err := k.Start(); err != nil {
			t.Fatal(err)
		}
		if _, err := c.list(t.Context()); err != nil {
			t.Errorf("the kubelet is up: %v", err)
		}
		k.Kill()
		check("stale socket")
	}
	if err := k.Start(); err != nil {
		t.Fatal(err)
	}
	k.RefusePods(status.Error(codes.Unimplemented, "no such call"))
	check("no such call")
	k.RefusePods(status.Error(codes.ResourceExhausted, "rejected by rate limit"))
	check("rate limit")
}

// fakeLister returns fixed responses.
type fakeLister struct {
	podresourcesv1.UnimplementedPodResourcesListerServer
	devices []*podresourcesv1.ContainerDevices
}

func (f *fakeLister) GetAllocatableResources(context.Context, *podresourcesv1.AllocatableResourcesRequest) (*podresourcesv1.AllocatableResourcesResponse, error) {
	return &podresourcesv1.AllocatableResourcesResponse{Devices: f.devices}, nil
}

func serve(t *testing.T, f *fakeLister) *PodResources {
	t.Helper()
	_, path := newKubelet(t)
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	s := grpc.NewServer()
	podresourcesv1.RegisterPodResourcesListerServer(s, f)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = s.Serve(l)
	}()
	t.Cleanup(func() {
		s.Stop()
		<-done
	})
	return NewPodResources(path, nil)
}

// Callers share responses if they are concurrent or tolerate the age.
func TestCachedAnswers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		calls, answer := 0, make(chan int)
		c := NewPodResources("", nil)
		c.list = func(context.Context) ([]*podresourcesv1.PodResources, error) {
			calls++
			return make([]*podresourcesv1.PodResources, <-answer), nil
		}
		start := time.Now()
		var group sync.WaitGroup
		for range 3 {
			group.Go(func() {
				if pods, err := c.listSince(t.Context(), start); len(pods) != 1 || err != nil {
					t.Errorf("%d, %v; want the first answer", len(pods), err)
				}
			})
		}
		synctest.Wait()
		time.Sleep(time.Second)
		late, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := c.listSince(late, start); err != errNoAnswer {
			t.Errorf("%v; want %v", err, errNoAnswer)
		}
		group.Go(func() { // the running call is too old
			if pods, err := c.listSince(t.Context(), start.Add(time.Second)); len(pods) != 2 || err != nil {
				t.Errorf("%d, %v; want the second answer", len(pods), err)
			}
		})
		synctest.Wait()
		answer <- 1
		synctest.Wait()
		answer <- 2
		group.Wait()
		if pods, _ := c.listSince(t.Context(), start); len(pods) != 2 || calls != 2 {
			t.Errorf("%d after %d calls; want the latest answer, and two calls", len(pods), calls)
		}
	})
}

// The response is longer than gRPC's default limit of 4 MiB, and shorter than that of the
// kubelet's own clients.
func TestLongAnswer(t *testing.T) {
	t.Parallel()
	f := &fakeLister{}
	for range 130_000 {
		f.devices = append(f.devices, &podresourcesv1.ContainerDevices{ResourceName: "example.com/gpu", DeviceIds: []string{"0000:00:00.0"}})
	}
	c := serve(t, f)
	if _, err := c.Allocatable(t.Context()); err != nil {
		t.Error(err)
	}
}
