package devicemanager_test

import (
	"os"
	"slices"
	"testing"

	api "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/generic-dp/generic-dp/test/e2e/devicemanager"
	"github.com/generic-dp/generic-dp/test/e2e/sample"
)

func TestMain(m *testing.M) { os.Exit(devicemanager.Main(m)) }

// null is a plugin that injects /dev/null as /dev/sample.
func null(resource string) *sample.Plugin {
	return &sample.Plugin{
		Resource: resource,
		IDs:      []string{"null"},
		Respond: func([]string) *api.ContainerAllocateResponse {
			return &api.ContainerAllocateResponse{
				Envs:    map[string]string{"SAMPLE": "null"},
				Devices: []*api.DeviceSpec{{ContainerPath: "/dev/sample", HostPath: "/dev/null", Permissions: "rw"}},
			}
		},
	}
}

func TestBedAllocates(t *testing.T) {
	const resource = "example.com/null"
	m := devicemanager.Start(t, devicemanager.Options{})
	if got := m.Count(resource); got != devicemanager.Absent {
		t.Fatalf("count before registration: %v, want no resource", got)
	}
	p := null(resource)
	p.Start(t, devicemanager.Dir)
	m.WaitCount(t, resource, devicemanager.Count{Capacity: 1, Allocatable: 1})

	pod := devicemanager.Pod("first", resource, 1)
	if err := m.Admit(pod); err != nil {
		t.Fatal(err)
	}
	options := m.RunOptions(t, pod, "main")
	if len(options.Devices) != 1 || options.Devices[0].PathInContainer != "/dev/sample" {
		t.Errorf("devices %v, want one at /dev/sample", options.Devices)
	}
	if got := m.Devices(pod, "main", resource); !slices.Equal(got, []string{"null"}) {
		t.Errorf("held %v, want null", got)
	}
	second := devicemanager.Pod("second", resource, 1)
	if err := m.Admit(second); err == nil {
		t.Error("a second pod got the only device")
	}
	m.Remove(pod)
	if err := m.Admit(second); err != nil {
		t.Errorf("after the removal of the first pod: %v", err)
	}
	if got := len(p.Allocated()); got != 2 {
		t.Errorf("%d calls of Allocate, want 2", got)
	}
}

func TestBedRestarts(t *testing.T) {
	const resource = "example.com/null"
	m := devicemanager.Start(t, devicemanager.Options{NUMANodes: []int{0, 1}, Policy: "restricted"})
	null(resource).Start(t, devicemanager.Dir)
	m.WaitCount(t, resource, devicemanager.Count{Capacity: 1, Allocatable: 1})
	pod := devicemanager.Pod("kept", resource, 1)
	if err := m.Admit(pod); err != nil {
		t.Fatal(err)
	}

	m.Stop(t)
	if _, err := os.Stat(devicemanager.Dir + "kubelet.sock"); err != nil {
		t.Errorf("a kubelet leaves its socket: %v", err)
	}
	m.Restart(t)
	// The sample registers only once, so that the kubelet relies on its checkpoint.
	m.WaitCount(t, resource, devicemanager.Count{})
	if err := m.Admit(pod); err != nil {
		t.Errorf("a running pod over a restart: %v", err)
	}
	m.Reboot(t)
	null(resource).Start(t, devicemanager.Dir)
	m.WaitCount(t, resource, devicemanager.Count{Capacity: 1, Allocatable: 1})
	if err := m.Admit(pod); err != nil {
		t.Errorf("after a reboot with its plugin: %v", err)
	}
	if got := m.Devices(pod, "main", resource); !slices.Equal(got, []string{"null"}) {
		t.Errorf("held after a reboot: %v, want null", got)
	}

	m.Reboot(t)
	if err := m.Admit(pod); err == nil {
		t.Error("admitted after a reboot without its plugin")
	}
}
