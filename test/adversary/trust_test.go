//go:build adversary

package adversary

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/generic-dp/generic-dp/internal/testing/sysfstest"
)

// The author of the ConfigMap is not root on the nodes: without --allow, no spelling of the
// configuration injects anything dangerous.
func TestGrants(t *testing.T) {
	t.Parallel()
	for name, config := range map[string]string{
		"CDI devices by an annotation": resourceWith(`match.virtual = "d"
container.annotations."cdi.k8s.io/devices" = "nvidia.com/gpu=all"`),
		"CDI devices by a variable of an annotation's name": resourceWith(`match.virtual = { name = "d", vars = { dom = "cdi.k8s.io" } }
container.annotations."${var:dom}/devices" = "nvidia.com/gpu=all"`),
		"an annotation for CRI-O by a variable": resourceWith(`match.virtual = { name = "d", vars = { dom = "io.kubernetes.cri-o" } }
container.annotations."${var:dom}.Devices" = "/dev/sda"`),
		"an annotation for containerd by a variable": resourceWith(`match.virtual = { name = "d", vars = { dom = "io.containerd" } }
container.annotations."${var:dom}.rdt-class" = "x"`),
		"the loader by a variable": resourceWith(`match.virtual = { name = "d", vars = { n = "PRELOAD" } }
container.env."LD_${var:n}" = "/x.so"`),
		"a shell's start file":       resourceWith("match.virtual = \"d\"\ncontainer.env.BASH_ENV = \"/x\""),
		"a disk":                     resourceWith(`match.glob = "/dev/disk"`),
		"a disk by a link":           resourceWith(`match.glob = "/dev/by-id/disk"`),
		"a disk as a mount":          resourceWith("match.glob = \"/d{ev,}/disk\""),
		"a disk as a companion":      resourceWith("match.virtual = \"d\"\nwith = { path = \"/dev/disk\" }"),
		"a disk by path":             resourceWith("match.virtual = \"d\"\nwith = { path = \"/dev/../dev/disk\" }"),
		"memory":                     resourceWith(`match.glob = "/dev/mem"`),
		"memory by another name":     resourceWith(`match.glob = "/dev/harmless"`),
		"the root as a mount":        resourceWith("match.virtual = \"d\"\nwith = { path = \"/\", container_path = \"/host\" }"),
		"a hook":                     resourceWith("match.virtual = \"d\"\ncontainer.cdi = true\ncontainer.hooks = { hook_name = \"prestart\", path = \"/bin/sh\" }"),
		"a foreign spec with a disk": resourceWith(`match.cdi_device = "vendor.example/evil=disk"`),
		"a foreign spec with /":      resourceWith(`match.cdi_device = "vendor.example/evil=root"`),
		"a foreign spec with a hook": resourceWith(`match.cdi_device = "vendor.example/evil=hook"`),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t)
			n.host.AddNode("", sysfstest.Node{Name: "disk", Subsystem: "block", Block: true, Major: 8})
			n.host.AddLink("by-id/disk", "../disk")
			n.host.AddNode("", sysfstest.Node{Name: "mem", Subsystem: "mem", Major: 1, Minor: 1})
			n.must(unix.Mknod(filepath.Join(n.host.Dev(), "harmless"), unix.S_IFCHR|0o600, int(unix.Mkdev(1, 1))))
			n.must(os.WriteFile(n.path("cdi", "vendor.json"), []byte(`{"cdiVersion": "0.6.0", "kind": "vendor.example/evil", "devices": [
{"name": "disk", "containerEdits": {"deviceNodes": [{"path": "/dev/vda", "hostPath": "`+n.host.Dev()+`/disk"}]}},
{"name": "root", "containerEdits": {"mounts": [{"hostPath": "/", "containerPath": "/host"}]}},
{"name": "hook", "containerEdits": {"hooks": [{"hookName": "prestart", "path": "/bin/sh"}]}}]}`), 0o644))
			n.serve()
			if n.reload(goodConfig+config) == refused {
				n.stop()
				return
			}
			const hostile = "example.com/hostile"
			ctx, cancel := context.WithTimeout(t.Context(), startTime)
			defer cancel()
			n.must(n.kubelet.WaitFor(ctx, func() bool { _, lists := n.kubelet.Latest(hostile); return lists > 0 }))
			list, _ := n.kubelet.Latest(hostile)
			for _, d := range list.Devices {
				response, err := n.kubelet.Allocate(ctx, hostile, d.ID)
				if err == nil && injects(response) {
					t.Errorf("Allocate of %s injects %v, want nothing", d.ID, response)
				}
			}
			specs, _ := os.ReadFile(n.path("cdi", "generic-dp_example.com_hostile.json"))
			if strings.Contains(string(specs), "/bin/sh") {
				t.Errorf("the CDI spec has the hook: %s", specs)
			}
			n.stop()
		})
	}
}

// injects reports whether a response injects anything.
func injects(r *v1beta1.AllocateResponse) bool {
	for _, c := range r.ContainerResponses {
		if len(c.Devices)+len(c.Mounts)+len(c.CdiDevices)+len(c.Annotations)+len(c.Envs) > 0 {
			return true
		}
	}
	return false
}

// A kill at any moment of a reload loses neither the new configuration nor the last good one,
// and leaves no temporary file.
func TestKilledWhileReloading(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.serve()
	if err := poll(func() error {
		n.checkServes()
		_, err := os.Stat(n.path("state", "last-good-config.json"))
		return err
	}); err != nil {
		n.fatal("after %s the first configuration has no copy: %v", startTime, err)
	}
	for i := range 15 {
		n.configure(goodConfig + fmt.Sprintf("[[resource]]\nname = \"r%d\"\nmatch.virtual = \"d\"\n", i))
		time.Sleep(time.Duration(i) * time.Millisecond) // another moment each time
		n.kill()
		if i%2 == 0 {
			n.configure("what was written is lost")
		}
		n.serve()
	}
	n.stop()
	for _, dir := range []string{"state", "cdi", "run", "k"} {
		entries, err := os.ReadDir(n.path(dir))
		n.must(err)
		for _, e := range entries {
			if strings.HasSuffix(e.Name(), ".tmp") {
				t.Errorf("temporary file %s/%s is left behind", dir, e.Name())
			}
		}
	}
}
