package config_test

import (
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/generic-dp/generic-dp/config"
	"github.com/generic-dp/generic-dp/device"
	"github.com/generic-dp/generic-dp/pattern"
)

// peers is a configuration with the features of other plugins.
func peers(t *testing.T) map[string]config.Resource {
	t.Helper()
	cfg, err := config.Load(filepath.Join("testdata", "good", "peers.toml"))
	if err != nil {
		t.Fatal(err)
	}
	resources := make(map[string]config.Resource)
	for _, r := range cfg.Resources {
		if _, ok := resources[r.Name]; !ok {
			resources[r.Name] = r
		}
	}
	return resources
}

func patterns(m map[string]pattern.Values) map[string][]string {
	out := make(map[string][]string)
	for k, v := range m {
		out[k] = v.Patterns()
	}
	return out
}

func TestNames(t *testing.T) {
	t.Parallel()
	r := peers(t)["example.com/dsa-${attr:type}-${attr:mode}"]
	want := device.Text{lit("dsa-"), vars("attr:type"), lit("-"), vars("attr:mode")}
	if diff := cmp.Diff(want, r.NameText); diff != "" {
		t.Errorf("NameText (-want +got):\n%s", diff)
	}
	if len(r.Names) != 1 || !r.Names[0].Result.Match("dsa-user-shared") || r.Names[0].Name != "wq-user" {
		t.Errorf("Names = %v", r.Names)
	}
	if r := peers(t)["example.com/qat"]; len(r.NameText) != 0 {
		t.Errorf("NameText = %v of a name without variables", r.NameText)
	}

	own := parse(t, "[[resource]]\nname = 'vendor.example/${attr:a/b}'\nmatch.usb = {}\n").Resources[0]
	if diff := cmp.Diff(device.Text{vars("attr:a/b")}, own.NameText); diff != "" || own.Name != "vendor.example/${attr:a/b}" {
		t.Errorf("a domain of its own: %q (-want +got):\n%s", own.Name, diff)
	}
	domain := parse(t, "domain = 'example.com'\n[[resource]]\nname = '${attr:a/b}'\nmatch.usb = {}\n").Resources[0]
	if domain.Name != "example.com/${attr:a/b}" {
		t.Errorf("the domain of all: %q", domain.Name)
	}
}

func TestGroups(t *testing.T) {
	t.Parallel()
	resources := peers(t)
	if r := resources["example.com/fpga-${attr:rom*/VBNV}"]; r.GroupBy != "attr:serial_num" || r.Each != config.EachDevice {
		t.Errorf("group_by = %q, each = %q", r.GroupBy, r.Each)
	}
	if r := resources["example.com/boards"]; r.Each != config.EachAll || !r.Shared {
		t.Errorf("each = %q, shared = %v", r.Each, r.Shared)
	}
	// each is not required where grouping defines a device.
	mixed := parse(t, "[[resource]]\nname = 'a.b/c'\ngroup_by = 'usb.serial'\nmatch = [{ usb = {} }, { glob = '/dev/ttyUSB*' }]\n")
	if r := mixed.Resources[0]; r.Each != config.EachDevice {
		t.Errorf("each = %q", r.Each)
	}
}

func TestWhen(t *testing.T) {
	t.Parallel()
	cfg, err := config.Load("testdata/good/peers.toml")
	if err != nil {
		t.Fatal(err)
	}
	var whens []config.When
	for _, r := range cfg.Resources {
		if r.When != nil {
			whens = append(whens, *r.When)
		}
	}
	type when struct{ NodeName, Exists []string }
	var got []when
	for _, w := range whens {
		got = append(got, when{w.NodeName.Patterns(), w.Exists.Patterns()})
	}
	want := []when{
		{nil, []string{"/sys/module/nvidia"}},
		{[]string{"amd-*", "!amd-7"}, nil},
		{[]string{"!amd-*"}, []string{"/dev/dri/renderD*", "! /dev/kfd"}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("when (-want +got):\n%s", diff)
	}
}

func TestMatchKinds(t *testing.T) {
	t.Parallel()
	resources := peers(t)
	match := func(name string) config.Match {
		t.Helper()
		r, ok := resources["example.com/"+name]
		if !ok {
			t.Fatalf("no %s", name)
		}
		return r.Match[0]
	}
	if m := match("can"); cmp.Diff(map[string][]string{"driver": {"gs_usb"}, "type": {"can"}}, patterns(m.Hardware["net"])) != "" || !m.NamesHardware() {
		t.Errorf("net: %+v", m)
	}
	if m := match("vgpu-${mdev.type}"); !m.VFIO || !m.Has("pci") || !m.Hardware["mdev"]["iommu_group"].Match("12") || m.Hardware["mdev"]["iommu_group"].Match("0") || !m.NamesHardware() {
		t.Errorf("mdev: %+v", m)
	}
	m := match("integrated")
	if diff := cmp.Diff(map[string][]string{"index": {"0"}, "name": {"Integrated*"}}, patterns(m.Attr)); diff != "" {
		t.Errorf("attr (-want +got):\n%s", diff)
	}
	if !m.Subsystem.Match("video4linux") || m.Subsystem.Match("media") || m.NamesHardware() {
		t.Errorf("subsystem: %+v", m)
	}
	if r := resources["example.com/integrated"]; r.Each != config.EachNode {
		t.Errorf("each = %q", r.Each)
	}
	if m := match("disk"); !m.Dangerous {
		t.Errorf("dangerous: %+v", m)
	}
	if m := match("socket"); !m.Mount || m.ReadOnly || !m.Required || !m.Glob.Match("/run/vendor/a.sock") || m.Glob.Match("/run/vendor/private.sock") {
		t.Errorf("mount: %+v", m)
	}
	if m := parse(t, "[[resource]]\nname = 'a.b/c'\nmatch = { as = 'mount', glob = '/run/x' }\n").Resources[0].Match[0]; !m.ReadOnly {
		t.Error("a mount is not read-only unless it says so")
	}
	want := []config.Virtual{{Name: "test"}, {Name: "entrance", Vars: map[string]string{"host": "10.0.0.5", "stream.path": "/1"}}}
	if diff := cmp.Diff(want, match("camera").Virtual); diff != "" {
		t.Errorf("virtual (-want +got):\n%s", diff)
	}
}

func TestContainerKinds(t *testing.T) {
	t.Parallel()
	resources := peers(t)
	number := func(n uint32) *uint32 { return &n }
	can := resources["example.com/can"].Container
	if diff := cmp.Diff(&device.Owner{UID: number(0), GID: number(20), Mode: number(0o660)}, can.Owner); diff != "" {
		t.Errorf("owner (-want +got):\n%s", diff)
	}
	if !slices.Equal(can.AdditionalGIDs, []uint32{20, 44}) || can.NetName.String() != "can0" || can.NoFollow {
		t.Errorf("container = %+v", can)
	}
	gpu := resources["example.com/gpu"].Container
	if diff := cmp.Diff([]device.Text{{lit("vendor.example/metrics="), vars("pci.address")}}, gpu.CDIDevices); diff != "" {
		t.Errorf("cdi_devices (-want +got):\n%s", diff)
	}
	hooks := []device.Hook{{Name: "createContainer", Path: "/usr/bin/ldconfig-hook", Args: []string{"hook", "${HOME}"}, Env: []string{"DEBUG=1"}, Timeout: 5}}
	if diff := cmp.Diff(hooks, gpu.Hooks); diff != "" {
		t.Errorf("hooks (-want +got):\n%s", diff)
	}
	info := device.Entry{
		Key:   device.Text{lit("PCIDEVICE_"), vars("RESOURCE"), lit("_INFO")},
		Value: device.Text{lit(`"`), vars("pci.address"), lit(`":{"generic":{"deviceID":"`), vars("pci.address"), lit(`"}}`)}, PerDevice: true,
		Prefix: "{", Suffix: "}",
	}
	if diff := cmp.Diff(info, resources["example.com/sriov_net"].Container.Env[1]); diff != "" {
		t.Errorf("env (-want +got):\n%s", diff)
	}
	if e := resources["example.com/nvidia"].Container.Annotations[1]; e.Separator != ";" {
		t.Errorf("annotation = %+v", e)
	}
	noFollow := parse(t, "[[resource]]\nname = 'a.b/c'\nmatch.usb = {}\ncontainer.follow = false\n").Resources[0].Container
	if !noFollow.NoFollow {
		t.Error("follow = false is not heeded")
	}
}
