package matchers_test

import (
	"slices"
	"testing"

	"github.com/generic-dp/generic-dp/internal/device"
	"github.com/generic-dp/generic-dp/matchers"
)

func TestPools(t *testing.T) {
	t.Parallel()
	const note = `test.toml: resource 1 ("x"): each = "all" without container.cdi: a container keeps the nodes that existed when its pod started, even after a restart`
	tell(t, []story{
		{name: "all nodes", toml: "each = \"all\"\n" + `match.glob = ["/dev/fuse", "/dev/null"]`, want: []string{"x: all:example.com:x /dev/fuse /dev/null"}, notes: []string{}},
		{name: "of hardware, without cdi", toml: "each = \"all\"\n" + `match = { usb = {}, glob = ["/dev/ttyACM*", "/dev/bus/usb/**"] }` + "\ncontainer.path = \"/dev/u/\"",
			want:  []string{"x: all:example.com:x /dev/bus/usb/001/002>/dev/u/002 /dev/bus/usb/001/003>/dev/u/003 /dev/ttyACM0>/dev/u/ttyACM0"},
			notes: []string{`test.toml: resource 1 ("x"): /dev/bus/usb/001/002 is at /dev/u/002 in the container: libraries look up USB bus nodes by their number, and open the kernel's name, which is not there`, note}},
		{name: "nothing is no pool", toml: "each = \"all\"\nmatch.glob = \"/dev/nothing\""},
		{name: "hardware without nodes", toml: "each = \"all\"\nmatch.pci = { id = \"15b3:*\" }\ncontainer.env.A = \"${pci.address}\"" + cdi, want: []string{"x: all:example.com:x /dev/infiniband/uverbs0"}},
		{name: "each node has its own hardware's variables", toml: "each = \"all\"\nmatch = { usb = {}, glob = \"/dev/bus/usb/**\" }\ncontainer.path = \"/dev/${usb.serial}\"" + cdi,
			want: []string{"x: all:example.com:x /dev/bus/usb/001/002>/dev/CAN-A-77 /dev/bus/usb/001/003>/dev/CAN-B-78"}},
		{name: "required of the pool, as a set of different hardware", toml: "each = \"all\"\nmatch = [{ usb.serial = \"CAN-A*\", required = true }, { usb = {}, glob = \"/dev/ttyACM*\", required = true }]" + cdi,
			want: []string{"x: all:example.com:x /dev/bus/usb/001/002 /dev/ttyACM0"}},
		{name: "required and missing", toml: "each = \"all\"\nmatch = [{ usb = {} }, { usb.serial = \"CAN-C*\", required = true }]" + cdi},
		{name: "required without hardware", toml: "each = \"all\"\nmatch = [{ glob = \"/dev/null\" }, { glob = \"/dev/kfd\", required = true }]"},
		{name: "mounts", toml: "each = \"all\"\nmatch = [{ glob = \"/dev/fuse\" }, { glob = \"/opt/*\" }]",
			opts: func(o *matchers.Options) { host(o).glob = files("/opt/b", "/opt/a") },
			want: []string{"x: all:example.com:x /dev/fuse mount /opt/a>/opt/a mount /opt/b>/opt/b"}},
		{name: "what others have is no part of it, and theirs it is not", toml: `
[[resource]]
name = "a"
match.usb = { serial = "CAN-A*" }
container.cdi = true
[[resource]]
name = "pool"
each = "all"
match = [{ glob = "/dev/fuse" }, { usb = {} }]
container.cdi = true
[[resource]]
name = "b"
match = [{ usb = {}, glob = "/dev/ttyACM*" }]
`, want: []string{"a: " + canA + " /dev/bus/usb/001/002", "pool: all:example.com:pool /dev/bus/usb/001/003 /dev/fuse /dev/ttyACM0"},
			notes: []string{
				`test.toml: resource 2 ("pool"): not offered here, because test.toml: resource 1 ("a") has it: USB device 1-1`,
				`test.toml: resource 3 ("b"): not offered here, because test.toml: resource 2 ("pool") has it: USB device 1-2`,
			}},
		{name: "two at one path", toml: "each = \"all\"\nmatch = { usb = {}, glob = \"/dev/bus/usb/**\" }\ncontainer.path = \"/dev/x-${usb.vendor}\"" + cdi,
			want: []string{`x: all:example.com:x /dev/bus/usb/001/002>/dev/x-1d50 !/dev/bus/usb/001/002 and /dev/bus/usb/001/003 would both be at /dev/x-1d50 in the container: a path that ends with "/", or that has "${kernel}" in it, keeps both`}},
	})
}

func TestGroups(t *testing.T) {
	t.Parallel()
	tell(t, []story{
		{name: "functions of a card", toml: "each = \"pci.slot\"\nmatch = { pci = { id = \"15b3:*\" }, net = {} }\nexclude.net = { name = \"ens1f1\" }",
			want: []string{"x: group:pci.slot:0000:3b:00 /dev/infiniband/uverbs0"}},
		{name: "one member is a group, too", toml: "each = \"usb.serial\"\nmatch = { usb = {}, glob = \"/dev/ttyACM*\" }" + cdi, want: []string{"x: group:usb.serial:CAN-B-78 /dev/ttyACM0"}},
		{name: "without a value, single", toml: "each = \"usb.serial\"\nmatch = [{ usb = {}, glob = \"/dev/ttyACM*\" }, { pci = { id = \"15b3:*\" } }]\ncontainer.path = \"/dev/x/\"" + cdi,
			want: []string{"x: 0000:3b:00.0 /dev/infiniband/uverbs0>/dev/x/uverbs0", "x: 0000:3b:00.1", "x: group:usb.serial:CAN-B-78 /dev/ttyACM0>/dev/x/ttyACM0"}},
		{name: "by an attribute", toml: "each = \"attr:idVendor\"\nmatch.usb = {}\ncontainer.path = \"/dev/x/\"",
			want:  []string{"x: group:attr_idVendor-xa3neu5bfnp:1d50 /dev/bus/usb/001/002>/dev/x/002 /dev/bus/usb/001/003>/dev/x/003 /dev/ttyACM0>/dev/x/ttyACM0"},
			notes: []string{`test.toml: resource 1 ("x"): /dev/bus/usb/001/002 is at /dev/x/002 in the container: libraries look up USB bus nodes by their number, and open the kernel's name, which is not there`, `test.toml: resource 1 ("x"): each = "attr:idVendor" without container.cdi: a container keeps the nodes that existed when its pod started, even after a restart`}},
		{name: "a member that another has is not in it", toml: `
[[resource]]
name = "a"
match = { usb = { serial = "CAN-A*" }, glob = "/dev/bus/usb/**" }
container.path = "/dev/a"
[[resource]]
name = "b"
each = "usb.vendor"
match.usb = {}
container.cdi = true
`, want: []string{"a: " + canA + " /dev/bus/usb/001/002>/dev/a", "b: group:usb.vendor:1d50 /dev/bus/usb/001/003 /dev/ttyACM0"},
			notes: []string{`test.toml: resource 1 ("a"): /dev/bus/usb/001/002 is at /dev/a in the container: libraries look up USB bus nodes by their number, and open the kernel's name, which is not there`, `test.toml: resource 2 ("b"): not offered here, because test.toml: resource 1 ("a") has it: USB device 1-1`}},
		{name: "required of each group", toml: "each = \"usb.vendor\"\nmatch = [{ usb = {}, glob = \"/dev/bus/**\" }, { usb = {}, glob = \"/dev/ttyACM*\", required = true }]\ncontainer.path = \"/dev/x/\"" + cdi,
			want: []string{"x: group:usb.vendor:1d50 /dev/bus/usb/001/002>/dev/x/002 /dev/bus/usb/001/003>/dev/x/003 /dev/ttyACM0>/dev/x/ttyACM0"}},
		{name: "required of a group of one", toml: "each = \"usb.serial\"\nmatch = [{ usb = {}, glob = \"/dev/bus/**\" }, { usb = {}, glob = \"/dev/ttyACM*\", required = true }]\ncontainer.path = \"/dev/x/\"" + cdi,
			want: []string{"x: group:usb.serial:CAN-B-78 /dev/bus/usb/001/003>/dev/x/003 /dev/ttyACM0>/dev/x/ttyACM0"}},
		{name: "no value of the hardware above", toml: "each = \"pci.address\"\nmatch = { mdev = {}, vfio = true }" + cdi,
			want: []string{"x: mdev:83b8f4f2-509f-382f-3c1e-e6bfe0fa1001 /dev/vfio/30 +/dev/vfio/vfio", "x: mdev:83b8f4f2-509f-382f-3c1e-e6bfe0fa1002 /dev/vfio/31 +/dev/vfio/vfio"}},
	})
}

// A pool is the same device for any members, on the NUMA nodes of all of them, and each
// of its nodes has a unique key.
func TestPoolOffer(t *testing.T) {
	t.Parallel()
	snap, opts := scanned(t, rig(t))
	o := matchers.Match(parse(t, "each = \"all\"\nmatch = [{ usb = {} }, { pci = { class = [\"02\", \"0302\"] } }]\ncontainer.env.S = { value = \"${usb.serial}\", prefix = \"[\", suffix = \"]\", separator = \";\" }"+cdi), snap, nil, opts).Resources[0].Offers[0]
	if !o.Pool || o.Hardware != "" || !slices.Equal(o.NUMA, []int{0, 1}) {
		t.Errorf("pool %v, hardware %q, NUMA nodes %v; want a pool without hardware on 0 and 1", o.Pool, o.Hardware, o.NUMA)
	}
	var keys []string
	for _, n := range o.Nodes {
		keys = append(keys, n.Key)
	}
	want := []string{canA + ":bus", canB + ":bus", "0000:41:00.0:renderD", "0000:3b:00.0:uverbs", canB + ":if00:ttyACM"}
	equal(t, "keys", want, keys)
	e := o.Env[0]
	if got := e.Prefix + e.Value.String() + e.Suffix; got != "[CAN-A-77;CAN-B-78]" || e.Separator != ";" {
		t.Errorf("entry: %q separated by %q", got, e.Separator)
	}
	group := matchers.Match(parse(t, "each = \"usb.vendor\"\nmatch.usb = {}"+cdi), snap, nil, opts).Resources[0].Offers[0]
	if group.Pool || group.Hardware != snap.Hardware[slices.IndexFunc(snap.Hardware, func(h *device.Hardware) bool { return h.Name == "1-1" })].Path {
		t.Errorf("group: pool %v, hardware %q; want that of its first member", group.Pool, group.Hardware)
	}
}

// Values of a pool or a group are filled in for each part that has all variables, once
// each.
func TestPoolValues(t *testing.T) {
	t.Parallel()
	snap, opts := scanned(t, rig(t))
	const usb = "match.usb = {}\ncontainer.path = \"/dev/u/\"\ncontainer.env.S = "
	for _, tt := range []struct{ name, toml, want, problem string }{
		{name: "a list of each", toml: "each = \"all\"\n" + usb + `"${usb.serial}"`, want: "CAN-A-77,CAN-B-78"},
		{name: "once", toml: "each = \"all\"\n" + usb + `"${id} ${usb.vendor}"`, want: "all:example.com:x 1d50"},
		{name: "what belongs together", toml: "each = \"all\"\n" + usb + `'"${usb.serial}":"${container_path}"'`,
			want: `"CAN-A-77":"/dev/u/002","CAN-B-78":"/dev/u/003,/dev/u/ttyACM0"`},
		{name: "of a group", toml: "each = \"usb.vendor\"\n" + usb + `{ value = "${usb.serial}=${devnode:/dev/bus/**}", separator = ";" }`,
			want: "CAN-A-77=/dev/bus/usb/001/002;CAN-B-78=/dev/bus/usb/001/003"},
		{name: "of nodes", toml: "each = \"all\"\nmatch.glob = [\"/dev/ttyACM*\", \"/dev/fuse\"]\ncontainer.env.S = \"${kernel}:${devnode}\"", want: "fuse:/dev/fuse,ttyACM0:/dev/ttyACM0"},
		{name: "of those that have it", toml: "each = \"all\"\n" + usb + `"${usb.serial}@${devnode:/dev/ttyACM*}"`, want: "CAN-B-78@/dev/ttyACM0"},
		{name: "of none", toml: "each = \"all\"\n" + usb + `"${pci.pf}"`, problem: "container.env.S: ${pci.pf} has no value for the pool"},
		{name: "of several parts, none of which has all", toml: "each = \"all\"\nmatch = [{ usb.serial = \"CAN-A*\" }, { glob = \"/dev/fuse\" }]\ncontainer.env.S = \"${usb.serial} ${devnode:/dev/fuse}\"", want: "CAN-A-77 /dev/fuse"},
		{name: "in a name", toml: "each = \"all\"\nmatch.usb = {}\ncontainer.path = \"/dev/u/\"\ncontainer.env.\"S_${usb.serial}\" = \"x\"",
			want: "x", problem: `container.env: ${usb.serial} has several values: "CAN-A-77" and "CAN-B-78"`},
	} {
		o := matchers.Match(parse(t, tt.toml), snap, nil, opts).Resources[0].Offers[0]
		if got := o.Env[0].Value.String(); got != tt.want || o.Problem != tt.problem {
			t.Errorf("%s: %q, problem %q; want %q and %q", tt.name, got, o.Problem, tt.want, tt.problem)
		}
	}
}
