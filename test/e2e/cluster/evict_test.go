//go:build cluster

package cluster_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/generic-dp/generic-dp/test/e2e/cluster"
	"github.com/generic-dp/generic-dp/test/e2e/wait"
)

const (
	stick      = "example.com/stick"
	evictAfter = 5 * time.Second
)

// sticks selects nodes that a test makes and removes.
const sticks = `
domain = "example.com"
[[resource]]
name = "stick"
match.glob = "/dev/%s-*"
container.path = "/dev/stick"
`

// TestEvict unplugs the held one of two equal sticks: its pod is evicted, and the next pod
// has the other one. A disruption budget is honoured, and a flapping stick evicts no pod.
func TestEvict(t *testing.T) {
	t.Parallel()
	c := cluster.New(t)
	c.ImportProduct(t)
	c.ServePods(t)
	prefix := "generic-dp-" + filepath.Base(c.Dir)
	plug := func(id string) { c.Mknod(t, "/dev/"+prefix+"-"+id, 240, uint32(id[0])) }
	pull := func(id string) { _ = os.Remove("/dev/" + prefix + "-" + id) }
	t.Cleanup(func() { pull("a"); pull("b") })
	plug("a")
	helm(t, c, map[string]any{
		"config": map[string]string{"10-test.toml": fmt.Sprintf(sticks, prefix)},
		"evict":  map[string]any{"enabled": true, "after": evictAfter.String()},
	}, "install", name, chartDir)
	c.WaitDaemonSet(t, namespace, name)
	c.WaitResource(t, stick, 1)
	waitEvicter(t, c)

	c.Apply(t, cluster.Deployment("holder", stick, 1))
	first := c.WaitPods(t, "holder", 1, 0)[0]
	plug("b")
	c.WaitResource(t, stick, 2)
	t.Run("flapping", func(t *testing.T) {
		for range 10 {
			pull("a")
			c.WaitResource(t, stick, 1)
			plug("a")
			c.WaitResource(t, stick, 2)
		}
		if now := c.WaitPods(t, "holder", 1, 0)[0]; now.UID != first.UID {
			t.Errorf("pod %s was evicted", first.Name)
		}
	})
	t.Run("pulled", func(t *testing.T) {
		c.Apply(t, budget("holder"))
		pull("a")
		waitEvent(t, c, "EvictionBlocked", first.Name)
		c.Kubectl(t, "", "delete", "poddisruptionbudget", "holder")
		message := waitEvent(t, c, "Evicted", first.Name)
		if !strings.HasPrefix(message, stick+" "+prefix+"-a has been Unhealthy for ") {
			t.Errorf("event %q, want the device and its time as Unhealthy", message)
		}
		t.Logf("event: %s", message)
		// The kubelet's own evictions have the same reason.
		if text := c.Kubectl(t, "", "get", "events", "--all-namespaces", "--field-selector", "source=generic-dp-evict"); !strings.Contains(text, "EvictionBlocked") || !strings.Contains(text, message) {
			t.Errorf("events of evict lack EvictionBlocked or %q:\n%s", message, text)
		}
		second := c.WaitPods(t, "holder", 1, 0)[0]
		if second.UID == first.UID {
			t.Fatalf("pod %s still runs", first.Name)
		}
		first = second
	})
}

// budget keeps the pod of the Deployment "holder".
func budget(name string) *policyv1.PodDisruptionBudget {
	one := intstr.FromInt32(1)
	return &policyv1.PodDisruptionBudget{
		TypeMeta:   metav1.TypeMeta{APIVersion: "policy/v1", Kind: "PodDisruptionBudget"},
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: metav1.NamespaceDefault},
		Spec:       policyv1.PodDisruptionBudgetSpec{MinAvailable: &one, Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "holder"}}},
	}
}

// waitEvicter waits until the Deployment's pod is ready, and returns it. Ready means that
// it watches.
func waitEvicter(t *testing.T, c *cluster.Cluster) (pod v1.Pod) {
	t.Helper()
	wait.Until(t, limit, "Deployment of evict", func() error {
		pods, err := c.Pods(namespace, "app.kubernetes.io/name=generic-dp-evict")
		switch {
		case err != nil:
			return err
		case len(pods) != 1 || len(pods[0].Status.ContainerStatuses) == 0 || !pods[0].Status.ContainerStatuses[0].Ready:
			return fmt.Errorf("%d pods, want one that is ready", len(pods))
		}
		pod = pods[0]
		return nil
	})
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(c.PodLog(t, &pod, "evict"))
		}
	})
	return pod
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
