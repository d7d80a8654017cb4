package vm

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/generic-dp/generic-dp/test/e2e/vm/wire"
)

// plugAndAllocate plugs in a device and allocates it as soon as it is first healthy. It
// returns the paths of the allocated nodes.
func plugAndAllocate(t *testing.T, m *Machine, d Device, resource, id string) []string {
	t.Helper()
	m.Plug(t, d)
	got := m.Want(t, wire.Want{Resource: resource, Healthy: []string{id}, Allocate: true})
	for _, l := range m.Lists(t, resource) {
		if l.Received < got.List.Received && l.Devices[id].Healthy {
			t.Errorf("list %d: %s is healthy; want it unhealthy before list %d", l.Received, id, got.List.Received)
		}
		if _, listed := l.Devices[id]; listed && l.At.After(got.List.At) && !l.Devices[id].Healthy {
			t.Errorf("list %d: %s is unhealthy; want it healthy since list %d", l.Received, id, got.List.Received)
		}
	}
	return paths(got.Answer)
}

// paths returns the paths of allocated nodes.
func paths(a wire.Answer) []string {
	var paths []string
	for _, n := range a.Nodes {
		paths = append(paths, n.Path)
	}
	return paths
}

func diskComplete(t *testing.T, m *Machine) {
	// The SCSI layer detects the disk a second after the adapter, and its two drivers
	// make their nodes one after the other.
	m.Serve(t, `
domain = "example.com"
[[resource]]
name = "disk"
match = [
  { usb.id = "46f4:0001", glob = "/dev/sg*", dangerous = true },
  { usb.id = "46f4:0001", glob = "/dev/sd*", dangerous = true },
]
`)
	got := plugAndAllocate(t, m, Device{Driver: "usb-storage", Bus: "usb0.0", Port: "1", Serial: "DISKALPHA"}, "example.com/disk", "usb:46f4:0001:DISKALPHA")
	if want := []string{"/dev/sda", "/dev/sg0"}; !slices.Equal(got, want) {
		t.Errorf("allocated %q; want %q", got, want)
	}
}

const soundConfig = `
domain = "example.com"
[[resource]]
name = "sound"
match.usb.id = "46f4:0002"
`

// soundDevice has two nodes of a card, and its bus node.
var soundDevice = Device{Driver: "usb-audio", Bus: "usb0.0", Port: "1", Serial: "SOUNDALPHA"}

const (
	sound   = "example.com/sound"
	soundID = "usb:46f4:0002:SOUNDALPHA"
)

func soundComplete(t *testing.T, m *Machine) {
	m.Serve(t, soundConfig)
	wantSoundNodes(t, m, plugAndAllocate(t, m, soundDevice, sound, soundID))
}

func soundAtStart(t *testing.T, m *Machine) {
	// The kernel takes some 330 ms from the plug to the last node, and the program some
	// 100 ms from its start to the first scan: each round starts later, so that some
	// scans run while nodes are made.
	const rounds, first, step = 12, 210 * time.Millisecond, 12 * time.Millisecond
	for n := range rounds {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			m.WaitFiles(t, "/sys/bus/usb/devices/[0-9]*-[1-9]*")
			m.Plug(t, soundDevice)
			<-time.After(first + time.Duration(n)*step)
			m.serve(t, soundConfig)
			got := m.Want(t, wire.Want{Resource: sound, Healthy: []string{soundID}, Allocate: true})
			wantSoundNodes(t, m, paths(got.Answer))
		})
	}
}

// wantSoundNodes checks that every node of the sound device is allocated.
func wantSoundNodes(t *testing.T, m *Machine, got []string) {
	t.Helper()
	want := []string{"/dev/snd/controlC0", "/dev/snd/pcmC0D0p"}
	bus := slices.DeleteFunc(slices.Clone(got), func(path string) bool { return slices.Contains(want, path) })
	if len(bus) != 1 || !strings.HasPrefix(bus[0], "/dev/bus/usb/") || len(got) != len(want)+1 {
		t.Errorf("allocated %q; want %q and one in /dev/bus/usb", got, want)
	}
	m.WaitFiles(t, "/dev/snd/*C0*", "controlC0", "pcmC0D0p")
}
