package node_test

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/generic-dp/generic-dp/test/e2e/bed"
	"github.com/generic-dp/generic-dp/test/e2e/wait"
)

// runAs makes the containers of a pod run as a user.
func runAs(pod *v1.Pod, uid, gid int64) *v1.Pod {
	pod.Spec.SecurityContext = &v1.PodSecurityContext{RunAsUser: &uid, RunAsGroup: &gid}
	return pod
}

// TestOwner has an unprivileged user open a node that is root's on the host. The node
// of the host does not change.
func TestOwner(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	var config string
	cases := []struct {
		name, container, mode string
		uid, gid              uint32
		why                   string // the open fails; empty if it succeeds
	}{
		{"link", ``, "0600", 0, 0, "permission denied"},
		// Runtimes give nodes of CDI specs to the container's own user.
		{"cdi", `container.cdi = true`, "0600", 1000, 1000, ""},
		{"owner", `container = { cdi = true, owner = { uid = 1000, mode = "0400" } }`, "0400", 1000, 1000, "permission denied"},
		{"group", `container = { cdi = true, owner = { uid = 0, gid = 44, mode = "0660" } }`, "0660", 0, 44, "permission denied"},
	}
	for _, c := range cases {
		// With a driver that permits everybody.
		n.Bed.Mknod(t, n.Path("/dev/own-"+c.name), 1, 3)
		config += "\n[[resource]]\nname = \"" + c.name + "\"\nmatch.glob = \"/dev/own-" + c.name + "\"\n" + c.container + "\n"
	}
	n.serve(t, config)
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			resource, path := "example.com/"+c.name, "/dev/own-"+c.name
			n.Kubelet.WaitAllocatable(t, resource, 1)
			p := n.run(t, runAs(bed.Workload(c.name, resource, 1), 1000, 1000))
			r := p.Report(t, "main")
			wantNode(t, r, path, number{1, 3})
			if got, _ := r.Node(path); got.Mode != c.mode || got.UID != c.uid || got.GID != c.gid {
				t.Errorf("node in the container: %+v, want mode %s of %d:%d", got, c.mode, c.uid, c.gid)
			}
			if _, stderr, _ := p.Exec(t, "main", "/tool", "open", path); (c.why == "") != (stderr == "") || !strings.Contains(stderr, c.why) {
				t.Errorf("open: %q, want %q", stderr, c.why)
			}
			if r.UID != 1000 || slices.Contains(r.Groups, 44) {
				t.Errorf("user %d, groups %d, want 1000 without group 44", r.UID, r.Groups)
			}
		})
	}
}

// TestHooks has the runtime run a program of the host for a container, which only
// --allow permits.
func TestHooks(t *testing.T) {
	t.Parallel()
	const resource = "example.com/hooked"
	n := newNode(t)
	n.mknod(t, "hooked", 100)
	state := filepath.Join(n.Dir, "hook.json")
	config := `
[[resource]]
name = "hooked"
match.glob = "/dev/hooked"
container.cdi = true
container.hooks = { hook_name = "createRuntime", path = "` + filepath.Join(n.Dir, "tool") + `", args = ["tool", "hook", "` + state + `"], timeout = 10 }
`
	n.serve(t, config)
	if code := n.plugin.Wait(t, limit); code != 1 {
		t.Errorf("exit code %d without --allow, want 1", code)
	}
	if log := n.plugin.Log(); !strings.Contains(log, "container.hooks") || !strings.Contains(log, "hooks in --allow") {
		t.Errorf("the log lacks container.hooks or hooks in --allow: %s", log)
	}

	n.serve(t, config, "--allow=hooks")
	n.Kubelet.WaitAllocatable(t, resource, 1)
	p := n.run(t, bed.Workload("hooked", resource, 1))
	var before string
	for restarts := range int32(2) {
		if restarts > 0 {
			restart(t, p, restarts)
		}
		var seen struct{ ID, Status string }
		wait.Until(t, limit, "state of the container that the hook saw", func() error {
			return readJSON(state, &seen)
		})
		if seen.Status != "creating" && seen.Status != "created" || seen.ID == before {
			t.Errorf("the hook saw %+v, want a new container", seen)
		}
		before = seen.ID
	}
}
