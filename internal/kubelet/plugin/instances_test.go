package plugin

import (
	"testing"

	"github.com/generic-dp/generic-dp/internal/testing/kubelettest"
)

// An instance that has a successor keeps its streams, but never registers again: it would be the newest
// client of the kubelet, and end soon.
func TestRetiredPluginDoesNotRegisterAgain(t *testing.T) {
	t.Parallel()
	eachKeying(t, func(t *testing.T, keying func(*kubelettest.Options)) {
		n := newNode(t, keying).up()
		source := newSource(healthy("a")...)
		p, stop := n.plugin(gpu, source)
		n.waitRegistered(p, true)
		n.watch.IsRetired.Store(true)
		source.set(healthy("a", "b")...)
		n.waitAllocatable(gpu, 2)
		n.must(n.Restart())
		n.waitRegistered(p, false)
		n.waitKubelet(true, 2)
		stop()
		if got := n.Registrations(gpu); got != 1 {
			t.Errorf("%d registrations, want only the one before the restart of the kubelet", got)
		}
	})
}
