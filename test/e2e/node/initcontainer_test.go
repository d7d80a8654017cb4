package node_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/generic-dp/generic-dp/test/e2e/bed"
	"github.com/generic-dp/generic-dp/test/e2e/wait"
)

// TestInitContainerThatWaits has the init container of a pod hold a stick, while the pod waits for a
// volume for more than a minute. The kubelet lists no init containers, and the pod has no process. An
// edit moves the stick to another resource meanwhile: it is not offered there before the pod has
// ended.
func TestInitContainerThatWaits(t *testing.T) {
	if testing.Short() {
		t.Skip("takes more than a minute")
	}
	t.Parallel()
	n := newNode(t)
	mine := adapter("1-1", "A1B2C3D4", 0)
	n.Plug(mine.Stick)
	n.serve(t, zigbees)
	n.Kubelet.WaitAllocatable(t, zigbee, 1)

	// The kubelet waits until the directory exists.
	volume := filepath.Join(t.TempDir(), "volume")
	directory := v1.HostPathDirectory
	pod := bed.Workload("first", zigbee, 1)
	pod.Spec.Volumes = append(pod.Spec.Volumes, v1.Volume{
		Name:         "late",
		VolumeSource: v1.VolumeSource{HostPath: &v1.HostPathVolumeSource{Path: volume, Type: &directory}},
	})
	holder := pod.Spec.Containers[0]
	holder.Name = "holder"
	holder.Command = []string{"/tool", "exit", "0"}
	pod.Spec.InitContainers = []v1.Container{holder}
	pod.Spec.Containers[0].Resources = v1.ResourceRequirements{}
	pod.Spec.Containers[0].VolumeMounts = append(pod.Spec.Containers[0].VolumeMounts, v1.VolumeMount{Name: "late", MountPath: "/late"})
	first := n.StartPod(t, pod)
	first.Wait(t, "admitted", func(p *v1.Pod) error {
		if p.Status.Phase != v1.PodPending || len(p.Status.InitContainerStatuses) == 0 {
			return fmt.Errorf("phase %s", p.Status.Phase)
		}
		return nil
	})

	const serial = "example.com/serial"
	n.plugin.Configure(t, "domain = \"example.com\"\n[[resource]]\nname = \"serial\"\nmatch = { usb = { id = \"10c4:ea60\" }, glob = \"/dev/ttyUSB*\" }\n")
	offered := func() error {
		got, err := n.Kubelet.Allocatable(t.Context(), serial)
		if err == nil && got > 0 {
			return errors.New("the stick is offered, and the init container has not run")
		}
		return nil
	}
	wait.Holds(t, 80*time.Second, "the stick of an init container that waits", offered)
	must(t, os.Mkdir(volume, 0o755))
	first.WaitRunning(t)
	first.Delete(t)
	wait.Until(t, 3*time.Minute, "the stick is offered after the end of the pod", func() error {
		got, err := n.Kubelet.Allocatable(t.Context(), serial)
		if err == nil && got != 1 {
			err = fmt.Errorf("%d devices", got)
		}
		return err
	})
}
