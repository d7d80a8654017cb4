package matchers_test

import "testing"

const (
	small = "83b8f4f2-509f-382f-3c1e-e6bfe0fa1001"
	large = "83b8f4f2-509f-382f-3c1e-e6bfe0fa1002"
)

func TestMediatedDevices(t *testing.T) {
	t.Parallel()
	const env = "\ncontainer.env.MDEV = \"${mdev.uuid} ${mdev.type} ${mdev.name} ${mdev.iommu_group} ${pci.address}\"\n"
	tell(t, []story{
		{name: "by type", toml: `match = { mdev = { type = "nvidia-222" }, vfio = true }` + cdi + env, want: []string{"x: mdev:" + small + " /dev/vfio/30 +/dev/vfio/vfio"}},
		{name: "by name, uuid and group", toml: `match = { mdev = { name = "A40-2Q", uuid = "*1002", iommu_group = 31 }, vfio = true }` + cdi, want: []string{"x: mdev:" + large + " /dev/vfio/31 +/dev/vfio/vfio"}},
		{name: "below a function", toml: `match = { mdev = {}, pci = { vendor = "10de" }, vfio = true }` + cdi, want: []string{"x: mdev:" + small + " /dev/vfio/30 +/dev/vfio/vfio", "x: mdev:" + large + " /dev/vfio/31 +/dev/vfio/vfio"}},
		{name: "not below that function", toml: `match = { mdev = {}, pci = { vendor = "15b3" }, vfio = true }` + cdi},
		{name: "without vfio: the device and its node", toml: `match.mdev = { type = "nvidia-222" }` + cdi, want: []string{"x: mdev:" + small + " /dev/vfio/30"}},
		{name: "excluded", toml: `match = { mdev = {}, vfio = true }` + "\nexclude.mdev = { type = \"*-222\" }" + cdi, want: []string{"x: mdev:" + large + " /dev/vfio/31 +/dev/vfio/vfio"}},
		{name: "a function has not the nodes of its mediated devices", toml: `match.pci = { vendor = "10de" }` + cdi, want: []string{"x: 0000:41:00.0 /dev/dri/renderD128"}},
		{name: "by glob", toml: `match.glob = "/dev/vfio/3*"` + cdi, want: []string{"x: mdev:" + small + ":vfio /dev/vfio/30", "x: mdev:" + large + ":vfio /dev/vfio/31"}},
		{name: "a function and its parts", toml: `
[[resource]]
name = "card"
match.pci = { vendor = "10de" }
container.cdi = true
[[resource]]
name = "part"
match = { mdev = {}, vfio = true }
container.cdi = true
[[resource]]
name = "again"
match.glob = "/dev/vfio/30"
container.cdi = true
`, want: []string{"card: 0000:41:00.0 /dev/dri/renderD128", "part: mdev:" + small + " /dev/vfio/30 +/dev/vfio/vfio", "part: mdev:" + large + " /dev/vfio/31 +/dev/vfio/vfio"},
			notes: []string{
				`test.toml: resource 2 ("part"): mediated device ` + small + ` and 1 more: offered here, and the PCI function that it is a part of by test.toml: resource 1 ("card"): their containers share the hardware`,
				`test.toml: resource 3 ("again"): not offered here, since test.toml: resource 2 ("part") has it: /dev/vfio/30 of IOMMU group 30`,
			}},
		{name: "parts and the function, as it is meant", toml: `
[[resource]]
name = "part"
shared = true
match = { mdev = { type = "nvidia-222" }, vfio = true }
container.cdi = true
[[resource]]
name = "card"
shared = true
match.pci = { vendor = "10de" }
container.cdi = true
`, want: []string{"part: shared:example.com:part:mdev:83b8f4f2-509f-38-xc871ppeb8b /dev/vfio/30 +/dev/vfio/vfio", "card: shared:example.com:card:0000:41:00.0 /dev/dri/renderD128"}, notes: []string{}},
	})
}
