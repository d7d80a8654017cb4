package agent_test

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/generic-dp/generic-dp/internal/kubelettest"
)

// A kubelet that has just started lacks pods: an unreported device may be held.
func TestKubeletThatHasJustStarted(t *testing.T) {
	t.Parallel()
	const resource = "example.com/zigbee"
	n := newNode(t, zigbee)
	n.addBus()
	n.host.AddUSB(stick("1-1", "AAAA1111", "ttyUSB0"))
	var c clock
	c.forward(time.Hour) // the kubelet is as old
	a, _ := n.serveBy(&c)
	n.untilListed(resource, []string{stickID}, nil)
	n.kubelet.Hold(kubelettest.Request{Namespace: "d", Pod: "p", Container: "c", Resource: resource}, stickID)
	answers := func(what string, slots, partial string, to func()) {
		t.Helper()
		before := len(n.log.String())
		to()
		n.eventually(what, func() bool {
			return strings.Contains(n.log.String()[before:], `"held devices are known" slots=`+slots+" partial="+partial)
		})
	}
	forward := func(by time.Duration) func() {
		return func() {
			c.forward(by)
			a.Reload()
		}
	}

	answers("the answer after the switch", "1", "false", func() { n.configure(parts("other")) })
	n.untilListed(resource, nil, []string{stickID})
	n.kubelet.Remove("d", "p")
	made := c.now().Add(2 * time.Minute)
	if err := os.Chtimes(n.options.Paths.PodResources, made, made); err != nil {
		t.Fatal(err)
	}
	answers("an answer of a kubelet without pods", "0", "true", forward(2*time.Minute+time.Second))
	answers("an answer when it has them", "0", "false", forward(time.Minute))
	n.until("the end of the resource", func() bool { return len(n.kubelet.Connected(resource)) == 0 })
}
