package dra_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/generic-dp/generic-dp/internal/device"
	"github.com/generic-dp/generic-dp/internal/kubelet/dra"
	"github.com/generic-dp/generic-dp/internal/testing/kubeapitest"
	"github.com/generic-dp/generic-dp/internal/testing/kubelettest"
)

// refill is the time between the writes of a storm in these tests.
const refill = 20 * time.Millisecond

// reportingBed has a driver that reports into claims.
type reportingBed struct {
	*bed
	driver *dra.Plugin
	log    *lockedBuffer
}

// lockedBuffer is a buffer that the log writes to while the test reads it.
type lockedBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

func newReportingBed(t *testing.T) *reportingBed {
	r := &reportingBed{bed: newBed(t, kubelettest.Options{}), log: &lockedBuffer{}}
	r.api.Put("/api/v1/nodes/n1", kubeapitest.Object{})
	r.options.Log = slog.New(slog.NewTextHandler(r.log, nil))
	return r
}

// publish runs an instance that also publishes, until stop.
func (r *reportingBed) publish() (stop func()) {
	r.Helper()
	plugin, stopServing := r.serve()
	r.driver = plugin
	plugin.Hasten(refill)
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = plugin.Publish(ctx) })
	stop = sync.OnceFunc(func() {
		cancel()
		running.Wait()
		stopServing()
	})
	r.Cleanup(stop)
	r.untilDrivers(1)
	return stop
}

// prepare makes a claim with the results of an allocation, and has the kubelet prepare it.
func (r *reportingBed) prepare(name string, allocation ...string) {
	r.Helper()
	r.api.set(claim(name), results(allocation...))
	if _, err := r.kubelet.PrepareClaim(r.Context(), dra.Driver, claim(name)); err != nil {
		r.Fatal(err)
	}
}

// entry is what a claim says about a device.
type entry struct {
	Driver, Pool, Device, ShareID string
	Conditions                    []struct{ Type, Status, Reason, Message, LastTransitionTime string }
	NetworkData                   *struct{ InterfaceName, HardwareAddress string }
}

// entries are the statuses in a claim, "DEVICE STATUS REASON MESSAGE".
func (r *reportingBed) entries(name string) (short []string, all []entry) {
	r.Helper()
	c := claim(name)
	object := r.api.Objects("/apis/resource.k8s.io/v1/namespaces/" + c.Namespace + "/resourceclaims")[claimPath(c)]
	text, err := json.Marshal(object)
	var in struct{ Status struct{ Devices []entry } }
	if err == nil {
		err = json.Unmarshal(text, &in)
	}
	if err != nil {
		r.Fatal(err)
	}
	for _, d := range in.Status.Devices {
		for _, c := range d.Conditions {
			short = append(short, strings.TrimSpace(fmt.Sprintf("%s %s=%s %s %s", d.Device, c.Type, c.Status, c.Reason, c.Message)))
		}
	}
	return short, in.Status.Devices
}

func (r *reportingBed) untilReported(name string, want ...string) []entry {
	r.Helper()
	var all []entry
	r.until(fmt.Sprintf("claim %s with %q", name, want), func() bool {
		var got []string
		got, all = r.entries(name)
		return slices.Equal(got, want)
	})
	return all
}

// writes counts the requests that wrote the status of claims, refused ones included.
func (r *reportingBed) writes() (n int) {
	for _, q := range r.api.Requests() {
		if q.Method == http.MethodPatch {
			n++
		}
	}
	return n
}

// reads counts the requests that read a claim.
func (r *reportingBed) reads() (n int) {
	for _, q := range r.api.Requests() {
		if q.Method == http.MethodGet && strings.Contains(q.Path, "/resourceclaims/") {
			n++
		}
	}
	return n
}

// A claim shows the state of its devices: each change once, with the time since when it holds, and
// the entries of other drivers stay. A restart writes nothing.
func TestClaimStatus(t *testing.T) {
	t.Parallel()
	r := newReportingBed(t)
	stop := r.publish()
	r.prepare("a", result("one", "usb-1"), `{"request":"r","driver":"other.example.com","pool":"n1/generic-dp","device":"usb-1"}`)
	r.untilReported("a", "usb-1 Ready=True Healthy")

	foreign := kubeapitest.Object{"driver": "other.example.com", "pool": "n1/generic-dp", "device": "usb-1", "conditions": []any{
		kubeapitest.Object{"type": "Ready", "status": "False", "reason": "Foreign", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"},
	}}
	object := r.api.Objects("/apis/resource.k8s.io/v1/namespaces/lab/resourceclaims")[claimPath(claim("a"))]
	// The server may send the object at the same time.
	edited := maps.Clone(object)
	status := maps.Clone(object["status"].(kubeapitest.Object))
	status["devices"] = append([]any{foreign}, status["devices"].([]any)...)
	edited["status"] = status
	r.api.Put(claimPath(claim("a")), edited)

	since := time.Date(2026, 2, 3, 4, 5, 6, 7, time.UTC)
	gone := stick("usb:1")
	gone.State = dra.Gone
	gone.Reason = "device is gone"
	gone.Since = since
	r.sticks.set(gone, stick("usb:2"))
	all := r.untilReported("a", "usb-1 Ready=False Foreign", "usb-1 Ready=False Gone device is gone")
	if got := all[1].Conditions[0].LastTransitionTime; got != "2026-02-03T04:05:06Z" {
		t.Errorf("gone since %s", got)
	}
	// Another reason keeps the time of the transition.
	settling := stick("usb:1")
	settling.State = dra.Settling
	settling.Since = since.Add(time.Hour)
	r.sticks.set(settling, stick("usb:2"))
	all = r.untilReported("a", "usb-1 Ready=False Foreign", "usb-1 Ready=False Settling")
	if got := all[1].Conditions[0].LastTransitionTime; got != "2026-02-03T04:05:06Z" {
		t.Errorf("not ready since %s", got)
	}
	back := stick("usb:1")
	back.Since = since.Add(2 * time.Hour)
	r.sticks.set(back, stick("usb:2"))
	all = r.untilReported("a", "usb-1 Ready=False Foreign", "usb-1 Ready=True Healthy")
	if got := all[1].Conditions[0].LastTransitionTime; got != "2026-02-03T06:05:06Z" {
		t.Errorf("ready since %s", got)
	}
	if got := r.writes(); got != 4 {
		t.Errorf("%d writes, want one for each of 4 states", got)
	}

	// Neither another list, nor another preparation, nor a restart changes anything.
	r.sticks.set(back, stick("usb:2"), stick("usb:3"))
	if _, err := r.kubelet.PrepareClaim(t.Context(), dra.Driver, claim("a")); err != nil {
		t.Fatal(err)
	}
	stop()
	r.untilDrivers(0)
	before := r.reads()
	r.publish()
	r.until("the claim read again", func() bool { return r.reads() > before })
	r.prepare("b", result("one", "usb-2"))
	r.untilReported("b", "usb-2 Ready=True Healthy")
	if got := r.writes(); got != 5 {
		t.Errorf("%d writes after a restart, want one more, of the other claim", got)
	}
	if problem := r.log.String(); strings.Contains(problem, "claims do not show") {
		t.Error(problem)
	}
}

// The states of devices are the reasons of the condition; a share is named, and so is the interface
// that moved into the container, which is not visible any more.
func TestClaimStatusOfStates(t *testing.T) {
	t.Parallel()
	r := newReportingBed(t)
	card := stick("0000:3b:00.1")
	card.Slots = 2
	card.Network = device.Network{Name: "eth1", Address: "52:54:00:12:34:56"}
	r.sticks.set(card)
	r.publish()
	r.prepare("a", `{"request":"r","driver":"`+dra.Driver+`","pool":"n1/generic-dp","device":"0000-3b-00--1","shareID":"s1"}`)
	for _, test := range []struct {
		state dra.State
		want  string
	}{
		{dra.Healthy, "True Healthy"},
		{dra.Withheld, "True Withheld why"},
		{dra.Settling, "False Settling why"},
		{dra.Unhealthy, "False Unhealthy why"},
		{dra.Gone, "False Gone why"},
	} {
		card.State = test.state
		card.Reason = "why"
		card.Network = device.Network{}
		r.sticks.set(card)
		all := r.untilReported("a", "0000-3b-00--1 Ready="+test.want)
		if all[0].ShareID != "s1" || all[0].NetworkData == nil || *all[0].NetworkData != struct{ InterfaceName, HardwareAddress string }{"eth1", "52:54:00:12:34:56"} {
			t.Errorf("%s: %+v", test.want, all[0])
		}
	}
	r.sticks.set()
	r.untilReported("a", "0000-3b-00--1 Ready=Unknown NotListed the driver does not list the device")
}

// Without the right, one line of the log says what to set, and no request follows until the slices
// are listed again.
func TestClaimStatusRefused(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		code    int
		message string
	}{
		"by RBAC":                      {http.StatusForbidden, ""},
		"by the server since 1.36":     {http.StatusUnprocessableEntity, `status.devices: Forbidden: changing status.devices requires resource="resourceclaims/driver"`},
		"by a server without the gate": {},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newReportingBed(t)
			var mu sync.Mutex
			isRefused := true
			r.api.Fault(func(q *http.Request, o kubeapitest.Object) int {
				mu.Lock()
				defer mu.Unlock()
				if q.Method != http.MethodPatch || !isRefused {
					return 0
				}
				if test.message == "" && test.code == 0 {
					o["status"] = kubeapitest.Object{"devices": []any{}}
				}
				return test.code
			})
			r.api.Explain(test.message)
			r.publish()
			r.prepare("a", result("one", "usb-1"))
			r.until("the refusal in the log", func() bool { return strings.Contains(r.log.String(), "claims do not show the state of their devices") })
			for i := range 5 {
				d := stick("usb:1")
				d.State = dra.Unhealthy
				d.Reason = fmt.Sprint(i)
				r.sticks.set(d, stick("usb:2"))
			}
			r.prepare("b", result("one", "usb-2"))
			if got := r.writes(); got != 1 {
				t.Errorf("%d writes, want 1", got)
			}
			mu.Lock()
			isRefused = false
			mu.Unlock()
			r.api.EndWatches()
			r.untilReported("a", "usb-1 Ready=False Unhealthy 4")
			r.untilReported("b", "usb-2 Ready=True Healthy")
			if got := strings.Count(r.log.String(), "claims do not show"); got != 1 {
				t.Errorf("%d lines of the log:\n%s", got, r.log)
			}
			isHint := strings.Contains(r.log.String(), "set dra.deviceStatus in the chart, or add the component deploy/kustomize/dra-status")
			if isHint != (test.code != 0) {
				t.Errorf("log:\n%s", r.log)
			}
		})
	}
}

// An API server that does not answer, or a claim that changes at the same time, delays the status and
// nothing else. A claim of the same name is another one.
func TestClaimStatusRetried(t *testing.T) {
	t.Parallel()
	r := newReportingBed(t)
	var mu sync.Mutex
	codes := []int{http.StatusConflict, http.StatusServiceUnavailable, http.StatusTooManyRequests}
	hang := make(chan struct{})
	r.api.Fault(func(q *http.Request, _ kubeapitest.Object) int {
		if q.Method != http.MethodPatch {
			return 0
		}
		<-hang
		mu.Lock()
		defer mu.Unlock()
		if len(codes) == 0 {
			return 0
		}
		code := codes[0]
		codes = codes[1:]
		return code
	})
	r.publish()
	r.prepare("a", result("one", "usb-1"))
	r.prepare("b", result("one", "usb-2"))
	other := claim("b")
	other.UID = "another"
	r.api.Delete(claimPath(claim("b")))
	r.api.set(other, results(result("one", "usb-2")))
	close(hang)
	r.untilReported("a", "usb-1 Ready=True Healthy")
	if got, _ := r.entries("b"); got != nil {
		t.Errorf("the status of another claim: %q", got)
	}
}

// A storm of changes causes few writes, and the last state is written.
func TestClaimStatusStorm(t *testing.T) {
	t.Parallel()
	r := newReportingBed(t)
	r.publish()
	r.prepare("a", result("one", "usb-1"))
	r.untilReported("a", "usb-1 Ready=True Healthy")
	began := time.Now()
	for i := range 5000 {
		d := stick("usb:1")
		d.State = dra.State(i % 5)
		d.Reason = fmt.Sprint(i)
		r.sticks.set(d)
	}
	r.untilReported("a", "usb-1 Ready=False Gone 4999")
	const burst = 4
	if got, limit := r.writes(), burst+1+int(time.Since(began)/refill); got > limit {
		t.Errorf("%d writes, want at most %d", got, limit)
	}
}

// The component has exactly the rights that the reports need beside those of the driver. The API server
// checks resourceclaims/driver itself.
func TestClaimStatusRights(t *testing.T) {
	t.Parallel()
	r := newReportingBed(t)
	r.publish()
	r.prepare("a", result("one", "usb-1"))
	r.untilReported("a", "usb-1 Ready=True Healthy")
	if !slices.Contains(r.api.Used(), "patch resourceclaims/status") {
		t.Errorf("used: %q", r.api.Used())
	}
	granted := kubeapitest.Granted(t, "../../../deploy/kustomize/dra-status/rights.yaml")
	if want := []string{"associated-node:patch resourceclaims/driver", "patch resourceclaims/status"}; !slices.Equal(granted, want) {
		t.Errorf("granted: %q, want %q", granted, want)
	}
}
