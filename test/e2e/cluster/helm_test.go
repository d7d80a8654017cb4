//go:build cluster

package cluster_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/yaml"

	"github.com/generic-dp/generic-dp/test/e2e/bed"
	"github.com/generic-dp/generic-dp/test/e2e/cluster"
	"github.com/generic-dp/generic-dp/test/e2e/product"
	"github.com/generic-dp/generic-dp/test/e2e/wait"
)

const stick = "example.com/stick"

// sticks selects nodes that a test makes and removes. %s is the beginning of their names.
const sticks = `
domain = "example.com"
[[resource]]
name = "stick"
match.glob = "/dev/%s-*"
container.path = "/dev/stick"
`

// private is a device that on the host only uid 0 may open, in containers uid 1000.
const private = `
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

// TestEvict runs the life cycle of an installation by Helm, with CDI and evict. The held one of two
// equal sticks is unplugged: its pod is evicted, as soon as a disruption budget permits it, and the
// next pod has the other one.
func TestEvict(t *testing.T) {
	t.Parallel()
	c := cluster.New(t)
	c.ImportProduct(t)
	c.ServePods(t)
	// /dev is the machine's: the names must be unique.
	prefix := "generic-dp-" + filepath.Base(c.Dir)
	node := "/dev/" + prefix
	c.Mknod(t, node, 1, 3)
	c.Mknod(t, node+"-a", 240, 201)
	c.Mknod(t, node+"-b", 240, 202)
	for _, suffix := range []string{"", "-a", "-b"} {
		t.Cleanup(func() { _ = os.Remove(node + suffix) })
	}
	install := func(command string, config string) {
		t.Helper()
		helm(t, c, map[string]any{
			"cdi":    map[string]any{"enabled": true},
			"evict":  map[string]any{"enabled": true, "after": "5s"},
			"config": map[string]string{"10-test.toml": config},
		}, command, name, chartDir)
	}
	config := fmt.Sprintf(sticks+private, prefix, prefix)
	install("install", config)
	first := c.WaitDaemonSet(t, namespace, name)
	c.WaitResource(t, "example.com/private", 1)
	c.WaitResource(t, stick, 2)
	waitEvicter(t, c)

	opener := openAs(1000)
	c.Apply(t, opener)
	waitSucceeded(t, c, opener.Name)
	c.Kubectl(t, "", "delete", "pod", opener.Name)

	t.Run("evict", func(t *testing.T) { evictPod(t, c, node) })

	install("upgrade", config+added)
	c.WaitResource(t, "example.com/added", 3)
	if now := c.WaitDaemonSet(t, namespace, name); now.UID != first.UID {
		t.Errorf("an upgrade of the configuration only replaced pod %s by %s", first.Name, now.Name)
	}
	c.Kubectl(t, "", "delete", "deployment", "holder", "--wait=true")
	c.Helm(t, "uninstall", name, "--namespace", namespace, "--wait")
	c.WaitResource(t, "example.com/private", 0)
	clean(t, c)
}

// evictPod unplugs the stick that a pod holds. node is the beginning of the nodes of the sticks.
func evictPod(t *testing.T, c *cluster.Cluster, node string) {
	c.Apply(t, cluster.Deployment("holder", stick, 1))
	first := c.WaitPods(t, "holder", 1, 0)[0]
	c.Apply(t, budget("holder"))
	held, err := c.Kubelet.Held(t.Context(), stick)
	if err != nil || len(held) != 1 {
		t.Fatalf("held sticks: %v, %v, want one", held, err)
	}
	id := ""
	for device := range held {
		id = device
	}
	must(t, os.Remove("/dev/"+id))
	waitEvent(t, c, "EvictionBlocked", first.Name)
	c.Kubectl(t, "", "delete", "poddisruptionbudget", "holder")
	message := waitEvent(t, c, "Evicted", first.Name)
	if !strings.HasPrefix(message, stick+" "+id+" has been Unhealthy for ") {
		t.Errorf("event %q, want the device and its time as Unhealthy", message)
	}
	// The kubelet's own evictions have the same reason.
	if text := c.Kubectl(t, "", "get", "events", "--all-namespaces", "--field-selector", "source=generic-dp-evict"); !strings.Contains(text, "EvictionBlocked") || !strings.Contains(text, message) {
		t.Errorf("events of evict lack EvictionBlocked or %q:\n%s", message, text)
	}
	if second := c.WaitPods(t, "holder", 1, 0)[0]; second.UID == first.UID {
		t.Errorf("pod %s still runs", first.Name)
	}
}

var chartDir = product.Repository("deploy", "helm", "generic-dp")

// helm installs or upgrades a chart with values.
func helm(t *testing.T, c *cluster.Cluster, values map[string]any, args ...string) {
	t.Helper()
	helmIn(t, c, namespace, values, args...)
}

// helmIn is helm for another namespace.
func helmIn(t *testing.T, c *cluster.Cluster, namespace string, values map[string]any, args ...string) {
	t.Helper()
	text, err := yaml.Marshal(values)
	must(t, err)
	file := filepath.Join(t.TempDir(), "values.yaml")
	must(t, os.WriteFile(file, text, 0o644))
	c.Helm(t, append(args, "--namespace", namespace, "--create-namespace", "--values", file)...)
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

// budget keeps the pod of a Deployment.
func budget(name string) *policyv1.PodDisruptionBudget {
	one := intstr.FromInt32(1)
	return &policyv1.PodDisruptionBudget{
		TypeMeta:   metav1.TypeMeta{APIVersion: "policy/v1", Kind: "PodDisruptionBudget"},
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: metav1.NamespaceDefault},
		Spec:       policyv1.PodDisruptionBudgetSpec{MinAvailable: &one, Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": name}}},
	}
}

// waitEvicter waits until the Deployment's pod is ready: it watches then.
func waitEvicter(t *testing.T, c *cluster.Cluster) {
	t.Helper()
	wait.Until(t, limit, "Deployment of evict", func() error {
		pods, err := c.Pods(namespace, "app.kubernetes.io/name=generic-dp-evict")
		switch {
		case err != nil:
			return err
		case len(pods) != 1 || len(pods[0].Status.ContainerStatuses) == 0 || !pods[0].Status.ContainerStatuses[0].Ready:
			return fmt.Errorf("%d pods, want one that is ready", len(pods))
		}
		return nil
	})
}

// waitEvent waits for an Event on a pod, and returns its message.
func waitEvent(t *testing.T, c *cluster.Cluster, reason, pod string) (message string) {
	t.Helper()
	wait.Until(t, limit, "event "+reason+" of "+pod, func() error {
		list, err := cluster.Get[v1.EventList](c, "/api/v1/namespaces/"+metav1.NamespaceDefault+"/events?fieldSelector=involvedObject.name="+pod+",reason="+reason)
		if err == nil && len(list.Items) == 0 {
			err = errors.New("none")
		}
		if err == nil {
			message = list.Items[0].Message
		}
		return err
	})
	return message
}
