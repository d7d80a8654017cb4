package vm

import (
	"slices"
	"testing"

	"github.com/generic-dp/generic-dp/test/e2e/vm/wire"
)

// whole plugs a device in and asks for it the moment it is healthy for the
// first time. It returns the paths of the nodes that a container would get.
func whole(t *testing.T, m *Machine, d Device, resource, id string) []string {
	t.Helper()
	m.Plug(t, d)
	got := m.Want(t, wire.Want{Resource: resource, Healthy: []string{id}, Allocate: true})
	for _, l := range m.Lists(t, resource) {
		if l.Received < got.List.Received && l.Devices[id].Healthy {
			t.Errorf("it was healthy before, in list %d", l.Received)
		}
		if _, listed := l.Devices[id]; listed && l.At.After(got.List.At) && !l.Devices[id].Healthy {
			t.Errorf("it was not healthy any more in list %d", l.Received)
		}
	}
	var paths []string
	for _, n := range got.Answer.Nodes {
		paths = append(paths, n.Path)
	}
	return paths
}

func diskIsWhole(t *testing.T, m *Machine) {
	// The SCSI layer finds the disk a second after the adapter, and its two
	// drivers make their nodes one after the other.
	m.Serve(t, `
domain = "example.com"
[[resource]]
name = "disk"
match = [
  { usb.id = "46f4:0001", glob = "/dev/sg*" },
  { usb.id = "46f4:0001", glob = "/dev/sd*" },
]
`)
	got := whole(t, m, Device{Driver: "usb-storage", Bus: "usb0.0", Port: "1", Serial: "DISKALPHA"}, "example.com/disk", "usb:46f4:0001:DISKALPHA")
	if want := []string{"/dev/sda", "/dev/sg0"}; !slices.Equal(got, want) {
		t.Errorf("allocated %q; want %q", got, want)
	}
}

func soundIsWhole(t *testing.T, m *Machine) {
	// All nodes that it has: its own on the bus first, then those of the card.
	m.Serve(t, `
domain = "example.com"
[[resource]]
name = "sound"
match.usb.id = "46f4:0002"
`)
	got := whole(t, m, Device{Driver: "usb-audio", Bus: "usb0.0", Port: "1", Serial: "SOUNDALPHA"}, "example.com/sound", "usb:46f4:0002:SOUNDALPHA")
	var want []string
	for _, name := range m.Files(t, "/dev/snd/*C0*") {
		want = append(want, "/dev/snd/"+name)
	}
	bus := slices.DeleteFunc(slices.Clone(got), func(path string) bool { return slices.Contains(want, path) })
	if len(want) < 2 || len(bus) != 1 || len(got) != len(want)+1 {
		t.Errorf("allocated %q; want its node on the bus and all of %q", got, want)
	}
}
