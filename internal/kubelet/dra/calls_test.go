package dra

import (
	"context"
	"testing"
)

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
