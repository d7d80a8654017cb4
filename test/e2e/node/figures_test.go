package node_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// rounds is how often a figure is measured.
const rounds = 3

// TestFigures measures how long the kubelet waits for updates, by the kubelet's own
// log. Only gross deviations fail: machines differ.
func TestFigures(t *testing.T) {
	t.Parallel()
	const single = "example.com/node"
	n := newNode(t)
	n.mknod(t, "node-0", 100)
	n.Plug(adapter("1-1", "A1B2C3D4", 0).Stick)
	n.serve(t, zigbees+`
[[resource]]
name = "node"
match.glob = "/dev/node-*"
`)
	n.listed(t, n.served, single, 1)
	n.listed(t, n.served, zigbee, 1)

	figures := map[string][]time.Duration{}
	take := func(what string, begun, at time.Time) {
		figures[what] = append(figures[what], at.Sub(begun))
	}
	restartKubelet := func(nodes, adapters int) {
		begun := time.Now()
		n.Kubelet.Restart(t)
		take("from the socket of a restarted kubelet to the list",
			n.logged(t, begun, "Starting device plugin registration server"), n.listed(t, begun, single, nodes))
		n.listed(t, begun, zigbee, adapters)
		n.Kubelet.WaitReady(t)
	}
	// Events are far apart: changes in quick succession are processed together.
	d := adapter("1-2", "B5C6D7E8", 1)
	for range rounds {
		restartKubelet(1, 1)
		begun := time.Now()
		n.mknod(t, "node-1", 101)
		take("from a new node without hardware to the list", begun, n.listed(t, begun, single, 2))
		begun = time.Now()
		n.Plug(d.Stick)
		take("from a new USB adapter to the list, settling included", begun, n.listed(t, begun, zigbee, 2))
		begun = time.Now()
		n.Rm("node-1")
		take("from the end of a node to the list", begun, n.listed(t, begun, single, 1))

		n.mknod(t, "node-1", 101)
		n.listed(t, begun, single, 2)
		n.plugin.Kill()
		begun = time.Now()
		n.plugin.Restart(t)
		take("from the start of the program to the list", begun, n.listed(t, begun, single, 2))
		n.listed(t, begun, zigbee, 2)

		restartKubelet(2, 2)
		begun = time.Now()
		n.Unplug(d.Port)
		take("from the end of a USB adapter to the list", begun, n.listed(t, begun, zigbee, 1))
		n.Rm("node-1")
		n.listed(t, begun, single, 1)
	}
	for what, took := range figures {
		slices.Sort(took)
		var list []string
		for _, d := range took {
			list = append(list, fmt.Sprintf("%.1f", ms(d)))
		}
		t.Logf("%s: %s ms", what, strings.Join(list, " "))
		if median := took[len(took)/2]; median > 3*time.Second {
			t.Errorf("%s: %v", what, median)
		}
	}
}
