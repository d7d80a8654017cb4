//go:build cluster

package cluster

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"testing"

	"github.com/generic-dp/generic-dp/test/e2e/bed"
)

// kubeletPort is the default port of a kubelet.
const kubeletPort = 10250

// nodeOptions are the options of a node whose kubelet also runs pods of the API server. The read-only
// port is for package bed.
func (o Options) nodeOptions(port int) bed.Options {
	return bed.Options{
		Version: o.Kubelet,
		Kubelet: map[string]any{
			"registerNode":              true,
			"nodeStatusUpdateFrequency": "1s",
			// The default: a shorter one would hide what a failed prepare costs.
			"syncFrequency": "1m",
			// The API server connects to it for kubectl exec.
			"enableServer": true,
			"address":      "0.0.0.0",
			"port":         port,
		},
		KubeletArgs: []string{"--kubeconfig", kubeconfigPath, "--node-ip", nodeAddress},
	}
}

// Join adds a node, a bed without a control plane, and waits until it is ready. Each node has a network
// of its own, in which it has the same address: the test forwards connections between its kubelet, which
// has another port than the others, and the API server.
func (c *Cluster) Join(t testing.TB, name string) *bed.Bed {
	t.Helper()
	port := kubeletPort + len(c.nodes)
	options := c.options.nodeOptions(port)
	options.Node = name
	options.Boot = func(b *bed.Bed) {
		addLink(t, b)
		writeKubeconfig(t, b)
		forward(b.Listen(t, address), c.Bed, address)
	}
	node := bed.New(t, options)
	kubelet := fmt.Sprintf("%s:%d", nodeAddress, port)
	forward(c.Listen(t, kubelet), node, kubelet)
	c.waitNode(t, name)
	c.nodes = append(c.nodes, node)
	return node
}

// addLink gives a node an address other than a loopback one, which it needs.
func addLink(t testing.TB, b *bed.Bed) {
	t.Helper()
	b.Run(t, "ip", "link", "add", "node", "type", "veth", "peer", "name", "outside")
	b.Run(t, "ip", "address", "add", nodeAddress+"/24", "dev", "node")
	b.Run(t, "ip", "link", "set", "node", "up")
	b.Run(t, "ip", "link", "set", "outside", "up")
}

// writeKubeconfig writes the kubeconfig of the kubelet to the bed's /run, which is empty after a
// reboot.
func writeKubeconfig(t testing.TB, b *bed.Bed) {
	t.Helper()
	if err := os.WriteFile(b.Path(kubeconfigPath), []byte(kubeconfig), 0o600); err != nil {
		t.Fatal(err)
	}
}

// forward connects each client of a listener to an address in a bed, until the listener is closed.
func forward(listener net.Listener, b *bed.Bed, address string) {
	go func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			go connect(client, b, address)
		}
	}()
}

// connect copies between a client and an address in a bed until one of them ends.
func connect(client net.Conn, b *bed.Bed, address string) {
	defer client.Close()
	server, err := b.DialContext(context.Background(), "tcp", address)
	if err != nil {
		return
	}
	defer server.Close()
	go func() {
		defer client.Close()
		_, _ = io.Copy(client, server)
	}()
	_, _ = io.Copy(server, client)
}
