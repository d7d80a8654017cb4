package vm

import (
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/generic-dp/generic-dp/test/e2e/vm/wire"
)

// servePods is Serve with a kubelet whose pods the program knows.
func (m *Machine) servePods(t *testing.T, config string) {
	t.Helper()
	m.WaitFiles(t, "/sys/bus/usb/devices/[0-9]*-[1-9]*")
	m.call(t, "Serve", wire.Serve{Config: config, Pods: true}, &wire.None{})
	t.Cleanup(func() {
		if t.Failed() {
			showLog(t, "generic-dp", m.Log(t))
		}
		m.call(t, "Stop", syscall.SIGTERM, &wire.None{})
	})
}

// start starts the container of a pod, which gets more devices without a call.
func (m *Machine) start(pod, resource string, hold ...string) error {
	start := wire.Start{Resource: resource, Pod: pod, Hold: hold}
	return m.try(2*callLimit, "Start", start, &wire.None{})
}

// appeared reports whether a name appeared below /dev since the last call.
func (m *Machine) appeared(name string) bool {
	var at time.Time
	return m.try(callLimit, "Appeared", wire.Appeared{Name: name}, &at) == nil
}

// The kernel resets the port of the dongle, which the program may ask for as user 0 without
// capabilities. It binds the driver again, which makes another node.
func dongleReset(t *testing.T, m *Machine) {
	m.servePods(t, serialByDevice+"container.reset = \"usb\"\n")
	m.Plug(t, dongle("1", "FTALPHA"))
	m.Healthy(t, serial, bySerial("FTALPHA"))
	m.Plug(t, dongle("2", "FTBRAVO"))
	m.Healthy(t, serial, bySerial("FTALPHA"), bySerial("FTBRAVO"))
	m.Allocate(t, "p", serial, bySerial("FTALPHA"))
	for range 2 {
		m.appeared("ttyUSB0")
		m.appeared("ttyUSB1")
		if err := m.start("p", serial); err != nil {
			t.Fatal(err)
		}
		if !m.appeared("ttyUSB0") {
			t.Error("the dongle was not reset: its node was not made again")
		}
		if m.appeared("ttyUSB1") {
			t.Error("the other dongle was reset")
		}
		if links := m.Links(t); links[bySerial("FTALPHA")+"/if00:ttyUSB"] != "/dev/ttyUSB0" {
			t.Errorf("links %q; want one of the dongle to ttyUSB0", links)
		}
		m.Healthy(t, serial, bySerial("FTALPHA"), bySerial("FTBRAVO"))
	}
	// The kubelet gives the dongle to another pod, while the first one runs.
	if err := m.start("q", serial, bySerial("FTALPHA")); err == nil || !strings.Contains(err.Error(), "both run") {
		t.Errorf("start beside another pod: %v; want an error", err)
	}
	if m.appeared("ttyUSB0") {
		t.Error("the dongle was reset while another pod has it")
	}
}

// The card has no node, and its interface is not in use. The kernel resets the bus, on which the card
// is alone.
func cardReset(t *testing.T, m *Machine) {
	m.servePods(t, strings.Replace(nicConfig, "container.env", "container.reset = \"pci\"\ncontainer.env", 1))
	m.Healthy(t, nic, card)
	t.Logf("reset_method of the card: %s", m.Read(t, "/sys/bus/pci/devices/"+card+"/reset_method"))
	m.Allocate(t, "card", nic, card)
	if err := m.start("card", nic); err != nil {
		t.Fatal(err)
	}
	m.Healthy(t, nic, card)
	if log := m.Log(t); !strings.Contains(log, "device was reset") {
		t.Error("the log does not have the reset")
	}
}
