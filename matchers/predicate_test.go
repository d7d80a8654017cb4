package matchers_test

import (
	"strings"
	"testing"

	"github.com/generic-dp/generic-dp/matchers"
)

func TestSubsystemDriverAttr(t *testing.T) {
	t.Parallel()
	tell(t, []story{
		{name: "subsystem alone names no hardware", toml: `match.subsystem = "tty"`, want: []string{"x: " + canB + ":if00:ttyACM /dev/ttyACM0"}},
		{name: "a node without one", toml: `match = { glob = "/dev/*", subsystem = "!*" }`},
		{name: "with hardware: its nodes of the subsystem", toml: `match = { usb = {}, subsystem = "tty" }`, want: []string{"x: " + canB + " /dev/ttyACM0"}},
		{name: "what is no node has none", toml: `match = { pci = { id = "15b3:*" }, subsystem = "!infiniband*" }` + cdi, want: []string{"x: 0000:3b:00.0", "x: 0000:3b:00.1"}},
		{name: "driver of the interface, not of the device", toml: `match = { driver = "gs_usb", glob = "/dev/ttyACM*" }`, want: []string{"x: " + canB + ":if00:ttyACM /dev/ttyACM0"}},
		{name: "driver of the device, not of the interface", toml: `match = { driver = "usb", glob = "/dev/ttyACM*" }`, want: []string{"x: " + canB + ":if00:ttyACM /dev/ttyACM0"}},
		{name: "none of the drivers", toml: `match = { driver = ["*", "!usb"], glob = "/dev/ttyACM*" }`},
		{name: "nearest driver", toml: `match = { glob = "/dev/ttyACM*" }` + "\ncontainer.path = \"/dev/${driver}\"", want: []string{"x: " + canB + ":if00:ttyACM /dev/ttyACM0>/dev/gs_usb"}},
		{name: "driver of the hardware", toml: `match = { driver = "nvidia", glob = "/dev/dri/*" }` + cdi, want: []string{"x: 0000:41:00.0:renderD /dev/dri/renderD128"}},
		{name: "another driver", toml: `match = { driver = "!nvidia", glob = "/dev/dri/*" }`},
		{name: "driver of hardware without nodes", toml: `match = { pci = { class = "02" }, driver = "mlx5*" }` + cdi, want: []string{"x: 0000:3b:00.0 /dev/infiniband/uverbs0", "x: 0000:3b:00.1"}},
		{name: "no driver", toml: `match = { driver = "!*", glob = "/dev/[fn]u*" }`, want: []string{"x: fuse /dev/fuse", "x: null /dev/null"}},
		{name: "attribute of the hardware", toml: `match = { glob = "/dev/dri/*", attr = { vendor = "0x10de", current_compute_partition = "SPX" } }` + cdi, want: []string{"x: 0000:41:00.0:renderD /dev/dri/renderD128"}},
		{name: "one of several does not hold", toml: `match = { glob = "/dev/dri/*", attr = { vendor = "0x10de", current_compute_partition = "CPX" } }`},
		{name: "the nearest decides", toml: `match = { glob = "/dev/ttyACM*", attr = { bInterfaceClass = "ff", bDeviceClass = "00", uevent = "!MAJOR=*" } }`},
		{name: "an absent attribute", toml: `match = { subsystem = ["tty", "drm"], attr = { current_compute_partition = "!*" } }`, want: []string{"x: " + canB + ":if00:ttyACM /dev/ttyACM0"}},
		{name: "wildcards in names", toml: `match = { usb = {}, glob = "/dev/bus/usb/**", attr = { "1-2:1.*/bInterfaceClass" = "ff" } }` + cdi, want: []string{"x: " + canB + " /dev/bus/usb/001/003"}},
		{name: "any of several files", toml: `match = { glob = "/dev/dri/*", attr = { "card*-*/status" = "connected" } }` + cdi,
			opts: func(o *matchers.Options) {
				host(o).attr = attrValues("", "disconnected", "connected")
			}, want: []string{"x: 0000:41:00.0:renderD /dev/dri/renderD128"}},
		{name: "none of several files", toml: `match = { glob = "/dev/dri/*", attr = { "card*-*/status" = ["*", "!connected"] } }` + cdi,
			opts: func(o *matchers.Options) {
				host(o).attr = attrValues("", "disconnected", "connected")
			}},
		{name: "a variable of several files", toml: `match = { glob = "/dev/dri/*" }` + cdi + `container.path = "/dev/${attr:card*-*/status}"`,
			opts: func(o *matchers.Options) {
				host(o).attr = attrValues("", "disconnected", "connected")
			}, want: []string{"x: 0000:41:00.0:renderD /dev/dri/renderD128>/dev/disconnected"}},
		{name: "of hardware", toml: `match = { pci = {}, attr = { vendor = "0x15b3" } }` + cdi, want: []string{"x: 0000:3b:00.0 /dev/infiniband/uverbs0", "x: 0000:3b:00.1"}},
		{name: "group of a mediated device", toml: `match = { mdev = {}, vfio = true, attr.iommu_group = "31" }` + cdi, want: []string{"x: mdev:" + large + " /dev/vfio/31 +/dev/vfio/vfio"}},
		{name: "of mediated devices, whose nodes are elsewhere", toml: `match = { mdev = {}, vfio = true, attr = { "mdev_type/name" = "A40-1Q" } }` + cdi, want: []string{"x: mdev:" + small + " /dev/vfio/30 +/dev/vfio/vfio"}},
		{name: "excluded", toml: "match.usb = {}\nexclude = [{ subsystem = \"usb\" }, { attr = { serial = \"CAN-A*\" } }]", want: []string{"x: " + canB + " /dev/ttyACM0"}},
		{name: "excluded by an attribute, without a node", toml: `match = { pci = { id = "15b3:*" } }` + "\nexclude.attr.vendor = \"0x15b3\""},
		{name: "excluded by the driver, without a node", toml: `match = { pci = { id = "15b3:*" } }` + "\nexclude.driver = \"*\""},
		{name: "excluded by an absent subsystem, without a node", toml: `match = { pci = { id = "15b3:*" } }` + "\nexclude.subsystem = \"!infiniband_verbs\"" + cdi, want: []string{"x: 0000:3b:00.0 /dev/infiniband/uverbs0"}},
		{name: "excluded by nothing that it has", toml: `match = { pci = { id = "15b3:1015" }, driver = "mlx5_core" }` + "\nexclude = [{ driver = \"ahci\" }, { attr.vendor = \"0x8086\" }]" + cdi, want: []string{"x: 0000:3b:00.0 /dev/infiniband/uverbs0", "x: 0000:3b:00.1"}},
		{name: "nothing to ask", toml: `match = { pci = {}, attr = { vendor = "0x15b3" } }`, opts: func(o *matchers.Options) { o.Host = &fakeHost{} }},
		{name: "variables", toml: `match = { usb = { serial = "CAN-B*" } }` + "\ncontainer.path = \"/dev/x-${attr:bInterfaceClass}/\"" + cdi + "container.env.A = \"${attr:idVendor} ${attr:1-2:1.0/bInterfaceClass}\"",
			want: []string{"x: " + canB + " /dev/ttyACM0>/dev/x-ff/ttyACM0 !path of /dev/bus/usb/001/003 in the container: ${attr:bInterfaceClass} has no value for USB device 1-2"}},
		{name: "hostile", toml: `match = { usb = { serial = "CAN-B*" }, glob = "/dev/ttyACM*" }` + "\ncontainer.path = \"/dev/${attr:product}\"", opts: func(o *matchers.Options) {
			host(o).attr = attrValues("../../etc")
		}, want: []string{"x: " + canB + ` !path of /dev/ttyACM0 in the container: ${attr:product} is "../../etc", which can't be part of a path`}},
		{name: "no node with that path", toml: `match = { usb = { serial = "CAN-B*" } }` + cdi + "container.env.B = \"${devnode:/dev/x}\"",
			want: []string{"x: " + canB + " /dev/bus/usb/001/003 /dev/ttyACM0 !container.env.B: ${devnode:/dev/x} has no value for USB device 1-2"}},
		{name: "variables of mediated devices", toml: `match = { mdev = { type = "*-222" }, vfio = true }` + cdi + "container.env.A = \"${attr:mdev_type/name}\"\ncontainer.path = \"/dev/${attr:mdev_type/name}/\"",
			want: []string{"x: mdev:" + small + " /dev/vfio/30>/dev/A40-1Q/30 +/dev/vfio/vfio"}},
	})
}

// An attribute that could not be read yet is neither there nor missing: a match does not
// select by it, an exclude does, and hardware is not offered outside of its group.
func TestUnreadAttribute(t *testing.T) {
	t.Parallel()
	unread := func(o *matchers.Options) {
		attr := host(o).attr
		host(o).attr = func(dir, name string) ([]string, bool) {
			if name == "serial" && strings.HasSuffix(dir, "/1-1") {
				return nil, true
			}
			return attr(dir, name)
		}
	}
	other := []string{"x: " + canB + " /dev/bus/usb/001/003>/dev/x/003 /dev/ttyACM0>/dev/x/ttyACM0"}
	stories := []story{
		{name: "match", toml: `match = { usb = {}, attr = { serial = "CAN-*" } }`, want: other},
		{name: "negated match", toml: `match = { usb = {}, attr = { serial = "!X" } }`, want: other},
		{name: "exclude", toml: `match.usb = {}` + "\n" + `exclude.attr = { serial = "X" }`, want: other},
		{name: "negated exclude", toml: `match.usb = {}` + "\n" + `exclude.attr = { serial = "!CAN-*" }`, want: other},
		{name: "group", toml: `each = "attr:serial"` + "\n" + `match.usb = {}`, want: []string{strings.Replace(other[0], canB, "group:attr_serial-xf9ptc409pp:CAN-B-78", 1)}},
		{name: "variable", toml: `match.usb = { serial = "CAN-A*" }` + "\n" + `container.env.A = "${attr:serial}"`,
			want: []string{"x: usb:1d50:606f:CAN-A-77 /dev/bus/usb/001/002>/dev/x/002 !container.env.A: ${attr:serial} can't be read yet for USB device 1-1"}},
	}
	for i := range stories {
		stories[i].opts = unread
		stories[i].toml += "\ncontainer.path = \"/dev/x/\""
	}
	tell(t, stories)
	snap, opts := scanned(t, rig(t))
	unread(&opts)
	cfg := parse(t, `match = { glob = "/dev/bus/usb/001/002", attr = { serial = "!X" } }`)
	if got, want := matchers.Explain(cfg, snap, nil, opts, nil, nil)[0].Reason, `attr.serial "!X" fits nothing: the value for /dev/bus/usb/001/002 can't be read yet`; got != want {
		t.Errorf("reason %q; want %q", got, want)
	}
}
