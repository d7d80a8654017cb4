package node_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/generic-dp/generic-dp/test/e2e/bed"
	"github.com/generic-dp/generic-dp/test/e2e/product"
	"github.com/generic-dp/generic-dp/test/e2e/wait"
)

const (
	// leaves is how long a device at least stays in the list of its former resource.
	leaves = time.Minute
	// polled is more than the time between two queries of the holders.
	polled = 90 * time.Second
)

// TestReleased moves a held device to another resource. When its pod has ended, kubelets since 1.37
// announce that, and the device is offered at once; before, the next query of the holders shows it.
func TestReleased(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("takes more than two minutes")
	}
	for _, c := range []struct {
		version bed.Version
		atMost  time.Duration
	}{
		{bed.Current, polled},
		// Milliseconds, but on a busy machine.
		{bed.Next, 10 * time.Second},
	} {
		t.Run(c.version.Minor, func(t *testing.T) {
			t.Parallel()
			c.version.SkipUnlessBuilt(t)
			b := bed.New(t, bed.Options{Version: c.version})
			n := &node{Bed: b, Host: b.Hardware(t)}
			mine := adapter("1-1", "A1B2C3D4", 0)
			n.Plug(mine.Stick)
			n.plugin = n.Plugin(t, product.Spec{
				Config: domain + zigbees,
				Args:   []string{"--sysfs", n.Sysfs(), "--log-level", "debug", "--node-name", "bed"},
			})
			n.Kubelet.WaitAllocatable(t, zigbee, 1)
			first := n.run(t, bed.Workload("first", zigbee, 1))
			moved := time.Now()
			n.plugin.Configure(t, domain+strings.Replace(zigbees, `"zigbee"`, `"other"`, 1))
			n.Kubelet.WaitAllocatable(t, zigbee, 0)
			// The first query after that minute finds the pod.
			<-time.After(time.Until(moved.Add(leaves + 5*time.Second)))

			first.Remove(t)
			released := n.waitReleased(t, zigbee)
			wait.Until(t, c.atMost, "offer of the device", func() error {
				got, err := n.Kubelet.Allocatable(t.Context(), "example.com/other")
				if err == nil && got != 1 {
					err = fmt.Errorf("%d devices", got)
				}
				return err
			})
			t.Logf("offered %s after the kubelet has released the device", time.Since(released).Round(time.Millisecond))
		})
	}
}

// waitReleased waits until no container holds a device of a resource, and returns when that was.
func (n *node) waitReleased(t *testing.T, resource string) time.Time {
	t.Helper()
	wait.Until(t, limit, "release of the device", func() error {
		held, err := n.Kubelet.Held(t.Context(), resource)
		if err == nil && len(held) > 0 {
			err = fmt.Errorf("held: %v", held)
		}
		return err
	})
	return time.Now()
}
