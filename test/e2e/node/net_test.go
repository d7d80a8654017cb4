package node_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/generic-dp/generic-dp/test/e2e/bed"
	"github.com/generic-dp/generic-dp/test/e2e/inspect"
	"github.com/generic-dp/generic-dp/test/e2e/wait"
)

const port = "example.com/port"

// ports moves network interfaces into containers, with the same name in each.
const ports = `
[[resource]]
name = "port"
match.net.name = "port*"
container.cdi = true
container.net_name = "uplink"
container.env.PORT = "${net.name}"
`

// serveNets starts the program with the sysfs of the bed instead of a fake one: network
// interfaces are real.
func (n *node) serveNets(t testing.TB, config string, args ...string) {
	t.Helper()
	n.serve(t, config, append([]string{"--sysfs=/sys", "--allow=net"}, args...)...)
}

// cable makes an interface of the bed, and its peer "peer-NAME", with an address that a
// container with the interface can reach.
func (n *node) cable(t testing.TB, name string, subnet int) {
	t.Helper()
	peer := "peer-" + name
	n.Run(t, "ip", "link", "add", name, "type", "veth", "peer", "name", peer)
	n.Run(t, "ip", "address", "add", fmt.Sprintf("10.9.%d.1/24", subnet), "dev", peer)
	n.Run(t, "ip", "address", "add", fmt.Sprintf("10.9.%d.2/24", subnet), "dev", name)
	n.Run(t, "ip", "link", "set", peer, "up")
}

// listen accepts connections at the other end of a cable, and returns the address.
func (n *node) listen(t testing.TB, subnet int) string {
	t.Helper()
	server := n.Listen(t, fmt.Sprintf("10.9.%d.1:0", subnet))
	go func() {
		for {
			conn, err := server.Accept()
			if err != nil {
				return
			}
			conn.Close()
		}
	}()
	return server.Addr().String()
}

// interfaces lists the network interfaces of the bed.
func (n *node) interfaces(t testing.TB) []string {
	t.Helper()
	entries, err := os.ReadDir(n.Path("/sys/class/net"))
	must(t, err)
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// spec returns the program's CDI spec of a resource as text, empty if there is none.
func (n *node) spec(t testing.TB, resource string) string {
	t.Helper()
	kind := `"kind":"` + resource + `"`
	files, err := filepath.Glob(filepath.Join(n.CDIDir(), "generic-dp_*"))
	must(t, err)
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}
		if flat := strings.Join(strings.Fields(string(text)), ""); strings.Contains(flat, kind) {
			return flat
		}
	}
	return ""
}

// netPod is a pod with its own network.
func netPod(name string, count int64) *v1.Pod {
	pod := bed.Workload(name, port, count)
	pod.Spec.HostNetwork = false
	return pod
}

// wantUplink checks that a container has a working interface.
func wantUplink(t testing.TB, p *bed.Pod, r inspect.Report, server string) {
	t.Helper()
	slices.Sort(r.Interfaces)
	if want := []string{"eth0", "lo", "uplink"}; !slices.Equal(r.Interfaces, want) {
		t.Errorf("interfaces in the container: %q, want %q", r.Interfaces, want)
	}
	if _, stderr, code := p.Exec(t, "main", "/tool", "dial", server); code != 0 {
		t.Errorf("through the interface: %s", stderr)
	}
}

// TestNet has a pod keep a network interface over the restarts of its container, of the
// program and of the kubelet. The interface is virtual and ends with the pod. Another one
// of its name is the same device.
func TestNet(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.cable(t, "port0", 1)
	server := n.listen(t, 1)
	n.serveNets(t, ports)
	n.Kubelet.WaitAllocatable(t, port, 1)
	if text := n.spec(t, port); !strings.Contains(text, `"netDevices":[{"hostInterfaceName":"port0","name":"uplink"}]`) {
		t.Errorf("spec %s, want port0 as uplink", text)
	}
	p := n.run(t, netPod("first", 1))
	r := p.Report(t, "main")
	wantUplink(t, p, r, server)
	if r.Env["PORT"] != "port0" {
		t.Errorf("environment: %v, want PORT=port0", r.Env)
	}
	if have := n.interfaces(t); slices.Contains(have, "port0") {
		t.Errorf("interfaces of the host: %q, want no port0", have)
	}

	wantHolder := func(when string) {
		t.Helper()
		wait.Until(t, limit, when+": entry without the interface", func() error {
			if text := n.spec(t, port); strings.Contains(text, "port0") == strings.Contains(text, "netDevices") {
				return errors.New(text)
			}
			return nil
		})
		n.Kubelet.WaitAllocatable(t, port, 1)
		n.waitHeld(t, port, map[string]string{"netif:port0": "first-bed/main"})
	}
	wantHolder("after the move")
	n.refused(t, netPod("second", 1), "Available: 0").Delete(t)
	for i, again := range []struct {
		what string
		do   func()
	}{
		{"program killed", func() { n.plugin.Restart(t) }},
		{"program ended", func() {
			n.plugin.Stop(t)
			n.Kubelet.WaitAllocatable(t, port, 0)
			n.plugin.Restart(t)
		}},
		{"kubelet restarted", func() {
			n.Kubelet.Restart(t)
			n.Kubelet.WaitReady(t)
		}},
	} {
		again.do()
		wantHolder(again.what)
		wantUplink(t, p, restart(t, p, int32(i+1)), server)
	}
	n.wantAllocations(t, port, 0)

	p.Delete(t)
	wait.Until(t, limit, "removal of the interface", func() error {
		if have := n.interfaces(t); slices.Contains(have, "peer-port0") {
			return fmt.Errorf("%q", have)
		}
		return nil
	})
	n.cable(t, "port0", 2)
	server = n.listen(t, 2)
	wait.Until(t, limit, "entry with the interface", func() error {
		if text := n.spec(t, port); !strings.Contains(text, "netDevices") {
			return errors.New(text)
		}
		return nil
	})
	n.Kubelet.WaitAllocatable(t, port, 1)
	p = n.run(t, netPod("third", 1))
	wantUplink(t, p, p.Report(t, "main"), server)
}

// TestNetInUse has an interface in use by the host, which no pod may take, and one that
// the host takes into use after it is listed, which causes no uevent.
func TestNetInUse(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.Run(t, "ip", "link", "add", "br0", "type", "bridge")
	n.cable(t, "port0", 1)
	n.Run(t, "ip", "link", "set", "port0", "master", "br0")
	n.serveNets(t, ports)
	n.listed(t, n.served, port, 0)
	n.plugin.WaitLog(t, limit, "port0 is in use by the host, and is never moved: it is a port of bridge br0")
	n.refused(t, netPod("taken", 1), "no healthy devices").Remove(t)

	n.cable(t, "port1", 2)
	n.Kubelet.WaitAllocatable(t, port, 1)
	n.Run(t, "ip", "link", "set", "port1", "master", "br0")
	n.refused(t, netPod("late", 1), "port1 is in use by the host, and is never moved: it is a port of bridge br0").Remove(t)
	n.Kubelet.WaitAllocatable(t, port, 0)
	for _, name := range []string{"port0", "port1"} {
		if have := n.interfaces(t); !slices.Contains(have, name) {
			t.Errorf("interfaces of the host: %q, want %s among them", have, name)
		}
	}

	n.Run(t, "ip", "link", "set", "port0", "nomaster")
	n.cable(t, "any", 3) // the next event
	n.Kubelet.WaitAllocatable(t, port, 1)
	p := n.run(t, netPod("free", 1))
	r := p.Report(t, "main")
	wantUplink(t, p, r, n.listen(t, 1))
	if r.Env["PORT"] != "port0" {
		t.Errorf("environment: %v, want PORT=port0", r.Env)
	}
}
