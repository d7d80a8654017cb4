// Package wait lets a test wait for a condition instead of for a time.
package wait

import (
	"fmt"
	"testing"
	"time"
)

// interval is short: changes of a bed take milliseconds to seconds.
const interval = 10 * time.Millisecond

// Until waits until check returns nil. After limit the test fails with what and the last
// error.
func Until(t testing.TB, limit time.Duration, what string, check func() error) {
	t.Helper()
	if err := Try(limit, check); err != nil {
		t.Fatalf("%s: not within %v: %v", what, limit, err)
	}
}

// Try is Until without a test: it returns the last error.
func Try(limit time.Duration, check func() error) error {
	deadline := time.Now().Add(limit)
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		err := check()
		if err == nil || time.Now().After(deadline) {
			return err
		}
		<-tick.C
	}
}

// Holds checks that check returns nil for as long as span.
func Holds(t testing.TB, span time.Duration, what string, check func() error) {
	t.Helper()
	start := time.Now()
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for time.Since(start) < span {
		if err := check(); err != nil {
			t.Fatalf("%s: no longer after %v: %v", what, time.Since(start).Round(time.Millisecond), err)
		}
		<-tick.C
	}
}

// Equal is a check that got returns want.
func Equal[T comparable](want T, got func() T) func() error {
	return func() error {
		if g := got(); g != want {
			return fmt.Errorf("got %v, want %v", g, want)
		}
		return nil
	}
}

// Closed waits until ch is closed or has a value.
func Closed[T any](t testing.TB, limit time.Duration, what string, ch <-chan T) {
	t.Helper()
	select {
	case <-ch:
	case <-time.After(limit):
		t.Fatalf("%s: not within %v", what, limit)
	}
}
