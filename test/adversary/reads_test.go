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

	"github.com/generic-dp/generic-dp/internal/testing/sysfstest"
)

const (
	// endTime bounds the end after SIGTERM: a second on an idle machine. The kubelet waits for 30.
	endTime = 5 * time.Second
	// checkTime bounds check, and removalTime the time from a removal to the kubelet's list: at most two
	// matches of two seconds each on an idle machine.
	checkTime   = 10 * time.Second
	removalTime = 20 * time.Second
)

// tooMuchReading are configurations that make a match read without end.
var tooMuchReading = map[string]string{
	"seven wildcards":                resourceWith(`match.attr."*/*/*/*/*/*/*/nope" = "x"`),
	"through links to other devices": resourceWith(`match.attr."subsystem/devices/*/subsystem/devices/*/subsystem/devices/*/nope" = "x"`),
	"up and down again":              resourceWith(`match.attr."*/*/device/*/*/device/*/*/device/*/*/device/*/*/device/nope" = "x"`),
	"900 attributes with wildcards":  "\n[[resource]]\nname = \"hostile\"\nmatch = [" + repeat(900, "{ attr = { \"*/*/*/*/*/*/*/nope%\" = \"x\" } }, ") + "]\n",
	"900 resources with wildcards":   repeat(900, "[[resource]]\nname = \"h%\"\nmatch.attr.\"*/*/*/*/*/*/*/nope%\" = \"x\"\n"),
	"900 attributes":                 "\n[[resource]]\nname = \"hostile\"\nmatch = [" + repeat(900, "{ attr = { nope% = \"x\" } }, ") + "]\n",
	"900 variables":                  resourceWith("match.usb = {}\n" + repeat(900, "container.env.E% = \"${attr:*/*/*/*/*/nope%}\"\n")),
	"a group":                        resourceWith("match.usb = {}\neach = \"attr:*/*/device/*/*/device/*/*/device/*/*/nope\""),
	"an exclude":                     resourceWith("match.usb = {}\nexclude.attr.\"*/*/*/*/*/*/*/nope\" = \"x\""),
	"900 searches":                   resourceWith(`when.exists = [` + repeat(900, `"!/sys/**/%/**/x", `) + `]`),
}

// A configuration that makes the program read without end takes no other resource away: not at the
// first start of a node, which has no configuration to go back to, nor later. A removal is reported
// at once, check ends, and the program ends soon after SIGTERM.
func TestReading(t *testing.T) {
	t.Parallel()
	for name, text := range tooMuchReading {
		t.Run(name, func(t *testing.T) { // not in parallel: it measures times
			n := newNode(t)
			n.addSticks(100)
			n.configure(goodConfig + text)
			n.serve()
			n.waitReady()
			n.must(os.Remove(filepath.Join(n.host.Dev(), "good")))
			n.waitUnhealthy(removalTime)
			n.stopWithin(endTime)
			began := time.Now()
			out, err := n.command("check", "--config", n.configFile(), "--sysfs", n.host.Sysfs(), "--dev", n.host.Dev())
			if took := time.Since(began); took > checkTime {
				n.Errorf("check took %v: %v, %.300s", took, err, out)
			}
		})
	}
}

// A configuration that exceeds the budget is a problem that names key and resource, in check, in
// the log and in the status.
func TestReadingIsReported(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.addSticks(100)
	n.configure(goodConfig + tooMuchReading["900 attributes with wildcards"])
	n.serve()
	const problem = "reading it takes too long"
	n.waitLogged(0, problem)
	status, err := n.probe("/status.json")
	n.must(err)
	out, _ := n.command("check", "--config", n.configFile(), "--sysfs", n.host.Sysfs(), "--dev", n.host.Dev())
	for where, text := range map[string]string{"status": status, "check": out} {
		for _, want := range []string{problem, `hostile`, `*/*/*/*/*/*/*/nope`} {
			if !strings.Contains(text, want) {
				n.Errorf("%s does not have %q: %.1000s", where, want, text)
			}
		}
	}
	n.stopWithin(endTime)
}

// addSticks adds USB devices with a terminal each.
func (n *node) addSticks(count int) {
	n.Helper()
	n.host.AddBus()
	for i := range count {
		n.host.AddUSB(sysfstest.USB{
			Port:    fmt.Sprintf("1-%d", i+1),
			Vendor:  "10c4",
			Product: "ea60",
			Serial:  fmt.Sprint("S", i),
			Interfaces: []sysfstest.Interface{{
				Class:  "ff",
				Driver: "cp210x",
				Nodes:  []sysfstest.Node{{Name: fmt.Sprint("ttyUSB", i), Subsystem: "tty", Major: 188, Minor: uint32(i)}},
			}},
		})
	}
}

// waitUnhealthy waits until the kubelet knows that the good device is gone.
func (n *node) waitUnhealthy(limit time.Duration) {
	n.Helper()
	began := time.Now()
	ctx, cancel := context.WithTimeout(n.Context(), limit)
	defer cancel()
	err := n.kubelet.WaitFor(ctx, func() bool {
		latest, _ := n.kubelet.Latest(good)
		return len(latest.Unhealthy()) == 1
	})
	if err != nil {
		n.fatal("the removed device is not Unhealthy within %s", limit)
	}
	n.Logf("the removal was reported after %v", time.Since(began))
}

// stopWithin is stop with a limit of its own.
func (n *node) stopWithin(limit time.Duration) {
	n.Helper()
	began := time.Now()
	n.stop()
	if took := time.Since(began); took > limit {
		n.Errorf("the program ended %v after SIGTERM, want at most %v", took, limit)
	}
}
