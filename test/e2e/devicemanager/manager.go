package devicemanager

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	cadvisor "github.com/google/cadvisor/info/v1"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/klog/v2"
	api "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
	"k8s.io/kubernetes/pkg/kubelet/cm/containermap"
	"k8s.io/kubernetes/pkg/kubelet/cm/devicemanager"
	"k8s.io/kubernetes/pkg/kubelet/cm/topologymanager"
	"k8s.io/kubernetes/pkg/kubelet/config"
	"k8s.io/kubernetes/pkg/kubelet/lifecycle"

	"github.com/generic-dp/generic-dp/test/e2e/process"
	"github.com/generic-dp/generic-dp/test/e2e/product"
	"github.com/generic-dp/generic-dp/test/e2e/wait"
)

// Dir is the kubelet's device plugin directory.
const Dir = api.DevicePluginPath

// Limit is the timeout of waits that take milliseconds.
const Limit = 10 * time.Second

// Options is the machine of a manager. The zero value has no NUMA nodes and no
// topology policy.
type Options struct {
	// NUMANodes are the IDs of the machine's NUMA nodes.
	NUMANodes []int
	// Policy is a topology manager's policy: none, best-effort, restricted or
	// single-numa-node.
	Policy string
}

// Manager is a kubelet reduced to its device manager, its topology manager and
// its PodResources API.
type Manager struct {
	options Options
	logDir  string

	// dm, tm and resources belong to the running kubelet.
	dm        *devicemanager.ManagerImpl
	tm        topologymanager.Manager
	resources *grpc.Server

	mu   sync.Mutex
	pods []*v1.Pod // admitted and not removed
	// known are the pods that a kubelet found at its start and has not re-admitted yet.
	// Until then its sources of pods are not ready, and only until then it lets a
	// running container keep an absent device.
	known map[types.UID]bool
}

// Start starts a manager in an empty /var/lib/kubelet. It ends with the test.
func Start(t testing.TB, o Options) *Manager {
	t.Helper()
	if os.Getenv(insideEnv) == "" {
		t.Fatal("TestMain of this package must call devicemanager.Main")
	}
	if o.Policy == "" {
		o.Policy = topologymanager.PolicyNone
	}
	m := &Manager{options: o, logDir: process.LogDir(t)}
	log, err := os.Create(filepath.Join(m.logDir, "kubelet.log"))
	if err != nil {
		t.Fatal(err)
	}
	output.switchTo(log)
	t.Cleanup(func() {
		output.switchTo(nil)
		log.Close()
	})
	empty(t, "/var/lib/kubelet")
	m.start(t, true)
	t.Cleanup(func() { m.Stop(t) })
	return m
}

// empty removes the content of a directory that is a mount point.
func empty(t testing.TB, dir string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if err := os.RemoveAll(filepath.Join(dir, e.Name())); err != nil {
			t.Fatal(err)
		}
	}
}

// start starts a kubelet. It considers the containers of admitted pods running, or not.
func (m *Manager) start(t testing.TB, running bool) {
	t.Helper()
	var nodes []cadvisor.Node
	for _, id := range m.options.NUMANodes {
		nodes = append(nodes, cadvisor.Node{Id: id})
	}
	// In production the kubelet's container manager makes the directory.
	if err := os.MkdirAll(Dir, 0o750); err != nil {
		t.Fatal(err)
	}
	var err error
	m.tm, err = topologymanager.NewManager(nodes, m.options.Policy, topologymanager.ContainerTopologyScope, nil)
	if err != nil {
		t.Fatal(err)
	}
	m.dm, err = devicemanager.NewManagerImpl(nodes, m.tm)
	if err != nil {
		t.Fatal(err)
	}
	m.tm.AddHintProvider(klog.Background(), m.dm)

	containers, runningSet := containermap.NewContainerMap(), sets.New[string]()
	m.known = map[types.UID]bool{}
	for _, pod := range m.active() {
		m.known[pod.UID] = true
		for _, c := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
			id := string(pod.UID) + "/" + c.Name
			containers.Add(string(pod.UID), c.Name, id)
			if running {
				runningSet.Insert(id)
			}
		}
	}
	ready := config.NewSourcesReady(func(sets.Set[string]) bool {
		m.mu.Lock()
		defer m.mu.Unlock()
		return len(m.known) == 0
	})
	if err := m.dm.Start(klog.Background(), m.active, ready, containers, runningSet); err != nil {
		t.Fatal(err)
	}
	m.resources = servePodResources(t, m)
}

// Stop ends the kubelet, if it runs, like any signal does: connections are closed; its
// sockets stay and refuse connections; its checkpoint stays.
func (m *Manager) Stop(t testing.TB) {
	t.Helper()
	if m.dm == nil {
		return
	}
	// In production the device manager is never stopped. Here its listener would unlink
	// the socket, which a plugin would notice. A mount point is not unlinked.
	socket := filepath.Join(Dir, "kubelet.sock")
	if err := unix.Mount(socket, socket, "", unix.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
	m.resources.Stop()
	if err := m.dm.Stop(klog.Background()); err != nil {
		t.Error(err)
	}
	m.dm = nil
	if err := unix.Unmount(socket, unix.MNT_DETACH); err != nil {
		t.Fatal(err)
	}
}

// Restart ends the kubelet, if it runs, and starts it again while the containers of its
// pods keep running.
func (m *Manager) Restart(t testing.TB) {
	t.Helper()
	m.Stop(t)
	m.start(t, true)
}

// Reboot is Restart without running containers, so that every pod must be admitted
// again. The test ends and starts the plugin, see [product.Wipe].
func (m *Manager) Reboot(t testing.TB) {
	t.Helper()
	m.Stop(t)
	m.start(t, false)
}

// Plugin starts the program under test beside the manager.
func (m *Manager) Plugin(t testing.TB, s product.Spec) *product.Plugin {
	t.Helper()
	s.LogDir = m.logDir
	return product.Start(t, s)
}

// Count is a resource in the node's status.
type Count struct{ Capacity, Allocatable int64 }

// Absent is the count of a resource unknown to the kubelet, if it runs.
var Absent = Count{-1, -1}

// Count returns the kubelet's count of a resource.
func (m *Manager) Count(resource string) Count {
	if m.dm == nil {
		return Absent
	}
	capacity, allocatable, _ := m.dm.GetCapacity()
	c, ok := capacity[v1.ResourceName(resource)]
	if !ok {
		return Absent
	}
	a := allocatable[v1.ResourceName(resource)]
	return Count{c.Value(), a.Value()}
}

// WaitCount waits until a resource has a count.
func (m *Manager) WaitCount(t testing.TB, resource string, want Count) {
	t.Helper()
	wait.Until(t, Limit, "count of "+resource, wait.Equal(want, func() Count { return m.Count(resource) }))
}

// Admit admits a pod like the kubelet: hints, topology policy, and Allocate for each of
// its containers. After a restart every pod is admitted again. The error is the one
// that the pod would show; the pod has then failed and holds nothing.
func (m *Manager) Admit(pod *v1.Pod) error {
	// The pod is active while it is admitted; otherwise the devices of its first
	// container would count as stranded during the second, see HandlePodAdditions in
	// pkg/kubelet/kubelet.go.
	m.mu.Lock()
	others := slices.DeleteFunc(slices.Clone(m.pods), func(p *v1.Pod) bool { return p.UID == pod.UID })
	m.pods = append(slices.Clone(others), pod)
	m.mu.Unlock()
	result := m.tm.Admit(&lifecycle.PodAdmitAttributes{Pod: pod, OtherPods: others})
	if !result.Admit {
		m.forget(pod)
		return fmt.Errorf("%s: %s", result.Reason, result.Message)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.known, pod.UID)
	return nil
}

// Remove ends a pod and frees its devices. A stopped kubelet learns of it at its start.
func (m *Manager) Remove(pod *v1.Pod) {
	m.forget(pod)
	if m.dm != nil {
		m.dm.UpdateAllocatedDevices()
	}
}

// forget removes a pod from the kubelet.
func (m *Manager) forget(pod *v1.Pod) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.pods = slices.DeleteFunc(slices.Clone(m.pods), func(p *v1.Pod) bool { return p.UID == pod.UID })
	delete(m.known, pod.UID)
}

// active lists the admitted pods that were not removed.
func (m *Manager) active() []*v1.Pod {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.pods
}

// RunOptions returns the kubelet's options for every start of a container.
func (m *Manager) RunOptions(t testing.TB, pod *v1.Pod, container string) *devicemanager.DeviceRunContainerOptions {
	t.Helper()
	o, err := m.dm.GetDeviceRunContainerOptions(context.Background(), pod, find(t, pod, container))
	if err != nil {
		t.Fatalf("run options of %s/%s: %v", pod.Name, container, err)
	}
	return o
}

// Devices returns the sorted IDs of the devices of a resource that a container
// holds.
func (m *Manager) Devices(pod *v1.Pod, container, resource string) []string {
	var ids []string
	for id := range m.dm.GetDevices(string(pod.UID), container)[resource] {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids
}

// Hints returns the NUMA nodes that the device manager proposes for a container, by
// resource. No entry is no preference, an empty one cannot be satisfied.
func (m *Manager) Hints(t testing.TB, pod *v1.Pod, container string) map[string][]topologymanager.TopologyHint {
	t.Helper()
	return m.dm.GetTopologyHints(pod, find(t, pod, container))
}

// Health returns the health of each device of a container in the pod's status.
func (m *Manager) Health(pod *v1.Pod, container string) map[string]v1.ResourceHealthStatus {
	status := v1.PodStatus{ContainerStatuses: []v1.ContainerStatus{{Name: container}}}
	m.dm.UpdateAllocatedResourcesStatus(pod, &status)
	health := map[string]v1.ResourceHealthStatus{}
	for _, r := range status.ContainerStatuses[0].AllocatedResourcesStatus {
		for _, h := range r.Resources {
			health[string(h.ResourceID)] = h.Health
		}
	}
	return health
}

// find returns a container of a pod by name.
func find(t testing.TB, pod *v1.Pod, container string) *v1.Container {
	t.Helper()
	for _, list := range [][]v1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range list {
			if list[i].Name == container {
				return &list[i]
			}
		}
	}
	t.Fatalf("pod %s has no container %s", pod.Name, container)
	return nil
}

// Pod returns a pod of one container, "main", that requests n devices.
func Pod(name, resourceName string, n int64) *v1.Pod {
	pod := &v1.Pod{}
	pod.Name, pod.Namespace, pod.UID = name, "default", types.UID("uid-of-"+name)
	pod.Spec.Containers = []v1.Container{Container("main", resourceName, n)}
	return pod
}

// Container returns a container that requests n devices.
func Container(name, resourceName string, n int64) v1.Container {
	c := v1.Container{Name: name}
	c.Resources.Limits = v1.ResourceList{v1.ResourceName(resourceName): *resource.NewQuantity(n, resource.DecimalSI)}
	return c
}
