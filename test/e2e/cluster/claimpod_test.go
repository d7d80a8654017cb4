//go:build cluster

package cluster_test

import (
	"fmt"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/generic-dp/generic-dp/test/e2e/bed"
)

// claimPod creates a pod with a claim of one request, which change modifies.
func (n *draNode) claimPod(t *testing.T, name, namespace string, change func(*resourcev1.ExactDeviceRequest)) *bed.Pod {
	t.Helper()
	request := &resourcev1.ExactDeviceRequest{DeviceClassName: "example.com.zigbee"}
	change(request)
	n.Apply(t, &resourcev1.ResourceClaim{
		TypeMeta:   metav1.TypeMeta{APIVersion: "resource.k8s.io/v1", Kind: "ResourceClaim"},
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace},
		Spec: resourcev1.ResourceClaimSpec{Devices: resourcev1.DeviceClaim{
			Requests: []resourcev1.DeviceRequest{{Name: "stick", Exactly: request}},
		}},
	})
	pod := bed.Workload(name+"-"+bed.NodeName, "", 0)
	pod.Namespace = namespace
	pod.Spec.ResourceClaims = []v1.PodResourceClaim{{Name: "mine", ResourceClaimName: &name}}
	pod.Spec.Containers[0].Resources.Claims = []v1.ResourceClaim{{Name: "mine"}}
	n.Apply(t, pod)
	return n.PodOf(name)
}

// anyStick leaves the request of claimPod as it is.
func anyStick(*resourcev1.ExactDeviceRequest) {}

// claimingPod creates a claim and a pod whose container requests some requests of the claim, or all
// of them.
func (n *draNode) claimingPod(t *testing.T, name, devices string, requests ...string) *bed.Pod {
	t.Helper()
	used := []string{"{name: mine}"}
	if len(requests) > 0 {
		used = nil
		for _, r := range requests {
			used = append(used, fmt.Sprintf("{name: mine, request: %s}", r))
		}
	}
	n.Kubectl(t, fmt.Sprintf(`
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: %[1]s, namespace: default}
spec:
  devices:%[2]s
---
apiVersion: v1
kind: Pod
metadata: {name: %[1]s-%[3]s, namespace: default}
spec:
  hostNetwork: true
  terminationGracePeriodSeconds: 1
  resourceClaims: [{name: mine, resourceClaimName: %[1]s}]
  containers:
  - name: main
    image: %[4]s
    imagePullPolicy: Never
    command: [/tool, run, /dev]
    resources: {claims: [%[5]s]}
`, name, strings.ReplaceAll("\n"+strings.TrimSpace(devices), "\n", "\n    "), bed.NodeName, bed.Image, strings.Join(used, ", ")), "apply", "-f", "-")
	return n.PodOf(name)
}
