//go:build cluster

package cluster_test

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/generic-dp/generic-dp/test/e2e/bed"
	"github.com/generic-dp/generic-dp/test/e2e/fixture"
	"github.com/generic-dp/generic-dp/test/e2e/wait"
)

const (
	zwave = "example.com/zwave"
	// byPlugin injects one resource by its link and the other by its CDI name.
	byPlugin = zigbees + `
[[resource]]
name = "zwave"
match = { usb = { id = "0658:0200" }, glob = "/dev/ttyUSB*" }
container.cdi = true
container.path = "/dev/zwave"
`
)

// TestPluginScenarios has the scenarios of test/e2e_node/device_plugin_test.go of Kubernetes, with pods
// of the API server and static pods. ../SCENARIOS.md maps them.
func TestPluginScenarios(t *testing.T) {
	t.Parallel()
	bed.OnVersions(t, runPluginScenarios)
}

func runPluginScenarios(t *testing.T, v bed.Version) {
	n := newDRANode(t, v, byPlugin)
	n.Plug(stickIn(0))
	n.Plug(stickIn(1))
	n.Plug(fixture.Stick{Port: "1-5", ID: "0658:0200", Serial: "C9D0E1F2", TTY: "ttyUSB5"})
	n.serve(t)
	n.WaitResource(t, zigbee, 2)
	n.WaitResource(t, zwave, 1)
	t.Run("Can schedule a pod that requires a device", func(t *testing.T) {
		n.pod(t, "one").WaitRunning(t)
		n.StartPod(t, bed.Workload("static", zigbee, 1)).WaitRunning(t)
		if held := n.heldBy(t); len(held) != 2 || held["one"] == "" || held["static"] == "" {
			t.Errorf("the kubelet shows the holders %v, want both pods", held)
		}
	})
	t.Run("can make a CDI device accessible in a container", func(t *testing.T) {
		pod := n.podWith(t, "cdi", zwave)
		pod.WaitRunning(t)
		if node, ok := pod.Report(t, "main").Node("/dev/zwave"); !ok || node.Major != 188 || node.Minor != 5 {
			t.Errorf("the container has %+v, want 188:5", node)
		}
		n.delete(t, "cdi")
	})
	t.Run("Keeps device plugin assignments", func(t *testing.T) { n.restartInEveryOrder(t) })
	t.Run("[OrphanedPods] Ensures pods consuming devices deleted while kubelet is down are cleaned up correctly", func(t *testing.T) {
		p, err := n.get("one")
		if err != nil {
			t.Fatal(err)
		}
		n.Kubelet.Stop(t)
		n.Kubectl(t, "", "delete", "pod", p.Name, "--force", "--grace-period=0")
		n.startKubelet(t)
		wait.Until(t, moveLimit, "end of the orphaned pod", func() error {
			if n.Runs(t, p.UID) {
				return errors.New("a container runs")
			}
			return nil
		})
		if held := n.heldBy(t); held["one"] != "" {
			t.Errorf("the orphaned pod holds %s", held["one"])
		}
		n.WaitResource(t, zigbee, 2)
		n.pod(t, "next").WaitRunning(t)
		n.delete(t, "next")
	})
	n.PodOf("static").Delete(t)
	t.Run("Can schedule a pod with a restartable init container", func(t *testing.T) { n.runSidecar(t) })
	t.Run("will not attempt to admit the succeeded pod after the kubelet restart and device plugin removed", func(t *testing.T) {
		n.succeedWithoutPlugin(t)
	})
}

// heldBy returns the devices of zigbee, by the names of their pods.
func (n *draNode) heldBy(t *testing.T) map[string]string {
	t.Helper()
	var held map[string]string
	wait.Until(t, limit, "list of held devices", func() (err error) { // the kubelet limits the rate
		held, err = n.Kubelet.Held(t.Context(), zigbee)
		return err
	})
	byPod := map[string]string{}
	for device, holder := range held {
		for _, name := range []string{"one", "static", "next", "sidecar"} {
			if holder == name+"-"+bed.NodeName+"/main" {
				byPod[name] = device
			}
		}
	}
	return byPod
}

// restartInEveryOrder restarts the containers of two pods, the program and the kubelet in every order:
// the pods keep their devices. A kubelet that starts rejects a pod whose container does not run, unless
// the program is registered.
func (n *draNode) restartInEveryOrder(t *testing.T) {
	pods := []*bed.Pod{n.PodOf("one"), n.PodOf("static")}
	before := n.heldBy(t)
	serials := map[string]string{}
	for _, pod := range pods {
		serials[pod.Name] = pod.Report(t, "main").Env["ZIGBEE_SERIAL"]
	}
	restarts := int32(0)
	steps := map[string]func(){
		"container": func() {
			restarts++
			for _, pod := range pods {
				pod.Kill(t, "main")
				pod.WaitRestarted(t, "main", restarts)
			}
		},
		"program": func() {
			n.plugin.Restart(n.owner)
			n.plugin.WaitLog(t, limit, "msg=registered")
			n.Kubelet.WaitAllocatable(t, zigbee, 2)
		},
		"kubelet": func() {
			n.startKubelet(t)
			n.Kubelet.WaitAllocatable(t, zigbee, 2)
			for _, pod := range pods {
				pod.WaitRunning(t) // it is admitted
			}
		},
	}
	for _, order := range permutations(slices.Sorted(maps.Keys(steps))) {
		for _, step := range order {
			steps[step]()
		}
		for _, pod := range pods {
			pod.WaitRunning(t)
			if serial := pod.Report(t, "main").Env["ZIGBEE_SERIAL"]; serial != serials[pod.Name] {
				t.Errorf("%v: pod %s has the serial %q, had %q", order, pod.Name, serial, serials[pod.Name])
			}
		}
		if after := n.heldBy(t); !maps.Equal(before, after) {
			t.Errorf("%v: the kubelet shows the holders %v, before: %v", order, after, before)
		}
	}
}

// permutations returns all orders of words.
func permutations(words []string) (all [][]string) {
	if len(words) == 0 {
		return [][]string{nil}
	}
	for i, first := range words {
		rest := slices.Delete(slices.Clone(words), i, i+1)
		for _, order := range permutations(rest) {
			all = append(all, append([]string{first}, order...))
		}
	}
	return all
}

// runSidecar runs a pod with an init container, a restartable one and an ordinary one: the init
// containers share a device.
func (n *draNode) runSidecar(t *testing.T) {
	pod := bed.Workload("sidecar-"+bed.NodeName, zigbee, 1)
	first := bed.Container("first", zigbee, 1)
	first.Command = []string{"/tool", "inspect", "/dev"}
	sidecar := bed.Container("restartable", zigbee, 1)
	always := v1.ContainerRestartPolicyAlways
	sidecar.RestartPolicy = &always
	pod.Spec.InitContainers = []v1.Container{first, sidecar}
	n.CreatePod(t, pod)
	running := n.PodOf("sidecar")
	running.WaitRunning(t)
	serial := func(container string) string { return running.Report(t, container).Env["ZIGBEE_SERIAL"] }
	if serial("restartable") == "" || serial("restartable") == serial("main") {
		t.Errorf("the restartable init container has the device %q, the ordinary container %q, want two devices", serial("restartable"), serial("main"))
	}
	n.delete(t, "sidecar")
}

// succeedWithoutPlugin restarts the kubelet after a pod has succeeded and the program has ended: the
// kubelet must not admit the pod again.
func (n *draNode) succeedWithoutPlugin(t *testing.T) {
	pod := bed.Workload("done-"+bed.NodeName, zigbee, 1)
	pod.Spec.RestartPolicy = v1.RestartPolicyNever
	pod.Spec.Containers[0].Command = []string{"/tool", "inspect", "/dev"}
	n.CreatePod(t, pod)
	succeeded := func() error {
		p, err := n.get("done")
		if err == nil && p.Status.Phase != v1.PodSucceeded {
			err = fmt.Errorf("it is %s: %s", p.Status.Phase, p.Status.Message)
		}
		return err
	}
	wait.Until(t, limit, "end of the pod", succeeded)
	n.plugin.Stop(t)
	n.WaitResource(t, zigbee, 0)
	n.startKubelet(t)
	wait.Holds(t, 30*time.Second, "success of the pod", succeeded)
	n.serve(t)
	n.WaitResource(t, zigbee, 2)
}
