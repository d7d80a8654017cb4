package conformance_test

import (
	"context"
	"maps"
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"
	api "k8s.io/kubelet/pkg/apis/podresources/v1"

	"github.com/generic-dp/generic-dp/test/e2e/devicemanager"
)

// podResources connects to the kubelet's PodResources API.
func podResources(t testing.TB) api.PodResourcesListerClient {
	t.Helper()
	return api.NewPodResourcesListerClient(connect(t, devicemanager.PodResources))
}

// e2e_node/device_plugin_test.go: can schedule a pod that requires a device
// e2e_node/podresources_test.go: should return the expected responses
func TestPodGetsExactlyOneDevice(t *testing.T) {
	n := newNode(t, devicemanager.Options{})
	n.Mknod("port0", "port1")
	n.serve(ports + "container.path = \"/dev/port\"\ncontainer.env.PORT = \"${id}\"\ncontainer.annotations.\"example.com/port\" = \"${kernel}\"\n")
	n.WaitCount(t, port, count(2, 2))

	pod := n.admit(devicemanager.Pod("one", port, 1))
	held := n.Devices(pod, "main", port)
	if len(held) != 1 {
		t.Fatalf("holds %v, want one device", held)
	}
	o := n.RunOptions(t, pod, "main")
	if len(o.Devices) != 1 || o.Devices[0].PathOnHost != "/dev/"+held[0] || o.Devices[0].PathInContainer != "/dev/port" || o.Devices[0].Permissions != "rw" {
		t.Errorf("devices: %v, want /dev/%s at /dev/port", o.Devices, held[0])
	}
	if len(o.Envs) != 1 || o.Envs[0].Name != "PORT" || o.Envs[0].Value != held[0] {
		t.Errorf("environment: %v, want PORT=%s", o.Envs, held[0])
	}
	if len(o.Annotations) != 1 || o.Annotations[0].Value != held[0] {
		t.Errorf("annotations: %v, want one of %s", o.Annotations, held[0])
	}
	listed, err := podResources(t).List(context.Background(), &api.ListPodResourcesRequest{})
	must(t, err)
	if len(listed.PodResources) != 1 || len(listed.PodResources[0].Containers) != 1 {
		t.Fatalf("pod resources: %v, want one container", listed)
	}
	devices := listed.PodResources[0].Containers[0].Devices
	if len(devices) != 1 || devices[0].ResourceName != port || !slices.Equal(devices[0].DeviceIds, held) {
		t.Errorf("pod resources: %v, want %v", devices, held)
	}
}

// e2e_node/device_plugin_test.go: can make a CDI device accessible in a container
func TestCDINameIsResolvableWhenAllocated(t *testing.T) {
	n := newNode(t, devicemanager.Options{})
	n.Plug(usbStick("1-1", "AAAA1111", "ttyUSB0"))
	p := n.serve(sticks + "container.cdi = true\n")
	n.WaitCount(t, stick, count(1, 1))
	pod := n.admit(devicemanager.Pod("cdi", stick, 1))
	o := n.RunOptions(t, pod, "main")
	if len(o.CDIDevices) != 1 || o.CDIDevices[0].Name != stick+"="+stickA {
		t.Errorf("CDI devices: %v, want the qualified name of %s", o.CDIDevices, stickA)
	}
	if len(o.Devices) != 0 || len(o.Mounts) != 0 {
		t.Errorf("devices %v, mounts %v besides the CDI name", o.Devices, o.Mounts)
	}
	if len(o.Envs) != 1 || o.Envs[0].Value != "AAAA1111" {
		t.Errorf("environment: %v, want the serial number", o.Envs)
	}
	want := map[string]string{stick + "=" + stickA: "/dev/ttyUSB0 at /dev/stick"}
	if got := specOf(t, p); !maps.Equal(got, want) {
		t.Errorf("CDI specs: %v, want %v", got, want)
	}
}

// e2e_node/device_plugin_test.go: keeps device plugin assignments across pod
// restarts (no kubelet restart, no device plugin restart)
func TestContainerRestartsGetTheSameDeviceAndOtherPodsAnother(t *testing.T) {
	n := newNode(t, devicemanager.Options{})
	n.Mknod("port0", "port1")
	n.serve(ports)
	n.WaitCount(t, port, count(2, 2))
	first := n.admit(devicemanager.Pod("first", port, 1))
	held, injected := n.Devices(first, "main", port), n.injected(first)
	second := n.admit(devicemanager.Pod("second", port, 1))
	for range 3 {
		if got := n.injected(first); got != injected {
			t.Errorf("a later start of the container gets %s, want %s", got, injected)
		}
	}
	n.wantHeld(first, port, held...)
	if slices.Equal(n.Devices(second, "main", port), held) {
		t.Errorf("both pods hold %v", held)
	}
}

// cm/devicemanager/manager_test.go: TestInitContainerDeviceAllocation. Allocate is
// called once for each container, with the same device.
func TestInitContainerAndAppContainerShareADevice(t *testing.T) {
	n := newNode(t, devicemanager.Options{})
	n.Mknod("port0")
	n.serve(ports)
	n.WaitCount(t, port, count(1, 1))
	pod := devicemanager.Pod("init", port, 1)
	pod.Spec.InitContainers = []v1.Container{devicemanager.Container("first", port, 1), devicemanager.Container("second", port, 1)}
	n.admit(pod)
	for _, container := range []string{"first", "second", "main"} {
		if o := n.RunOptions(t, pod, container); len(o.Devices) != 1 || o.Devices[0].PathOnHost != "/dev/port0" {
			t.Errorf("container %s gets %v, want /dev/port0", container, o.Devices)
		}
	}
}

// The device manager's own choice is random: a plugin without a preference fails soon.
func TestPreferredAllocationIsHonoured(t *testing.T) {
	for _, c := range []struct {
		name, config string
		pods         []int64 // how many devices each requests
		ok           func(held [][]string) bool
		want         string
	}{
		{
			name: "one NUMA node", pods: []int64{2},
			ok: func(held [][]string) bool {
				return slices.Equal(held[0], cards("3a", "3c")) || slices.Equal(held[0], cards("3b", "3d"))
			},
			want: "two cards of one NUMA node",
		},
		{
			name: "hardware before a second slot", config: "count = 2\n", pods: []int64{4},
			ok:   func(held [][]string) bool { return slices.Equal(held[0], cards("3a", "3b", "3c", "3d")) },
			want: "one slot of each card",
		},
		{
			name: "pods apart", config: "count = 4\nprefer = \"spread\"\n", pods: []int64{1, 1, 1, 1},
			ok:   func(held [][]string) bool { return len(hardware(held)) == 4 },
			want: "a card for each pod",
		},
		{
			name: "pods together", config: "count = 4\nprefer = \"packed\"\n", pods: []int64{1, 1, 1, 1},
			ok:   func(held [][]string) bool { return len(hardware(held)) == 1 },
			want: "one card for all pods",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			n := newNode(t, devicemanager.Options{NUMANodes: []int{0, 1}})
			for i, bus := range []string{"3a", "3b", "3c", "3d"} {
				n.AddPCI(pciCard(bus, i%2))
			}
			n.serve(accelerators + c.config)
			n.waitAll(card, 4)
			for range 5 {
				var held [][]string
				var pods []*v1.Pod
				for i, size := range c.pods {
					pod := n.admit(devicemanager.Pod(string(rune('a'+i)), card, size))
					pods, held = append(pods, pod), append(held, n.Devices(pod, "main", card))
				}
				if !c.ok(held) {
					t.Errorf("pods hold %v, want %s", held, c.want)
				}
				for _, pod := range pods {
					n.Remove(pod)
				}
			}
		})
	}
}
