package node_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/generic-dp/generic-dp/test/e2e/bed"
	"github.com/generic-dp/generic-dp/test/e2e/fixture"
	"github.com/generic-dp/generic-dp/test/e2e/wait"
)

// TestCDISpec checks the spec file of a resource whose first device appears while the
// program runs: it must exist before the kubelet can know the device.
func TestCDISpec(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	foreign := filepath.Join(n.CDIDir(), "other.json")
	if err := os.WriteFile(foreign, []byte(`{"cdiVersion": "0.5.0", "kind": "other.example/a", "devices": []}`), 0o600); err != nil {
		t.Fatal(err)
	}
	n.serve(t, zigbees+"container.cdi = true\n")
	n.plugin.WaitLog(t, limit, "starting")
	d := adapter("1-1", "A1B2C3D4", 0)
	n.Plug(d.Stick)
	n.Kubelet.WaitAllocatable(t, zigbee, 1)

	entries, err := os.ReadDir(n.CDIDir())
	if err != nil {
		t.Fatal(err)
	}
	var own []string
	for _, e := range entries {
		if e.Name() != filepath.Base(foreign) {
			own = append(own, e.Name())
		}
	}
	if len(own) != 1 || !strings.HasPrefix(own[0], "generic-dp_") || filepath.Ext(own[0]) != ".json" {
		t.Fatalf("spec files %q, want one generic-dp_*.json", own)
	}
	path := filepath.Join(n.CDIDir(), own[0])
	var file unix.Stat_t
	if err := unix.Stat(path, &file); err != nil {
		t.Fatal(err)
	}
	if mode := file.Mode & 0o7777; mode != 0o644 {
		t.Errorf("mode %04o, want 0644", mode)
	}
	// Registration begins with a socket. If the file times are too coarse, both have
	// the same time.
	for socket, made := range n.sockets(t) {
		if file.Mtim.Nano() > made {
			t.Errorf("%s was written %d ns after %s was made", own[0], file.Mtim.Nano()-made, socket)
		}
		t.Logf("the spec was written %.1f ms before the socket was made", float64(made-file.Mtim.Nano())/1e6)
	}

	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var spec struct {
		Version string `json:"cdiVersion"`
		Kind    string `json:"kind"`
		Devices []struct {
			Name  string `json:"name"`
			Edits struct {
				DeviceNodes []struct {
					Path, HostPath, Type, Permissions string
					Major, Minor                      uint32
				} `json:"deviceNodes"`
			} `json:"containerEdits"`
		} `json:"devices"`
	}
	if err := json.Unmarshal(text, &spec); err != nil {
		t.Fatal(err)
	}
	// 0.5.0 is the first version with hostPath and names with a colon.
	if spec.Version != "0.5.0" || spec.Kind != zigbee || len(spec.Devices) != 1 || spec.Devices[0].Name != d.id() {
		t.Fatalf("spec %s, want version 0.5.0, kind %s and device %s", text, zigbee, d.id())
	}
	nodes := spec.Devices[0].Edits.DeviceNodes
	if len(nodes) != 1 || nodes[0].Path != "/dev/zigbee" || nodes[0].HostPath != "/dev/ttyUSB0" || nodes[0].Permissions != "rw" ||
		nodes[0].Major != 188 || nodes[0].Minor != 0 || nodes[0].Type != "c" {
		t.Errorf("nodes %+v, want /dev/ttyUSB0, c 188:0 rw, at /dev/zigbee", nodes)
	}

	// The entry of a removed device is removed; foreign files stay.
	n.Unplug(d.Port)
	n.Kubelet.WaitAllocatable(t, zigbee, 0)
	wait.Until(t, limit, "removal of the entry", func() error {
		if text, err := os.ReadFile(path); err == nil {
			return wait.Equal(false, func() bool { return strings.Contains(string(text), d.id()) })()
		}
		return nil
	})
	if _, err := os.Stat(foreign); err != nil {
		t.Error(err)
	}
}

// TestCDIBesideLinks restarts a container whose device has changed its name. Programs find
// such nodes by name: by CDI the container has the new one, by its link still the old one.
func TestCDIBesideLinks(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	card := fixture.PCI{Address: "0000:3b:00.0", ID: "8086:56c0", NUMA: -1, Node: "dri/renderD128"}
	n.AddPCI(card)
	n.serve(t, "[[resource]]\nname = \"gpu\"\nmatch = { pci.id = \"8086:56c0\", glob = \"/dev/dri/*\" }\n")
	n.Kubelet.WaitAllocatable(t, "example.com/gpu", 1)
	pod := n.run(t, bed.Workload("mine", "example.com/gpu", 1))
	wantNode(t, pod.Inspect(t, "main", "/dev/dri"), "/dev/dri/renderD128", n.numberOf(t, "dri/renderD128"))

	n.RemovePCI(card.Address)
	n.Kubelet.WaitAllocatable(t, "example.com/gpu", 0)
	card.Node = "dri/renderD129"
	n.AddPCI(card)
	n.Kubelet.WaitAllocatable(t, "example.com/gpu", 1)
	r := restart(t, pod, 1)
	for _, path := range []string{"/dev/dri/renderD128", "/dev/dri/renderD129"} {
		wantNode(t, r, path, n.numberOf(t, "dri/renderD129"))
	}
	n.wantAllocations(t, "example.com/gpu", 1)
}

// sockets returns the creation times of plugin sockets, by name, in ns.
func (n *node) sockets(t testing.TB) map[string]int64 {
	t.Helper()
	entries, err := os.ReadDir(n.DevicePlugins())
	if err != nil {
		t.Fatal(err)
	}
	made := map[string]int64{}
	for _, e := range entries {
		var st unix.Stat_t
		path := filepath.Join(n.DevicePlugins(), e.Name())
		if err := unix.Lstat(path, &st); err != nil {
			t.Fatal(err)
		}
		if st.Mode&unix.S_IFMT == unix.S_IFSOCK && e.Name() != "kubelet.sock" {
			made[e.Name()] = st.Mtim.Nano()
		}
	}
	return made
}
