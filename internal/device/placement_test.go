package device_test

import (
	"strings"
	"testing"

	"github.com/generic-dp/generic-dp/internal/device"
)

// placed is a device with nodes: its own ones, and a companion.
func placed(permissions ...string) device.Offer {
	o := device.Offer{ID: "usb:10c4:ea60:A1"}
	for i, p := range permissions {
		host := "/dev/tty" + string(rune('a'+i))
		o.Nodes = append(o.Nodes, device.OfferedNode{HostPath: host, Permissions: p})
	}
	o.Nodes = append(o.Nodes, device.OfferedNode{HostPath: "/dev/kfd", Permissions: "rw", Companion: true})
	return o
}

func TestPlacement(t *testing.T) {
	t.Parallel()
	configured := placed("rw")
	configured.Nodes[0].Path = device.Literal("/dev/zigbee")
	for _, test := range []struct {
		offer     device.Offer
		placement device.Placement
		want      string // paths and permissions
		problem   string // of Check
	}{
		{placed("rw"), device.Placement{Path: "/dev/x"}, "/dev/x rw", ""},
		{configured, device.Placement{Path: "/dev/x/"}, "/dev/x/zigbee rw", ""},
		{configured, device.Placement{Permissions: "r"}, "/dev/zigbee r", ""},
		{placed("rw", "rw"), device.Placement{Path: "/dev/x/", Permissions: "w"}, "/dev/x/ttya w /dev/x/ttyb w", ""},
		{placed("rw", "r"), device.Placement{Permissions: "rw"}, " rw  r", `permissions "rw": the configuration only gives "r" for /dev/ttyb`},
		{placed("r"), device.Placement{Permissions: "w"}, "", `permissions "w": the configuration only gives "r" for /dev/ttya`},
		{placed("rw", "rw"), device.Placement{Path: "/dev/x"}, "", `path "/dev/x": it has 2 nodes: use a directory, "/dev/x/"`},
		{placed(), device.Placement{Path: "/dev/x"}, "", "path and permissions are for device nodes, and it has none"},
	} {
		err := test.placement.Check(&test.offer)
		if test.problem == "" && err != nil || test.problem != "" && (err == nil || err.Error() != test.problem) {
			t.Errorf("%+v: %v, want %s", test.placement, err, test.problem)
		}
		before := test.offer.Nodes[0]
		o, err := test.offer.Placed(test.placement)
		if test.want == "" && (err != nil || test.problem == "path and permissions are for device nodes, and it has none") {
			continue
		}
		var got []string
		for _, n := range o.Nodes {
			if !n.Companion {
				got = append(got, n.Path.String()+" "+n.Permissions)
			} else if n.Path != nil || n.Permissions != "rw" {
				t.Errorf("the companion became %+v", n)
			}
		}
		if strings.Join(got, " ") != test.want || err != nil {
			t.Errorf("%+v: %q, %v, want %q", test.placement, got, err, test.want)
		}
		if after := test.offer.Nodes[0]; after.Path.String() != before.Path.String() || after.Permissions != before.Permissions {
			t.Errorf("%+v changed the offer: %+v", test.placement, after)
		}
	}
}

// The name of an entry says whose device it is, and is never the ID of a device.
func TestEntryName(t *testing.T) {
	t.Parallel()
	o := placed("rw")
	if o.EntryName() != o.ID {
		t.Errorf("the entry of a device is %q", o.EntryName())
	}
	seen := map[string]bool{}
	for _, p := range []device.Placement{{Path: "/dev/x"}, {Path: "/dev/x", Permissions: "r"}, {Permissions: "r"}, {Path: "/dev/x/"}} {
		o.Placement = p
		name := o.EntryName()
		id, isPlaced := device.EntryID(name)
		if id != o.ID || !isPlaced || seen[name] || len(name) <= 63 {
			t.Errorf("entry %q: ID %q, placed %t", name, id, isPlaced)
		}
		seen[name] = true
	}
	for _, id := range []string{"", "usb:1:a", "a.claim.b", ".claim." + strings.Repeat("a", 64)} {
		if got, isPlaced := device.EntryID(id); got != id || isPlaced {
			t.Errorf("EntryID(%q) = %q, %t", id, got, isPlaced)
		}
	}
}
