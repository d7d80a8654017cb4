//go:build cluster

package cluster_test

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/generic-dp/generic-dp/test/e2e/bed"
	"github.com/generic-dp/generic-dp/test/e2e/cluster"
	"github.com/generic-dp/generic-dp/test/e2e/fixture"
	"github.com/generic-dp/generic-dp/test/e2e/product"
	"github.com/generic-dp/generic-dp/test/e2e/wait"
)

const (
	draDriver = "generic-dp.github.io"
	zigbee    = "example.com/zigbee"
	zigbees   = `
domain = "example.com"
[[resource]]
name = "zigbee"
match = { usb = { id = "10c4:ea60" }, glob = "/dev/ttyUSB*" }
container.path = "/dev/zigbee"
container.env.ZIGBEE_SERIAL = "${usb.serial}"
`
	byDRA = "api = \"dra\"\n" + zigbees
	// beside is a second resource, of the device plugin.
	beside = `
[[resource]]
name = "beside"
api = "device-plugin"
match.glob = "/dev/null"
container.path = "/dev/beside"
`
	// moveLimit is the timeout of a device's move between the kubelet's APIs: a minute of
	// Unhealthy, then the next query of its holders.
	moveLimit = 240 * time.Second
)

// draNode is a cluster whose node has hardware. The program runs beside the kubelet, with
// the administrator's token.
type draNode struct {
	*cluster.Cluster
	*fixture.Host
	plugin *product.Plugin
	spec   product.Spec
	// owner is the test whose end ends the programs that a subtest starts.
	owner *testing.T
}

func newDRANode(t *testing.T, o cluster.Options, config string) *draNode {
	t.Helper()
	n := &draNode{Cluster: cluster.NewWith(t, o), owner: t}
	n.Host = n.Hardware(t)
	n.spec = product.Spec{
		Config: config, Env: []string{"KUBERNETES_SERVICE_HOST=127.0.0.1", "KUBERNETES_SERVICE_PORT=6443"},
		Args: []string{"--sysfs", n.Sysfs(), "--log-level", "debug", "--node-name", bed.NodeName},
	}
	n.class(t, zigbee)
	n.makePodMounts(t)
	return n
}

// class makes the DeviceClass of a resource.
func (n *draNode) class(t *testing.T, resource string) {
	t.Helper()
	n.Apply(t, &resourcev1.DeviceClass{
		TypeMeta:   metav1.TypeMeta{APIVersion: "resource.k8s.io/v1", Kind: "DeviceClass"},
		ObjectMeta: metav1.ObjectMeta{Name: strings.ReplaceAll(resource, "/", ".")},
		Spec: resourcev1.DeviceClassSpec{
			ExtendedResourceName: &resource,
			Selectors: []resourcev1.DeviceSelector{{CEL: &resourcev1.CELDeviceSelector{
				Expression: fmt.Sprintf("device.driver == %q && device.attributes[%q].resource == %q", draDriver, draDriver, resource),
			}}},
		},
	})
}

// makePodMounts makes the mounts of a pod, which a reboot removes: the files of a service
// account, and the run directory.
func (n *draNode) makePodMounts(t *testing.T) {
	t.Helper()
	dir := n.Path("/run/secrets/kubernetes.io/serviceaccount")
	must(t, os.MkdirAll(dir, 0o755))
	ca, err := os.ReadFile(filepath.Join(n.Dir, "plane", "certificates", "apiserver.crt"))
	must(t, err)
	for name, text := range map[string]string{"ca.crt": string(ca), "token": "admin"} {
		must(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	run := filepath.Join(n.PluginDir(), "run")
	must(t, os.MkdirAll(run, 0o755))
	n.Run(t, "mount", "--bind", run, run)
}

// serve starts the program. It ends with the test that made the node.
func (n *draNode) serve(t *testing.T) {
	t.Helper()
	n.plugin = n.Plugin(n.owner, n.spec)
}

// pod creates a pod that requests a device, by extended resource.
func (n *draNode) pod(t *testing.T, name string) *bed.Pod {
	t.Helper()
	return n.podWith(t, name, zigbee)
}

func (n *draNode) podWith(t *testing.T, name, resource string) *bed.Pod {
	t.Helper()
	n.CreatePod(t, bed.Workload(name+"-"+bed.NodeName, resource, 1))
	return n.PodOf(name)
}

// delete deletes a pod, and waits until it is gone.
func (n *draNode) delete(t *testing.T, name string) {
	t.Helper()
	n.Kubectl(t, "", "delete", "pod", name+"-"+bed.NodeName, "--timeout=60s")
}

func (n *draNode) get(name string) (v1.Pod, error) {
	return cluster.Get[v1.Pod](n.Cluster, "/api/v1/namespaces/default/pods/"+name+"-"+bed.NodeName)
}

func (n *draNode) slices() ([]resourcev1.ResourceSlice, error) {
	list, err := cluster.Get[resourcev1.ResourceSliceList](n.Cluster, "/apis/resource.k8s.io/v1/resourceslices")
	return list.Items, err
}

// versions are the versions of all slices, which change with every write.
func (n *draNode) versions(t *testing.T) map[types.UID]string {
	t.Helper()
	list, err := n.slices()
	must(t, err)
	versions := map[types.UID]string{}
	for _, s := range list {
		versions[s.UID] = s.ResourceVersion
	}
	return versions
}

// devices counts the devices without taints in the node's slices.
func (n *draNode) devices() (count int, err error) {
	list, err := n.slices()
	for _, s := range list {
		for _, d := range s.Spec.Devices {
			if len(d.Taints) == 0 {
				count++
			}
		}
	}
	return count, err
}

func (n *draNode) waitDevices(t *testing.T, want int) {
	t.Helper()
	wait.Until(t, moveLimit, fmt.Sprintf("%d devices in slices", want), func() error {
		have, err := n.devices()
		if err == nil && have != want {
			err = fmt.Errorf("got %d", have)
		}
		return err
	})
}

// wantPending checks for a second that a pod is not scheduled.
func (n *draNode) wantPending(t *testing.T, name string) {
	t.Helper()
	wait.Holds(t, time.Second, "pod "+name+" pending", func() error {
		p, err := n.get(name)
		if err == nil && p.Spec.NodeName != "" {
			err = errors.New("it is scheduled to " + p.Spec.NodeName)
		}
		return err
	})
}

// TestDRA runs unchanged pods by dynamic resource allocation: from before the start of the
// driver, over a replug, an update and a reboot.
func TestDRA(t *testing.T) {
	t.Parallel()
	for name, o := range map[string]cluster.Options{
		"v1.36": {},
		"v1.37": {Plane: bed.Next, Kubelet: bed.Next},
		// In the middle of an update of the cluster.
		"v1.37 with kubelet v1.36": {Plane: bed.Next},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o.Plane.SkipUnlessBuilt(t)
			runDRA(t, o)
		})
	}
}

func runDRA(t *testing.T, o cluster.Options) {
	n := newDRANode(t, o, byDRA+beside)
	n.Plug(fixture.Stick{Port: "1-1", ID: "10c4:ea60", Serial: "A1B2C3D4", TTY: "ttyUSB0"})
	mine := n.pod(t, "mine")
	n.wantPending(t, "mine")
	n.serve(t)
	mine.WaitRunning(t)
	r := mine.Report(t, "main")
	first, ok := r.Node("/dev/zigbee")
	if !ok || first.Major != 188 || first.Minor != 0 || r.Env["ZIGBEE_SERIAL"] != "A1B2C3D4" {
		t.Fatalf("node %+v, environment %v, want 188:0 and serial A1B2C3D4", first, r.Env)
	}

	// A replug, and a container that restarts.
	n.Unplug("1-1")
	n.Plug(fixture.Stick{Port: "1-2", ID: "10c4:ea60", Serial: "A1B2C3D4", TTY: "ttyUSB5"})
	n.plugin.WaitLog(t, limit, "device is offered")
	mine.Kill(t, "main")
	mine.WaitRestarted(t, "main", 1)
	if node, _ := mine.Report(t, "main").Node("/dev/zigbee"); node.Minor != 5 {
		t.Errorf("after the replug the container has %+v, want minor 5", node)
	}

	n.Plug(fixture.Stick{Port: "1-3", ID: "10c4:ea60", Serial: "B5C6D7E8", TTY: "ttyUSB6"})
	n.waitDevices(t, 2)

	// A crash of the program, and a pod that is bound while the kubelet is down.
	n.plugin.Restart(t)
	n.Kubelet.Stop(t)
	bound := n.pod(t, "bound")
	wait.Until(t, limit, "node of the pod", func() error {
		p, err := n.get("bound")
		if err == nil && p.Spec.NodeName == "" {
			err = errors.New("not bound")
		}
		return err
	})
	n.Kubelet.Restart(t)
	n.Kubelet.WaitReady(t)
	bound.WaitRunning(t)
	n.delete(t, "bound")

	// An update: the next instance starts before the old one ends. There is no moment without
	// slices or a driver.
	before, old := n.versions(t), n.plugin
	n.spec.Name = "plugin-2"
	n.serve(t)
	n.plugin.WaitLog(t, limit, "another instance serves")
	old.Stop(t)
	n.plugin.WaitLog(t, limit, "msg=registered driver")
	other := n.pod(t, "other")
	other.WaitRunning(t)
	if after := n.versions(t); !maps.Equal(before, after) {
		t.Errorf("the update wrote slices: %v, then %v", before, after)
	}
	if r := other.Report(t, "main"); r.Env["ZIGBEE_SERIAL"] != "B5C6D7E8" {
		t.Errorf("the second pod has %v, want serial B5C6D7E8", r.Env)
	}

	// The claim is released by an instance that has not prepared it.
	n.delete(t, "mine")
	third := n.pod(t, "third")
	third.WaitRunning(t)
	if r := third.Report(t, "main"); r.Env["ZIGBEE_SERIAL"] != "A1B2C3D4" {
		t.Errorf("the third pod has %v, want serial A1B2C3D4", r.Env)
	}

	// A reboot, where the kubelet starts before the driver: by DRA the same pods wait, then
	// run; by device plugin they are lost.
	lost := n.podWith(t, "lost", "example.com/beside")
	lost.WaitRunning(t)
	kept, err := n.get("third")
	must(t, err)
	n.Reboot(t)
	n.makePodMounts(t)
	wait.Until(t, moveLimit, "event of a pod that waits for the driver", func() error {
		events := n.Kubectl(t, "", "get", "events", "-o", "jsonpath={.items[*].message}")
		if !strings.Contains(events, "DRA driver "+draDriver+" is not registered") {
			return fmt.Errorf("events: %s", events)
		}
		return nil
	})
	if reason := lost.WaitFailed(t).Status.Reason; reason != "UnexpectedAdmissionError" {
		t.Errorf("the pod of the device plugin failed with %q, want UnexpectedAdmissionError", reason)
	}
	n.serve(t)
	third.WaitRunning(t)
	if now, err := n.get("third"); err != nil || now.UID != kept.UID {
		t.Errorf("after the reboot: pod %s, %v, want %s", now.UID, err, kept.UID)
	}
	n.WaitResource(t, "example.com/beside", 1)
	if now, err := n.get("lost"); err != nil || now.Status.Phase != v1.PodFailed {
		t.Errorf("with its device back the pod of the device plugin is %s, %v, want Failed: kubelets do not retry", now.Status.Phase, err)
	}
}

// A rolling update of the chart's DaemonSet writes no slice, so that no device becomes
// unavailable, and pods start meanwhile.
func TestDRARollingUpdate(t *testing.T) {
	t.Parallel()
	bed.OnVersions(t, runDRARollingUpdate)
}

func runDRARollingUpdate(t *testing.T, v bed.Version) {
	n := &draNode{Cluster: cluster.NewWith(t, cluster.Options{Plane: v, Kubelet: v}), owner: t}
	n.Host = n.Hardware(t)
	n.ImportProduct(t)
	n.ServePods(t)
	n.Mknod("stick-a", "stick-b")
	helm(t, n.Cluster, map[string]any{
		"config": map[string]string{"10-test.toml": "api = \"dra\"\n" + fmt.Sprintf(sticks, "stick")},
		"dra":    map[string]any{"enabled": true, "resources": []string{stick}},
	}, "install", name, chartDir)
	first := n.WaitDaemonSet(t, namespace, name)
	n.waitDevices(t, 2)
	held := n.podWith(t, "held", stick)
	held.WaitRunning(t)
	before := n.versions(t)
	n.Kubectl(t, "", "-n", namespace, "rollout", "restart", "daemonset/"+name)
	started := 0
	for updated := false; !updated; started++ {
		name := fmt.Sprintf("p%d", started)
		n.podWith(t, name, stick).WaitRunning(t)
		n.delete(t, name)
		now, err := n.RolledOut(namespace, "generic-dp")
		updated = err == nil && now.UID != first.UID
	}
	t.Logf("%d pods started meanwhile", started)
	if after := n.versions(t); !maps.Equal(before, after) {
		t.Errorf("the update wrote slices: %v, then %v", before, after)
	}
}
