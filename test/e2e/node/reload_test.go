package node_test

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/generic-dp/generic-dp/test/e2e/bed"
	"github.com/generic-dp/generic-dp/test/e2e/wait"
	"golang.org/x/sys/unix"
)

// TestReload edits the configuration of a node whose devices are all held. Removed
// devices are not allocated again, while the pods that hold them keep them over the
// restarts of their containers; unchanged resources cause no update.
func TestReload(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	resource := func(name, glob, more string) string {
		return fmt.Sprintf("\n[[resource]]\nname = %q\nmatch.glob = %q\ncontainer.path = \"/dev/zigbee\"\n%s", name, glob, more)
	}
	kept := resource("kept", "/dev/ttyUSB0", "")
	fuse := func(count int) string { return resource("fuse", "/dev/fuse", fmt.Sprintf("count = %d\n", count)) }
	old := domain + kept + fuse(3) + resource("link", "/dev/ttyUSB1", "") + resource("cdi", "/dev/ttyUSB2", injections["cdi"])
	edited := domain + resource("added", "/dev/added", "") + fuse(1) + kept

	have := map[string]number{"fuse-0": n.mknod(t, "fuse", 100), "added": n.mknod(t, "added", 101)}
	have["fuse-1"] = have["fuse-0"]
	for i, name := range []string{"kept", "link", "cdi"} {
		d := adapter(fmt.Sprintf("1-%d", i+1), fmt.Sprintf("A1B2C3D%d", i), uint32(i))
		n.Plug(d.Stick)
		have[name] = d.number()
	}
	n.serve(t, strings.TrimPrefix(old, domain))
	pods := map[string]*bed.Pod{}
	start := func(name string) {
		t.Helper()
		r, _, _ := strings.Cut("example.com/"+name, "-")
		pods[name] = n.run(t, bed.Workload(name, r, 1))
		wantNode(t, pods[name].Report(t, "main"), "/dev/zigbee", have[name])
	}
	for _, name := range []string{"kept", "link", "cdi"} {
		n.Kubelet.WaitAllocatable(t, "example.com/"+name, 1)
		start(name)
	}
	n.Kubelet.WaitAllocatable(t, "example.com/fuse", 3)
	start("fuse-0")
	start("fuse-1")
	held := map[string]map[string]string{}
	for _, name := range []string{"kept", "link", "cdi", "fuse"} {
		held[name] = n.held(t, "example.com/"+name)
	}
	sockets := slices.Sorted(maps.Keys(n.sockets(t)))
	lists := n.lists("example.com/kept")

	var restarts int32
	check := func(when string, allocatable map[string]int) {
		t.Helper()
		for name, count := range allocatable {
			n.Kubelet.WaitAllocatable(t, "example.com/"+name, count)
		}
		for name, want := range held {
			n.wantHeld(t, "example.com/"+name, want)
		}
		for name, p := range pods {
			if got := p.WaitRunning(t).Status.ContainerStatuses[0].RestartCount; name != "added" && got != restarts {
				t.Errorf("%s: %s was restarted %d times, want %d", when, name, got, restarts)
			}
		}
	}
	restartAll := func(when string) {
		t.Helper()
		restarts++
		for _, p := range pods {
			p.Kill(t, "main")
		}
		for name, p := range pods {
			p.WaitRestarted(t, "main", restarts)
			t.Logf("%s: %s was restarted", when, name)
			wantNode(t, p.Inspect(t, "main", "/dev"), "/dev/zigbee", have[name])
		}
	}

	begun := time.Now()
	n.plugin.Configure(t, edited)
	took := n.listed(t, begun, "example.com/added", 1).Sub(begun)
	t.Logf("from the edit to the list of a new resource: %.0f ms", ms(took))
	if took > time.Second {
		t.Errorf("a new resource was listed after %v, want a second at most", took)
	}
	now := map[string]int{"kept": 1, "link": 0, "cdi": 0, "fuse": 1, "added": 1}
	check("edited", now)
	for name, why := range map[string]string{"link": "no healthy devices", "cdi": "no healthy devices", "fuse": "Available: 0"} {
		n.refused(t, bed.Workload("late-"+name, "example.com/"+name, 1), why).Remove(t)
	}
	restartAll("edited")
	start("added")
	delete(pods, "added")

	n.plugin.Configure(t, edited+"cuont = 2\n")
	n.plugin.WaitLog(t, limit, `did you mean \"count\"?`)
	n.plugin.Signal(t, syscall.SIGHUP)
	wait.Until(t, limit, "answer to SIGHUP", func() error {
		if got := strings.Count(n.plugin.Log(), "the last good one is served"); got != 2 {
			return fmt.Errorf("the log says %d times that the last good configuration is served, want 2", got)
		}
		return nil
	})
	check("broken", now)

	n.plugin.Configure(t, old)
	n.plugin.Signal(t, syscall.SIGHUP)
	check("as it was", map[string]int{"kept": 1, "link": 1, "cdi": 1, "fuse": 3, "added": 0})
	if got := n.lists("example.com/kept"); len(lists) == 0 || !slices.Equal(got, lists) {
		t.Errorf("lists of the unchanged resource: %q, before the edits %q", got, lists)
	}
	for _, name := range slices.Sorted(maps.Keys(n.sockets(t))) {
		sockets = slices.DeleteFunc(sockets, func(s string) bool { return s == name })
	}
	if len(sockets) > 0 {
		t.Errorf("replaced sockets: %q, want none", sockets)
	}
	for name := range held {
		want := 1
		if name == "fuse" {
			want = 2
		}
		n.wantAllocations(t, "example.com/"+name, want)
	}

	// A program started with the edited configuration remembers the previous one.
	n.plugin.Configure(t, edited)
	n.plugin.Restart(t)
	check("edited and started again", now)
	restartAll("edited and started again")
}

// lists returns the kubelet's log lines about the lists of a resource.
func (n *node) lists(resource string) []string {
	var lists []string
	for line := range strings.Lines(n.Kubelet.Log()) {
		if _, list, ok := strings.Cut(line, fmt.Sprintf(`"Processed device updates for resource" resourceName=%q `, resource)); ok {
			lists = append(lists, list)
		}
	}
	return lists
}

// sockets returns the creation times of plugin sockets, by name, in ns.
func (n *node) sockets(t testing.TB) map[string]int64 {
	t.Helper()
	entries, err := os.ReadDir(n.DevicePlugins())
	must(t, err)
	made := map[string]int64{}
	for _, e := range entries {
		var st unix.Stat_t
		path := filepath.Join(n.DevicePlugins(), e.Name())
		must(t, unix.Lstat(path, &st))
		if st.Mode&unix.S_IFMT == unix.S_IFSOCK && e.Name() != "kubelet.sock" {
			made[e.Name()] = st.Mtim.Nano()
		}
	}
	return made
}
