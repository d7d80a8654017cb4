package node_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/generic-dp/generic-dp/test/e2e/bed"
	"github.com/generic-dp/generic-dp/test/e2e/inspect"
)

func readJSON(path string, to any) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	return json.Unmarshal(text, to)
}

func writeFile(t testing.TB, path, text string) {
	t.Helper()
	must(t, os.MkdirAll(filepath.Dir(path), 0o755))
	// Atomically, like real programs do.
	next := path + ".next"
	must(t, os.WriteFile(next, []byte(text), 0o644))
	must(t, os.Rename(next, path))
}

// TestMounts injects files and directories of the host: as a device, as a companion, and
// for a whole resource. Configurations can mount only what --allow permits.
func TestMounts(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.mknod(t, "mounted", 100)
	dir := filepath.Join(n.Dir, "vendor")
	for _, name := range []string{"sockets/a.sock", "sockets/b.sock", "lib/vendor.so", "etc/vendor.conf"} {
		writeFile(t, filepath.Join(dir, name), name)
	}
	for kind := range injections {
		n.mknod(t, "mounted-"+kind, 100)
	}
	config := `
[[resource]]
name = "socket"
match = { glob = "` + dir + `/sockets/*.sock", container_path = "/run/vendor.sock", permissions = "rw" }
`
	for kind, line := range injections {
		config += `
[[resource]]
name = "` + kind + `"
match.glob = "/dev/mounted-` + kind + `"
with = [
  { path = "` + dir + `/lib/*.so", container_path = "/lib/vendor/" },
  { path = "` + dir + `/etc", container_path = "/etc/vendor", permissions = "rw" },
  { path = "` + dir + `/none", container_path = "/none", optional = true },
]
` + line
	}
	n.serve(t, config, "--allow=mount:"+dir+"/lib")
	if code := n.plugin.Wait(t, limit); code != 1 {
		t.Errorf("exit code %d without --allow, want 1", code)
	}
	log := n.plugin.Log()
	// Whether the results of a wildcard may be mounted is decided for each device.
	for _, name := range []string{"etc", "none"} {
		if want := "mount:" + filepath.Join(dir, name) + " in --allow"; !strings.Contains(log, want) {
			t.Errorf("the log lacks %q: %s", want, log)
		}
	}
	if strings.Contains(log, "vendor/lib") {
		t.Errorf("the log names vendor/lib, which is permitted: %s", log)
	}

	n.serve(t, config, "--allow=mount:"+dir)
	n.Kubelet.WaitAllocatable(t, "example.com/socket", 2)
	want := func(p *bed.Pod, r inspect.Report, mounts ...string) {
		t.Helper()
		var have []string
		for _, m := range r.Mounts {
			if strings.Contains(m.Path, "vendor") || m.Path == "/none" {
				have = append(have, fmt.Sprintf("%s read-only=%t", m.Path, m.ReadOnly))
			}
		}
		slices.Sort(have)
		wantSame(t, "mounts of "+p.Name, have, mounts...)
	}
	p := n.run(t, bed.Workload("socket", "example.com/socket", 1))
	want(p, p.Report(t, "main"), "/run/vendor.sock read-only=false")
	for id := range n.held(t, "example.com/socket") {
		t.Logf("ID of a socket: %s", id)
	}
	n.refused(t, bed.Workload("two", "example.com/socket", 2), "Available: 1").Remove(t)
	for kind := range injections {
		n.Kubelet.WaitAllocatable(t, "example.com/"+kind, 1)
		p := n.run(t, bed.Workload(kind, "example.com/"+kind, 1))
		want(p, p.Report(t, "main"), "/etc/vendor read-only=false", "/lib/vendor/vendor.so read-only=true")
	}

	// They come and go like devices.
	writeFile(t, filepath.Join(dir, "sockets/c.sock"), "")
	n.Kubelet.WaitAllocatable(t, "example.com/socket", 3)
	for _, name := range []string{"a", "b", "c"} {
		must(t, os.Remove(filepath.Join(dir, "sockets", name+".sock")))
	}
	n.Kubelet.WaitAllocatable(t, "example.com/socket", 0)
}

// TestForeignCDI offers the devices of a foreign CDI spec while the spec exists.
func TestForeignCDI(t *testing.T) {
	t.Parallel()
	const resource = "example.com/gpu"
	n := newNode(t)
	n.mknod(t, "vendor0", 100)
	n.mknod(t, "vendor1", 101)
	spec := filepath.Join(n.CDIDir(), "vendor.json")
	describe := func(devices ...int) {
		t.Helper()
		var list []string
		for _, d := range devices {
			list = append(list, fmt.Sprintf(`{"name": "gpu-%d", "containerEdits": {"env": ["VENDOR=%[1]d"], "deviceNodes": [{"path": "/dev/vendor", "hostPath": "/dev/vendor%[1]d"}]}}`, d))
		}
		writeFile(t, spec, `{"cdiVersion": "0.5.0", "kind": "vendor.example/gpu", "devices": [`+strings.Join(append(list,
			`{"name": "all", "containerEdits": {"env": ["VENDOR=all"]}}`), ",")+`]}`)
	}
	n.serve(t, `
[[resource]]
name = "gpu"
count = 2
match.cdi_device = "vendor.example/gpu=*"
container.env.GPU = "${cdi.device} of ${cdi.kind}"
`, "--allow=cdi:vendor.example/gpu")
	n.plugin.WaitLog(t, limit, "starting")
	describe(0)
	n.Kubelet.WaitAllocatable(t, resource, 2)
	p := n.run(t, bed.Workload("first", resource, 1))
	r := p.Report(t, "main")
	wantNode(t, r, "/dev/vendor", number{188, 100})
	if r.Env["VENDOR"] != "0" || r.Env["GPU"] != "gpu-0 of vendor.example/gpu" {
		t.Errorf("environment: %v, want VENDOR and GPU of gpu-0", r.Env)
	}
	describe(0, 1)
	n.Kubelet.WaitAllocatable(t, resource, 4)
	describe(1)
	n.Kubelet.WaitAllocatable(t, resource, 2)
	second := n.run(t, bed.Workload("second", resource, 1))
	wantNode(t, second.Report(t, "main"), "/dev/vendor", number{188, 101})

	must(t, os.Remove(spec))
	n.Kubelet.WaitAllocatable(t, resource, 0)
	p.Kill(t, "main")
	waitStuck(t, p, "unresolvable CDI devices")
	describe(0)
	n.Kubelet.WaitAllocatable(t, resource, 2)
	p.WaitRestarted(t, "main", 1)
	wantNode(t, p.Inspect(t, "main", "/dev"), "/dev/vendor", number{188, 100})
}
