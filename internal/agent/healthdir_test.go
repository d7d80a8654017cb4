package agent_test

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/generic-dp/generic-dp/internal/agent"
)

const followed = zigbee + "container.health_dir = \"/run/device\"\n"

// healthDir is the health directory on the host that a pod gets with a device.
func (n *node) healthDir(pod string) string {
	n.Helper()
	dirs := n.healthDirs(pod, 1)
	if dirs["/run/device"] == "" || len(dirs) != 1 {
		n.Fatalf("mounts %v: want one at /run/device", dirs)
	}
	return dirs["/run/device"]
}

// healthDirs are the health directories on the host that a pod gets with some devices, by their paths in
// the container.
func (n *node) healthDirs(pod string, devices int) map[string]string {
	n.Helper()
	a, err := n.kubelet.Admit(n.Context(), request(pod, zigbeeName), devices)
	must(n, err)
	dirs := map[string]string{}
	for _, m := range a.Response.GetMounts() {
		if !m.GetReadOnly() {
			n.Errorf("the mount at %s can be written", m.GetContainerPath())
		}
		dirs[m.GetContainerPath()] = m.GetHostPath()
	}
	return dirs
}

// healthy is the file in a health directory; nil is none.
func healthy(dir string) os.FileInfo {
	info, _ := os.Lstat(filepath.Join(dir, "healthy"))
	return info
}

func (n *node) wantHealthy(dir string, want bool, when string) {
	n.Helper()
	if got := healthy(dir) != nil; got != want {
		n.Errorf("%s: healthy is there: %t, want %t", when, got, want)
	}
}

// The file goes before the kubelet knows, and comes back when the device is there and the
// hold is over.
func TestHealthDirFollowsTheDevice(t *testing.T) {
	t.Parallel()
	for _, cdi := range []string{"", "container.cdi = true\n"} {
		n := newNode(t, followed+cdi)
		n.addSticks(1)
		var c clock
		n.serveBy(&c)
		n.untilListed(zigbeeName, []string{stickID}, nil)
		n.untilAllocatable(zigbeeName, 1)
		dir := n.healthDir("p")
		n.wantHealthy(dir, true, "after Allocate")
		if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o755 {
			t.Errorf("directory %v, %v: want one that any user may enter", info, err)
		}
		n.host.RemoveUSB("1-1")
		n.untilListed(zigbeeName, nil, []string{stickID})
		n.wantHealthy(dir, false, "after the loss")
		n.host.AddUSB(stick("1-2", "BBBB2222", "ttyUSB0"))
		n.untilListed(zigbeeName, []string{otherID}, []string{stickID})
		c.forward(2 * time.Minute)
		n.event()
		n.host.RemoveUSB("1-2")
		n.untilListed(zigbeeName, nil, []string{stickID, otherID})
		n.wantHealthy(dir, false, "while another device has its name")
		n.host.AddUSB(stick("1-1", "AAAA1111", "ttyUSB0"))
		n.eventually("healthy after a long absence", func() bool { return healthy(dir) != nil })
		n.untilListed(zigbeeName, []string{stickID}, []string{otherID})

		n.host.RemoveUSB("1-1")
		n.untilListed(zigbeeName, nil, []string{stickID, otherID})
		n.host.AddUSB(stick("1-1", "AAAA1111", "ttyUSB0"))
		n.untilListed(zigbeeName, []string{stickID}, []string{otherID})
		n.wantHealthy(dir, false, "during the hold")
		c.forward(41 * time.Second)
		n.event()
		n.eventually("healthy after the hold", func() bool { return healthy(dir) != nil })
	}
}

// Nothing but the end of the hold brings the file back.
func TestHealthHoldEndsByItself(t *testing.T) {
	t.Parallel()
	n := newNode(t, followed)
	n.addSticks(1)
	a, err := agent.New(n.options)
	must(t, err)
	a.SetHealthHold(time.Second)
	n.run(a)
	n.untilListed(zigbeeName, []string{stickID}, nil)
	n.untilAllocatable(zigbeeName, 1)
	dir := n.healthDir("p")
	lost := time.Now()
	n.host.RemoveUSB("1-1")
	n.untilListed(zigbeeName, nil, []string{stickID})
	n.host.AddUSB(stick("1-1", "AAAA1111", "ttyUSB0"))
	n.untilListed(zigbeeName, []string{stickID}, nil)
	n.eventually("the end of the hold", func() bool { return healthy(dir) != nil })
	if held := time.Since(lost); held < time.Second {
		t.Errorf("healthy was away for %s, want a second", held)
	}
}

// A container with several devices has the directory of each, and no other. Containers that share a device
// share its directory.
func TestHealthDirOfSeveralDevices(t *testing.T) {
	t.Parallel()
	text := strings.Replace(followed, `"/dev/zigbee"`, `"/dev/zigbee${index}"`, 1) + "count = 2\ncontainer.max_per_container = 1\n"
	n := newNode(t, text)
	n.addSticks(2)
	n.serve()
	n.untilAllocatable(zigbeeName, 4)
	dir := func(id string) string { return filepath.Join(n.options.Paths.RunDir, "health", id) }
	want := map[string]string{"/run/device/0": dir(stickID), "/run/device/1": dir(otherID)}
	if got := n.healthDirs("p", 2); !maps.Equal(got, want) {
		t.Errorf("health directories %v, want %v", got, want)
	}
	shared := n.healthDir("q")
	n.host.RemoveUSB("1-2")
	n.untilAllocatable(zigbeeName, 2)
	n.wantHealthy(dir(stickID), true, "the other device")
	n.wantHealthy(dir(otherID), false, "the lost device")
	if shared != dir(stickID) && shared != dir(otherID) {
		t.Errorf("the second container has the directory %s", shared)
	}
}

// A restart of the program neither takes the file away nor ends a hold, and finds a
// device that moved meanwhile.
func TestHealthDirOverARestart(t *testing.T) {
	t.Parallel()
	for _, lostState := range []bool{false, true} {
		n := newNode(t, followed+"health.attr = { bInterfaceClass = \"ff\" }\n")
		n.addSticks(1)
		var c clock
		restart := func(stop func()) (stopNew func()) {
			t.Helper()
			stop()
			if lostState {
				must(t, os.RemoveAll(n.options.Paths.StateDir))
			}
			a, stop := n.serveBy(&c)
			<-a.Settled()
			n.untilListed(zigbeeName, []string{stickID}, nil)
			return stop
		}
		_, stop := n.serveBy(&c)
		n.untilAllocatable(zigbeeName, 1)
		dir := n.healthDir("p")
		before := healthy(dir)
		stop = restart(stop)
		if after := healthy(dir); !os.SameFile(before, after) {
			t.Errorf("lost state %t: a restart made healthy anew: %v, was %v", lostState, after, before)
		}

		n.host.RemoveUSB("1-1")
		n.untilListed(zigbeeName, nil, []string{stickID})
		c.forward(20 * time.Second)
		n.host.AddUSB(stick("1-1", "AAAA1111", "ttyUSB0"))
		n.untilListed(zigbeeName, []string{stickID}, nil)
		stop = restart(stop)
		n.wantHealthy(dir, false, "after a restart during the hold")
		if !lostState {
			c.forward(21 * time.Second)
		} else { // when it began is not known
			c.forward(41 * time.Second)
		}
		n.event()
		n.eventually("healthy after the hold", func() bool { return healthy(dir) != nil })
		if lostState {
			continue // where the devices were is not known either
		}

		stop()
		n.host.RemoveUSB("1-1")
		n.event() // takes the inode on file systems that reuse inodes
		n.host.AddUSB(stick("1-1", "AAAA1111", "ttyUSB0"))
		restart(func() {})
		n.wantHealthy(dir, false, "after a replug that nobody saw")
	}
}

// After a reboot the directories exist, without a hold, before containers start with their
// old responses.
func TestHealthDirAfterAReboot(t *testing.T) {
	t.Parallel()
	n := newNode(t, strings.Replace(followed, `"/dev/zigbee"`, `"/dev/zigbee${index}"`, 1))
	n.addSticks(2)
	_, stop := n.serve()
	n.untilAllocatable(zigbeeName, 2)
	dir := n.healthDirs("p", 2)["/run/device/0"]
	n.host.RemoveUSB("1-1")
	n.untilListed(zigbeeName, []string{otherID}, []string{stickID})
	stop()
	must(t, os.RemoveAll(n.options.Paths.RunDir))
	file := filepath.Join(n.options.Paths.StateDir, "state.json")
	text, err := os.ReadFile(file)
	must(t, err)
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	must(t, err)
	other := strings.Replace(string(text), strings.TrimSpace(string(boot)), "00000000-0000-0000-0000-000000000000", 1)
	must(t, os.WriteFile(file, []byte(other), 0o600))
	n.serve()
	n.untilListed(zigbeeName, []string{otherID}, []string{stickID})
	n.eventually("the directory, before the device", func() bool {
		info, err := os.Stat(dir)
		return err == nil && info.IsDir()
	})
	n.wantHealthy(dir, false, "while the device is not there yet")
	n.host.AddUSB(stick("1-1", "AAAA1111", "ttyUSB7"))
	n.eventually("healthy without a hold", func() bool { return healthy(dir) != nil })
}

// A directory is removed when its device is neither listed nor held.
func TestHealthDirsAreSwept(t *testing.T) {
	t.Parallel()
	h := newHolding(t, followed)
	h.addSticks(1)
	var c clock
	c.forward(time.Hour) // the kubelet is as old
	a, _ := h.serveBy(&c)
	h.untilAllocatable(zigbeeName, 1)
	dir := h.healthDir("p")
	uid := h.kubelet.UID("default", "p")
	h.cgroups.Start(uid)
	h.eventually("the checkpoint", func() bool { return a.Remembers(uid) })
	// A kubelet that cannot reach the API server after its start lists only static pods. The containers of
	// the others run.
	h.kubelet.Remove("default", "p")
	h.host.RemoveUSB("1-1")
	h.untilListed(zigbeeName, nil, []string{stickID})
	pass := func() {
		t.Helper()
		c.forward(20 * time.Minute)
		h.passes(a)
	}
	pass()
	if _, err := os.Stat(dir); err != nil {
		t.Errorf("while its pod runs: %v", err)
	}
	h.cgroups.End(uid)
	pass()
	h.eventually("the end of the directory", func() bool {
		_, err := os.Stat(dir)
		return os.IsNotExist(err)
	})
}

// Without a kubelet each CDI entry has the directories of its devices, while an instance serves. Once is
// refused meanwhile.
func TestHealthDirOfASpec(t *testing.T) {
	t.Parallel()
	n := newHost(t, strings.Replace(followed, `"/dev/zigbee"`, `"/dev/zigbee/"`, 1))
	n.host.AddUSB(stick("1-1", "AAAA1111", "ttyUSB0"))
	n.host.AddUSB(stick("1-2", "BBBB2222", "ttyUSB1"))
	health := filepath.Join(n.options.Paths.RunDir, "health")
	dir := func(ids string) string { return filepath.Join(health, ids) }
	once := func() error {
		ctx, cancel := context.WithTimeout(t.Context(), limit)
		defer cancel()
		a, err := agent.New(n.options)
		must(t, err)
		_, err = a.Once(ctx)
		return err
	}
	earlier, stop := n.serve()
	<-earlier.Settled()
	stop()
	must(t, os.RemoveAll(health))
	must(t, once())
	if spec := n.spec(zigbeeName); strings.Contains(spec, "/run/device") {
		t.Errorf("a spec that nobody keeps current has a health directory:\n%s", spec)
	}
	if entries, _ := os.ReadDir(health); len(entries) > 0 {
		t.Errorf("Once makes %v, which nobody keeps current", entries)
	}
	a, _ := n.serve()
	<-a.Settled()
	if err := once(); err == nil || !strings.Contains(err.Error(), "an instance is serving") {
		t.Errorf("Once beside an instance that serves: %v, want a refusal", err)
	}
	n.eventually("healthy", func() bool {
		return healthy(dir(stickID)) != nil && healthy(dir(otherID)) != nil
	})
	spec := n.spec(zigbeeName)
	// In its own entry, and in the entry with all devices.
	for index, id := range []string{stickID, otherID} {
		if strings.Count(spec, `"hostPath": "`+dir(id)+`"`) != 2 {
			t.Errorf("spec lacks %s in one of two entries:\n%s", dir(id), spec)
		}
		if path := fmt.Sprintf(`"containerPath": "/run/device/%d"`, index); strings.Count(spec, path) != 1 {
			t.Errorf("spec lacks %s:\n%s", path, spec)
		}
	}
	n.host.RemoveUSB("1-1")
	n.eventually("the loss", func() bool { return healthy(dir(stickID)) == nil })
	n.wantHealthy(dir(otherID), true, "the other device")
}
