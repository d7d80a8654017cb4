package node_test

import (
	"fmt"
	"path/filepath"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/generic-dp/generic-dp/test/e2e/bed"
	"github.com/generic-dp/generic-dp/test/e2e/wait"
)

// TestLivenessProbe has the kubelet restart the container of a static pod by the file in
// its health directory: its adapter has moved or is unplugged, so that it waits for it.
func TestLivenessProbe(t *testing.T) {
	t.Parallel()
	for kind, line := range injections {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			n := newNode(t)
			mine := adapter("1-1", "A1B2C3D4", 0)
			n.Plug(mine.Stick)
			n.serve(t, zigbees+line+"container.health_dir = \"/run/device\"\n")
			n.Kubelet.WaitAllocatable(t, zigbee, 1)
			workload := bed.Workload("mine", zigbee, 1)
			user := int64(1000)
			workload.Spec.Containers[0].SecurityContext = &v1.SecurityContext{RunAsUser: &user}
			workload.Spec.Containers[0].LivenessProbe = &v1.Probe{
				ProbeHandler:  v1.ProbeHandler{Exec: &v1.ExecAction{Command: []string{"/tool", "open", "/run/device/healthy", "r"}}},
				PeriodSeconds: 1, FailureThreshold: 5, TimeoutSeconds: 2,
			}
			pod := n.run(t, workload)
			r := pod.Report(t, "main")
			wantNode(t, r, "/dev/zigbee", mine.number())
			if m, ok := r.Mount("/run/device"); !ok || !m.ReadOnly {
				t.Errorf("mount at /run/device: %+v, %t, want a read-only one", m, ok)
			}

			// The same adapter at another node, faster than the probe.
			n.Unplug(mine.Port)
			mine = adapter("1-2", mine.Serial, 1)
			n.Plug(mine.Stick)
			pod.WaitRestarted(t, "main", 1)
			wantNode(t, pod.Inspect(t, "main", "/dev"), "/dev/zigbee", mine.number())

			n.Kubelet.WaitAllocatable(t, zigbee, 1)
			n.Unplug(mine.Port)
			why := map[string]string{"link": "no such file or directory", "cdi": "unresolvable CDI devices"}[kind]
			t.Logf("the container waits: %s", waitStuck(t, pod, why))
			before := restarts(t, pod)
			mine = adapter("1-3", mine.Serial, 2)
			n.Plug(mine.Stick)
			pod.WaitRunning(t)
			wantNode(t, pod.Inspect(t, "main", "/dev"), "/dev/zigbee", mine.number())
			// Until then, the kubelet goes on to restart the container, so that the test does not enter it.
			wait.Until(t, 2*time.Minute, "file healthy", func() error {
				found, err := filepath.Glob(filepath.Join(n.plugin.RunDir(), "health", "*", "healthy"))
				if err == nil && len(found) != 1 {
					err = fmt.Errorf("files: %q", found)
				}
				return err
			})
			t.Logf("restarts: %d before the adapter was back, %d after", before, restarts(t, pod))
			n.wantAllocations(t, zigbee, 1)
		})
	}
}

func restarts(t *testing.T, p *bed.Pod) int32 {
	t.Helper()
	status, err := p.Status(t.Context())
	must(t, err)
	return status.Status.ContainerStatuses[0].RestartCount
}
