//go:build cluster

package cluster

import (
	"encoding/json"
	"fmt"
	"os"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/generic-dp/generic-dp/test/e2e/bed"
	"github.com/generic-dp/generic-dp/test/e2e/product"
	"github.com/generic-dp/generic-dp/test/e2e/wait"
)

// imageEnv names the archive of the image under test, by default the one in dist/e2e of
// the repository.
const imageEnv = "GENERIC_DP_IMAGE"

// ImportProduct imports the image under test on every node.
func (c *Cluster) ImportProduct(t testing.TB) {
	t.Helper()
	archive := os.Getenv(imageEnv)
	if archive == "" {
		archive = product.Repository("dist", "e2e", "generic-dp-image.tar")
	}
	if _, err := os.Stat(archive); err != nil {
		t.Fatalf("no image to test: %v: run make e2e-cluster, or set %s", err, imageEnv)
	}
	for _, node := range c.nodes {
		node.Import(t, archive)
	}
}

// Apply applies an object with kubectl.
func (c *Cluster) Apply(t testing.TB, object any) {
	t.Helper()
	text, err := json.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	c.Kubectl(t, string(text), "apply", "-f", "-")
}

// Deployment is a number of pods that request one device of a resource each.
func Deployment(name, resource string, replicas int32) *appsv1.Deployment {
	pod := bed.Workload(name, resource, 1)
	labels := map[string]string{"app": name}
	return &appsv1.Deployment{
		TypeMeta:   metav1.TypeMeta{APIVersion: "apps/v1", Kind: "Deployment"},
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: metav1.NamespaceDefault},
		Spec: appsv1.DeploymentSpec{
			Replicas: &replicas,
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: v1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: pod.Spec},
		},
	}
}

// WaitPods waits until a number of pods of a deployment run and another number is
// pending, and returns the running ones.
func (c *Cluster) WaitPods(t testing.TB, name string, running, pending int) []v1.Pod {
	t.Helper()
	var run []v1.Pod
	wait.Until(t, podLimit, fmt.Sprintf("%d running and %d pending pods of %s", running, pending, name), func() error {
		pods, err := c.Pods(metav1.NamespaceDefault, "app="+name)
		if err != nil {
			return err
		}
		run = nil
		waiting := 0
		for _, p := range pods {
			switch {
			case p.DeletionTimestamp != nil:
			case p.Status.Phase == v1.PodRunning && len(p.Status.ContainerStatuses) > 0 && p.Status.ContainerStatuses[0].Ready:
				run = append(run, p)
			case p.Status.Phase == v1.PodPending:
				waiting++
			}
		}
		if len(run) != running || waiting != pending {
			return fmt.Errorf("%d running and %d pending of %d", len(run), waiting, len(pods))
		}
		return nil
	})
	return run
}

// WaitResource waits until the node's status has a number of a resource.
func (c *Cluster) WaitResource(t testing.TB, name string, allocatable int64) {
	t.Helper()
	wait.Until(t, podLimit, fmt.Sprintf("%d of %s on the node", allocatable, name), func() error {
		node, err := c.Node()
		if err != nil {
			return err
		}
		quantity, ok := node.Status.Allocatable[v1.ResourceName(name)]
		if got := quantity.Value(); got != allocatable {
			return fmt.Errorf("got %d, in the node's status: %v", got, ok)
		}
		return nil
	})
}

// WaitDaemonSet waits until a DaemonSet is rolled out, and returns its pod.
func (c *Cluster) WaitDaemonSet(t testing.TB, namespace, name string) (pod v1.Pod) {
	t.Helper()
	wait.Until(t, podLimit, "DaemonSet "+name, func() (err error) {
		pod, err = c.RolledOut(namespace, name)
		return err
	})
	return pod
}

// RolledOut returns the pod of a DaemonSet, or an error unless it is the only one, ready
// and of the latest generation.
func (c *Cluster) RolledOut(namespace, name string) (pod v1.Pod, err error) {
	d, err := Get[appsv1.DaemonSet](c, "/apis/apps/v1/namespaces/"+namespace+"/daemonsets/"+name)
	if err != nil {
		return pod, err
	}
	s := d.Status
	if s.ObservedGeneration != d.Generation || s.DesiredNumberScheduled != 1 || s.UpdatedNumberScheduled != 1 || s.NumberReady != 1 || s.NumberUnavailable != 0 {
		return pod, fmt.Errorf("not rolled out, generation %d: %+v", d.Generation, s)
	}
	pods, err := c.Pods(namespace, "app.kubernetes.io/name=generic-dp")
	if err == nil && len(pods) != 1 {
		err = fmt.Errorf("%d pods, want 1", len(pods))
	}
	if err != nil {
		return pod, err
	}
	return pods[0], nil
}
