package agent_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/generic-dp/generic-dp/internal/agent"
	"github.com/generic-dp/generic-dp/internal/testing/kubelettest"
)

const (
	followed = zigbee + "container.health_dir = \"/run/device\"\n"
	zigbees  = "example.com/zigbee"
)

// healthDir is the health directory on the host that a pod gets with some devices.
func (n *node) healthDir(pod string, devices int) string {
	n.Helper()
	a, err := n.kubelet.Admit(context.Background(), kubelettest.Request{Namespace: "d", Pod: pod, Container: "c", Resource: zigbees}, devices)
	if err != nil {
		n.Fatal(err)
	}
	for _, m := range a.Response.GetMounts() {
		if m.GetContainerPath() == "/run/device" && m.GetReadOnly() {
			return m.GetHostPath()
		}
	}
	n.Fatalf("mounts %v: want a read-only one at /run/device", a.Response.GetMounts())
	return ""
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
		n.addBus()
		n.host.AddUSB(stick("1-1", "AAAA1111", "ttyUSB0"))
		var c clock
		n.serveBy(&c)
		n.untilListed(zigbees, []string{stickID}, nil)
		n.until("registration", func() bool { return n.kubelet.Count(zigbees).Allocatable == 1 })
		dir := n.healthDir("p", 1)
		n.wantHealthy(dir, true, "after Allocate")
		if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o755 {
			t.Errorf("directory %v, %v: want one that any user may enter", info, err)
		}
		n.host.RemoveUSB("1-1")
		n.untilListed(zigbees, nil, []string{stickID})
		n.wantHealthy(dir, false, "after the loss")
		n.host.AddUSB(stick("1-2", "BBBB2222", "ttyUSB0"))
		n.untilListed(zigbees, []string{otherID}, []string{stickID})
		c.forward(2 * time.Minute)
		n.event()
		n.host.RemoveUSB("1-2")
		n.untilListed(zigbees, nil, []string{stickID, otherID})
		n.wantHealthy(dir, false, "while another device has its name")
		n.host.AddUSB(stick("1-1", "AAAA1111", "ttyUSB0"))
		n.eventually("healthy after a long absence", func() bool { return healthy(dir) != nil })
		n.untilListed(zigbees, []string{stickID}, []string{otherID})

		n.host.RemoveUSB("1-1")
		n.untilListed(zigbees, nil, []string{stickID, otherID})
		c.forward(30 * time.Second)
		n.host.AddUSB(stick("1-1", "AAAA1111", "ttyUSB0"))
		n.untilListed(zigbees, []string{stickID}, []string{otherID})
		n.wantHealthy(dir, false, "during the hold")
		c.forward(11 * time.Second)
		n.event()
		n.eventually("healthy after the hold", func() bool { return healthy(dir) != nil })
	}
}

// The file is gone when the kubelet learns of a device that is unhealthy for any reason.
func TestHealthDirChangesBeforeTheList(t *testing.T) {
	t.Parallel()
	n := newNode(t, followed+"container.env.SPEED = \"${attr:speed}\"\n")
	n.addBus()
	dir := n.host.AddUSB(stick("1-1", "AAAA1111", "ttyUSB0"))
	n.setAttr(dir, "speed", "12")
	n.serve()
	n.until("registration", func() bool { return n.kubelet.Count(zigbees).Allocatable == 1 })
	path := n.healthDir("p", 1)
	if err := os.Remove(filepath.Join(n.options.Paths.Sysfs, dir, "speed")); err != nil {
		t.Fatal(err)
	}
	n.event()
	n.untilListed(zigbees, nil, []string{stickID})
	n.wantHealthy(path, false, "when the kubelet knows")
}

// Nothing but the end of the hold brings the file back.
func TestHealthHoldEndsByItself(t *testing.T) {
	t.Parallel()
	n := newNode(t, followed)
	n.addBus()
	n.host.AddUSB(stick("1-1", "AAAA1111", "ttyUSB0"))
	a, err := agent.New(n.Context(), n.options)
	if err != nil {
		t.Fatal(err)
	}
	a.SetHealthHold(time.Second)
	n.run(a)
	n.untilListed(zigbees, []string{stickID}, nil)
	n.until("registration", func() bool { return n.kubelet.Count(zigbees).Allocatable == 1 })
	dir := n.healthDir("p", 1)
	lost := time.Now()
	n.host.RemoveUSB("1-1")
	n.untilListed(zigbees, nil, []string{stickID})
	n.host.AddUSB(stick("1-1", "AAAA1111", "ttyUSB0"))
	n.untilListed(zigbees, []string{stickID}, nil)
	n.eventually("the end of the hold", func() bool { return healthy(dir) != nil })
	if held := time.Since(lost); held < time.Second {
		t.Errorf("healthy was away for %s, want a second", held)
	}
}

// A set of devices is as healthy as its worst, and nobody else's.
func TestHealthDirOfSeveralDevices(t *testing.T) {
	t.Parallel()
	text := strings.Replace(followed, `"/dev/zigbee"`, `"/dev/zigbee${index}"`, 1)
	n := newNode(t, text)
	n.addBus()
	for port, serial := range map[string]string{"1": "AAAA1111", "2": "BBBB2222", "3": "CCCC3333"} {
		n.host.AddUSB(stick("1-"+port, serial, "ttyUSB"+port))
	}
	n.serve()
	n.until("registration", func() bool { return n.kubelet.Count(zigbees).Allocatable == 3 })
	pair, one := n.healthDir("p", 2), n.healthDir("q", 1)
	if pair == one {
		t.Fatalf("%s is the directory of two sets", one)
	}
	n.host.RemoveUSB("1-2")
	n.until("loss", func() bool { return n.kubelet.Count(zigbees).Allocatable == 2 })
	n.wantHealthy(pair, false, "a set that lost a device")
	n.wantHealthy(one, true, "a set that lost none")
}

// A restart of the program neither takes the file away nor ends a hold, and finds a
// device that moved meanwhile.
func TestHealthDirOverARestart(t *testing.T) {
	t.Parallel()
	for _, lostState := range []bool{false, true} {
		n := newNode(t, followed+"health.attr = { bInterfaceClass = \"ff\" }\n")
		n.addBus()
		n.host.AddUSB(stick("1-1", "AAAA1111", "ttyUSB0"))
		var c clock
		restart := func(stop func()) (stopNew func()) {
			t.Helper()
			stop()
			if lostState {
				if err := os.RemoveAll(n.options.Paths.StateDir); err != nil {
					t.Fatal(err)
				}
			}
			a, stop := n.serveBy(&c)
			<-a.Settled()
			n.untilListed(zigbees, []string{stickID}, nil)
			return stop
		}
		_, stop := n.serveBy(&c)
		n.until("registration", func() bool { return n.kubelet.Count(zigbees).Allocatable == 1 })
		dir := n.healthDir("p", 1)
		before := healthy(dir)
		stop = restart(stop)
		if after := healthy(dir); !os.SameFile(before, after) {
			t.Errorf("lost state %t: a restart made healthy anew: %v, was %v", lostState, after, before)
		}

		n.host.RemoveUSB("1-1")
		n.untilListed(zigbees, nil, []string{stickID})
		c.forward(30 * time.Second)
		n.host.AddUSB(stick("1-1", "AAAA1111", "ttyUSB0"))
		n.untilListed(zigbees, []string{stickID}, nil)
		stop = restart(stop)
		n.wantHealthy(dir, false, "after a restart during the hold")
		if !lostState {
			c.forward(11 * time.Second)
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
	n.addBus()
	n.host.AddUSB(stick("1-1", "AAAA1111", "ttyUSB0"))
	n.host.AddUSB(stick("1-2", "BBBB2222", "ttyUSB1"))
	_, stop := n.serve()
	n.until("registration", func() bool { return n.kubelet.Count(zigbees).Allocatable == 2 })
	dir := n.healthDir("p", 2)
	n.host.RemoveUSB("1-1")
	n.untilListed(zigbees, []string{otherID}, []string{stickID})
	stop()
	if err := os.RemoveAll(n.options.Paths.RunDir); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(n.options.Paths.StateDir, "state.json")
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		t.Fatal(err)
	}
	other := strings.Replace(string(text), strings.TrimSpace(string(boot)), "00000000-0000-0000-0000-000000000000", 1)
	if err := os.WriteFile(file, []byte(other), 0o600); err != nil {
		t.Fatal(err)
	}
	n.serve()
	n.untilListed(zigbees, []string{otherID}, []string{stickID})
	n.wantHealthy(dir, false, "while a device is not there yet")
	n.host.AddUSB(stick("1-1", "AAAA1111", "ttyUSB7"))
	n.eventually("healthy without a hold", func() bool { return healthy(dir) != nil })
}

// A retired device is still where it was: its container goes on.
func TestHealthDirOfARetiredResource(t *testing.T) {
	t.Parallel()
	n := newNode(t, followed)
	n.addBus()
	n.host.AddUSB(stick("1-1", "AAAA1111", "ttyUSB0"))
	_, stop := n.serve()
	n.until("registration", func() bool { return n.kubelet.Count(zigbees).Allocatable == 1 })
	dir := n.healthDir("p", 1)
	before := healthy(dir)
	n.configure(parts("other"))
	n.untilListed(zigbees, nil, []string{stickID})
	stop()
	a, _ := n.serve()
	<-a.Settled()
	n.untilListed(zigbees, nil, []string{stickID})
	if after := healthy(dir); !os.SameFile(before, after) {
		t.Errorf("an edit of the configuration took healthy away: %v, was %v", after, before)
	}
	n.host.RemoveUSB("1-1")
	n.eventually("the loss", func() bool { return healthy(dir) == nil })
}

// The directory of a set that no container has any more is removed with the next new set:
// not if each of its devices is in some container.
func TestHealthDirsAreSwept(t *testing.T) {
	t.Parallel()
	n := newNode(t, strings.Replace(followed, `"/dev/zigbee"`, `"/dev/zigbee${index}"`, 1))
	n.addBus()
	for port, serial := range map[string]string{"1": "AAAA1111", "2": "BBBB2222", "3": "CCCC3333"} {
		n.host.AddUSB(stick("1-"+port, serial, "ttyUSB"+port))
	}
	var c clock
	c.forward(time.Hour) // the kubelet is as old
	n.serveBy(&c)
	n.until("registration", func() bool { return n.kubelet.Count(zigbees).Allocatable == 3 })
	pair := n.healthDir("p", 2)
	n.kubelet.Remove("d", "p")
	c.forward(2 * time.Minute)
	one := n.healthDir("q", 1)
	other := n.healthDir("r", 1)
	n.eventually("the end of the pair", func() bool { _, err := os.Stat(pair); return os.IsNotExist(err) })
	c.forward(2 * time.Minute)
	answers := func() int { return strings.Count(n.log.String(), "held devices are known") }
	before := answers()
	last := n.healthDir("s", 1)
	n.eventually("an answer", func() bool { return answers() > before })
	for _, dir := range []string{one, other, last} {
		n.wantHealthy(dir, true, dir)
	}
}

// A kubelet that cannot reach the API server after its start lists only static pods. The containers of
// the others run, and keep their directories.
func TestHealthDirOfAnUnlistedPod(t *testing.T) {
	t.Parallel()
	h := newHolding(t, strings.Replace(followed, `"/dev/zigbee"`, `"/dev/zigbee${index}"`, 1))
	h.addBus()
	for port, serial := range map[string]string{"1": "AAAA1111", "2": "BBBB2222", "3": "CCCC3333", "4": "DDDD4444"} {
		h.host.AddUSB(stick("1-"+port, serial, "ttyUSB"+port))
	}
	var c clock
	c.forward(time.Hour) // the kubelet is as old
	a, _ := h.serveBy(&c)
	h.until("registration", func() bool { return h.kubelet.Count(zigbees).Allocatable == 4 })
	answers := func() int { return strings.Count(h.log.String(), "held devices are known") }
	dir := h.healthDir("p", 2)
	uid := h.kubelet.UID("d", "p")
	h.cgroups.Start(uid)
	h.eventually("the checkpoint", func() bool { return a.Remembers(uid) })
	h.kubelet.Remove("d", "p")
	next := func(id, pod string) {
		t.Helper()
		before := answers()
		c.forward(2 * time.Minute)
		h.kubelet.Hold(kubelettest.Request{Namespace: "d", Pod: pod, Container: "c", Resource: zigbees}, id)
		if _, err := h.kubelet.Allocate(t.Context(), zigbees, id); err != nil { // another set
			t.Fatal(err)
		}
		h.eventually("an answer", func() bool { return answers() > before })
	}
	next("usb:10c4:ea60:CCCC3333", "q")
	h.event()
	h.wantHealthy(dir, true, "while its pod runs")
	h.cgroups.End(uid)
	next("usb:10c4:ea60:DDDD4444", "r")
	h.eventually("the end of the directory", func() bool {
		_, err := os.Stat(dir)
		return os.IsNotExist(err)
	})
}

// An instance that waits leaves the directories of the other one alone. When it serves, it keeps all of
// them, also the ones that the other one made meanwhile.
func TestHealthDirsSurviveAnUpdate(t *testing.T) {
	t.Parallel()
	n := newNode(t, strings.Replace(followed, `"/dev/zigbee"`, `"/dev/zigbee${index}"`, 1))
	n.addBus()
	n.host.AddUSB(stick("1-1", "AAAA1111", "ttyUSB1"))
	n.host.AddUSB(stick("1-2", "BBBB2222", "ttyUSB2"))
	_, stop := n.serve()
	n.until("registration", func() bool { return n.kubelet.Count(zigbees).Allocatable == 2 })
	dir := n.healthDir("p", 1)
	before := healthy(dir)

	// To the next instance, the devices do not work.
	n.options.Config = filepath.Join(t.TempDir(), "next.toml")
	numbered := strings.Replace(followed, `"/dev/zigbee"`, `"/dev/zigbee${index}"`, 1)
	n.configure(numbered + "health.attr = { idVendor = \"ffff\" }\n")
	n.standby()
	later := n.healthDir("q", 1)
	if after := healthy(dir); !os.SameFile(before, after) || healthy(later) == nil {
		t.Errorf("the instance that waits changed healthy: %v, was %v", after, before)
	}
	stop()
	n.eventually("the end of healthy", func() bool { return healthy(dir) == nil && healthy(later) == nil })
}

// Without a kubelet each CDI entry has the directory of its devices.
func TestHealthDirOfASpec(t *testing.T) {
	t.Parallel()
	n := newHost(t, strings.Replace(followed, `"/dev/zigbee"`, `"/dev/zigbee/"`, 1))
	n.host.AddUSB(stick("1-1", "AAAA1111", "ttyUSB0"))
	n.host.AddUSB(stick("1-2", "BBBB2222", "ttyUSB1"))
	dir := func(ids string) string { return filepath.Join(n.options.Paths.RunDir, "health", ids) }
	once, err := agent.New(n.Context(), n.options)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := once.Once(context.Background()); err != nil {
		t.Fatal(err)
	}
	if spec := n.spec(zigbees); strings.Contains(spec, "/run/device") {
		t.Errorf("a spec that nobody keeps current has a health directory:\n%s", spec)
	}
	a, _ := n.serve()
	<-a.Settled()
	all := dir(stickID + "," + otherID)
	n.eventually("healthy", func() bool {
		return healthy(dir(stickID)) != nil && healthy(dir(otherID)) != nil && healthy(all) != nil
	})
	spec := n.spec(zigbees)
	for _, path := range []string{dir(stickID), dir(otherID), all} {
		if strings.Count(spec, `"hostPath": "`+path+`"`) != 1 {
			t.Errorf("spec lacks %s, or has it twice:\n%s", path, spec)
		}
	}
	n.host.RemoveUSB("1-1")
	n.eventually("the loss", func() bool { return healthy(dir(stickID)) == nil && healthy(all) == nil })
	n.wantHealthy(dir(otherID), true, "the other device")
}
