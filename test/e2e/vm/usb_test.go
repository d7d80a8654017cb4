package vm

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/generic-dp/generic-dp/test/e2e/vm/wire"
)

// serial is a resource of USB serial adapters.
const serial = "example.com/serial"

// A device is the whole adapter: it settles before it is listed.
const serialByDevice = `
domain = "example.com"
[[resource]]
name = "serial"
match = { usb.id = "0403:6001", glob = "/dev/ttyUSB*" }
`

// A device is a node: it is listed at once.
const serialByNode = `
domain = "example.com"
[[resource]]
name = "serial"
match.glob = "/dev/ttyUSB*"
`

// dongle is a serial adapter for a port of the first controller.
func dongle(port, serial string) Device {
	return Device{Driver: "usb-serial", Bus: "usb0.0", Port: port, Serial: serial}
}

func bySerial(serial string) string { return "usb:0403:6001:" + serial }

func byPort(controller, chain string) string {
	return fmt.Sprintf("usb:0403:6001:port:%s:%s", controller, chain)
}

// node is the ID of the adapter's node as a device.
func node(id string) string { return id + ":if00:ttyUSB" }

// wantNode checks that a response has one node, which is the adapter's ttyUSB number n.
func wantNode(t *testing.T, a wire.Answer, n int) {
	t.Helper()
	path, number := fmt.Sprintf("/dev/ttyUSB%d", n), fmt.Sprintf("188:%d", n)
	if len(a.Nodes) != 1 || a.Nodes[0].Path != path || a.Nodes[0].Number != number {
		t.Errorf("allocated %+v; want one node that leads to %s, %s", a.Nodes, path, number)
	}
}

func keepsIDInAnotherPort(t *testing.T, m *Machine) {
	m.Serve(t, serialByDevice)
	a := m.Plug(t, dongle("1", "FTALPHA"))
	m.Healthy(t, serial, bySerial("FTALPHA"))
	wantNode(t, m.Allocate(t, "", serial, bySerial("FTALPHA")), 0)

	a.Pull(t)
	m.Want(t, wire.Want{Resource: serial, Unhealthy: []string{bySerial("FTALPHA")}})
	var answer wire.Answer
	err := m.try(callLimit, "Allocate", wire.Allocate{Resource: serial, IDs: []string{bySerial("FTALPHA")}}, &answer)
	if err == nil || !strings.Contains(err.Error(), bySerial("FTALPHA")) {
		t.Errorf("Allocate of an unplugged dongle: %+v, %v; want an error with its ID", answer, err)
	}

	// Another one takes its port and its kernel name.
	m.Plug(t, dongle("1", "FTBRAVO"))
	m.Want(t, wire.Want{Resource: serial, Healthy: []string{bySerial("FTBRAVO")}, Unhealthy: []string{bySerial("FTALPHA")}})
	m.Plug(t, dongle("3", "FTALPHA"))
	m.Healthy(t, serial, bySerial("FTALPHA"), bySerial("FTBRAVO"))
	wantNode(t, m.Allocate(t, "", serial, bySerial("FTALPHA")), 1)
	wantNode(t, m.Allocate(t, "", serial, bySerial("FTBRAVO")), 0)
}

func identifiedByPorts(t *testing.T, m *Machine) {
	m.Serve(t, serialByDevice)
	first := m.Plug(t, dongle("2", ""))
	m.Healthy(t, serial, byPort(usb0, "2"))
	m.Plug(t, dongle("1", ""))
	m.Healthy(t, serial, byPort(usb0, "1"), byPort(usb0, "2"))
	wantNode(t, m.Allocate(t, "", serial, byPort(usb0, "2")), 0)
	wantNode(t, m.Allocate(t, "", serial, byPort(usb0, "1")), 1)

	first.Pull(t)
	m.Want(t, wire.Want{Resource: serial, Healthy: []string{byPort(usb0, "1")}, Unhealthy: []string{byPort(usb0, "2")}})
	wantNode(t, m.Allocate(t, "", serial, byPort(usb0, "1")), 1)
	m.Plug(t, dongle("2", ""))
	m.Healthy(t, serial, byPort(usb0, "1"), byPort(usb0, "2"))
}

func placeholderIsNoSerial(t *testing.T, m *Machine) {
	m.Serve(t, serialByDevice)
	m.Plug(t, dongle("1", "0001"))
	m.Plug(t, dongle("2", "123456789"))
	m.Plug(t, dongle("3", "00000000"))
	m.Healthy(t, serial, byPort(usb0, "1"), byPort(usb0, "2"), byPort(usb0, "3"))
}

func duplicateTakesNoID(t *testing.T, m *Machine) {
	m.Serve(t, serialByDevice)
	first, second := bySerial("FTTWIN"), byPort(usb0, "1")
	p := m.Plug(t, dongle("2", "FTTWIN"))
	m.Healthy(t, serial, first)
	m.Plug(t, dongle("1", "FTTWIN"))
	m.Healthy(t, serial, first, second)
	wantNode(t, m.Allocate(t, "", serial, first), 0)
	wantNode(t, m.Allocate(t, "", serial, second), 1)

	// The IDs survive a restart, and the absence of the first dongle.
	restart := func() {
		before := m.Lists(t, serial)
		m.Restart(t, syscall.SIGTERM, serialByDevice)
		m.Want(t, wire.Want{Resource: serial, Healthy: []string{first, second}, After: before[len(before)-1].Received})
	}
	restart()
	wantNode(t, m.Allocate(t, "", serial, first), 0)
	p.Pull(t)
	m.Want(t, wire.Want{Resource: serial, Healthy: []string{second}, Unhealthy: []string{first}})
	m.Plug(t, dongle("2", "FTTWIN"))
	m.Healthy(t, serial, first, second)
	restart()
	wantNode(t, m.Allocate(t, "", serial, first), 0)
	wantNode(t, m.Allocate(t, "", serial, second), 1)
	for i, l := range m.Lists(t, serial) {
		for id := range l.Devices {
			if id != first && id != second {
				t.Errorf("list %d has a third device, %s; want two", i, id)
			}
		}
	}
}

func hubHotplug(t *testing.T, m *Machine) {
	m.Serve(t, serialByDevice)
	plug := func(port string) *Plugged {
		hub := m.Plug(t, Device{Driver: "usb-hub", Bus: "usb0.0", Port: port})
		for i, s := range []string{"FTALPHA", "FTBRAVO", ""} {
			m.Plug(t, dongle(fmt.Sprintf("%s.%d", port, i+1), s))
		}
		return hub
	}
	serials := []string{bySerial("FTALPHA"), bySerial("FTBRAVO")}
	hub := plug("1")
	m.Healthy(t, serial, append(serials, byPort(usb0, "1.3"))...)
	if links := m.Links(t); len(links) != 3 {
		t.Errorf("links are %v; want 3", links)
	}
	hub.Pull(t)
	m.Want(t, wire.Want{Resource: serial, Unhealthy: append(serials, byPort(usb0, "1.3"))})
	if links := m.Links(t); len(links) > 0 {
		t.Errorf("links are %v; want none", links)
	}
	plug("4")
	m.Want(t, wire.Want{Resource: serial, Healthy: append(serials, byPort(usb0, "4.3")), Unhealthy: []string{byPort(usb0, "1.3")}})
}

func linkFollows(t *testing.T, m *Machine) {
	m.Serve(t, serialByDevice)
	alpha, bravo := bySerial("FTALPHA"), bySerial("FTBRAVO")
	link := alpha + "/if00:ttyUSB"
	a := m.Plug(t, dongle("1", "FTALPHA"))
	m.Healthy(t, serial, alpha)
	given := m.Allocate(t, "app", serial, alpha)
	wantNode(t, given, 0)
	if len(given.Nodes) != 1 || given.Nodes[0].Host != "/run/generic-dp/links/"+link {
		t.Fatalf("allocated %+v; want the link %s", given.Nodes, link)
	}
	known := wire.Want{Resource: serial}
	for range 3 {
		a.Pull(t)
		known.Healthy, known.Unhealthy = nil, append(known.Unhealthy, alpha)
		gone := m.Want(t, known).List
		b := m.Plug(t, dongle("2", "FTBRAVO"))
		other := m.Want(t, wire.Want{Resource: serial, Healthy: []string{bravo}, Unhealthy: []string{alpha}}).List
		wantNode(t, m.Allocate(t, "", serial, bravo), 0)
		for _, l := range []wire.List{gone, other} {
			if to, ok := l.Links[link]; ok {
				t.Errorf("list %d: the link of the unplugged dongle leads to %s; want none", l.Received, to.Target)
			}
		}

		a = m.Plug(t, dongle("1", "FTALPHA"))
		back := m.Healthy(t, serial, alpha, bravo)
		if to := back.Links[link]; to.Target != "/dev/ttyUSB1" || to.Made.After(back.At) {
			t.Errorf("list %d: the link leads to %q, made %v after the list; want /dev/ttyUSB1, made before",
				back.Received, to.Target, to.Made.Sub(back.At))
		}
		// The kubelet does not call Allocate again: the first response leads there.
		again := m.Allocate(t, "", serial, alpha)
		wantNode(t, again, 1)
		if again.Nodes[0].Host != given.Nodes[0].Host {
			t.Errorf("the second Allocate has %s; want %s like the first", again.Nodes[0].Host, given.Nodes[0].Host)
		}

		// The next round begins with ttyUSB0 again.
		a.Pull(t)
		b.Pull(t)
		m.Want(t, wire.Want{Resource: serial, Unhealthy: []string{alpha, bravo}})
		a = m.Plug(t, dongle("1", "FTALPHA"))
		m.Want(t, wire.Want{Resource: serial, Healthy: []string{alpha}, Unhealthy: []string{bravo}})
		known.Unhealthy = []string{bravo}
	}
	for _, l := range m.Lists(t, serial) {
		checkLinks(t, l)
	}
}

// checkLinks checks that every healthy device had its link when a list arrived, and
// that no two links had the same target.
func checkLinks(t *testing.T, l wire.List) {
	t.Helper()
	if l.Links == nil {
		return // the next list arrived at the same time
	}
	for id, d := range l.Devices {
		if to, linked := l.Links[id+"/if00:ttyUSB"]; d.Healthy && (!linked || to.Made.After(l.At)) {
			t.Errorf("list %d at %v: %s is healthy, links %v; want its link, made before", l.Received, l.At, id, l.Links)
		}
	}
	links := targets(l.Links)
	nodes := slices.Sorted(maps.Values(links))
	if len(slices.Compact(nodes)) < len(links) {
		t.Errorf("list %d: two links lead to one node; want one: %v", l.Received, links)
	}
}

func dongleLosesDriver(t *testing.T, m *Machine) {
	m.Serve(t, serialByDevice)
	m.Plug(t, dongle("1", "FTALPHA"))
	m.Plug(t, dongle("2", "FTBRAVO"))
	alpha, bravo := bySerial("FTALPHA"), bySerial("FTBRAVO")
	m.Healthy(t, serial, alpha, bravo)
	held := m.Allocate(t, "", serial, alpha).Nodes[0].Path
	name := held[strings.LastIndex(held, "/")+1:]
	// The port is an ancestor of ttyUSB0, through its interface.
	iface := ""
	for _, candidate := range m.Files(t, "/sys/bus/usb/drivers/ftdi_sio/*-*") {
		if slices.Contains(m.Files(t, "/sys/bus/usb/drivers/ftdi_sio/"+candidate+"/ttyUSB*"), name) {
			iface = candidate
		}
	}
	m.Write(t, "/sys/bus/usb/drivers/ftdi_sio/unbind", iface)
	m.Want(t, wire.Want{Resource: serial, Healthy: []string{bravo}, Unhealthy: []string{alpha}})
	m.Write(t, "/sys/bus/usb/drivers/ftdi_sio/bind", iface)
	m.Healthy(t, serial, alpha, bravo)
}

func idleCostsNothing(t *testing.T, m *Machine) {
	m.Serve(t, serialByNode)
	m.Plug(t, dongle("1", "FTALPHA"))
	m.Healthy(t, serial, node(bySerial("FTALPHA")))
	// The start ends with two scans without changes.
	const span = 2 * time.Second
	before := m.Usage(t)
	deadline := time.Now().Add(callLimit)
	tick := time.NewTicker(span)
	defer tick.Stop()
	for {
		<-tick.C
		now := m.Usage(t)
		spent := now.CPU - before.CPU
		if spent < span/1000 {
			t.Logf("%v of CPU time in %v without an event; %.1f MB resident, %.1f of them its own, %d files, %d threads",
				spent, span, mb(now.Memory), mb(now.Anonymous), now.Files, now.Tasks)
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%v of CPU time in %v without an event; want less than %v", spent, span, span/1000)
		}
		before = now
	}
}

func mb(n int64) float64 { return float64(n) / (1 << 20) }
