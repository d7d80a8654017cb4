package agent_test

import (
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/generic-dp/generic-dp/cdi"
	"github.com/generic-dp/generic-dp/internal/agent"
	"github.com/generic-dp/generic-dp/internal/kubelet/dra"
	"github.com/generic-dp/generic-dp/internal/testing/kubelettest"
	"github.com/generic-dp/generic-dp/internal/testing/sysfstest"
)

// resetting is a stick that is reset before a container starts.
const resetting = zigbee + "container.reset = \"usb\"\n"

// kernel is a kernel that resets devices of a fake host.
type kernel struct {
	mu sync.Mutex
	// resets are the resets so far: "usb devices/...".
	resets []string
	// react is what happens in a reset.
	react func() error
}

func (k *kernel) reset(way, path string) error {
	k.mu.Lock()
	k.resets = append(k.resets, way+" "+path)
	react := k.react
	k.mu.Unlock()
	return react()
}

// on replaces the reaction to the next resets.
func (k *kernel) on(react func() error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.react = react
}

func (k *kernel) count() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return len(k.resets)
}

// resetBed is a node whose kernel resets devices.
type resetBed struct {
	*holding
	kernel kernel
	// path is the sysfs path of the stick.
	path string
	stop func()
}

// containerOf is the container of a pod with a stick.
func containerOf(pod string) kubelettest.Request {
	return kubelettest.Request{Namespace: "d", Pod: pod, Container: "c", Resource: zigbees}
}

// newResetBed returns a node with a stick, whose reset leaves it as it is.
func newResetBed(t *testing.T, text string) *resetBed {
	t.Helper()
	b := &resetBed{holding: newHolding(t, text)}
	b.options.Allow.Reset = true
	b.kernel.on(func() error { return nil })
	b.addBus()
	b.path = b.host.AddUSB(stick("1-1", "AAAA1111", "ttyUSB0"))
	return b
}

// run starts an instance whose resets may take a time.
func (b *resetBed) run(within time.Duration) {
	b.Helper()
	a, err := agent.New(b.Context(), b.options)
	if err != nil {
		b.Fatal(err)
	}
	a.SetReset(b.kernel.reset, within)
	b.stop = b.node.run(a)
	b.untilListed(zigbees, []string{stickID}, nil)
	b.until("registration", func() bool { return b.kubelet.Count(zigbees).Allocatable == 1 })
}

// admit admits a pod with the stick, whose sandbox runs then.
func (b *resetBed) admit(pod string) (uid string, admission *kubelettest.Admission) {
	b.Helper()
	admission, err := b.kubelet.Admit(b.Context(), containerOf(pod), 1)
	if err != nil {
		b.Fatal(err)
	}
	uid = b.kubelet.UID("d", pod)
	b.cgroups.Start(uid)
	return uid, admission
}

// replug makes the kernel remove the stick in a reset, and add it with another node.
func (b *resetBed) replug(tty string) {
	b.kernel.on(func() error {
		b.host.RemoveUSB("1-1")
		b.host.AddUSB(stick("1-1", "AAAA1111", tty))
		return nil
	})
}

// refusal starts the container of a pod, which must fail for these reasons.
func (b *resetBed) refusal(pod string, parts ...string) {
	b.Helper()
	err := b.kubelet.StartContainer(b.Context(), containerOf(pod))
	if err == nil {
		b.Fatalf("the container of pod %s may start", pod)
	}
	for _, part := range append(parts, zigbees, stickID) {
		if !strings.Contains(err.Error(), part) {
			b.Errorf("the error does not have %q: %v", part, err)
		}
	}
}

// A device is reset before each start of a container. The container starts when the link points to
// the node that the device has then, and the directory does not show the reset as a loss: the
// liveness probe would restart the container, and the device would be reset again.
func TestResetBeforeStart(t *testing.T) {
	t.Parallel()
	b := newResetBed(t, strings.Replace(resetting, "container.path", "container.health_dir = \"/run/device\"\ncontainer.path", 1))
	b.run(limit)
	_, admission := b.admit("p")
	dir := ""
	for _, m := range admission.Response.GetMounts() {
		dir = m.GetHostPath()
	}
	for _, tty := range []string{"ttyUSB7", "ttyUSB0", "ttyUSB0"} {
		b.replug(tty)
		before := b.kernel.count()
		if err := b.kubelet.StartContainer(t.Context(), containerOf("p")); err != nil {
			t.Fatal(err)
		}
		if got := b.kernel.count() - before; got != 1 {
			t.Errorf("%d resets for one start", got)
		}
		if got, want := b.linkOf(stickID, "if00:ttyUSB"), "/dev/"+tty; got != want {
			t.Errorf("link to %q, want %q", got, want)
		}
		b.wantHealthy(dir, true, "when the container starts")
		b.untilListed(zigbees, []string{stickID}, nil)
	}
	if want := "usb " + b.path; !slices.Equal(b.kernel.resets, []string{want, want, want}) {
		t.Errorf("resets %q, want three of %q", b.kernel.resets, want)
	}
	// A loss while the container runs still counts.
	b.host.RemoveUSB("1-1")
	b.untilListed(zigbees, nil, []string{stickID})
	b.wantHealthy(dir, false, "after a loss")
}

// A claim with adminAccess uses a device beside its holder, also after a change of the API by which the
// device is offered.
func TestResetBesideAdminClaim(t *testing.T) {
	t.Parallel()
	b := newResetBed(t, resetting)
	b.run(limit)
	b.admit("p")
	w := b.options.Paths.SpecWriter()
	claim := cdi.Claim{
		Namespace: "lab",
		Name:      "admin",
		UID:       "uid-admin",
		Requests:  []cdi.Request{{Name: "r", Admin: []string{zigbees + "=" + stickID}}},
	}
	if err := w.WriteClaim(claim); err != nil {
		t.Fatal(err)
	}
	b.refusal("p", "claim lab/admin has adminAccess to it")
	if n := b.kernel.count(); n > 0 {
		t.Errorf("%d resets beside the claim", n)
	}
	if err := w.RemoveClaim(claim.UID); err != nil {
		t.Fatal(err)
	}
	if err := b.kubelet.StartContainer(t.Context(), containerOf("p")); err != nil {
		t.Error(err)
	}
}

// A device that must not be reset, or that a reset breaks, keeps the container from starting.
func TestResetFails(t *testing.T) {
	t.Parallel()
	b := newResetBed(t, resetting)
	b.run(2 * time.Second)
	b.admit("p")
	b.kernel.on(func() error { return errors.New("it is stuck") })
	b.refusal("p", "was not reset", b.path, "it is stuck")
	b.kernel.on(func() error {
		b.host.RemoveUSB("1-1")
		return nil
	})
	b.refusal("p", "did not become healthy after the reset", "gone")
	resets := b.kernel.count()
	b.refusal("p", "gone")
	if b.kernel.count() != resets {
		t.Error("an absent device was reset")
	}
	// The next try succeeds.
	b.host.AddUSB(stick("1-1", "AAAA1111", "ttyUSB0"))
	b.kernel.on(func() error { return nil })
	if err := b.kubelet.StartContainer(t.Context(), containerOf("p")); err != nil {
		t.Error(err)
	}
	if log := b.log.String(); !strings.Contains(log, `msg="device was not reset"`) || !strings.Contains(log, `msg="device was reset"`) {
		t.Error("the log does not have both results")
	}
}

// A device that another pod may use is never reset, whatever the kubelet believes.
func TestResetOfHeldDevice(t *testing.T) {
	t.Parallel()
	b := newResetBed(t, resetting)
	b.run(limit)
	first, _ := b.admit("first")
	if err := b.kubelet.StartContainer(t.Context(), containerOf("first")); err != nil {
		t.Fatal(err)
	}
	// The kubelet forgets the pod, and gives the device to another one without a call.
	b.kubelet.Remove("d", "first")
	b.kubelet.Hold(containerOf("second"), stickID)
	b.cgroups.Start(b.kubelet.UID("d", "second"))
	b.refusal("second", first, "still run")
	if got := b.kernel.count(); got != 1 {
		t.Fatalf("%d resets, want the first only", got)
	}
	b.cgroups.End(first)
	if err := b.kubelet.StartContainer(t.Context(), containerOf("second")); err != nil {
		t.Error(err)
	}
	// Both pods are in the checkpoint, and both run.
	b.kubelet.Hold(containerOf("third"), stickID)
	b.cgroups.Start(b.kubelet.UID("d", "third"))
	b.refusal("third", b.kubelet.UID("d", "second"), b.kubelet.UID("d", "third"))
	if got := b.kernel.count(); got != 2 {
		t.Errorf("%d resets, want two", got)
	}
}

// Without the host's cgroups nobody knows who has the device.
func TestResetNeedsCgroups(t *testing.T) {
	t.Parallel()
	b := newResetBed(t, resetting)
	b.options.Paths.Cgroup = filepath.Join(t.TempDir(), "none")
	b.run(limit)
	b.admit("p")
	b.refusal("p", "unknown which pods run")
	if b.kernel.count() != 0 {
		t.Error("the device was reset")
	}
}

// A reset that hangs ends the call in time. No second one begins before it has returned, and the
// next start of a container waits for it.
func TestResetHangs(t *testing.T) {
	t.Parallel()
	b := newResetBed(t, resetting)
	b.run(time.Second)
	b.admit("p")
	release := make(chan struct{})
	b.kernel.on(func() error {
		<-release
		return nil
	})
	b.refusal("p", "does not answer")
	b.refusal("p", "does not answer")
	if got := b.kernel.count(); got != 1 {
		t.Errorf("%d resets at a time", got)
	}
	close(release)
	b.eventually("start of the container", func() bool {
		return b.kubelet.StartContainer(t.Context(), containerOf("p")) == nil
	})
}

// Starts at the same time wait for each other.
func TestConcurrentResets(t *testing.T) {
	t.Parallel()
	b := newResetBed(t, resetting)
	b.run(limit)
	b.admit("p")
	var atOnce, most int
	var mu sync.Mutex
	b.kernel.on(func() error {
		mu.Lock()
		atOnce++
		most = max(most, atOnce)
		mu.Unlock()
		time.Sleep(time.Millisecond) // another reset would begin meanwhile
		mu.Lock()
		atOnce--
		mu.Unlock()
		return nil
	})
	var starts sync.WaitGroup
	for range 4 {
		starts.Go(func() {
			if err := b.kubelet.StartContainer(t.Context(), containerOf("p")); err != nil {
				t.Error(err)
			}
		})
	}
	starts.Wait()
	if most != 1 || b.kernel.count() != 4 {
		t.Errorf("%d resets, %d at once; want 4, one after the other", b.kernel.count(), most)
	}
}

// The kubelet learns of an edited configuration.
func TestResetIsEdited(t *testing.T) {
	t.Parallel()
	b := newResetBed(t, zigbee)
	b.run(limit)
	b.admit("p")
	if b.kubelet.MustPreStart(zigbees) {
		t.Error("a resource without a reset wants PreStartContainer")
	}
	b.configure(resetting)
	b.until("registration with the option", func() bool { return b.kubelet.MustPreStart(zigbees) })
	b.untilListed(zigbees, []string{stickID}, nil)
	if err := b.kubelet.StartContainer(t.Context(), containerOf("p")); err != nil {
		t.Error(err)
	}
	if got := b.kernel.count(); got != 1 {
		t.Errorf("%d resets, want one", got)
	}
	b.configure(zigbee)
	b.until("registration without the option", func() bool {
		return !b.kubelet.MustPreStart(zigbees) && b.kubelet.Count(zigbees).Allocatable == 1
	})
	if err := b.kubelet.StartContainer(t.Context(), containerOf("p")); err != nil {
		t.Error(err)
	}
	// A resource that is removed keeps its registration, and its container can restart.
	b.configure(resetting)
	b.until("registration with the option", func() bool { return b.kubelet.MustPreStart(zigbees) })
	b.untilListed(zigbees, []string{stickID}, nil)
	b.configure(parts("other"))
	b.untilListed(zigbees, nil, []string{stickID})
	if err := b.kubelet.StartContainer(t.Context(), containerOf("p")); err != nil {
		t.Error(err)
	}
	if got := b.kernel.count(); got != 1 {
		t.Errorf("%d resets, want no more", got)
	}
}

// A reset may make a device healthy: that is what it is for.
func TestResetOfUnhealthyDevice(t *testing.T) {
	t.Parallel()
	b := newResetBed(t, resetting+"health.attr.state = \"good\"\n")
	b.setAttr(b.path, "state", "good")
	b.run(limit)
	b.admit("p")
	b.setAttr(b.path, "state", "bad")
	b.kernel.on(func() error {
		b.setAttr(b.path, "state", "good")
		return nil
	})
	if err := b.kubelet.StartContainer(t.Context(), containerOf("p")); err != nil {
		t.Error(err)
	}
	b.kernel.on(func() error {
		b.setAttr(b.path, "state", "worse")
		return nil
	})
	b.resetWithin(t)
}

// resetWithin starts a container whose device becomes unhealthy by the reset.
func (b *resetBed) resetWithin(t *testing.T) {
	t.Helper()
	b.stop()
	b.setAttr(b.path, "state", "good")
	b.run(2 * time.Second)
	b.refusal("p", "did not become healthy after the reset", "worse")
}

// A host uses its network interfaces, and a reset would cut it off. It may begin to do so at any
// time.
func TestResetOfUsedDevice(t *testing.T) {
	t.Parallel()
	b := newResetBed(t, resetting)
	b.run(2 * time.Second)
	b.admit("p")
	b.host.AddNet("", sysfstest.Net{Name: "br0", Bridge: true})
	b.host.AddNet(b.path+"/1-1:1.0", sysfstest.Net{Name: "wwan0", Master: "br0"})
	b.refusal("p", "the host uses", "wwan0", "br0")
	b.untilListed(zigbees, []string{stickID}, nil)
	if b.kernel.count() != 0 {
		t.Error("the device was reset")
	}
}

// The claim of a device has the nodes that the device has after its reset, in the environment, too. A
// repeated prepare resets nothing, because the containers of the claim may run.
func TestResetOfClaim(t *testing.T) {
	t.Parallel()
	n, api := newDRANode(t, "api = \"dra\"\n"+resetting+"container.env.NODE = \"${devnode}\"\ncontainer.health_dir = \"/run/device\"\n")
	n.answerWithin = limit
	n.options.Allow.Reset = true
	n.addBus()
	n.host.AddUSB(stick("1-1", "AAAA1111", "ttyUSB0"))
	var k kernel
	k.on(func() error {
		n.host.RemoveUSB("1-1")
		n.host.AddUSB(stick("1-1", "AAAA1111", "ttyUSB7"))
		return nil
	})
	a, err := agent.New(t.Context(), n.options)
	if err != nil {
		t.Fatal(err)
	}
	a.SetReset(k.reset, limit)
	n.run(a)
	name := dra.DeviceName(stickID)
	n.untilPublished(api, map[string]string{name: ""})
	n.until("registration", func() bool { return n.kubelet.Drivers(dra.Driver) == 1 })
	claim := allocate(api, "a", name)
	devices, err := n.kubelet.PrepareClaim(t.Context(), dra.Driver, claim)
	if err != nil {
		t.Fatal(err)
	}
	got := names(devices)
	if e := n.edits(got[0]); e == nil || e.DeviceNodes[0].HostPath != "/dev/ttyUSB7" {
		t.Errorf("edits of the device: %+v", e)
	}
	e := n.edits(got[1])
	if e == nil || !slices.Contains(e.Env, "NODE=/dev/ttyUSB7") {
		t.Fatalf("edits of the claim: %+v", e)
	}
	for _, m := range e.Mounts {
		if m.ContainerPath == "/run/device" {
			n.wantHealthy(m.HostPath, true, "when the claim is prepared")
		}
	}
	if _, err := n.kubelet.PrepareClaim(t.Context(), dra.Driver, claim); err != nil {
		t.Error(err)
	}
	if k.count() != 1 {
		t.Errorf("%d resets, want one", k.count())
	}
	n.untilPublished(api, map[string]string{name: ""})
}
