package plugin

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/generic-dp/generic-dp/internal/testing/kubelettest"
)

// container is a container of a pod, which has one device.
var container = kubelettest.Request{Namespace: "default", Pod: "pod", Container: "main", Resource: gpu}

// The kubelet only calls PreStartContainer if the options require it, and it keeps the options as
// long as the registration lives. So a change has to cause another registration.
func TestPreStart(t *testing.T) {
	t.Parallel()
	n := newNode(t).up()
	source := newSource(healthy("a", "b")...)
	started := make(chan []string, 10)
	source.preStart = func(_ context.Context, ids []string) error {
		started <- ids
		return nil
	}
	causes := make(chan Cause, 10)
	p := New(Options{Resource: gpu, Watch: n.watch, Source: source, Hooks: noHooks, Log: discard})
	p.Hooks.Registered = func(c Cause) { causes <- c }
	n.background(p.Run)
	await := func(want Cause) {
		t.Helper()
		if got := <-causes; got != want {
			t.Fatalf("registered because of %q, want %q", got, want)
		}
		n.waitAllocatable(gpu, 2)
	}
	await(CauseStart)
	n.Hold(container, "b", "a")
	n.must(n.StartContainer(t.Context(), container))
	if len(started) > 0 {
		t.Error("the kubelet announced a start that nobody asked for")
	}
	source.require(true)
	await(CauseOptions)
	n.must(n.StartContainer(t.Context(), container))
	if got := <-started; !slices.Equal(got, []string{"a", "b"}) {
		t.Errorf("start of a container with %q, want both devices in order", got)
	}
	n.must(n.Restart())
	await(CauseKubelet)
	n.must(n.StartContainer(t.Context(), container))
	<-started
	source.require(false)
	await(CauseOptions)
	if n.MustPreStart(gpu) {
		t.Error("the kubelet still announces starts")
	}
}

// An error reaches the kubelet with the resource, and a panic is an error.
func TestPreStartFails(t *testing.T) {
	t.Parallel()
	n := newNode(t).up()
	source := newSource(healthy("a")...)
	source.mustPreStart = true
	fail := func() error { return errors.New(`device "a" was not reset: it is on fire`) }
	source.preStart = func(context.Context, []string) error { return fail() }
	n.plugin(gpu, source)
	n.waitAllocatable(gpu, 1)
	n.Hold(container, "a")
	want := `resource "example.com/gpu": device "a" was not reset: it is on fire`
	if err := n.StartContainer(t.Context(), container); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("error %v, want %s", err, want)
	}
	fail = func() error { panic("at the disco") }
	if err := n.StartContainer(t.Context(), container); err == nil || !strings.Contains(err.Error(), "panic: at the disco") {
		t.Errorf("error %v, want the panic", err)
	}
}
