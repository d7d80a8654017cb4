package bed

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"testing"

	v1 "k8s.io/api/core/v1"
	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"

	"github.com/generic-dp/generic-dp/test/e2e/process"
	"github.com/generic-dp/generic-dp/test/e2e/wait"
)

// Kubelet is the kubelet of a bed. It has no API server: its pods are static.
type Kubelet struct {
	bed *Bed
	// Process is the running kubelet. Containers outlive it.
	*process.Process
	// Config is its KubeletConfiguration, to be changed before a (re)start.
	Config map[string]any
	// Resources is a client of its PodResources API.
	Resources podresources.PodResourcesListerClient

	program string   // its name
	args    []string // after its own
	http    *http.Client
}

// NodeName is the default name of a bed's node.
const NodeName = "bed"

// readOnlyPort serves pods and metrics without a certificate. It is the same in every
// bed, since each has its own network namespace.
const readOnlyPort = 10255

func newKubelet(t testing.TB, b *Bed) *Kubelet {
	t.Helper()
	k := &Kubelet{bed: b}
	k.Config = map[string]any{
		"apiVersion": "kubelet.config.k8s.io/v1beta1",
		"kind":       "KubeletConfiguration",

		"containerRuntimeEndpoint": "unix://" + b.Containerd.socket(),
		"staticPodPath":            b.manifests(),
		"podLogsDir":               b.podLogs(),
		"volumePluginDir":          filepath.Join(b.Dir, "volume-plugins"),

		// No API server and no other clients in this network.
		"registerNode":   false,
		"enableServer":   false,
		"readOnlyPort":   readOnlyPort,
		"healthzPort":    0,
		"address":        "127.0.0.1",
		"authentication": map[string]any{"anonymous": map[string]any{"enabled": true}, "webhook": map[string]any{"enabled": false}},
		"authorization":  map[string]any{"mode": "AlwaysAllow"},
		"resolvConf":     "", // the machine's may lie in /run, which is empty here

		// Accept the machine as it is: version 1 of cgroups is refused by default since
		// 1.35, and systemd may be missing.
		"failCgroupV1":           false,
		"failSwapOn":             false,
		"cgroupDriver":           "cgroupfs",
		"cgroupRoot":             "/" + b.cgroup,
		"enforceNodeAllocatable": []string{},
		"makeIPTablesUtilChains": false,

		// A nearly full disk must not fail the tests.
		"localStorageCapacityIsolation": false,
		"imageGCHighThresholdPercent":   100,
		"evictionHard": map[string]string{
			"memory.available": "0%", "nodefs.available": "0%", "nodefs.inodesFree": "0%",
			"imagefs.available": "0%", "imagefs.inodesFree": "0%",
		},

		// Shorter periods: sync containers every second instead of every minute, and
		// restart a second crash after one second instead of ten.
		"syncFrequency":      "1s",
		"fileCheckFrequency": "1s",
		"crashLoopBackOff":   map[string]any{"maxContainerRestartPeriod": "1s"},
	}

	k.http = &http.Client{Transport: &http.Transport{DialContext: b.DialContext}}
	t.Cleanup(k.http.CloseIdleConnections)
	k.Resources = podresources.NewPodResourcesListerClient(dial(t, b.Path("/var/lib/kubelet/pod-resources/kubelet.sock")))
	return k
}

// Start starts the kubelet without waiting: tests may be about its start.
func (k *Kubelet) Start(t testing.TB) {
	t.Helper()
	text, err := json.MarshalIndent(k.Config, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	config := filepath.Join(k.bed.Dir, "kubelet.json")
	writeFile(t, config, string(text))
	k.Process = process.Start(t, process.Spec{
		Name:   "kubelet",
		Argv:   append([]string{k.bed.tools.path(k.program), "--config", config, "--hostname-override", k.bed.Node, "--v", "2"}, k.args...),
		LogDir: k.bed.logDir,
		Start:  k.bed.ns.start,
	})
}

// WaitReady waits until the kubelet accepts registrations and shows its pods.
func (k *Kubelet) WaitReady(t testing.TB) {
	t.Helper()
	wait.Until(t, startLimit, "kubelet", func() error {
		if !k.Running() {
			t.Fatal("the kubelet has ended")
		}
		conn, err := net.Dial("unix", filepath.Join(k.bed.DevicePlugins(), "kubelet.sock"))
		if err != nil {
			return err
		}
		conn.Close()
		_, err = k.Pods(t.Context())
		return err
	})
}

// Restart ends the kubelet like systemd does, if it runs, and starts it again.
// Containers keep running.
func (k *Kubelet) Restart(t testing.TB) {
	t.Helper()
	if k.Running() {
		k.Stop(t)
	}
	k.Start(t)
}

// Get returns a page of the kubelet's read-only port, such as /metrics.
func (k *Kubelet) Get(ctx context.Context, page string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("http://127.0.0.1:%d%s", readOnlyPort, page), nil)
	if err != nil {
		return nil, err
	}
	resp, err := k.http.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if resp.StatusCode != http.StatusOK {
		return nil, errors.Join(err, fmt.Errorf("%s: %s", page, resp.Status))
	}
	return body, err
}

// Pods returns the pods with their status.
func (k *Kubelet) Pods(ctx context.Context) ([]v1.Pod, error) {
	text, err := k.Get(ctx, "/pods")
	if err != nil {
		return nil, err
	}
	var list v1.PodList
	if err := json.Unmarshal(text, &list); err != nil {
		return nil, fmt.Errorf("/pods: %w", err)
	}
	return list.Items, nil
}

// Allocatable returns the number of allocatable devices of a resource, 0 if the kubelet
// does not know it. Without an API server there is no node object; the PodResources API
// reports the same number.
func (k *Kubelet) Allocatable(ctx context.Context, resource string) (int, error) {
	resp, err := k.Resources.GetAllocatableResources(ctx, &podresources.AllocatableResourcesRequest{})
	if err != nil {
		return 0, err
	}
	ids := map[string]bool{}
	for _, d := range resp.Devices {
		if d.ResourceName == resource {
			for _, id := range d.DeviceIds {
				ids[id] = true // a device of two NUMA nodes is listed twice
			}
		}
	}
	return len(ids), nil
}

// WaitAllocatable waits until the kubelet has n devices of a resource.
func (k *Kubelet) WaitAllocatable(t testing.TB, resource string, n int) {
	t.Helper()
	wait.Until(t, startLimit, fmt.Sprintf("%d of %s", n, resource), func() error {
		got, err := k.Allocatable(t.Context(), resource)
		if err == nil && got != n {
			err = fmt.Errorf("got %d", got)
		}
		return err
	})
}

// Held returns the holders of a resource's devices, "pod/container" by device ID.
func (k *Kubelet) Held(ctx context.Context, resource string) (map[string]string, error) {
	resp, err := k.Resources.List(ctx, &podresources.ListPodResourcesRequest{})
	if err != nil {
		return nil, err
	}
	held := map[string]string{}
	for _, pod := range resp.PodResources {
		for _, c := range pod.Containers {
			for _, d := range c.Devices {
				if d.ResourceName != resource {
					continue
				}
				for _, id := range d.DeviceIds {
					held[id] = pod.Name + "/" + c.Name
				}
			}
		}
	}
	return held, nil
}
