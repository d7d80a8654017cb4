package agent_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// A chart upgrade restarts the program and changes the configuration at once. A held
// device keeps its links and CDI entries, for any form of its ID and any new
// configuration, until it is free.
func TestHeldDeviceKeepsItsInjectionOverAnUpgrade(t *testing.T) {
	t.Parallel()
	const resource = "example.com/zigbee"
	gone := func(string) string { return parts("other") }
	for name, tc := range map[string]struct {
		text, id string
		nodes    int
		next     func(text string) string
	}{
		"plain":     {zigbee, stickID, 1, gone},
		"shared":    {zigbee + "shared = true\n", "shared:example.com:zigbee:" + stickID, 1, gone},
		"grouped":   {zigbee + "each = \"usb.serial\"\ncontainer.path = \"/dev/zigbee/\"\n", "group:usb.serial:AAAA1111", 1, gone},
		"pool":      {zigbee + "each = \"all\"\ncontainer.path = \"/dev/zigbee/\"\n", "all:example.com:zigbee", 1, gone},
		"companion": {zigbee + "with = { path = \"/dev/ttyUSB7\" }\n", stickID, 2, gone},
		"no longer matched": {zigbee, stickID, 1, func(text string) string {
			return strings.ReplaceAll(text, "10c4:ea60", "1a86:7523")
		}},
		"another identity": {zigbee, stickID, 1, func(text string) string { return text + "identity = \"port\"\n" }},
	} {
		for _, cdi := range []string{"", "container.cdi = true\n"} {
			t.Run(strings.TrimSpace(name+" "+cdi), func(t *testing.T) {
				t.Parallel()
				text := strings.Replace(tc.text, "container.path = \"/dev/zigbee\"\n", "", strings.Count(tc.text, "container.path")-1)
				n := newNode(t, text+cdi)
				n.addSticks(1)
				companion := stick("1-2", "CCCC3333", "ttyUSB7")
				companion.Product = "ea70"
				n.host.AddUSB(companion)
				var c clock
				a, stop := n.serveBy(&c)
				n.untilListed(resource, []string{tc.id}, nil)
				n.kubelet.Hold(request("p", resource), tc.id)
				injected := func() int {
					links, _ := filepath.Glob(filepath.Join(n.options.Paths.RunDir, "links", tc.id, "*"))
					return len(links) + n.specNodes(resource, tc.id)
				}
				check := func(when string) {
					t.Helper()
					if got := injected(); got != tc.nodes {
						t.Errorf("%s: links or CDI entries lead to %d nodes, want %d", when, got, tc.nodes)
					}
				}
				check("listed")
				stop()
				n.configure(tc.next(text + cdi))
				for _, when := range []string{"after the upgrade", "after another restart"} {
					a, stop = n.serveBy(&c)
					n.eventually("the device as Unhealthy", func() bool { return reasons(a, resource)[tc.id] != "" })
					check(when)
					stop()
				}
				a, _ = n.serveBy(&c)
				n.kubelet.Remove("default", "p")
				n.eventually("the end of a free device", func() bool {
					c.forward(2 * time.Minute)
					a.Reload()
					return injected() == 0
				})
			})
		}
	}
}

// specNodes counts the nodes in the entry of a device in a CDI spec.
func (n *node) specNodes(kind, id string) int {
	n.Helper()
	var spec struct {
		Devices []struct {
			Name           string
			ContainerEdits struct{ DeviceNodes []any }
		}
	}
	if text := n.spec(kind); text != "" {
		must(n, json.Unmarshal([]byte(text), &spec))
	}
	for _, d := range spec.Devices {
		if d.Name == id {
			return len(d.ContainerEdits.DeviceNodes)
		}
	}
	return 0
}

// newHost is a node without a kubelet, where container.cdi is implied.
func newHost(t *testing.T, text string) *node {
	t.Helper()
	n := newNode(t, text)
	n.kubelet.Stop()
	must(t, os.RemoveAll(n.options.Paths.KubeletDir))
	n.options.CDIOnly = true
	n.host.AddBus()
	return n
}
