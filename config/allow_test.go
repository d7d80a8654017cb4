package config_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/generic-dp/generic-dp/config"
	"github.com/generic-dp/generic-dp/internal/device"
)

func parseAllow(list string) (a config.Allow, err error) {
	err = a.Set(list)
	return a, err
}

func TestAllowSet(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]config.Allow{
		"":      {},
		" ":     {},
		"hooks": {Hooks: true},
		"mount:/run/b, dangerous ,mount:/a,hooks":  {Hooks: true, Dangerous: true, Mounts: []string{"/run/b", "/a"}},
		"net,cdi:nvidia.com/gpu,env,cdi:*.example": {Net: true, Env: true, CDI: []string{"nvidia.com/gpu", "*.example"}},
		"all": {Hooks: true, Dangerous: true, Net: true, Env: true, Mounts: []string{"/"}, CDI: []string{"*"}},
	} {
		got, err := parseAllow(in)
		if err != nil {
			t.Errorf("Set(%q): %v", in, err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("Set(%q) (-want +got):\n%s", in, diff)
		}
	}
	for in, want := range map[string]string{
		"hook": `"hook" is not a privilege`, "hooks,": `"" is not a privilege`, "mount": `"mount" is not a privilege`, "Hooks": `"Hooks" is not a privilege`,
		"cdi:": "must name a kind of CDI devices", "cdi:[": "must name a kind of CDI devices", "cdi:!a/b": "must name a kind of CDI devices", "net:eth0": `"net:eth0" is not a privilege`,
		"mount:": "must name an absolute, clean path", "mount:run": "must name an absolute, clean path", "mount:/run/": "must name an absolute, clean path", "hooks,mount:/run/../etc": "must name an absolute, clean path",
	} {
		got, err := parseAllow(in)
		if err == nil || !strings.Contains(err.Error(), want) || !cmp.Equal(got, config.Allow{}) {
			t.Errorf("Set(%q) = %v, %v, want an error with %q", in, got, err, want)
		}
	}
}

func TestCheckMount(t *testing.T) {
	t.Parallel()
	allow := config.Allow{Mounts: []string{"/opt/vendor", "/run/a.sock"}}
	for path, want := range map[string]bool{
		"/opt/vendor": true, "/opt/vendor/lib/x.so": true, "/run/a.sock": true,
		"/opt/vendor2": false, "/opt": false, "/": false, "/run/a.sock2": false, "/opt/vendor/../../etc": false, "/opt/vendor/": false, "opt/vendor": false, "": false,
	} {
		if got := allow.CheckMount(path) == nil; got != want {
			t.Errorf("CheckMount(%q) = %v, want %v", path, got, want)
		}
	}
	if (config.Allow{Mounts: []string{"/"}}).CheckMount("/etc/passwd") != nil {
		t.Error("mount:/ does not allow everything")
	}
	if (config.Allow{}).CheckMount("/etc/passwd") == nil {
		t.Error("nothing allows something")
	}
}

func TestCheckAllow(t *testing.T) {
	t.Parallel()
	cfg := parse(t, `
domain = "example.com"
[[resource]]
name = "gpu"
match = [{ glob = "/dev/dri/*" }, { glob = "/dev/sda", dangerous = true }]
with = [
  { path = "/usr/lib/vendor" },
  { path = "/opt/{a,b}/*.so" },
  { path = "/run/gpu-${kernel}/x" },
  { path = "${devnode}" },
  { path = "/dev/kfd" },
  { path = "/etc/vendor" },
  { path = "/srv/x/${kernel}*" },
]
container.cdi = true
container.hooks = { hook_name = "prestart", path = "/bin/true" }
[[resource]]
name = "socket"
match = { glob = ["/run/vendor/*.sock", "/run/one", "!/run/vendor/x"] }
[[resource]]
name = "other.example/port"
match.net.type = "ether"
container.cdi = true
container.env.LD_AUDIT = "x"
container.env."PYTHON${id}" = "x"
container.env."X${id}" = "x"
[[resource]]
name = "cdi"
match.cdi_device = ["nvidia.com/gpu=GPU-*", "*/gpu=0", "!nvidia.com/x=*"]
`)
	places := func(allow string) []string {
		t.Helper()
		a, err := parseAllow(allow)
		must(t, err)
		err = cfg.Check(a)
		if err == nil {
			return nil
		}
		var problems config.Problems
		if !errors.As(err, &problems) {
			t.Fatalf("Check(%q) = %v, want Problems", allow, err)
		}
		var out []string
		for _, p := range problems {
			_, word, _ := strings.Cut(p.Text, " requires ")
			word, _, _ = strings.Cut(word, " in --allow")
			out = append(out, strings.TrimPrefix(p.Place, "test.toml: ")+" | "+word)
		}
		return out
	}
	all := []string{
		`resource 1 ("gpu"): match 2: dangerous | dangerous`,
		`resource 1 ("gpu"): with 1: path | mount:/usr/lib/vendor`,
		`resource 1 ("gpu"): with 2: path | mount:/opt/a`,
		`resource 1 ("gpu"): with 2: path | mount:/opt/b`,
		`resource 1 ("gpu"): with 3: path | mount:/run`,
		`resource 1 ("gpu"): with 6: path | mount:/etc/vendor`,
		`resource 1 ("gpu"): with 7: path | mount:/srv/x`,
		`resource 1 ("gpu"): container.hooks | hooks`,
		`resource 2 ("socket"): match 1: glob | mount:/run/vendor`,
		`resource 2 ("socket"): match 1: glob | mount:/run/one`,
		`resource 3 ("other.example/port"): match 1: net | net`,
		`resource 3 ("other.example/port"): container.env | env`,
		`resource 3 ("other.example/port"): container.env | env`,
		`resource 4 ("cdi"): match 1: cdi_device | cdi:nvidia.com/gpu`,
		`resource 4 ("cdi"): match 1: cdi_device | cdi:KIND`,
	}
	equal(t, "nothing allowed", all, places(""))
	if got := places("all"); got != nil {
		t.Errorf("everything allowed: %q", got)
	}
	some := []string{
		`resource 1 ("gpu"): match 2: dangerous | dangerous`,
		`resource 1 ("gpu"): container.hooks | hooks`,
		`resource 2 ("socket"): match 1: glob | mount:/run/one`,
	}
	// A path with a variable or a wildcard is decided when it is complete.
	equal(t, "some allowed", some, places("net,env,cdi:other.*,cdi:nvidia.com/gpu,mount:/usr/lib,mount:/opt/a,mount:/run/gpu-1,mount:/etc,mount:/run/vendor"))

	err := cfg.Check(config.Allow{Hooks: true, Dangerous: true, Net: true, Env: true, Mounts: []string{"/usr", "/opt", "/run"}, CDI: []string{"*"}})
	want := `test.toml:12:5: resource 1 ("gpu"): with 6: path: mounting "/etc/vendor" requires mount:/etc/vendor in --allow (in the chart: allow)`
	if err == nil || err.Error() != want {
		t.Errorf("Check() = %v, want %s", err, want)
	}
}

func TestCheckDomains(t *testing.T) {
	t.Parallel()
	cfg := parse(t, "domain = \"home.lan\"\n[[resource]]\nname = \"a\"\nmatch.glob = \"/dev/a\"\n[[resource]]\nname = \"nvidia.com/gpu-${kernel}\"\nmatch.glob = \"/dev/b\"\n")
	for want, domains := range map[string][]string{
		"": {"nvidia.com", "home.lan"},
		`test.toml:6:1: resource 2 ("nvidia.com/gpu-${kernel}"): name: the domain "nvidia.com" is not one of --domains` + "\n  hint: add nvidia.com to --domains": {"home.lan"},
		`test.toml:3:1: resource 1 ("a"): name: the domain "home.lan" is not one of --domains` + "\n  hint: add home.lan to --domains":                            {"nvidia.com"},
	} {
		got := ""
		if err := cfg.Check(config.Allow{Domains: domains}); err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("%q: %q, want %q", domains, got, want)
		}
	}
	if err := cfg.Check(config.Allow{}); err != nil {
		t.Errorf("any domain: %v", err)
	}
}

// Names that known loaders, interpreters and runtimes act on are found, with any numbers that a container
// adds. Other names are not, even if some program acts on them.
func TestInterpreted(t *testing.T) {
	t.Parallel()
	key := func(name string) device.Text {
		before, after, hasIndex := strings.Cut(name, "#")
		text := device.Literal(before)
		if hasIndex {
			text = append(append(text, device.Part{Var: device.IndexVar}), device.Literal(after)...)
		}
		return text
	}
	for name := range strings.FieldsSeq(`cdi.k8s.io/devices io.kubernetes.cri-o.Devices devices.crio.io seccomp-profile.crio.io/x seccomp-profile.kubernetes.cri-o.io
		io.containerd.runc.v2.group containerd.io/restart.loguri devices.nri.io/pod io.katacontainers.config.hypervisor.path dev.gvisor.flag.network run.oci.hooks.stdout
		org.systemd.property.X io.containers.trace-syscall rdt.resources.beta.kubernetes.io/pod cdi.k#s.io/devices cdi.k8s.io/#`) {
		if config.CheckAnnotation(key(name)) == nil {
			t.Errorf("annotation %s may be set", name)
		}
	}
	for name := range strings.FieldsSeq(`example.com/cdi myk8s.io/x cdi com.intel.fpga.mode x/cdi.k8s.io example.com/#`) {
		if err := config.CheckAnnotation(key(name)); err != nil {
			t.Error(err)
		}
	}
	var none config.Allow
	for name := range strings.FieldsSeq(`LD_PRELOAD LD_LIBRARY_PATH DYLD_INSERT_LIBRARIES GLIBC_TUNABLES GCONV_PATH LD_# PERL#LIB PS#
		PATH HOME ENV BASH_ENV PYTHONPATH PERL5OPT RUBYOPT BUNDLE_GEMFILE NODE_OPTIONS NPM_CONFIG_PREFIX BUN_OPTIONS JAVA_TOOL_OPTIONS JDK_JAVA_OPTIONS _JAVA_OPTIONS
		ERL_FLAGS ERL_AFLAGS ELIXIR_ERL_OPTIONS LUA_INIT PHP_INI_SCAN_DIR R_LIBS_USER DOTNET_STARTUP_HOOKS CORECLR_PROFILER_PATH KUBERNETES_SERVICE_HOST
		NVIDIA_VISIBLE_DEVICES NVIDIA_DRIVER_CAPABILITIES NVIDIA_GDS NVIDIA_MOFED NVIDIA_REQUIRE_CUDA AMD_VISIBLE_DEVICES ASCEND_RUNTIME_OPTIONS`) {
		if none.CheckEnv(key(name)) == nil {
			t.Errorf("variable %s may be set", name)
		}
		if err := (config.Allow{Env: true}).CheckEnv(key(name)); err != nil {
			t.Errorf("--allow=env: %v", err)
		}
	}
	for name := range strings.FieldsSeq(`ZIGBEE_SERIAL ZIGBEE_PATH METER_PORT SPI_DEVICE ALSA_CARD RTLSDR_SERIAL TPM2TOOLS_TCTI HAILO_PCI_ADDRESS QAT0 VFIO_BDF0 GPU# ENV2 ld_preload
		UDEV_DEVNODE UDEV_DEVNODE_0 RESOLUTION_WIDTH ONVIF_DEVICE_SERVICE_URL_0 PCIDEVICE_EXAMPLE_COM_VF PCIDEVICE_EXAMPLE_COM_VF_INFO
		PCI_RESOURCE_NVIDIA_COM_GPU MDEV_PCI_RESOURCE_X USB_RESOURCE_X CUDA_VISIBLE_DEVICES ROCR_VISIBLE_DEVICES ZE_AFFINITY_MASK LIBVA_DRIVER_NAME
		DRI_PRIME HSA_OVERRIDE_GFX_VERSION DISPLAY SERIAL DEVICE PORT NODE_NAME MODEM_MODULE GPU_DRIVER LIB_VERSION HOST DEVPATH OPTIONS_FILE FLAGS PROXY_PORT HTTPS_PROXY DBUS_SYSTEM_BUS_ADDRESS QT_PLUGIN_PATH`) {
		if err := none.CheckEnv(key(name)); err != nil {
			t.Error(err)
		}
	}
}
