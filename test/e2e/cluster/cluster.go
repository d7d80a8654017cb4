//go:build cluster

// Package cluster is a small but real Kubernetes cluster: the node of package bed with
// a control plane, etcd, API server, controller manager and scheduler, in the same
// namespaces. Tests apply objects like users do, with kubectl and helm.
package cluster

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/generic-dp/generic-dp/test/e2e/bed"
	"github.com/generic-dp/generic-dp/test/e2e/process"
	"github.com/generic-dp/generic-dp/test/e2e/wait"
)

const (
	// startLimit is the timeout of programs that start in a second or two each.
	startLimit = 120 * time.Second
	// podLimit is the timeout of controllers, scheduler and kubelet together.
	podLimit = 120 * time.Second
	// address is the API server's, in the bed's network namespace.
	address     = "127.0.0.1:6443"
	nodeAddress = "10.20.0.1"
	etcd        = "http://127.0.0.1:2379"
	// service is the API server's address for pods: that of the Service kubernetes.
	service = "10.96.0.1"
	// token is the administrator's. It is valid in a bed only.
	token = "admin"
)

// Cluster is a node and its control plane. Other nodes can join it.
type Cluster struct {
	*bed.Bed
	api        *api
	dir        string
	kubeconfig string
	options    Options
	plane      []*process.Process
	nodes      []*bed.Bed // the first one is Bed
}

// Options are the options of a cluster.
type Options struct {
	// Plane and Kubelet are the versions, by default bed.Current. A kubelet must not be newer
	// than its control plane.
	Plane   bed.Version
	Kubelet bed.Version
}

// New starts a cluster and waits until its node is ready. It ends with the test.
func New(t testing.TB) *Cluster {
	t.Helper()
	return NewWith(t, Options{})
}

// NewWith is New with options.
func NewWith(t testing.TB, o Options) *Cluster {
	t.Helper()
	c := &Cluster{options: o}
	options := o.nodeOptions(kubeletPort)
	options.Boot = func(b *bed.Bed) {
		c.Bed = b
		c.prepare(t)
		c.startPlane(t)
	}
	c.Bed = bed.New(t, options)
	c.nodes = []*bed.Bed{c.Bed}
	c.waitNode(t, bed.NodeName)
	return c
}

// kubeconfigPath is in the bed's own /run.
const kubeconfigPath = "/run/kubeconfig"

const kubeconfig = `apiVersion: v1
kind: Config
clusters: [{name: bed, cluster: {server: "https://` + address + `", insecure-skip-tls-verify: true}}]
users: [{name: admin, user: {token: ` + token + `}}]
contexts: [{name: bed, context: {cluster: bed, user: admin}}]
current-context: bed
`

// prepare writes the files of the control plane.
func (c *Cluster) prepare(t testing.TB) {
	t.Helper()
	c.dir = filepath.Join(c.Dir, "plane")
	if err := os.MkdirAll(c.dir, 0o755); err != nil {
		t.Fatal(err)
	}
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	text := pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)})
	c.write(t, "service-account.key", string(text))
	c.write(t, "tokens.csv", token+`,admin,admin,"system:masters"`+"\n")
	c.kubeconfig = c.write(t, "kubeconfig", kubeconfig)
	c.api = newAPI(t, c.Bed)
	addLink(t, c.Bed)
}

func (c *Cluster) write(t testing.TB, name, text string) string {
	t.Helper()
	file := filepath.Join(c.dir, name)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// startPlane starts the control plane and waits until it serves.
func (c *Cluster) startPlane(t testing.TB) {
	t.Helper()
	writeKubeconfig(t, c.Bed)
	c.plane = nil
	c.run(t, "etcd", "--data-dir", c.file("etcd"), "--unsafe-no-fsync", "--log-level", "warn",
		"--listen-client-urls", etcd, "--advertise-client-urls", etcd,
		"--listen-peer-urls", "http://127.0.0.1:2380", "--initial-advertise-peer-urls", "http://127.0.0.1:2380",
		"--initial-cluster", "default=http://127.0.0.1:2380")
	c.startAPI(t)
	c.runKubernetes(t, "kube-controller-manager", "--kubeconfig", c.kubeconfig, "--leader-elect=false",
		"--service-account-private-key-file", c.file("service-account.key"), "--use-service-account-credentials=false",
		"--root-ca-file", c.file("certificates/apiserver.crt"), // of pods
		// Detects a rebooted node within a second.
		"--node-monitor-period", "1s", "--node-monitor-grace-period", "10s")
	c.runKubernetes(t, "kube-scheduler", "--kubeconfig", c.kubeconfig, "--leader-elect=false")
}

// ServePods lets pods connect to the API server as in a cluster with kube-proxy.
func (c *Cluster) ServePods(t testing.TB) {
	t.Helper()
	c.Run(t, "ip", "address", "add", service+"/32", "dev", "node")
	forward(c.Listen(t, service+":443"), c.Bed, address)
}

// startAPI starts the API server, and waits until it serves.
func (c *Cluster) startAPI(t testing.TB) {
	t.Helper()
	c.runKubernetes(t, "kube-apiserver", "--etcd-servers", etcd, "--bind-address", "127.0.0.1", "--advertise-address", "127.0.0.1", "--secure-port", "6443",
		"--cert-dir", c.file("certificates"), "--token-auth-file", c.file("tokens.csv"), "--authorization-mode", "RBAC", "--allow-privileged=true",
		"--service-cluster-ip-range", "10.96.0.0/24", "--service-account-issuer", "https://kubernetes.default.svc",
		"--service-account-key-file", c.file("service-account.key"), "--service-account-signing-key-file", c.file("service-account.key"),
		// Services have no endpoints here, which the reconciler would report.
		"--endpoint-reconciler-type", "none",
		// The name of the node has no address here: kubectl exec would fail.
		"--kubelet-preferred-address-types", "InternalIP,Hostname")
	wait.Until(t, startLimit, "API server", func() error {
		_, err := c.api.get("/readyz")
		return err
	})
}

// file is a file of the control plane.
func (c *Cluster) file(name string) string { return filepath.Join(c.dir, name) }

func (c *Cluster) run(t testing.TB, program string, args ...string) *process.Process {
	t.Helper()
	p := c.Start(t, process.Spec{Name: program, Argv: append([]string{c.Tool(program)}, args...)})
	c.plane = append(c.plane, p)
	return p
}

// runKubernetes runs a program of the version of the control plane.
func (c *Cluster) runKubernetes(t testing.TB, program string, args ...string) *process.Process {
	t.Helper()
	return c.run(t, c.options.Plane.Program(program), args...)
}

func (c *Cluster) waitNode(t testing.TB, name string) {
	t.Helper()
	wait.Until(t, startLimit, "node "+name, func() error {
		node, err := c.NodeOf(name)
		if err != nil {
			return err
		}
		for _, condition := range node.Status.Conditions {
			if condition.Type == v1.NodeReady && condition.Status == v1.ConditionTrue {
				return nil
			}
		}
		return fmt.Errorf("not ready: %+v", node.Status.Conditions)
	})
}

// Reboot simulates a reboot of the node, control plane included, and waits until its
// node is ready again.
func (c *Cluster) Reboot(t testing.TB) {
	t.Helper()
	c.Bed.Reboot(t)
	for _, p := range c.plane {
		<-p.Ended()
	}
	c.Containerd.Start(t)
	c.startPlane(t)
	c.Kubelet.Start(t)
	c.Kubelet.WaitReady(t)
	c.waitNode(t, bed.NodeName)
}
