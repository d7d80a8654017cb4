package kubelettest

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

const gpu = "example.com/gpu"

// fakePlugin serves one list on one socket.
type fakePlugin struct {
	v1beta1.UnimplementedDevicePluginServer
	t          *testing.T
	name       string
	server     *grpc.Server
	devices    []*v1beta1.Device
	streamEnds chan struct{} // one value per ended stream
	optionsErr error
	prefer     []string
}

// serve starts a plugin on the socket name in dir.
func serve(t *testing.T, dir, name string, ids ...string) *fakePlugin {
	t.Helper()
	p := &fakePlugin{t: t, name: name, server: grpc.NewServer(), streamEnds: make(chan struct{}, 10)}
	for _, id := range ids {
		p.devices = append(p.devices, &v1beta1.Device{ID: id, Health: v1beta1.Healthy,
			Topology: &v1beta1.TopologyInfo{Nodes: []*v1beta1.NUMANode{{ID: 0}, {ID: 1}}}})
	}
	l, err := net.Listen("unix", filepath.Join(dir, name))
	if err != nil {
		t.Fatal(err)
	}
	v1beta1.RegisterDevicePluginServer(p.server, p)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = p.server.Serve(l)
	}()
	t.Cleanup(func() {
		p.server.Stop()
		<-done
	})
	return p
}

func (p *fakePlugin) GetDevicePluginOptions(context.Context, *v1beta1.Empty) (*v1beta1.DevicePluginOptions, error) {
	return &v1beta1.DevicePluginOptions{GetPreferredAllocationAvailable: p.prefer != nil}, p.optionsErr
}

func (p *fakePlugin) ListAndWatch(_ *v1beta1.Empty, s grpc.ServerStreamingServer[v1beta1.ListAndWatchResponse]) error {
	defer func() { p.streamEnds <- struct{}{} }()
	if err := s.Send(&v1beta1.ListAndWatchResponse{Devices: p.devices}); err != nil {
		return err
	}
	<-s.Context().Done()
	return s.Context().Err()
}

func (p *fakePlugin) Allocate(_ context.Context, req *v1beta1.AllocateRequest) (*v1beta1.AllocateResponse, error) {
	resp := &v1beta1.AllocateResponse{}
	for _, c := range req.ContainerRequests {
		resp.ContainerResponses = append(resp.ContainerResponses, &v1beta1.ContainerAllocateResponse{
			Envs: map[string]string{"PLUGIN": p.name, "IDS": strings.Join(c.DevicesIds, ",")},
		})
	}
	return resp, nil
}

func (p *fakePlugin) GetPreferredAllocation(context.Context, *v1beta1.PreferredAllocationRequest) (*v1beta1.PreferredAllocationResponse, error) {
	return &v1beta1.PreferredAllocationResponse{ContainerResponses: []*v1beta1.ContainerPreferredAllocationResponse{{DeviceIDs: p.prefer}}}, nil
}

type testKubelet struct {
	*Kubelet
	t   *testing.T
	dir string
	ctx context.Context
}

func start(t *testing.T, set ...func(*Options)) *testKubelet {
	t.Helper()
	tmp := TempDir(t)
	o := Options{Dir: filepath.Join(tmp, "dp"), PodResources: filepath.Join(tmp, "pr", "kubelet.sock")}
	for _, f := range set {
		f(&o)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	t.Cleanup(cancel)
	k := &testKubelet{Kubelet: New(o), t: t, dir: o.Dir, ctx: ctx}
	k.must(k.Start())
	t.Cleanup(k.Stop)
	return k
}

func (k *testKubelet) must(err error) {
	k.t.Helper()
	if err != nil {
		k.t.Fatal(err)
	}
}

// registerPlugin makes one Register call.
func (k *testKubelet) registerPlugin(p *fakePlugin) error {
	k.t.Helper()
	conn, err := grpc.NewClient("unix:"+k.Socket(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	k.must(err)
	defer conn.Close()
	_, err = v1beta1.NewRegistrationClient(conn).Register(k.ctx, &v1beta1.RegisterRequest{Version: v1beta1.Version, ResourceName: gpu, Endpoint: p.name})
	return err
}

func (k *testKubelet) wantCount(when string, want Count) {
	k.t.Helper()
	if got := k.Count(gpu); got != want {
		k.t.Errorf("%s: count %+v, want %+v", when, got, want)
	}
}

func keyed(by Keying) func(*Options) { return func(o *Options) { o.Keying = by } }

// A fault that plugins must handle: the end of the old instance disconnects the new one.
func TestKeyedByResource(t *testing.T) {
	t.Parallel()
	k := start(t, keyed(ByResource))
	a, b := serve(t, k.dir, "a.sock", "1", "2"), serve(t, k.dir, "b.sock", "1", "2")
	k.must(k.registerPlugin(a))
	k.must(k.WaitAllocatable(k.ctx, gpu, 2))
	k.must(k.registerPlugin(b))
	k.must(k.WaitFor(k.ctx, func() bool { _, n := k.Latest(gpu); return n == 2 }))
	k.wantCount("two instances", Count{true, 2, 2})
	a.server.Stop()
	<-b.streamEnds
	k.must(k.WaitAllocatable(k.ctx, gpu, 0))
	k.wantCount("after the old one's end", Count{true, 2, 0})
	if _, err := k.Allocate(k.ctx, gpu, "1"); err == nil {
		t.Error("Allocate without a plugin: got no error")
	}
	k.must(k.registerPlugin(b))
	k.must(k.WaitAllocatable(k.ctx, gpu, 2))
}

func TestKeyedBySocket(t *testing.T) {
	t.Parallel()
	k := start(t, keyed(BySocket))
	a, b := serve(t, k.dir, "a.sock", "1", "2"), serve(t, k.dir, "b.sock", "1", "2")
	k.must(k.registerPlugin(a))
	k.must(k.registerPlugin(b))
	k.must(k.WaitFor(k.ctx, func() bool { _, n := k.Latest(gpu); return n == 2 }))
	a.server.Stop()
	k.must(k.WaitFor(k.ctx, func() bool { return len(k.Connected(gpu)) == 1 }))
	k.wantCount("after the old one's end", Count{true, 2, 2})
	admission, err := k.Admit(k.ctx, Request{Namespace: "ns", Pod: "p", Container: "c", Resource: gpu}, 1)
	k.must(err)
	if got := admission.Response.Envs["PLUGIN"]; got != "b.sock" {
		t.Errorf("allocated by %q, want b.sock", got)
	}
}

// A second Register on a connected socket is rejected and drops the first.
func TestKeyedBySocketTwice(t *testing.T) {
	t.Parallel()
	k := start(t, keyed(BySocket))
	p := serve(t, k.dir, "a.sock", "1")
	k.must(k.registerPlugin(p))
	k.must(k.WaitAllocatable(k.ctx, gpu, 1))
	if err := k.registerPlugin(p); err == nil || !strings.Contains(err.Error(), "already connected") {
		t.Errorf("second registration: %v, want \"already connected\"", err)
	}
	p.server.Stop()
	<-p.streamEnds
	again := serve(t, k.dir, "b.sock", "1", "2")
	k.must(k.registerPlugin(again))
	k.must(k.WaitAllocatable(k.ctx, gpu, 2))
	if got := len(k.Connected(gpu)); got != 2 {
		t.Errorf("%d connected, want 2: the dropped one stays", got)
	}
}

func TestStartRemovesSocketsOnly(t *testing.T) {
	t.Parallel()
	k := start(t)
	serve(t, k.dir, "a.sock")
	k.must(os.WriteFile(filepath.Join(k.dir, "kubelet_internal_checkpoint"), nil, 0o600))
	k.Kill()
	wantFiles := func(when string, want ...string) {
		entries, err := os.ReadDir(k.dir)
		k.must(err)
		var got []string
		for _, e := range entries {
			got = append(got, e.Name())
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: files %q, want %q", when, got, want)
		}
	}
	wantFiles("after a kill", "a.sock", "kubelet.sock", "kubelet_internal_checkpoint")
	k.must(k.Start())
	wantFiles("after the start", "kubelet.sock", "kubelet_internal_checkpoint")
	k.Stop()
	wantFiles("after a stop", "kubelet_internal_checkpoint")
}

func TestRegisterErrors(t *testing.T) {
	t.Parallel()
	var refusal error
	k := start(t, func(o *Options) {
		o.OnRegister = func(context.Context, string, string) error { return refusal }
	})
	p := serve(t, k.dir, "a.sock", "1")
	for _, err := range []*error{&p.optionsErr, &refusal} {
		*err = errors.New("not today")
		if err := k.registerPlugin(p); err == nil || !strings.Contains(err.Error(), "not today") {
			t.Errorf("Register: %v, want \"not today\"", err)
		}
		*err = nil
	}
	k.wantCount("every registration rejected", Count{})
	k.must(k.registerPlugin(p))
	k.must(k.WaitAllocatable(k.ctx, gpu, 1))
	if got := k.Registrations(gpu); got != 1 {
		t.Errorf("%d registrations, want 1", got)
	}
	if got, want := k.RegisterCalls(gpu), []string{"a.sock", "a.sock", "a.sock"}; !slices.Equal(got, want) {
		t.Errorf("Register calls of %q, want %q", got, want)
	}
}

func TestRestartForgetsDevices(t *testing.T) {
	t.Parallel()
	k := start(t)
	p := serve(t, k.dir, "a.sock", "1", "2")
	k.must(k.registerPlugin(p))
	k.must(k.WaitAllocatable(k.ctx, gpu, 2))
	first, err := k.Admit(k.ctx, Request{Namespace: "ns", Pod: "p", Container: "c", Resource: gpu}, 1)
	k.must(err)
	k.must(k.Restart())
	<-p.streamEnds
	k.wantCount("after a restart", Count{true, 0, 0})
	q := serve(t, k.dir, "b.sock", "1", "2")
	k.must(k.registerPlugin(q))
	k.must(k.WaitAllocatable(k.ctx, gpu, 2))
	again, err := k.Admit(k.ctx, Request{Namespace: "ns", Pod: "p", Container: "c", Resource: gpu}, 1)
	k.must(err)
	if again != first {
		t.Errorf("after a restart the pod has %+v, want its former admission %+v", again, first)
	}
	k.CutStream(gpu)
	<-q.streamEnds
	k.must(k.WaitAllocatable(k.ctx, gpu, 0))
}

func TestAdmit(t *testing.T) {
	t.Parallel()
	k := start(t)
	if _, err := k.Admit(k.ctx, Request{Namespace: "ns", Pod: "p", Container: "c", Resource: gpu}, 1); err == nil {
		t.Error("Admit before the resource is known: got no error")
	}
	p := serve(t, k.dir, "a.sock", "1", "2", "3", "4")
	p.prefer = []string{"3", "no such device"}
	k.must(k.registerPlugin(p))
	k.must(k.WaitAllocatable(k.ctx, gpu, 4))
	k.Hold(Request{Namespace: "ns", Pod: "old", Container: "c", Resource: gpu}, "1")
	a, err := k.Admit(k.ctx, Request{Namespace: "ns", Pod: "p", Container: "c", Resource: gpu}, 2)
	k.must(err)
	if !slices.Equal(a.IDs, []string{"3", "2"}) || a.Response.Envs["IDS"] != "3,2" {
		t.Errorf("admitted with %q, response %v, want 3 and 2", a.IDs, a.Response)
	}
	if _, err := k.Admit(k.ctx, Request{Namespace: "ns", Pod: "q", Container: "c", Resource: gpu}, 2); err == nil {
		t.Error("Admit of two devices with one free: got no error")
	}
	k.Remove("ns", "p")
	_, err = k.Admit(k.ctx, Request{Namespace: "ns", Pod: "q", Container: "c", Resource: gpu}, 2)
	k.must(err)
}

// The kubelet rejects lists over 4 MiB, and disconnects their senders.
func TestLongList(t *testing.T) {
	t.Parallel()
	k := start(t)
	p := serve(t, k.dir, "a.sock", strings.Repeat("x", 5<<20))
	k.must(k.registerPlugin(p))
	<-p.streamEnds
	if got := k.Count(gpu); got.Capacity != 0 {
		t.Errorf("count %+v, want no devices", got)
	}
}
