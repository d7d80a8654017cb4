package main

import (
	"context"
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/generic-dp/generic-dp/internal/host/recording"
	"github.com/generic-dp/generic-dp/internal/testing/kubelettest"
	"github.com/generic-dp/generic-dp/internal/tools/cli"
)

// diagnose runs doctor on a node with more arguments, and returns the findings by check, and the status.
func diagnose(t *testing.T, dir string, args ...string) (map[string]finding, int) {
	t.Helper()
	if _, err := os.Stat(dir + "/machine"); err != nil { // a recording would have no CDI specs of this host
		archive, err := os.ReadFile("../../testdata/machines/desktop-xhci.txtar")
		if err == nil {
			err = recording.Unpack(dir+"/machine", archive)
		}
		must(t, err)
	}
	var out, stderr strings.Builder
	f := newFlags()
	f.config = dir + "/config.toml" // a default, which nobody has typed
	program := cli.Program{
		Root:    newRoot(f),
		Cleanup: f.temporaryDir,
	}
	code := program.Run(t.Context(), append([]string{
		"doctor", "-o", "json", "--root", dir, "--sysfs", dir + "/machine/sys", "--dev", dir + "/machine/dev",
		"--kubelet-dir", dir + "/kubelet", "--pod-resources", dir + "/pods.sock", "--run-dir", dir + "/run/dp", "--state-dir", dir + "/state", "--cdi-dir", dir + "/cdi",
	}, args...), &out, &stderr)
	var d diagnosis
	if err := json.Unmarshal([]byte(out.String()), &d); err != nil {
		t.Fatalf("%v: %s\n%s", err, stderr.String(), out.String())
	}
	found := map[string]finding{}
	for _, f := range d.Findings {
		found[f.Check] = f
	}
	for _, f := range d.Findings { // the worst one
		if f.Status == problem {
			found[f.Check] = f
		}
	}
	return found, code
}

func TestDoctor(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	place(t, dir+"/config.toml", "domain = \"example.com\"\n[[resource]]\nname = \"serial\"\nmatch.glob = \"/dev/ttyUSB*\"\ncontainer.cdi = true\n[[resource]]\nname = \"none\"\nmatch.glob = \"/dev/none\"\napi = \"dra\"\n")
	place(t, dir+"/run/containerd/containerd.sock", "")
	place(t, dir+"/etc/containerd/config.toml", "version = 2\n")
	kubelet := kubelettest.New(kubelettest.Options{Dir: dir + "/kubelet", PodResources: dir + "/pods.sock"})
	must(t, kubelet.Start())
	found, code := diagnose(t, dir)
	for check, want := range map[string]severity{
		"configuration": "warning", "kubelet": "ok", "pod resources": "ok", "runtime": "warning",
		"CDI directory": "warning",
	} {
		if f := found[check]; f.Status != want {
			t.Errorf("%s: %+v, want %s", check, f, want)
		}
	}
	if code != 0 || !strings.HasPrefix(found["runtime"].Fix, "set enable_cdi = true in ") {
		t.Errorf("status %d, %+v", code, found)
	}

	// Everything at once.
	kubelet.Stop()
	place(t, dir+"/etc/containerd/config.toml", "[plugins.'io.containerd.cri.v1.runtime']\n  enable_cdi = false\n")
	place(t, dir+"/cdi/other.json", `{"cdiVersion": "0.5.0", "kind": "example.com/serial", "devices": [{"name": "x", "containerEdits": {"env": ["A=b"]}}]}`)
	found, code = diagnose(t, dir)
	for check, want := range map[string]severity{"kubelet": "problem", "pod resources": "warning", "runtime": "problem", "CDI kind": "problem"} {
		if f := found[check]; f.Status != want || f.Fix == "" {
			t.Errorf("%s: %+v, want %s", check, f, want)
		}
	}
	if code != 1 {
		t.Errorf("status %d, want 1: %+v", code, found)
	}
	must(t, os.Remove(dir+"/config.toml"))
	if found, _ = diagnose(t, dir); !strings.HasPrefix(found["configuration"].Fix, "generic-dp init") {
		t.Errorf("without a configuration: %+v", found["configuration"])
	}
}

// The fixes are for the configuration that was named, and a directory that does not exist is not a host.
func TestDoctorArguments(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	place(t, dir+"/my config.toml", "domain = \"example.com\"\n[[resource]]\nname = \"none\"\nmatch.glob = \"/dev/none\"\n")
	place(t, dir+"/broken.toml", "domain")
	for file, want := range map[string]string{
		"my config.toml": "generic-dp devices --config '" + dir + "/my config.toml'",
		"broken.toml":    "generic-dp check --config " + dir + "/broken.toml",
	} {
		if found, _ := diagnose(t, dir, "--config", dir+"/"+file); found["configuration"].Fix != want {
			t.Errorf("%s: %+v, want the fix %q", file, found["configuration"], want)
		}
	}
	var out, stderr strings.Builder
	code := run(t.Context(), []string{"doctor", "--root", dir + "/nothing"}, &out, &stderr)
	if code != 1 || !strings.HasPrefix(stderr.String(), "error: --root: stat "+dir+"/nothing: ") {
		t.Errorf("status %d of a root that does not exist: %s%s", code, stderr.String(), out.String())
	}
}

// doctor knows where the kubelet of a host is.
func TestDoctorKnowsTheHost(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		files  map[string]string
		status severity
		fix    string
	}{
		"nothing":         {nil, problem, "start the kubelet; a host without it only needs generic-dp serve --no-kubelet"},
		"podman":          {map[string]string{"usr/bin/podman": ""}, fine, ""},
		"kubelet, podman": {map[string]string{"var/lib/kubelet/x": "", "usr/bin/podman": ""}, problem, "start the kubelet"},
		"k0s": {
			map[string]string{"var/lib/k0s/kubelet/device-plugins/x": "", "var/lib/kubelet/x": ""},
			problem,
			"--kubelet-dir /var/lib/k0s/kubelet/device-plugins --pod-resources /var/lib/k0s/kubelet/pod-resources/kubelet.sock",
		},
	} {
		dir := t.TempDir()
		for file, text := range c.files {
			place(t, dir+"/"+file, text)
		}
		found, _ := diagnose(t, dir)
		got := found["kubelet"]
		if got.Status != c.status || !strings.HasPrefix(got.Fix, c.fix) || (c.fix == "") != (got.Fix == "") {
			t.Errorf("%s: %+v, want %s with the fix %q", name, got, c.status, c.fix)
		}
	}
}

// A resource that the kubelet has, while no instance serves, is another plugin's. An instance that serves
// may have a configuration that is not on this host.
func TestOtherPlugins(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	place(t, dir+"/config.toml", "domain = \"example.com\"\n[[resource]]\nname = \"serial\"\nmatch.glob = \"/dev/ttyUSB*\"\n")
	kubelet := kubelettest.New(kubelettest.Options{Dir: dir + "/kubelet", PodResources: dir + "/pods.sock"})
	must(t, kubelet.Start())
	defer kubelet.Stop()
	f, _ := recorded(t, "../../testdata/machines/desktop-xhci.txtar")
	f.config = dir + "/config.toml"
	f.paths.KubeletDir, f.paths.PodResources, f.paths.RunDir, f.paths.StateDir = dir+"/kubelet", dir+"/pods.sock", dir+"/other", dir+"/state"
	options := f.options(new(strings.Builder))
	options.Listen = ""
	served := make(chan error, 1)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	go func() {
		defer stop() // ends the wait if it fails
		served <- serve(ctx, options)
	}()
	if err := kubelet.WaitAllocatable(ctx, "example.com/serial", 4); err != nil {
		t.Fatal(err, <-served)
	}
	found, code := diagnose(t, dir)
	if code != 1 || found["other plugins"].Status != "problem" {
		t.Errorf("status %d: %+v", code, found)
	}
	// The instance serves, and its configuration is elsewhere, as in a pod.
	if err := os.MkdirAll(dir+"/run", 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(dir+"/other", dir+"/run/dp"); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(dir+"/config.toml", dir+"/of-the-pod.toml"); err != nil {
		t.Fatal(err)
	}
	found, _ = diagnose(t, dir)
	if found["configuration"].Status != "warning" || found["other plugins"].Check != "" {
		t.Errorf("beside an instance with another configuration: %+v", found)
	}
	// A path on the command line may have a typing error.
	if found, code = diagnose(t, dir, "--config", dir+"/config.tmol"); code != 1 || found["configuration"].Status != "problem" {
		t.Errorf("status %d with a configuration that does not exist: %+v", code, found)
	}
	stop()
	if err := <-served; err != nil {
		t.Error(err)
	}
}

// The settings of a runtime are in more than one file.
func TestDoctorReadsRuntimes(t *testing.T) {
	t.Parallel()
	const enabled = "version = 3\n[plugins.'io.containerd.cri.v1.runtime']\n  enable_cdi = true\n"
	const disabled = "[plugins.'io.containerd.cri.v1.runtime']\n  enable_cdi = false\n"
	for name, c := range map[string]struct {
		files map[string]string
		// status is of the check "runtime", and dirs of the check "CDI directory".
		status, dirs severity
	}{
		"drop-in": {
			map[string]string{
				"run/containerd/containerd.sock":     "",
				"etc/containerd/config.toml":         enabled,
				"etc/containerd/conf.d/50-none.toml": "# nothing\n",
				"etc/containerd/conf.d/cdi.toml":     disabled,
			},
			problem, "",
		},
		"other directories": {
			map[string]string{
				"run/containerd/containerd.sock": "",
				"etc/containerd/config.toml":     enabled + "  cdi_spec_dirs = [\"/var/cdi/static\",\n    \"/var/cdi/dynamic\"]\n",
			},
			fine, problem,
		},
		"directories of CRI-O": {
			map[string]string{
				"run/crio/crio.sock":            "",
				"etc/crio/crio.conf.d/10-cdi":   "cdi_spec_dirs = ['/opt/cdi']\n",
				"etc/crio/crio.conf.d/20-other": "pids_limit = 100\n",
			},
			fine, problem,
		},
		"microk8s": {
			map[string]string{
				"var/snap/microk8s/common/run/containerd.sock":   "",
				"var/snap/microk8s/current/args/containerd.toml": disabled,
			},
			problem, "",
		},
		"k0s": {
			map[string]string{
				"run/k0s/containerd.sock":          "",
				"etc/k0s/containerd.d/enable.toml": enabled,
			},
			fine, "",
		},
		"comments": {
			map[string]string{
				"run/containerd/containerd.sock": "",
				"etc/containerd/config.toml":     "# version = 2\nversion = 3\n  # enable_cdi = false\n",
			},
			fine, "",
		},
		"docker": {
			map[string]string{
				"run/docker.sock":        "",
				"etc/docker/daemon.json": "{\"features\": {\n  \"cdi\" : false\n}}\n",
			},
			problem, "",
		},
		"unknown version": {map[string]string{"run/containerd/containerd.sock": ""}, warning, ""},
	} {
		dir := t.TempDir()
		for file, text := range c.files {
			place(t, dir+"/"+file, text)
		}
		place(t, dir+"/config.toml", "[[resource]]\nname = \"example.com/serial\"\nmatch.glob = \"/dev/ttyUSB*\"\ncontainer.cdi = true\n")
		found, _ := diagnose(t, dir)
		if f := found["runtime"]; f.Status != c.status {
			t.Errorf("%s: %+v, want %s", name, f, c.status)
		}
		if f := found["CDI directory"]; f.Status == problem && c.dirs == "" || c.dirs != "" && f.Status != c.dirs {
			t.Errorf("%s: %+v, want %s", name, f, c.dirs)
		}
	}
}
