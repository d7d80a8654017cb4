//go:build cluster

package cluster_test

import (
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/generic-dp/generic-dp/test/e2e/cluster"
	"github.com/generic-dp/generic-dp/test/e2e/product"
	"github.com/generic-dp/generic-dp/test/e2e/wait"
)

const (
	namespace = "generic-dp"
	name      = "generic-dp"
	// limit is longer than the kubelet needs to update a ConfigMap volume: that takes up to a
	// periodic sync of the pod, a minute, and the time that its cache of ConfigMaps may be old.
	limit = 3 * time.Minute
)

// heldConfig has the resource held with two slots.
const heldConfig = `
domain = "example.com"
[[resource]]
name = "held"
count = 2
match.glob = "/dev/null"
container.path = "/dev/held"
[[resource]]
name = "fuse"
count = 100
match.glob = "/dev/fuse"
[[resource]]
name = "absent"
match.usb.id = "ffff:ffff"
`

// configure replaces the configuration in the ConfigMap.
func configure(t *testing.T, c *cluster.Cluster, text string) {
	t.Helper()
	c.Apply(t, &v1.ConfigMap{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace},
		Data:       map[string]string{"10-generic-dp.toml": text},
	})
}

func waitLog(t *testing.T, c *cluster.Cluster, pod v1.Pod, want string) {
	t.Helper()
	wait.Until(t, limit, fmt.Sprintf("%q in the log", want), func() error {
		if text := c.PodLog(t, &pod, name); !strings.Contains(text, want) {
			return fmt.Errorf("log:\n%s", text)
		}
		return nil
	})
}

// TestManifest runs the life cycle of an installation with the manifest in deploy.
func TestManifest(t *testing.T) {
	t.Parallel()
	c := cluster.New(t)
	c.ImportProduct(t)
	manifest := product.Repository("deploy", "generic-dp.yaml")
	began := time.Now()
	c.Kubectl(t, "", "apply", "-f", manifest)
	first := c.WaitDaemonSet(t, namespace, name)
	c.WaitResource(t, "example.com/fuse", 100)
	t.Logf("from kubectl apply to allocatable: %v", time.Since(began).Round(10*time.Millisecond))

	began = time.Now()
	configure(t, c, heldConfig)
	c.WaitResource(t, "example.com/held", 2)
	t.Logf("from the edit of the ConfigMap to allocatable: %v", time.Since(began).Round(10*time.Millisecond))
	now := c.WaitDaemonSet(t, namespace, name)
	if now.UID != first.UID || now.Status.ContainerStatuses[0].RestartCount != 0 {
		t.Errorf("the edit restarted the program: %+v", now.Status)
	}

	t.Run("one too many waits", func(t *testing.T) {
		c.Apply(t, cluster.Deployment("holders", "example.com/held", 3))
		running := c.WaitPods(t, "holders", 2, 1)
		c.Kubectl(t, "", "delete", "pod", running[0].Name, "--wait=false")
		c.Apply(t, cluster.Deployment("holders", "example.com/held", 2))
		c.WaitPods(t, "holders", 2, 0)
	})
	t.Run("a broken edit", func(t *testing.T) {
		configure(t, c, strings.Replace(heldConfig, "count = 2", "cuont = 2", 1))
		waitLog(t, c, now, "cuont")
		c.WaitDaemonSet(t, namespace, name)
		c.WaitResource(t, "example.com/held", 2)
		configure(t, c, heldConfig)
	})
	t.Run("rolling update", func(t *testing.T) { rollingUpdate(t, c) })
	// Not a subtest: the programs that it starts would end with it.
	c.Reboot(t)
	c.WaitDaemonSet(t, namespace, name)
	c.WaitResource(t, "example.com/held", 2)
	c.WaitPods(t, "holders", 2, 0)
	t.Run("uninstall", func(t *testing.T) {
		c.Kubectl(t, "", "delete", "deployment", "holders", "--wait=true")
		c.Kubectl(t, "", "delete", "-f", manifest, "--wait=true", "--timeout=60s")
		c.WaitResource(t, "example.com/held", 0)
		clean(t, c)
	})
}

// rollingUpdate replaces the DaemonSet's pod while pods hold devices. The scheduler
// must never see the resource at 0, and a container that restarts meanwhile must start.
func rollingUpdate(t *testing.T, c *cluster.Cluster) {
	holders := c.WaitPods(t, "holders", 2, 0)
	before := c.WaitDaemonSet(t, namespace, name)
	var zero atomic.Int64
	done := make(chan struct{})
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		for {
			select {
			case <-done:
				return
			default:
			}
			if n, err := c.Kubelet.Allocatable(t.Context(), "example.com/held"); err == nil && n == 0 {
				zero.Add(1)
			}
			<-time.After(5 * time.Millisecond)
		}
	}()
	c.Kubectl(t, "", "-n", namespace, "rollout", "restart", "daemonset/"+name)
	c.Kubectl(t, "", "delete", "pod", holders[0].Name, "--wait=false", "--grace-period=1")
	wait.Until(t, limit, "another pod of the DaemonSet", func() error {
		after, err := c.RolledOut(namespace, name)
		if err == nil && after.UID == before.UID {
			err = fmt.Errorf("still %s", after.Name)
		}
		return err
	})
	c.WaitPods(t, "holders", 2, 0)
	close(done)
	<-watched
	t.Logf("polled every 5 ms, the resource was at 0 %d times", zero.Load())
	if zero.Load() > 200 { // conformance measures how long exactly
		t.Errorf("the resource was at 0 in %d polls every 5 ms, want a second at most", zero.Load())
	}
	c.WaitResource(t, "example.com/held", 2)
}

// clean removes the leftovers of an installation with the subcommand clean, and checks
// that it removes all.
func clean(t *testing.T, c *cluster.Cluster) {
	t.Helper()
	if text, err := c.Try("", product.Binary(t), "clean"); err != nil {
		t.Fatalf("clean: %v\n%s", err, text)
	}
	for _, dir := range []string{"/run/generic-dp", "/var/lib/generic-dp", "/run/cdi"} {
		entries, err := os.ReadDir(c.Path(dir))
		if err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
		for _, e := range entries {
			t.Errorf("left on the node: %s/%s", dir, e.Name())
		}
	}
	entries, err := os.ReadDir(c.DevicePlugins())
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), "kubelet") { // its socket and its checkpoint
			t.Errorf("left among the kubelet's plugins: %s", e.Name())
		}
	}
}
