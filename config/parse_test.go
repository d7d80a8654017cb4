package config_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/generic-dp/generic-dp/config"
	"github.com/generic-dp/generic-dp/internal/device"
	"github.com/generic-dp/generic-dp/internal/pattern"
)

func parse(t *testing.T, text string) *config.Config {
	t.Helper()
	cfg, err := config.Parse(config.File{Name: "test.toml", Data: []byte(text)})
	must(t, err)
	return cfg
}

// compareValues compares conditions as written.
var compareValues = cmp.Transformer("patterns", pattern.Values.Patterns)

func lit(s string) device.Part  { return device.Part{Literal: s} }
func vars(s string) device.Part { return device.Part{Var: s} }

func TestDefaults(t *testing.T) {
	t.Parallel()
	cfg := parse(t, `
domain = "example.com"
[[resource]]
name = "fuse"
match.glob = "/dev/fuse"
with = [{ path = "/dev/cuse" }, { path = "/a", container_path = "/b" }]
`)
	values := cfg.Resources[0].Match[0].Glob
	want := []config.Resource{{
		Name:       "example.com/fuse",
		Place:      `test.toml: resource 1 ("fuse")`,
		Match:      []config.Match{{Place: `test.toml: resource 1 ("fuse"): match 1`, Glob: values, Count: 1}},
		Count:      1,
		Each:       config.EachNode,
		NUMA:       config.NUMA{Auto: true},
		Identity:   config.IdentityAuto,
		Register:   config.RegisterWhenPresent,
		API:        config.APIDevicePlugin,
		EvictAfter: 5 * time.Minute,
		Prefer:     config.PreferNUMA,
		With: []config.Companion{{
			Place: `test.toml: resource 1 ("fuse"): with 1`, Path: device.Literal("/dev/cuse"),
			Permissions: "rw", ReadOnly: true,
		}, {
			Place: `test.toml: resource 1 ("fuse"): with 2`, Path: device.Literal("/a"), Mount: true,
			Permissions: "rw", ReadOnly: true, ContainerPath: device.Literal("/b"),
		}},
		Container: config.Container{
			Permissions: "rw",
			AutoCDI:     true,
		},
	}}
	equal(t, "resources", want, cfg.Resources, compareValues)
}

func TestEverythingSet(t *testing.T) {
	t.Parallel()
	cfg := parse(t, `
[[resource]]
name = "vendor.example/GPU_1.x"
count = 4
each = "node"
prefer = "packed"
numa = [1, 0, 1]
identity = "port"
register = "always"
api = "device-plugin"
attributes = { place = "rack-${numa}", x = "" }
evict_after = "never"
match = [
  { pci = { id = "1002:*", class = ["03", "!0380"] }, glob = "/dev/dri/card*", container_path = "/dev/gpu/", permissions = "wr", required = true },
  { glob = "/dev/accel*" },
]
exclude = [{ pci = {} , usb = { interface = [0, 2] } }]
with = [
  { path = "/dev/kfd${1}", optional = true, permissions = "mwr", container_path = "/dev/k/" },
  { path = "/usr/lib/*.so", permissions = "rw" },
  { path = "/run/${id}", container_path = "/run/x", permissions = "rw", optional = true },
]
[resource.container]
path = "/dev/gpu${index}"
permissions = "r"
cdi = false
env = { B_ = "${pci.address}", "A_${index}" = "n${numa}", C = "" }
annotations = { "example.com/n" = "${resource}" }
`)
	r := cfg.Resources[0]
	libraries, err := pattern.Parse(pattern.Path, "/usr/lib/*.so")
	must(t, err)
	want := config.Resource{
		Name:       "vendor.example/GPU_1.x",
		Place:      `test.toml: resource 1 ("vendor.example/GPU_1.x")`,
		Count:      4,
		Each:       config.EachNode,
		Prefer:     config.PreferPacked,
		NUMA:       config.NUMA{Nodes: []int{0, 1}},
		Identity:   config.IdentityPort,
		Register:   config.RegisterAlways,
		API:        config.APIDevicePlugin,
		Attributes: []config.Attribute{{Name: "place", Value: device.Text{lit("rack-"), vars("numa")}}, {Name: "x"}},
		EvictAfter: -1,
		Variables:  []string{"1", "id", "numa", "index", "numa", "index", "pci.address", "resource"},
		With: []config.Companion{
			{
				Place: `test.toml: resource 1 ("vendor.example/GPU_1.x"): with 1`, Path: device.Text{lit("/dev/kfd"), vars("1")}, Optional: true,
				Permissions: "rwm", ContainerPath: device.Literal("/dev/k/"),
			},
			{Place: `test.toml: resource 1 ("vendor.example/GPU_1.x"): with 2`, Path: device.Literal("/usr/lib/*.so"), Glob: libraries, Mount: true, Permissions: "rw"},
			{
				Place: `test.toml: resource 1 ("vendor.example/GPU_1.x"): with 3`, Mount: true, Permissions: "rw",
				Path: device.Text{lit("/run/"), vars("id")}, ContainerPath: device.Literal("/run/x"), Optional: true,
			},
		},
		Container: config.Container{
			Path:        device.Text{lit("/dev/gpu"), vars("index")},
			Permissions: "r",
			Env: []device.Entry{
				{Key: device.Text{lit("A_"), vars("index")}, Value: device.Text{lit("n"), vars("numa")}, PerDevice: true},
				{Key: device.Literal("B_"), Value: device.Text{vars("pci.address")}, PerDevice: true},
				{Key: device.Literal("C")},
			},
			Annotations: []device.Entry{{Key: device.Literal("example.com/n"), Value: device.Text{vars("resource")}}},
		},
	}
	match, exclude := r.Match, r.Exclude
	r.Match, r.Exclude = nil, nil
	equal(t, "resource", want, r, compareValues)

	first := match[0]
	if !first.NamesHardware() || !first.Required || first.Permissions != "rw" || first.ContainerPath.String() != "/dev/gpu/" {
		t.Errorf("match 1 = %+v", first)
	}
	if !first.Hardware["pci"]["id"].Match("1002:73bf") || !first.Hardware["pci"]["class"].Match("030000") || first.Hardware["pci"]["class"].Match("038000") || first.Has("usb") {
		t.Errorf("match 1: pci = %+v", first.Hardware)
	}
	if !first.Hardware["pci"]["device"].Empty() || !first.Hardware["pci"]["device"].Match() {
		t.Error("a key that is absent is a condition")
	}
	if match[1].NamesHardware() || !match[1].Glob.Match("/dev/accel0") {
		t.Errorf("match 2 = %+v", match[1])
	}
	if e := exclude[0]; !e.Has("pci") || len(e.Hardware["pci"]) != 0 || !e.Hardware["usb"]["interface"].Match("2") {
		t.Errorf("exclude 1 = %+v", e)
	}
}

func TestAccepted(t *testing.T) {
	t.Parallel()
	const head = "domain = 'example.com'\n[[resource]]\nname = 'x'\n"
	for _, text := range []string{
		"match.usb = {}\nnuma = 'none'",
		"match.usb = {}\nnuma = 'auto'\ncount = 10000",
		"match.usb = {}\ncontainer.path = '/dev/${kernel}'",
		"match.usb = {}\ncontainer.path = '/dev/serial/'",
		"match.usb = {}\ncontainer.path = '${devnode}'",
		"match.usb = {}\ncontainer.path = '/dev/gpu${count}-${index}'",
		"match.usb = {}\ncontainer.path = '/dev/gpu-${usb.serial}'\ncontainer.cdi = true",
		"match.usb = {}\ncontainer.env.A = '${index} ${container_path}'\ncontainer.cdi = true",
		"match.usb = {}\ncontainer.env.'PCI_${RESOURCE}_${index}' = '$${HOME} $PATH'",
		"match.usb = {}\ncontainer.env.'PCI_RESOURCE_${RESOURCE_KUBEVIRT}' = '${pci.address}'",
		"match.usb = {}\ncontainer.env.http_proxy = ''\ncontainer.env.serial = 'lower case is fine where no table around has it'",
		"match.usb = {}\ncontainer.annotations = { 'a.b/c' = '', d = '', '${resource}' = '', 'io.x/y-${index}' = '' }",
		"match.glob = ['/dev/a*/b*', '/dev/{c,d}?[0-9]']\ncontainer.env.A = '${1}-${2}'",
		"match.glob = '/dev/*'\nwith = { path = '/dev/snd/controlC${1}' }",
		"[[resource.match]]\nusb.id = '10c4:ea60'\n[[resource.match]]\n[resource.match.pci]\nclass = '03'",
		"match = { glob = '/dev/*', usb = { id = ['10c4:*'], } , }", // TOML 1.1
		"match.glob = '/dev/x'\r\nwith = []\r\nexclude = []\r\n",
	} {
		if _, err := config.Parse(config.File{Name: "test.toml", Data: []byte("\xef\xbb\xbf" + head + text)}); err != nil {
			t.Errorf("%s\n%v", text, err)
		}
	}
}

// Every file of testdata/good is valid.
func TestGood(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/good/*.toml")
	if err != nil || len(files) == 0 {
		t.Fatal("no file", err)
	}
	for _, f := range files {
		if _, err := load(f); err != nil {
			t.Error(err)
		}
	}
}

// A value or an error, never both, and no panic; a valid configuration is complete.
func FuzzParse(f *testing.F) {
	for _, pattern := range []string{"testdata/bad/*.toml", "testdata/good/*.toml", "reference.toml"} {
		files, err := filepath.Glob(pattern)
		must(f, err)
		for _, name := range files {
			data, err := os.ReadFile(name)
			must(f, err)
			f.Add(data)
		}
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		cfg, err := config.Parse(config.File{Name: "fuzz.toml", Data: data})
		if (cfg == nil) == (err == nil) {
			t.Fatalf("Parse() = %v, %v", cfg, err)
		}
		if err != nil {
			if err.Error() == "" {
				t.Error("an error without text")
			}
			return
		}
		everything, err := parseAllow("all")
		must(t, err)
		if err := cfg.Check(everything); err != nil {
			t.Errorf("everything is allowed, but %v", err)
		}
		for _, r := range cfg.Resources {
			if r.Name == "" || r.Each == "" || r.Count < 1 || len(r.Match) == 0 || r.Container.Permissions == "" {
				t.Errorf("incomplete resource %+v", r)
			}
		}
	})
}

// The api of the top is for resources that set none, whichever file it is in; DRA injects
// by CDI names.
func TestAPI(t *testing.T) {
	t.Parallel()
	a := config.File{Name: "a.toml", Data: []byte("[[resource]]\nname = 'x.example/a'\nmatch.glob = '/dev/a'\n[[resource]]\nname = 'x.example/b'\nmatch.glob = '/dev/b'\napi = 'device-plugin'\n")}
	cfg, err := config.Parse(a, config.File{Name: "z.toml", Data: []byte("api = 'dra'\n")})
	must(t, err)
	if r := cfg.Resources[0]; r.API != config.APIDRA || !r.Container.CDI || r.Container.AutoCDI {
		t.Errorf("a resource without api: %q, cdi %v", r.API, r.Container.CDI)
	}
	if r := cfg.Resources[1]; r.API != config.APIDevicePlugin || r.Container.CDI {
		t.Errorf("a resource with its own api: %q, cdi %v", r.API, r.Container.CDI)
	}
	_, err = config.Parse(a, config.File{Name: "y.toml", Data: []byte("api = 'device-plugin'\n")}, config.File{Name: "z.toml", Data: []byte("api = 'dra'\n")})
	if err == nil || !strings.Contains(err.Error(), `"dra" differs from the value in y.toml`) {
		t.Errorf("two defaults: %v", err)
	}
}

// A configuration for a kubelet may be invalid for specs alone.
func TestParseForCDI(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`match.glob = "/dev/x*"`:                                          "",
		"match.glob = \"/dev/x*\"\ncontainer.cdi = false":                 "",
		"match.glob = \"/dev/x*\"\ncontainer.path = \"/dev/y${index}\"":   "which is only available in env, annotations and, without container.cdi, container.path",
		"match.net.type = \"can\"\ncount = 2":                             "a network interface moves into a single container",
		"match.glob = \"/dev/x*\"\ncontainer.owner = { mode = \"0660\" }": "",
	} {
		file := config.File{Name: "c.toml", Data: []byte("domain = \"example.com\"\n[[resource]]\nname = \"r\"\n" + text + "\n")}
		cfg, err := config.ParseForCDI(file)
		switch {
		case want == "" && (err != nil || !cfg.Resources[0].Container.CDI):
			t.Errorf("%s: %v, want that it is injected by name", text, err)
		case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}

// must ends the test after an error of its own steps.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// equal reports how a result differs from the expected one.
func equal(t testing.TB, what string, want, got any, opts ...cmp.Option) {
	t.Helper()
	if diff := cmp.Diff(want, got, opts...); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}
