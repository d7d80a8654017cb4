package dra

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"testing"
	"time"

	"github.com/generic-dp/generic-dp/cdi"
	"github.com/generic-dp/generic-dp/internal/device"
	"github.com/generic-dp/generic-dp/internal/holds"
	"github.com/generic-dp/generic-dp/internal/kubelet/kubeapi"
	"github.com/generic-dp/generic-dp/internal/testing/kubeapitest"
)

// Claims that the kubelet does not know cost the answer about holders seconds, however many.
func TestSweepEnds(t *testing.T) {
	t.Parallel()
	server := newServer(t)
	server.Fault(func(r *http.Request, _ kubeapitest.Object) int {
		<-r.Context().Done()
		return http.StatusGatewayTimeout
	})
	p := sweeper(t, kubeapi.New(server.Config))
	p.timing.sweep = 50 * time.Millisecond
	began := time.Now()
	p.Sweep(t.Context(), func(cdi.Claim) bool { return false })
	if left := len(p.claims.all()); left != 5 || time.Since(began) > 20*time.Second {
		t.Errorf("a sweep took %s and left %d claims", time.Since(began), left)
	}
}

// sweeper returns a plugin with five prepared claims, whose pods have ended.
func sweeper(t *testing.T, api *kubeapi.Client) *Plugin {
	t.Helper()
	w := &cdi.Writer{Dir: t.TempDir()}
	for i := range 5 {
		c := cdi.Claim{
			UID:      fmt.Sprint(i),
			Pods:     []string{"ended"},
			Requests: []cdi.Request{{Name: "r", Devices: []device.Ref{{Resource: "a", ID: "b"}}, Env: map[string]string{"A": "B"}}},
		}
		if err := w.WriteClaim(c); err != nil {
			t.Fatal(err)
		}
	}
	p := New(Options{
		API:         api,
		Claims:      w,
		Book:        holds.New(holds.Options{}),
		PodState:    func(string) holds.PodState { return holds.PodEnded },
		StartWithin: time.Nanosecond,
		Log:         slog.New(slog.DiscardHandler),
	})
	p.Load()
	return p
}

// A call that the kubelet has given up does nothing: the opposite one may be over already.
func TestCallsThatAreGivenUp(t *testing.T) {
	t.Parallel()
	d := New(Options{})
	given, up := context.WithCancel(t.Context())
	up()
	err := d.inTime(given, func(context.Context) error {
		t.Error("it ran")
		return nil
	})
	if err == nil {
		t.Error("the call succeeded")
	}
}
