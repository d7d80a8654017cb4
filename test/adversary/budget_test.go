//go:build adversary

package adversary

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/generic-dp/generic-dp/internal/testing/kubelettest"
	"github.com/generic-dp/generic-dp/internal/testing/sysfstest"
)

const (
	stick = "example.com/stick"
	// serials is how many serial numbers a device shows.
	serials = 500
)

// sticks has a resource of USB serial adapters.
func sticks(count int) string {
	return goodConfig + fmt.Sprintf(`
[[resource]]
name = "stick"
count = %d
match = { usb = { id = "10c4:ea60" }, glob = "/dev/ttyUSB*" }
`, count)
}

// plug plugs a USB serial adapter into a port in the place of another.
func (n *node) plug(port int, serial string) {
	n.Helper()
	place := fmt.Sprintf("1-%d", port)
	if _, err := os.Lstat(filepath.Join(n.host.Sysfs(), "bus/usb/devices", place)); err == nil {
		n.host.RemoveUSB(place)
	}
	n.host.AddUSB(sysfstest.USB{
		Port:   place,
		Vendor: "10c4", Product: "ea60", Serial: serial,
		Interfaces: []sysfstest.Interface{{
			Class:  "ff",
			Driver: "cp210x",
			Nodes:  []sysfstest.Node{sysfstest.SerialPort(fmt.Sprintf("ttyUSB%d", port), 0)},
		}},
	})
	// A tree of files sends no uevent, but a change of names below /dev.
	name := filepath.Join(n.host.Dev(), ".announce")
	_ = os.Mkdir(name, 0o700)
	_ = os.Remove(name)
}

// runKubelet makes the kubelet one that has run for an hour: one that has just started may not
// know all containers.
func (n *node) runKubelet() {
	n.Helper()
	started := time.Now().Add(-time.Hour)
	for _, socket := range []string{n.kubelet.Socket(), n.path("pods.sock")} {
		n.must(os.Chtimes(socket, started, started))
	}
}

// waitAllocatable waits until a resource has so many allocatable slots.
func (n *node) waitAllocatable(name string, slots int) {
	n.Helper()
	ctx, cancel := context.WithTimeout(n.Context(), startTime)
	defer cancel()
	if n.kubelet.WaitAllocatable(ctx, name, slots) != nil {
		n.fatal("%s: %+v, want %d allocatable", name, n.kubelet.Count(name), slots)
	}
}

// healthySlots returns how many slots of a device are healthy in the kubelet's latest list.
func (n *node) healthySlots(name, id string) int {
	list, _ := n.kubelet.Latest(name)
	slots := 0
	for _, d := range list.Devices {
		if d.Health == "Healthy" && (d.ID == id || strings.HasPrefix(d.ID, id+"::")) {
			slots++
		}
	}
	return slots
}

// resident is the resident memory of the program in MB.
func (n *node) resident() float64 {
	n.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", n.cmd.Process.Pid))
	n.must(err)
	_, rest, _ := strings.Cut(string(text), "VmRSS:")
	var kib float64
	if _, err := fmt.Sscan(rest, &kib); err != nil {
		n.Fatal(err)
	}
	return kib / 1000
}

// A USB device that shows another serial number whenever it is read takes no slot of an honest
// one away, ends nothing, and nothing of it is left after a restart that does.
func TestChangingSerialNumbers(t *testing.T) {
	t.Parallel()
	for _, count := range []int{1, 1000} {
		t.Run(fmt.Sprintf("count = %d", count), func(t *testing.T) {
			t.Parallel()
			n := newNode(t)
			n.host.AddBus()
			const honest = "usb:10c4:ea60:HONEST"
			n.plug(1, "HONEST")
			n.configure(sticks(count))
			n.runKubelet()
			n.serve()
			n.waitAllocatable(stick, count)
			before := n.resident()
			most := 0.0
			for i := range serials {
				n.mu.Lock()
				from := len(n.log)
				n.mu.Unlock()
				n.plug(2, fmt.Sprintf("FAKE%05d", i))
				n.waitLogged(from, fmt.Sprintf("FAKE%05d", i))
				most = max(most, n.resident())
				if i%100 == 0 {
					n.checkServes()
					if slots := n.healthySlots(stick, honest); slots != count {
						n.fatal("after %d serial numbers %d slots of the honest stick are healthy, want %d", i, slots, count)
					}
				}
			}
			n.Logf("resident: %.1f MB before, at most %.1f MB", before, most)
			n.mu.Lock()
			hasDropped := slices.ContainsFunc(n.log, func(line string) bool { return strings.Contains(line, "left the lists early") })
			n.mu.Unlock()
			if count > 1 && !hasDropped {
				t.Error("no slot was left out")
			}
			n.host.RemoveUSB("1-2")
			n.stop()
			n.serve()
			n.waitAllocatable(stick, count)
			if slots := n.healthySlots(stick, honest); slots != count {
				n.fatal("after a restart %d slots of the honest stick are healthy, want %d", slots, count)
			}
			n.Logf("resident after a restart: %.1f MB", n.resident())
			n.stop()
		})
	}
}

// Attributes of devices count like everything else of them: what exceeds the budget is left out, and the
// other resources are served.
func TestManyAttributes(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.runKubelet()
	n.serve()
	text := goodConfig
	for r := range 4 {
		text += fmt.Sprintf("[[resource]]\nname = \"many%d\"\napi = \"dra\"\n", r)
		for a := range 20 {
			text += fmt.Sprintf("attributes.a%d = \"${virtual}\"\n", a)
		}
		text += fmt.Sprintf("match.virtual = [%s\"last%d\"]\n", repeat(2400, fmt.Sprintf("\"v%d-%%\",", r)), r)
	}
	if outcome := n.reload(text); outcome != accepted {
		t.Fatalf("the configuration of %d bytes: %s", len(text), outcome)
	}
	n.must(poll(func() error {
		text, err := n.probe("/metrics")
		if err == nil && !strings.Contains(text, "example.com/many0") {
			err = errors.New("the devices are not listed")
		}
		return err
	}))
	n.Logf("resident: %.1f MB", n.resident())
	n.kill()
	n.serve()
	n.stop()
}

// A kubelet that names tens of thousands of devices as held, as from a checkpoint out of a
// backup, ends nothing, and what is there stays allocatable.
func TestManyHeldDevices(t *testing.T) {
	t.Parallel()
	for name, format := range map[string]string{
		"devices":             "line%05d",
		"slots of one device": "line0::%d",
		"last slots":          "line%d::9999",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t)
			var ids []string
			for i := range 50_000 {
				ids = append(ids, fmt.Sprintf(format, i))
			}
			for i := range 50 {
				request := kubelettest.Request{Namespace: "default", Pod: fmt.Sprint("pod-", i), Container: "main", Resource: "example.com/tty"}
				n.kubelet.Hold(request, ids[i*1000:(i+1)*1000]...)
			}
			n.host.AddNode("", sysfstest.Node{Name: "line7", Subsystem: "tty", Major: 188, Minor: 7})
			n.configure(goodConfig + "[[resource]]\nname = \"tty\"\ncount = 10\nmatch.glob = \"/dev/line7\"\n")
			n.serve()
			n.waitAllocatable("example.com/tty", 10)
			// The answer of the kubelet causes the next list.
			ctx, cancel := context.WithTimeout(t.Context(), startTime)
			defer cancel()
			n.must(n.kubelet.WaitFor(ctx, func() bool {
				list, _ := n.kubelet.Latest("example.com/tty")
				return len(list.Devices) > 10
			}))
			for range 10 {
				if _, err := n.probe("/metrics"); err != nil {
					n.fatal("/metrics: %v", err)
				}
				n.checkServes()
			}
			if slots := n.healthySlots("example.com/tty", "line7"); slots != 10 {
				n.fatal("%d slots are healthy, want 10", slots)
			}
			n.Logf("resident: %.1f MB", n.resident())
			n.stop()
			n.serve()
			n.waitAllocatable("example.com/tty", 10)
			n.stop()
		})
	}
}
