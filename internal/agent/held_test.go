package agent_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/generic-dp/generic-dp/internal/holds"
	"github.com/generic-dp/generic-dp/internal/ledger"
	"github.com/generic-dp/generic-dp/internal/status"
	"github.com/generic-dp/generic-dp/internal/testing/kubelettest"
	"github.com/generic-dp/generic-dp/internal/testing/sysfstest"
)

// An I2C bus that is no longer the only one of its hardware has another ID, too. The ID by
// which a container holds it never goes to the other bus, whichever number that has.
func TestHeldI2CBusGetsASibling(t *testing.T) {
	t.Parallel()
	const resource, a, b, single = "example.com/i2c", "0000:00:02.0:i2c:gmbusA", "0000:00:02.0:i2c:gmbusB", "0000:00:02.0:i2c"
	for _, sibling := range []string{"i2c-4", "i2c-6"} {
		t.Run(sibling, func(t *testing.T) {
			t.Parallel()
			n := newNode(t, "domain = \"example.com\"\n[[resource]]\nname = \"i2c\"\nmatch = { glob = \"/dev/i2c-*\", dangerous = true }\n")
			n.options.Allow.Dangerous = true
			card := n.host.AddPCI(sysfstest.PCI{Address: "0000:00:02.0", Vendor: "8086", Device: "9a49", Class: "030000", Driver: "i915"})
			add := func(bus, adapter string) {
				dir := bus + "/i2c-dev/" + bus
				n.host.AddNode(card, sysfstest.Node{Name: bus, Subsystem: "i2c-dev", Dir: dir, Attrs: map[string]string{dir + "/name": adapter}})
			}
			add("i2c-5", "gmbusA")
			var c clock
			agent, _ := n.serveBy(&c)
			n.untilListed(resource, []string{single}, nil)
			n.kubelet.Hold(request("p", resource), single)
			add(sibling, "gmbusB")
			n.untilListed(resource, []string{b}, []string{single})
			if links, _ := filepath.Glob(filepath.Join(n.options.Paths.RunDir, "links", single, "*")); len(links) == 0 {
				t.Error("no link")
			} else if target, _ := os.Readlink(links[0]); target != "/dev/i2c-5" {
				t.Errorf("the link leads to %q", target)
			}
			n.kubelet.Remove("default", "p")
			n.untilOffered(agent, &c, resource, a, b)
		})
	}
}

// A held device that can't be read yet after a restart is not offered by the ID that an edit has given
// it. A program that reads more of a device than its predecessor did reads all devices again.
func TestHeldDeviceThatIsReadLate(t *testing.T) {
	t.Parallel()
	const resource = "example.com/zigbee"
	n := newNode(t, zigbee)
	dir := n.addSticks(1)
	_, stop := n.serve()
	n.untilListed(resource, []string{stickID}, nil)
	n.kubelet.Hold(request("p", resource), stickID)
	n.configure(strings.Replace(zigbee, "container.path", "identity = \"port\"\ncontainer.path", 1))
	n.untilListed(resource, nil, []string{stickID})
	stop()
	n.forgetUSB()

	_, end := hang(t, filepath.Join(n.host.Sysfs(), dir))
	a, _ := n.serve()
	n.untilReason(a, resource, stickID, ledger.ReasonUnread)
	waiting := func() int { return strings.Count(n.log.String(), "device is not listed yet") }
	before := waiting()
	end()
	n.eventually("the other ID", func() bool {
		list, _ := n.kubelet.Latest(resource)
		if len(list.Healthy()) > 0 {
			t.Fatalf("the held device is offered as %q", list.Healthy())
		}
		return waiting() > before
	})
}

// forgetUSB removes the USB devices that were read from the saved state.
func (n *node) forgetUSB() {
	n.Helper()
	path := filepath.Join(n.options.Paths.StateDir, "state.json")
	text, err := os.ReadFile(path)
	must(n, err)
	state := map[string]any{}
	must(n, json.Unmarshal(text, &state))
	if state["usb"] == nil {
		n.Fatalf("the state has no USB device: %s", text)
	}
	delete(state, "usb")
	text, err = json.Marshal(state)
	if err == nil {
		err = os.WriteFile(path, text, 0o600)
	}
	must(n, err)
}

// A device that an edit moves to another resource matches there at once, and the status says for what it waits.
// It is offered as soon as the cgroup of its pod is removed.
func TestReleasedDeviceIsOfferedAtOnce(t *testing.T) {
	t.Parallel()
	const resource, other = "example.com/zigbee", "example.com/other"
	h := newHolding(t, zigbee)
	h.addSticks(1)
	var c clock
	a, _ := h.serveBy(&c)
	h.untilListed(resource, []string{stickID}, nil)
	uid := h.runs("p", resource)
	h.configure(strings.Replace(zigbee, `"zigbee"`, `"other"`, 1))
	h.untilListed(resource, nil, []string{stickID})
	wait := stickID + ": listed by " + resource + " until no container holds it, at least for a minute"
	var now status.Status
	h.eventually("the reason for the wait", func() bool {
		now = a.Status(t.Context())
		return len(now.Resources) == 2 && now.Resources[0].NoDevices == wait
	})
	if now.Resources[0].Name != other || len(now.Problems) > 0 {
		t.Errorf("%s: problems %q while a device moves to it, want none", now.Resources[0].Name, now.Problems)
	}
	c.forward(2 * time.Minute) // the device may leave the old list
	h.passes(a)
	h.kubelet.Remove("default", "p")
	begin := time.Now()
	h.cgroups.End(uid)
	h.untilListed(other, []string{stickID}, nil)
	t.Logf("offered %s after the end of the pod", time.Since(begin))
}

// holding is a node whose pods have cgroups.
type holding struct {
	*node
	cgroups *kubelettest.Cgroups
}

func newHolding(t *testing.T, text string) *holding {
	t.Helper()
	n := newNode(t, text)
	h := &holding{node: n, cgroups: kubelettest.NewCgroups(t)}
	n.options.Paths.Cgroup = h.cgroups.Dir()
	return h
}

const partResource = "example.com/part"

// runs admits a pod with one device of a resource, and starts it.
func (h *holding) runs(pod, resource string) (uid string) {
	h.Helper()
	_, err := h.kubelet.Admit(h.Context(), request(pod, resource), 1)
	must(h, err)
	uid = h.kubelet.UID("default", pod)
	h.cgroups.Start(uid)
	return uid
}

// forget deletes a pod with --force: its containers still run.
func (h *holding) forget(pod string) { h.kubelet.Remove("default", pod) }

// refused admits a pod, which must fail because of the pod with that UID.
func (h *holding) refused(pod, uid string) {
	h.Helper()
	a, err := h.kubelet.Admit(h.Context(), request(pod, partResource), 1)
	if err == nil {
		h.Fatalf("pod %s got %q while the pod with UID %s runs", pod, a.IDs, uid)
	}
	for _, part := range []string{uid, partResource, "part-0"} {
		if !strings.Contains(err.Error(), part) {
			h.Errorf("the error does not name %s: %v", part, err)
		}
	}
}

// A device is not allocated again while the containers of a pod run that was deleted with
// --force. It is unhealthy meanwhile, so that no further pod is sent to the node.
func TestForceDeletedPodKeepsItsDevice(t *testing.T) {
	t.Parallel()
	h := newHolding(t, parts("part"))
	h.addNodes("part-0")
	h.serve()
	h.untilListed(partResource, []string{"part-0"}, nil)
	first := h.runs("first", partResource)
	h.forget("first")
	began := time.Now()
	h.refused("second", first)
	if took := time.Since(began); took > limit/4 {
		t.Errorf("the refusal took %s", took)
	}
	h.untilListed(partResource, nil, []string{"part-0"})
	h.cgroups.End(first)
	h.untilListed(partResource, []string{"part-0"}, nil)
	second := h.runs("second", partResource)
	if second == first {
		t.Errorf("both pods have UID %s", first)
	}
}

// A restart of the program loses nothing: neither a pod that the checkpoint has, nor one
// that only the program remembers.
func TestForgottenPodOutlivesTheProgram(t *testing.T) {
	t.Parallel()
	h := newHolding(t, parts("part"))
	h.addNodes("part-0")
	_, stop := h.serve()
	h.untilListed(partResource, []string{"part-0"}, nil)
	first := h.runs("first", partResource)
	h.forget("first")
	h.refused("second", first)
	h.untilListed(partResource, nil, []string{"part-0"}) // this rewrites the checkpoint
	stop()
	h.serve()
	h.until("registration of the next instance", func() bool {
		return h.kubelet.Registrations(partResource) == 2 && len(h.kubelet.Connected(partResource)) == 1
	})
	_, err := h.kubelet.Allocate(h.Context(), partResource, "part-0")
	if err == nil || !strings.Contains(err.Error(), first) {
		t.Errorf("Allocate after a restart: %v, want an error that names %s", err, first)
	}
	h.cgroups.End(first)
	h.untilListed(partResource, []string{"part-0"}, nil)
}

// The checkpoint keeps a pod that the kubelet has forgotten until the kubelet allocates the next
// device: a list of a plugin writes it unchanged. Its device is held nevertheless.
func TestForgottenPodInTheCheckpointKeepsItsDevice(t *testing.T) {
	t.Parallel()
	h := newHolding(t, parts("part"))
	h.addNodes("part-0")
	var c clock
	c.forward(time.Hour)
	a, _ := h.serveBy(&c)
	h.untilListed(partResource, []string{"part-0"}, nil)
	first := h.runs("first", partResource)
	h.forget("first")
	h.configure(strings.Replace(parts("part"), `"part"`, `"renamed"`, 1))
	h.untilListed(partResource, nil, []string{"part-0"})
	for range 3 {
		c.forward(2 * time.Minute)
		h.passes(a)
		if list, received := h.kubelet.Latest("example.com/renamed"); received > 0 && len(list.Healthy()) > 0 {
			t.Fatalf("the other resource offers %q while the pod with UID %s runs", list.Healthy(), first)
		}
	}
}

// While nobody knows who holds devices, none is added to the lists. That is one problem, and not one for
// each device.
func TestUnreadableCheckpointIsAProblem(t *testing.T) {
	t.Parallel()
	h := newHolding(t, parts("part"))
	checkpoint := filepath.Join(h.options.Paths.KubeletDir, holds.CheckpointName)
	must(t, os.RemoveAll(checkpoint))
	must(t, os.Mkdir(checkpoint, 0o700))
	h.addNodes("part-0", "part-1")
	a, _ := h.serve()
	var problems []status.Problem
	h.eventually("the problem", func() bool {
		problems = a.Status(t.Context()).Problems
		return len(problems) > 0
	})
	if len(problems) != 1 || problems[0].Subject != "holders" || !strings.Contains(problems[0].Reason, "not a regular file") {
		t.Errorf("problems %q, want one about holders", problems)
	}
}
