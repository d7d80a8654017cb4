package agent_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Nothing tells that a host can be read again: what events told of meanwhile is
// seen nevertheless.
func TestScanThatFailedIsTriedAgain(t *testing.T) {
	t.Parallel()
	n := newNode(t, parts("r"))
	n.addNodes("r-a")
	a, _ := n.serve()
	n.untilListed("example.com/r", []string{"r-a"}, nil)
	away := n.host.Sysfs() + ".away"
	if err := os.Rename(n.host.Sysfs(), away); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(n.host.Dev(), "event"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	scanFails := func() bool {
		for _, p := range a.Status(t.Context()).Problems {
			if p.Subject == "scan" {
				return true
			}
		}
		return false
	}
	n.eventually("a scan that fails", scanFails)
	if list, _ := n.kubelet.Latest("example.com/r"); strings.Join(list.Healthy(), " ") != "r-a" {
		t.Errorf("healthy: %q, want what was seen last", list.Healthy())
	}
	if err := os.Rename(away, n.host.Sysfs()); err != nil {
		t.Fatal(err)
	}
	n.eventually("a scan", func() bool { return !scanFails() })
}

// A USB device whose directory is the one that was read before the restart is that device,
// and not read again: reading it may take longer than a pod is waited for. One that is
// plugged in again is another.
func TestUSBDeviceIsKnownAfterARestart(t *testing.T) {
	t.Parallel()
	n := newNode(t, zigbee)
	n.addBus()
	dir := n.host.AddUSB(stick("1-1", "AAAA1111", "ttyUSB0"))
	_, stop := n.serve()
	n.untilListed("example.com/zigbee", []string{stickID}, nil)
	stop()
	n.setAttr(dir, "serial", "BBBB2222\n")
	before := len(n.log.String())
	a, stop := n.serve()
	<-a.Settled()
	n.untilListed("example.com/zigbee", []string{stickID}, nil)
	if log := n.log.String()[before:]; strings.Contains(log, "Unhealthy") {
		t.Errorf("it was Unhealthy meanwhile:\n%s", log)
	}
	stop()
	n.host.RemoveUSB("1-1")
	n.host.AddUSB(stick("1-1", "BBBB2222", "ttyUSB0"))
	n.serve()
	n.untilListed("example.com/zigbee", []string{strings.Replace(stickID, "AAAA1111", "BBBB2222", 1)}, []string{stickID})
}
