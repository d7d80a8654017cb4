package agent_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/generic-dp/generic-dp/internal/agent"
	"github.com/generic-dp/generic-dp/internal/host/health"
)

// setAttr writes an attribute as the kernel shows it from then on.
func (n *node) setAttr(dir, name, value string) {
	n.Helper()
	path := filepath.Join(n.options.Paths.Sysfs, dir, name)
	// In one step: a check may read it at any time.
	if err := os.WriteFile(path+".new", []byte(value+"\n"), 0o644); err != nil {
		n.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		n.Fatal(err)
	}
}

// untilReason waits for the reason of a device, which the kubelet does not get.
func (n *node) untilReason(a *agent.Agent, resource, id, want string) {
	n.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(limit); reasons(a, resource)[id] != want; <-tick.C {
		if time.Now().After(deadline) {
			n.Fatalf("reasons are %q, want %q for %s", reasons(a, resource), want, id)
		}
	}
}

// reasons are why devices of a resource are not healthy, by ID.
func reasons(a *agent.Agent, resource string) map[string]string {
	found := map[string]string{}
	for _, e := range a.Entries(resource) {
		found[e.Offer.ID] = e.Reason
	}
	return found
}

// While an attribute is wrong, the device is Unhealthy with that reason, and keeps its
// links and CDI entries, so that the container that holds it can restart.
func TestADeviceIsUnhealthyWhileItsCheckFails(t *testing.T) {
	t.Parallel()
	for _, cdi := range []bool{false, true} {
		t.Run(fmt.Sprintf("cdi %t", cdi), func(t *testing.T) {
			t.Parallel()
			testCheckThatFails(t, cdi)
		})
	}
}

func testCheckThatFails(t *testing.T, cdi bool) {
	n := newNode(t, fmt.Sprintf("%scontainer.cdi = %t\nhealth = { attr.authorized = \"1\", interval = \"5s\" }\n", zigbee, cdi))
	n.addBus()
	dir := n.host.AddUSB(stick("1-1", "AAAA1111", "ttyUSB0"))
	n.setAttr(dir, "authorized", "0")
	a, _ := n.serve()
	leads := func() bool {
		return cdi && strings.Contains(n.spec("example.com/zigbee"), `"hostPath": "/dev/ttyUSB0"`) || !cdi && n.linkOf(stickID, "if00:ttyUSB") == "/dev/ttyUSB0"
	}
	const resource, failed = "example.com/zigbee", `attr authorized is "0": want "1"`
	for range 2 {
		n.untilListed(resource, nil, []string{stickID})
		n.untilReason(a, resource, stickID, failed)
		if !leads() {
			t.Error("the link of a device that fails a check is gone")
		}
		if _, err := n.kubelet.Allocate(context.Background(), resource, stickID); err == nil || !strings.Contains(err.Error(), failed) {
			t.Errorf("Allocate of a device that fails a check: %v, want %q", err, failed)
		}
		n.setAttr(dir, "authorized", "1")
		n.untilListed(resource, []string{stickID}, nil)
		if !leads() {
			t.Error("the link of a healthy device is gone")
		}
		n.setAttr(dir, "authorized", "0")
	}
}

// A hung check delays nothing: the other device of the resource, which passes, is
// listed meanwhile.
func TestACheckThatHangsKeepsNobodyWaiting(t *testing.T) {
	t.Parallel()
	good, err := net.Listen("tcp", "127.91.7.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = good.Close() })
	port := good.Addr().(*net.TCPAddr).Port
	deaf(t, [4]byte{127, 91, 7, 2}, port)

	const resource, passes, hangs = "example.com/zigbee", "usb:10c4:ea60:127.91.7.1", "usb:10c4:ea60:127.91.7.2"
	n := newNode(t, fmt.Sprintf("%shealth.tcp = \"${usb.serial}:%d\"\n", zigbee, port))
	n.addBus()
	n.host.AddUSB(stick("1-1", "127.91.7.1", "ttyUSB0"))
	n.host.AddUSB(stick("1-2", "127.91.7.2", "ttyUSB1"))
	a, _ := n.serve()
	n.untilListed(resource, []string{passes}, []string{hangs})
	if reason := reasons(a, resource)[hangs]; reason != health.ReasonPending && !strings.HasSuffix(reason, "does not answer") {
		t.Errorf("reason %q, want pending until it does not answer", reason)
	}
	n.untilReason(a, resource, hangs, fmt.Sprintf("tcp 127.91.7.2:%d: does not answer", port))
}

// deaf is a listener whose queue is full: connections are not accepted.
func deaf(t *testing.T, address [4]byte, port int) {
	t.Helper()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Close(fd) })
	if err := errors.Join(unix.Bind(fd, &unix.SockaddrInet4{Addr: address, Port: port}), unix.Listen(fd, 0)); err != nil {
		t.Fatal(err)
	}
	for range 8 {
		conn, err := net.DialTimeout("tcp", net.JoinHostPort(netip.AddrFrom4(address).String(), strconv.Itoa(port)), 500*time.Millisecond)
		if err != nil {
			return // full
		}
		t.Cleanup(func() { _ = conn.Close() })
	}
	t.Skip("this kernel's queues have no end")
}
