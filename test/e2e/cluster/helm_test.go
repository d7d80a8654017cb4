//go:build cluster

package cluster_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/generic-dp/generic-dp/test/e2e/bed"
	"github.com/generic-dp/generic-dp/test/e2e/cluster"
	"github.com/generic-dp/generic-dp/test/e2e/product"
	"github.com/generic-dp/generic-dp/test/e2e/wait"
)

// private is a device that on the host only uid 0 may open, in containers uid 1000.
const private = `
domain = "example.com"
[[resource]]
name = "private"
match.glob = "/dev/%s"
container.path = "/dev/private"
container.cdi = true
container.owner = { uid = 1000, mode = "0600" }
`

const added = `
[[resource]]
name = "added"
count = 3
match.glob = "/dev/zero"
`

// TestChart runs the life cycle of an installation by Helm, with CDI.
func TestChart(t *testing.T) {
	t.Parallel()
	c := cluster.New(t)
	c.ImportProduct(t)
	node := privateNode(t, c)
	install := func(command string, config string) {
		t.Helper()
		helm(t, c, map[string]any{
			"cdi":     map[string]any{"enabled": true},
			"hostSys": true,
			"config":  map[string]string{"10-test.toml": config},
		}, command, name, chartDir)
	}
	install("install", fmt.Sprintf(private, node))
	first := c.WaitDaemonSet(t, namespace, name)
	c.WaitResource(t, "example.com/private", 1)

	opener := openAs(1000)
	c.Apply(t, opener)
	waitSucceeded(t, c, opener.Name)
	c.Kubectl(t, "", "delete", "pod", opener.Name)

	install("upgrade", fmt.Sprintf(private, node)+added)
	c.WaitResource(t, "example.com/added", 3)
	if now := c.WaitDaemonSet(t, namespace, name); now.UID != first.UID {
		t.Errorf("an upgrade of the configuration only replaced pod %s by %s", first.Name, now.Name)
	}

	c.Helm(t, "uninstall", name, "--namespace", namespace, "--wait")
	c.WaitResource(t, "example.com/private", 0)
	clean(t, c)
}

var chartDir = product.Repository("deploy", "helm", "generic-dp")

// helm installs or upgrades a chart with values.
func helm(t *testing.T, c *cluster.Cluster, values map[string]any, args ...string) {
	t.Helper()
	text, err := yaml.Marshal(values)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "values.yaml")
	if err := os.WriteFile(file, text, 0o644); err != nil {
		t.Fatal(err)
	}
	c.Helm(t, append(args, "--namespace", namespace, "--create-namespace", "--values", file)...)
}

// privateNode makes a device node in /dev that only uid 0 may open, and returns its
// name.
func privateNode(t *testing.T, c *cluster.Cluster) string {
	t.Helper()
	// /dev is the machine's: the name must be unique.
	name := "generic-dp-" + filepath.Base(c.Dir)
	t.Cleanup(func() { _ = os.Remove("/dev/" + name) })
	c.Mknod(t, "/dev/"+name, 1, 3)
	return name
}

// openAs is a pod that opens the private device as a user, and ends.
func openAs(uid int64) *v1.Pod {
	pod := bed.Workload("opener", "example.com/private", 1)
	pod.Spec.RestartPolicy = v1.RestartPolicyNever
	pod.Spec.Containers[0].Command = []string{"/tool", "open", "/dev/private"}
	pod.Spec.Containers[0].SecurityContext = &v1.SecurityContext{RunAsUser: &uid}
	return pod
}

func waitSucceeded(t *testing.T, c *cluster.Cluster, name string) {
	t.Helper()
	wait.Until(t, limit, "pod "+name, func() error {
		pod, err := cluster.Get[v1.Pod](c, "/api/v1/namespaces/"+metav1.NamespaceDefault+"/pods/"+name)
		if err == nil && pod.Status.Phase != v1.PodSucceeded {
			err = fmt.Errorf("phase %s: %+v", pod.Status.Phase, pod.Status.ContainerStatuses)
		}
		return err
	})
}
