package dra_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/generic-dp/generic-dp/cdi"
	"github.com/generic-dp/generic-dp/internal/device"
	"github.com/generic-dp/generic-dp/internal/holds"
	"github.com/generic-dp/generic-dp/internal/kubelet/dra"
	"github.com/generic-dp/generic-dp/internal/kubelet/kubeapi"
	"github.com/generic-dp/generic-dp/internal/testing/kubeapitest"
	"github.com/generic-dp/generic-dp/internal/testing/kubelettest"
)

// limit is the timeout of everything that a test waits for.
const limit = 20 * time.Second

// claimAPI is an API server with claims.
type claimAPI struct{ *kubeapitest.Server }

func claimPath(c kubelettest.ResourceClaim) string {
	return fmt.Sprintf("/apis/resource.k8s.io/v1/namespaces/%s/resourceclaims/%s", c.Namespace, c.Name)
}

// set makes a claim with an allocation, which is JSON; empty is none. Annotations are pairs
// of key and value.
func (a claimAPI) set(c kubelettest.ResourceClaim, allocation string, annotations ...string) {
	o := kubeapitest.Object{"metadata": kubeapitest.Object{"uid": c.UID}, "status": kubeapitest.Object{}}
	if allocation != "" {
		o["status"] = kubeapitest.Object{
			"allocation":  kubeapitest.Object{"devices": json.RawMessage(allocation)},
			"reservedFor": []any{kubeapitest.Object{"resource": "pods", "name": c.Pod, "uid": podUID(c)}},
		}
	}
	for i := 0; i < len(annotations); i += 2 {
		o["metadata"].(kubeapitest.Object)["annotations"] = kubeapitest.Object{"resource.kubernetes.io/" + annotations[i]: annotations[i+1]}
	}
	a.Put(claimPath(c), o)
}

// podUID is the UID of the pod of a claim.
func podUID(c kubelettest.ResourceClaim) string { return "uid-of-" + c.Pod }

func (a claimAPI) remove(c kubelettest.ResourceClaim) { a.Delete(claimPath(c)) }

// sticks are the devices, by name.
type sticks struct {
	list   dra.List
	mu     sync.Mutex
	inject func(ctx context.Context) error // before each Inject; may be nil
}

func (s *sticks) set(devices ...dra.Device) { s.list.Set(devices) }

func (s *sticks) setInject(inject func(ctx context.Context) error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.inject = inject
}

func (s *sticks) injectAll(ctx context.Context, names []string, amounts dra.Amounts) (r device.Response, devices []dra.Device, err error) {
	s.mu.Lock()
	inject := s.inject
	s.mu.Unlock()
	if inject != nil {
		if err := inject(ctx); err != nil {
			return r, nil, err
		}
	}
	all, _ := s.list.Get()
	var serials []string
	for _, name := range names {
		found := false
		for _, d := range all {
			if found = d.Name() == name; !found {
				continue
			}
			if d.State != dra.Healthy {
				return r, nil, fmt.Errorf("device %q is unhealthy: %s", d.ID, d.Reason)
			}
			d.CDI = append([]string{d.Resource + "=" + d.ID}, d.CDI...)
			devices = append(devices, d)
			serials = append(serials, d.ID)
			break
		}
		if !found {
			return r, nil, fmt.Errorf("device %q is not offered by DRA", name)
		}
	}
	r.Env = map[string]string{"IDS": strings.Join(serials, ",")}
	for _, name := range names {
		if text := amounts[name]["bandwidth"]; text != "" {
			r.Env["BANDWIDTH"] = text
		}
	}
	return r, devices, nil
}

// host says which pods run, and which claims the kubelet lists. The zero value knows nothing.
type host struct {
	mu     sync.Mutex
	pods   map[string]holds.PodState
	listed map[string]bool // by UID of the claim; nil: the kubelet does not answer
}

func (h *host) set(pod string, state holds.PodState) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.pods == nil {
		h.pods = map[string]holds.PodState{}
	}
	h.pods[pod] = state
}

// list makes the kubelet list these claims, and no others.
func (h *host) list(uids ...string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.listed = map[string]bool{}
	for _, uid := range uids {
		h.listed[uid] = true
	}
}

func (h *host) podState(uid string) holds.PodState {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.pods[uid]
}

func (h *host) known(context.Context) (func(cdi.Claim) bool, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.listed == nil {
		return nil, errors.New("no answer")
	}
	listed := h.listed
	return func(c cdi.Claim) bool { return listed[c.UID] }, nil
}

// bed is a kubelet, an API server and a driver.
type bed struct {
	*testing.T
	kubelet *kubelettest.Kubelet
	options dra.Options
	api     claimAPI
	sticks  *sticks
	host    *host
	claims  *cdi.Writer
	// answer is how long calls may wait; 0 is the default.
	answer time.Duration
	// start is how long a pod may need to start; 0 is no time.
	start time.Duration
}

func stick(id string) dra.Device {
	return dra.Device{Resource: "example.com/zigbee", ID: id, Slots: 1}
}

func newBed(t *testing.T) *bed {
	t.Helper()
	return newBedOf(t, kubelettest.Options{})
}

func newBedOf(t *testing.T, o kubelettest.Options) *bed {
	t.Helper()
	dir, err := os.MkdirTemp("", "dra") // a socket's path has at most 107 bytes
	must(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	o.Dir, o.Registry = filepath.Join(dir, "kubelet"), filepath.Join(dir, "registry")
	must(t, os.Mkdir(o.Registry, 0o755))
	b := &bed{
		T: t, kubelet: kubelettest.New(o), api: claimAPI{kubeapitest.New(t)},
		sticks: &sticks{}, host: &host{}, claims: &cdi.Writer{Dir: filepath.Join(dir, "cdi")},
	}
	b.sticks.set(stick("usb:1"), stick("usb:2"))
	b.options = dra.Quiet(dra.Options{
		Book: holds.New(holds.Options{
			Checkpoint: filepath.Join(dir, "kubelet", "kubelet_internal_checkpoint"),
			Now:        time.Now,
			Changed:    func() {},
			Log:        slog.New(slog.DiscardHandler),
		}),
		Registry: o.Registry,
		Node:     "n1",
		API:      kubeapi.New(b.api.Config),
		Claims:   b.claims,
		Metadata: filepath.Join(dir, "metadata"),
		Devices:  &b.sticks.list,
		Inject:   b.sticks.injectAll,
		PodState: b.host.podState,
		Known:    b.host.known,
		Log:      slog.New(slog.DiscardHandler),
	})
	must(t, b.kubelet.Start())
	t.Cleanup(b.kubelet.Stop)
	return b
}

// serve runs an instance until stop.
func (b *bed) serve() (s *dra.Plugin, stop func()) {
	b.Helper()
	s = dra.New(b.options)
	if b.answer > 0 {
		s.SetAnswer(b.answer)
	}
	s.SetStart(b.start)
	s.Load()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			b.Errorf("Run: %v", err)
		}
	})
	b.Cleanup(stop)
	return s, stop
}

// serveRegistered runs an instance, and returns when it is the only registered driver.
func (b *bed) serveRegistered() (s *dra.Plugin, stop func()) {
	b.Helper()
	s, stop = b.serve()
	b.untilDrivers(1)
	return s, stop
}

// prepare prepares a claim and expects success.
func (b *bed) prepare(c kubelettest.ResourceClaim) {
	b.Helper()
	_, err := b.kubelet.PrepareClaim(b.Context(), dra.Driver, c)
	if err != nil {
		b.Fatalf("prepare claim %s: %v", c.Name, err)
	}
}

// refuses prepares a claim and expects an error with a text.
func (b *bed) refuses(c kubelettest.ResourceClaim, want string) {
	b.Helper()
	_, err := b.kubelet.PrepareClaim(b.Context(), dra.Driver, c)
	if err == nil || !strings.Contains(err.Error(), want) {
		b.Errorf("prepare claim %s: %v, want %q", c.Name, err, want)
	}
}

func (b *bed) unprepare(c kubelettest.ResourceClaim) {
	b.Helper()
	err := b.kubelet.UnprepareClaim(b.Context(), c.UID)
	if err != nil {
		b.Errorf("unprepare claim %s: %v", c.Name, err)
	}
}

func (b *bed) until(what string, condition func() bool) {
	b.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	for !condition() {
		select {
		case <-ctx.Done():
			b.Fatalf("%s: not within %s", what, limit)
		case <-b.kubelet.Changed():
		case <-time.After(5 * time.Millisecond): // of the driver's own state
		}
	}
}

func (b *bed) untilDrivers(n int) {
	b.Helper()
	b.until(fmt.Sprintf("%d registered drivers", n), func() bool { return b.kubelet.Drivers(dra.Driver) == n })
}

// must ends the test after an error of its own steps.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
