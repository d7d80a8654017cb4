package dra

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/generic-dp/generic-dp/cdi"
)

// hanging is an API server that never answers.
type hanging struct{}

func (hanging) Get(ctx context.Context, _ string, _ any) error { <-ctx.Done(); return ctx.Err() }

// Claims that the kubelet does not know cost the answer about holders seconds, however many.
func TestSweepEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := &cdi.Writer{Dir: t.TempDir()}
		for i := range 5 {
			c := cdi.Claim{UID: fmt.Sprint(i), Requests: []cdi.Request{{Name: "r", Devices: []string{"a=b"}, Env: map[string]string{"A": "B"}}}}
			if err := w.WriteClaim(c); err != nil {
				t.Fatal(err)
			}
		}
		began := time.Now()
		d := NewServer(ServerOptions{API: hanging{}, Claims: w, Log: slog.New(slog.DiscardHandler)})
		limited, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if d.Sweep(limited, func(cdi.Claim) bool { return false }) || time.Since(began) > sweepWithin {
			t.Errorf("a sweep took %s", time.Since(began))
		}
	})
}

// A call that the kubelet has given up does nothing: the opposite one may be over already.
func TestCallsThatAreGivenUp(t *testing.T) {
	t.Parallel()
	d := NewServer(ServerOptions{})
	given, up := context.WithCancel(t.Context())
	up()
	for range 100 {
		_ = d.bounded(given, func(context.Context) error {
			t.Error("it ran")
			return nil
		})
	}
	d.preparing <- struct{}{} // all have ended
}
