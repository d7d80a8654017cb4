//go:build cluster

package cluster_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/dynamic-resource-allocation/api/metadata"
	"k8s.io/dynamic-resource-allocation/devicemetadata"

	"github.com/generic-dp/generic-dp/test/e2e/bed"
	"github.com/generic-dp/generic-dp/test/e2e/cluster"
	"github.com/generic-dp/generic-dp/test/e2e/fixture"
	"github.com/generic-dp/generic-dp/test/e2e/wait"
)

// stickIn is a stick in port i.
func stickIn(i int) fixture.Stick {
	return fixture.Stick{Port: fmt.Sprintf("1-%d", i), ID: "10c4:ea60", Serial: fmt.Sprintf("A1B2C3D%d", i), TTY: fmt.Sprintf("ttyUSB%d", i)}
}

// pathOf is the path of the stick in port i in a container.
func pathOf(i int) string { return "/dev/zigbee-" + stickIn(i).Serial }

// claimPod creates a pod with a claim, which has a request for the stick in each of some ports. The
// requests are named after the ports: "port2".
func (n *draNode) claimPod(t *testing.T, name string, ports ...int) *bed.Pod {
	t.Helper()
	claim := &resourcev1.ResourceClaim{
		TypeMeta:   metav1.TypeMeta{APIVersion: "resource.k8s.io/v1", Kind: "ResourceClaim"},
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: metav1.NamespaceDefault},
	}
	for _, i := range ports {
		claim.Spec.Devices.Requests = append(claim.Spec.Devices.Requests, resourcev1.DeviceRequest{
			Name: fmt.Sprintf("port%d", i),
			Exactly: &resourcev1.ExactDeviceRequest{
				DeviceClassName: "example.com.zigbee",
				Selectors: []resourcev1.DeviceSelector{{CEL: &resourcev1.CELDeviceSelector{
					Expression: fmt.Sprintf("device.attributes[%q].serial == %q", draDriver, stickIn(i).Serial),
				}}},
			},
		})
	}
	n.Apply(t, claim)
	pod := bed.Workload(name+"-"+bed.NodeName, "", 0)
	pod.Spec.ResourceClaims = []v1.PodResourceClaim{{Name: "mine", ResourceClaimName: &name}}
	pod.Spec.Containers[0].Resources.Claims = []v1.ResourceClaim{{Name: "mine"}}
	n.Apply(t, pod)
	return n.PodOf(name)
}

// TestDRAClaims has pods with claims on one node: a pod that is deleted by force, a claim of two
// requests, and the health of devices in the status of pods.
func TestDRAClaims(t *testing.T) {
	t.Parallel()
	bed.OnVersions(t, func(t *testing.T, v bed.Version) {
		n := newDRANode(t, cluster.Options{Plane: v, Kubelet: v}, strings.Replace(byDRA, "/dev/zigbee\"", "/dev/zigbee-${usb.serial}\"", 1)+"container.health_dir = \"/run/device\"\n")
		n.Plug(stickIn(1))
		n.serve(t)
		n.waitDevices(t, 1)
		t.Run("force delete", n.testForceDelete)
		n.Plug(stickIn(2))
		n.Plug(stickIn(3))
		n.waitDevices(t, 3)
		t.Run("two requests", n.testTwoRequests)
		t.Run("health", n.testHealth)
	})
}

// testTwoRequests selects devices by serial number: the container has the environment, health and
// metadata of both.
func (n *draNode) testTwoRequests(t *testing.T) {
	mine := n.claimPod(t, "claimed", 3, 2)
	mine.WaitRunning(t)
	r := mine.Report(t, "main")
	if serials := r.Env["ZIGBEE_SERIAL"]; serials != "A1B2C3D2,A1B2C3D3" {
		t.Errorf("the container has the serials %q, want both, sorted", serials)
	}
	canRead := func(path string) error {
		if _, text, code := mine.Exec(t, "main", "/tool", "open", path, "r"); code != 0 {
			return errors.New(text)
		}
		return nil
	}
	for _, i := range []int{2, 3} {
		if _, ok := r.Node(pathOf(i)); !ok {
			t.Errorf("the container has no %s, but %+v", pathOf(i), r.Nodes)
		}
		request := fmt.Sprintf("port%d", i)
		if err := canRead(metadata.ResourceClaimFilePath(draDriver, "claimed", request)); err != nil {
			t.Errorf("metadata of request %s: %v", request, err)
		}
		n.checkMetadata(t, request, stickIn(i).Serial)
	}
	// Each request mounts the directories of both devices at the same paths, in the order of the IDs.
	const healthy = "/run/device/0/healthy"
	const other = "/run/device/1/healthy"
	for _, file := range []string{healthy, other} {
		if err := canRead(file); err != nil {
			t.Errorf("%s: %v", file, err)
		}
	}
	n.Unplug(stickIn(2).Port)
	wait.Until(t, limit, "removal of "+healthy, func() error {
		if canRead(healthy) == nil {
			return errors.New("the container can read it")
		}
		return nil
	})
	if err := canRead(other); err != nil {
		t.Errorf("the other device, %s: %v", other, err)
	}
	n.delete(t, "claimed")
	if left, err := filepath.Glob(filepath.Join(n.PluginDir(), "run", "claims", "*")); err != nil || len(left) > 0 {
		t.Errorf("metadata after the end of the pod: %q, %v, want none", left, err)
	}
}

// checkMetadata checks the metadata of a request, as Kubernetes decodes it.
func (n *draNode) checkMetadata(t *testing.T, request, serial string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(n.PluginDir(), "run", "claims", "*."+request+".json"))
	if err != nil || len(files) != 1 {
		t.Fatalf("metadata of request %s on the host: %q, %v, want one file", request, files, err)
	}
	text, err := os.ReadFile(files[0])
	must(t, err)
	var read metadata.DeviceMetadata
	must(t, devicemetadata.DecodeMetadataFromStream(json.NewDecoder(bytes.NewReader(text)), &read))
	if have := read.Requests[0].Devices[0].Attributes["serial"].StringValue; have == nil || *have != serial {
		t.Errorf("metadata of request %s: %s, want serial %s", request, text, serial)
	}
}

// hasHealth returns an error unless the status of a pod has one health for all its devices.
func (n *draNode) hasHealth(name string, want v1.ResourceHealthStatus) error {
	p, err := n.get(name)
	if err != nil {
		return err
	}
	count := 0
	for _, c := range p.Status.ContainerStatuses {
		for _, claim := range c.AllocatedResourcesStatus {
			for _, r := range claim.Resources {
				count++
				if r.Health != want {
					return fmt.Errorf("got %s", r.Health)
				}
			}
		}
	}
	if count == 0 {
		return errors.New("the status has no health")
	}
	return nil
}

// waitHealth waits for a health of the pod.
func (n *draNode) waitHealth(t *testing.T, name string, want v1.ResourceHealthStatus) {
	t.Helper()
	wait.Until(t, moveLimit, fmt.Sprintf("health %s of pod %s", want, name), func() error {
		return n.hasHealth(name, want)
	})
}

// testHealth shows the health of a device over an update of the program and its end.
func (n *draNode) testHealth(t *testing.T) {
	pod := n.claimPod(t, "shown", 1)
	pod.WaitRunning(t)
	n.waitHealth(t, "shown", v1.ResourceHealthStatusHealthy)
	n.Unplug(stickIn(1).Port)
	n.waitHealth(t, "shown", v1.ResourceHealthStatusUnhealthy)
	n.Plug(stickIn(1))
	n.waitHealth(t, "shown", v1.ResourceHealthStatusHealthy)

	// The end of the old instance's stream clears what the new one has reported.
	old := n.plugin
	n.spec.Name = "plugin-2"
	n.serve(t)
	n.plugin.WaitLog(t, limit, "another instance serves")
	old.Stop(t)
	n.plugin.WaitLog(t, limit, "msg=registered driver")
	// The kubelet reads the health again for each status of the pod.
	pod.Kill(t, "main")
	pod.WaitRestarted(t, "main", 1)
	wait.Until(t, time.Minute, "health after the update", func() error {
		return n.hasHealth("shown", v1.ResourceHealthStatusHealthy)
	})
	pod.Kill(t, "main")
	pod.WaitRestarted(t, "main", 2)
	wait.Holds(t, 10*time.Second, "health after the update", func() error {
		return n.hasHealth("shown", v1.ResourceHealthStatusHealthy)
	})

	n.plugin.Stop(t)
	n.waitHealth(t, "shown", v1.ResourceHealthStatusUnknown)
	n.serve(t)
	n.waitHealth(t, "shown", v1.ResourceHealthStatusHealthy)
}

// testForceDelete deletes a pod with --force whose containers can't end, since their shim is
// stopped. The API server and the kubelet forget the pod at once, and the scheduler gives its
// device to the next one, which must not start before the containers have ended.
func (n *draNode) testForceDelete(t *testing.T) {
	n.pod(t, "one").WaitRunning(t)
	object, err := n.get("one")
	must(t, err)
	uid := string(object.UID)
	running := processesOf(t, uid)
	if len(running) == 0 {
		t.Fatal("the pod has no process")
	}
	_, shim := stat(running[0])
	if shim <= 1 {
		t.Fatalf("process %d has the parent %d, want a shim", running[0], shim)
	}
	must(t, syscall.Kill(shim, syscall.SIGSTOP))
	resume := func() { _ = syscall.Kill(shim, syscall.SIGCONT) }
	defer resume()
	n.Kubectl(t, "", "delete", "pod", object.Name, "--force", "--grace-period=0")

	two := n.pod(t, "two")
	second := ""
	wait.Until(t, limit, "allocation to the second pod", func() error {
		p, err := n.get("two")
		if err == nil && p.Spec.NodeName == "" {
			err = errors.New("it is not bound")
		}
		second = string(p.UID)
		return err
	})
	wait.Holds(t, 20*time.Second, "one holder of the device", func() error {
		if pids := processesOf(t, second); len(pids) > 0 && len(processesOf(t, uid)) > 0 {
			return fmt.Errorf("processes %d of the second pod run beside the first pod's", pids)
		}
		return nil
	})
	if len(processesOf(t, uid)) == 0 {
		t.Error("the processes of the first pod have ended: the test shows nothing")
	}
	resume()
	two.WaitRunning(t)
	if left := processesOf(t, uid); len(left) > 0 {
		t.Errorf("processes %d of the first pod run beside the second", left)
	}
	if node, ok := two.Report(t, "main").Node(pathOf(1)); !ok || node.Major != 188 {
		t.Errorf("the second pod has %+v, want 188:1", node)
	}
	n.delete(t, "two")
}

// processesOf lists the processes of a pod other than zombies.
func processesOf(t *testing.T, uid string) (pids []int) {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/cgroup")
	must(t, err)
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil || !strings.Contains(string(text), uid) {
			continue // it has ended, or belongs to another pod
		}
		pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(file)))
		if state, _ := stat(pid); state != "Z" && state != "" {
			pids = append(pids, pid)
		}
	}
	return pids
}

// stat returns the state and the parent of a process.
func stat(pid int) (state string, parent int) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return "", 0
	}
	_, rest, _ := strings.Cut(string(text), ") ")
	fields := strings.Fields(rest)
	if len(fields) < 2 {
		return "", 0
	}
	parent, _ = strconv.Atoi(fields[1])
	return fields[0], parent
}
