package agent_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/generic-dp/generic-dp/internal/sysfstest"
)

// Before anything tells that the host has mounted a disk, or made an interface a
// port of a bridge, whoever asks for it is told nevertheless, and then the kubelet is.
func TestWhatTheHostBeganToUseIsNotHandedOver(t *testing.T) {
	t.Parallel()
	const disk, port = "example.com/disk", "example.com/port"
	n := newNode(t, `domain = "example.com"
[[resource]]
name = "disk"
match.glob = "/dev/sdb"
[[resource]]
name = "port"
match.net.name = "eth*"
container.cdi = true
`)
	controller := n.host.AddPCI(sysfstest.PCI{Address: "0000:00:17.0", Vendor: "8086", Device: "a182", Class: "010601"})
	sdb := sysfstest.Disk("sdb")
	sdb.Major, sdb.Minor = 8, 16
	n.host.AddNode(controller+"/host0", sdb)
	n.host.AddNet("", sysfstest.Net{Name: "br0", Bridge: true})
	card := n.host.AddPCI(sysfstest.PCI{Address: "0000:03:00.0", Vendor: "8086", Device: "1533", Class: "020000", Driver: "igb"})
	eth1 := n.host.AddNet(card, sysfstest.Net{Name: "eth1"})
	n.serve()
	ids := map[string]string{}
	for _, resource := range []string{disk, port} {
		n.until("list of "+resource, func() bool {
			list, _ := n.kubelet.Latest(resource)
			return len(list.Healthy()) == 1
		})
		list, _ := n.kubelet.Latest(resource)
		ids[resource] = list.Healthy()[0]
		if _, err := n.kubelet.Allocate(context.Background(), resource, ids[resource]); err != nil {
			t.Errorf("%s: %v", resource, err)
		}
	}

	n.host.Mount("sdb", "/", "/srv")
	master := filepath.Join(n.host.Sysfs(), eth1, "master")
	if err := os.Symlink("../../../../virtual/net/br0", master); err != nil {
		t.Fatal(err)
	}
	for resource, why := range map[string]string{disk: "/srv is mounted from /dev/sdb", port: "it is a port of bridge br0"} {
		if _, err := n.kubelet.Allocate(context.Background(), resource, ids[resource]); err == nil || !strings.Contains(err.Error(), why) {
			t.Errorf("%s: %v, want an error with %q", resource, err, why)
		}
		n.untilListed(resource, nil, []string{ids[resource]})
	}
}
