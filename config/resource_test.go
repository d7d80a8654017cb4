package config_test

import (
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/generic-dp/generic-dp/config"
	"github.com/generic-dp/generic-dp/internal/device"
	"github.com/generic-dp/generic-dp/internal/pattern"
)

// peers is a configuration with the features of other plugins.
func peers(t *testing.T) map[string]config.Resource {
	t.Helper()
	cfg, err := load(filepath.Join("testdata", "good", "peers.toml"))
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
	if m := match("can"); cmp.Diff(map[string][]string{"type": {"can"}}, patterns(m.Hardware["net"])) != "" || !m.Driver.Match("gs_usb") || !m.NamesHardware() {
		t.Errorf("net: %+v", m)
	}
	if m := match("vgpu-${mdev.type}"); !m.VFIO || !m.Has("pci") || !m.Hardware["mdev"]["type"].Match("nvidia-222") || !m.NamesHardware() {
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
	if m := parse(t, "[[resource]]\nname = 'a.b/c'\nmatch = { glob = '/run/x' }\n").Resources[0].Match[0]; !m.ReadOnly {
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
	if can.NetName.String() != "can0" {
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
}

// The kind of each attribute decides how its values are compared.
func TestAttributeKinds(t *testing.T) {
	t.Parallel()
	hardware := parse(t, `
domain = "example.com"
[[resource]]
name = "x"
match.usb = { serial = " A1*", id = "10C4:0xEA60", interface_class = ["0e", "!03"], interface = [0, "02"] }
match.pci = { id = "0x10DE:*", class = "03", address = "0000:3B:00.*", slot = "10000:01:00", sriov = "!vf", vf = "0, 2-7", pf = "ens1f?" }
`).Resources[0].Match[0].Hardware
	for _, tt := range []struct {
		table, key string
		yes, no    []string
	}{
		{"usb", "serial", []string{"A1/2"}, []string{"a1"}},
		{"usb", "id", []string{"10c4:ea60"}, []string{"10c4:ea61"}},
		{"usb", "interface_class", []string{"0E", "02"}, []string{"0e", "03"}},
		{"usb", "interface", []string{"1", "00"}, []string{"1", "3"}},
		{"pci", "id", []string{"10de:2204"}, []string{"10df:2204"}},
		{"pci", "class", []string{"0x030200"}, []string{"000300"}},
		{"pci", "address", []string{"0000:3b:00.1"}, []string{"0000:3c:00.0"}},
		{"pci", "slot", []string{"10000:01:00"}, []string{"0000:01:00"}},
		{"pci", "sriov", []string{"pf"}, []string{"vf"}},
		{"pci", "vf", []string{"5"}, []string{"1"}},
		{"pci", "pf", []string{"0000:3b:00.0", "ens1f0"}, []string{"0000:3b:00.0"}},
	} {
		if v := hardware[tt.table][tt.key]; !v.Match(tt.yes...) || v.Match(tt.no...) {
			t.Errorf("%s.%s: Match(%q) = %v, Match(%q) = %v", tt.table, tt.key, tt.yes, v.Match(tt.yes...), tt.no, v.Match(tt.no...))
		}
	}
}
