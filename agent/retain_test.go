package agent_test

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/generic-dp/generic-dp/internal/kubelettest"
	"github.com/generic-dp/generic-dp/internal/sysfstest"
)

// A container finds its device at its next start by what it was given when it was
// admitted, also when the configuration has devices handed over another way since.
func TestWhatContainersHoldStaysWhenTheWayChanges(t *testing.T) {
	t.Parallel()
	const resource, key = "example.com/zigbee", "if00:ttyUSB"
	for _, cdiFirst := range []bool{false, true} {
		text := map[bool]string{false: zigbee, true: zigbee + "container.cdi = true\n"}
		n := newNode(t, text[cdiFirst])
		n.addBus()
		n.host.AddUSB(stick("1-1", "AAAA1111", "ttyUSB0"))
		leads := map[bool]func() bool{
			false: func() bool { return n.linkOf(stickID, key) == "/dev/ttyUSB0" },
			true:  func() bool { return strings.Contains(n.spec(resource), `"hostPath": "/dev/ttyUSB0"`) },
		}
		var c clock
		a, stop := n.serveBy(&c)
		n.untilListed(resource, []string{stickID}, nil)
		n.kubelet.Hold(kubelettest.Claim{Namespace: "d", Pod: "p", Container: "c", Resource: resource}, stickID)
		n.configure(text[!cdiFirst])
		n.eventually("the other way", leads[!cdiFirst])
		if !leads[cdiFirst]() {
			t.Errorf("cdi %t: the way that a container was given is gone", cdiFirst)
		}
		c.forward(2 * time.Minute)
		a.Reload()
		n.eventually("an answer", func() bool { return strings.Contains(n.log.String(), "has not changed") })
		stop()
		a, _ = n.serveBy(&c)
		<-a.Settled()
		if !leads[cdiFirst]() || !leads[!cdiFirst]() {
			t.Errorf("cdi %t: after a restart a way is gone", cdiFirst)
		}
		n.kubelet.Remove("d", "p")
		c.forward(2 * time.Minute)
		n.addNodes("any") // an event
		n.eventually("the end of the old way", func() bool { return !leads[cdiFirst]() })
		if !leads[!cdiFirst]() {
			t.Errorf("cdi %t: the new way is gone, too", cdiFirst)
		}
	}
}

// What led to a device that moved while nobody looked leads to another one's node.
func TestRetiredDeviceThatMovedMeanwhile(t *testing.T) {
	t.Parallel()
	for _, cdi := range []string{"", "container.cdi = true\n"} {
		n := newNode(t, zigbee+cdi)
		n.addBus()
		n.host.AddUSB(stick("1-1", "AAAA1111", "ttyUSB0"))
		_, stop := n.serve()
		n.untilListed("example.com/zigbee", []string{stickID}, nil)
		n.kubelet.Hold(kubelettest.Claim{Namespace: "d", Pod: "p", Container: "c", Resource: "example.com/zigbee"}, stickID)
		stop()
		n.host.RemoveUSB("1-1")
		n.host.AddUSB(stick("1-2", "BBBB2222", "ttyUSB0"))
		n.host.AddUSB(stick("1-1", "AAAA1111", "ttyUSB1"))
		n.configure(parts("other"))
		a, _ := n.serve()
		<-a.Settled()
		if got := n.linkOf(stickID, "if00:ttyUSB"); got != "" {
			t.Errorf("a link leads to another's node: %s", got)
		}
		if got := n.spec("example.com/zigbee"); strings.Contains(got, "/dev/ttyUSB0") {
			t.Errorf("a spec leads to another's node:\n%s", got)
		}
	}
}

// The node of an IOMMU group belongs to the first of its functions, and leads to
// the second as well, which was the device.
func TestRetiredFunctionOfAnIOMMUGroup(t *testing.T) {
	t.Parallel()
	const resource, id = "example.com/sound", "0000:01:00.1"
	n := newNode(t, "domain = \"example.com\"\n[[resource]]\nname = \"sound\"\nmatch = { pci = { id = \"10de:1aef\" }, vfio = true }\n")
	for address, function := range map[string]string{"0000:01:00.0": "2204", id: "1aef"} {
		n.host.AddPCI(sysfstest.PCI{Address: address, Vendor: "10de", Device: function, Class: "030000", Driver: "vfio-pci", IOMMUGroup: "12"})
	}
	n.host.AddNode("", sysfstest.Node{Name: "vfio/12", Subsystem: "vfio"})
	n.host.AddNode("", sysfstest.Node{Name: "vfio/vfio", Subsystem: "misc", Major: 10, Minor: 196})
	_, stop := n.serve()
	n.untilListed(resource, []string{id}, nil)
	links, err := filepath.Glob(filepath.Join(n.options.Paths.RunDir, "links", id, "*"))
	if err != nil || len(links) != 1 || n.linkOf(id, filepath.Base(links[0])) != "/dev/vfio/12" {
		t.Fatalf("links %v, %v; want that of the group", links, err)
	}
	n.kubelet.Hold(kubelettest.Claim{Namespace: "d", Pod: "p", Container: "c", Resource: resource}, id)
	stop()
	n.configure(parts("other"))
	a, _ := n.serve()
	<-a.Settled()
	if got := n.linkOf(id, filepath.Base(links[0])); got != "/dev/vfio/12" {
		t.Errorf("link of a device that a container holds leads to %q, want /dev/vfio/12", got)
	}
}
