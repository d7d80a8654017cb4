package agent_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/generic-dp/generic-dp/internal/sysfstest"
)

// Before anything tells that the host has made an interface a port of a bridge, whoever
// asks for it is told nevertheless, and then the kubelet is.
func TestWhatTheHostBeganToUseIsNotInjected(t *testing.T) {
	t.Parallel()
	const port = "example.com/port"
	n := newNode(t, `domain = "example.com"
[[resource]]
name = "port"
match.net.name = "eth*"
container.cdi = true
`)
	n.host.AddNet("", sysfstest.Net{Name: "br0", Bridge: true})
	card := n.host.AddPCI(sysfstest.PCI{Address: "0000:03:00.0", Vendor: "8086", Device: "1533", Class: "020000", Driver: "igb"})
	eth1 := n.host.AddNet(card, sysfstest.Net{Name: "eth1"})
	n.serve()
	n.until("list of "+port, func() bool {
		list, _ := n.kubelet.Latest(port)
		return len(list.Healthy()) == 1
	})
	list, _ := n.kubelet.Latest(port)
	id := list.Healthy()[0]
	if _, err := n.kubelet.Allocate(context.Background(), port, id); err != nil {
		t.Error(err)
	}

	master := filepath.Join(n.host.Sysfs(), eth1, "master")
	if err := os.Symlink("../../../../virtual/net/br0", master); err != nil {
		t.Fatal(err)
	}
	const why = "it is a port of bridge br0"
	if _, err := n.kubelet.Allocate(context.Background(), port, id); err == nil || !strings.Contains(err.Error(), why) {
		t.Errorf("%v, want an error with %q", err, why)
	}
	n.untilListed(port, nil, []string{id})
}
