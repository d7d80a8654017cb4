package bed_test

import (
	"os"
	"path/filepath"
	"testing"

	api "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/generic-dp/generic-dp/test/e2e/bed"
	"github.com/generic-dp/generic-dp/test/e2e/inspect"
	"github.com/generic-dp/generic-dp/test/e2e/sample"
)

// TestBedDevice runs a pod with a node, a variable and a mount from a plugin, and kills
// its container.
func TestBedDevice(t *testing.T) {
	t.Parallel()
	const resource = "example.com/null"
	b := bed.New(t, bed.Options{})
	p := &sample.Plugin{
		Resource: resource,
		IDs:      []string{"null"},
		Respond: func([]string) *api.ContainerAllocateResponse {
			return &api.ContainerAllocateResponse{
				Envs:    map[string]string{"SAMPLE": "null"},
				Mounts:  []*api.Mount{{ContainerPath: "/sample", HostPath: b.Dir, ReadOnly: true}},
				Devices: []*api.DeviceSpec{{ContainerPath: "/dev/sample", HostPath: "/dev/null", Permissions: "rw"}},
			}
		},
	}
	p.Start(t, b.DevicePlugins())
	b.Kubelet.WaitAllocatable(t, resource, 1)

	pod := b.StartPod(t, bed.Workload("device", resource, 1))
	pod.WaitRunning(t)
	check := func(r inspect.Report) {
		t.Helper()
		n, ok := r.Node("/dev/sample")
		if !ok || n.Type != "c" || n.Major != 1 || n.Minor != 3 {
			t.Errorf("node %+v, want c 1:3", n)
		}
		if r.Env["SAMPLE"] != "null" {
			t.Errorf("environment %v, want SAMPLE=null", r.Env)
		}
		if m, ok := r.Mount("/sample"); !ok || !m.ReadOnly {
			t.Errorf("mount %+v, want a read-only one", m)
		}
	}
	check(pod.Report(t, "main"))
	if _, stderr, code := pod.Exec(t, "main", "/tool", "open", "/dev/sample"); code != 0 {
		t.Errorf("open: %s", stderr)
	}
	if held, err := b.Kubelet.Held(t.Context(), resource); err != nil || held["null"] != "device-bed/main" {
		t.Errorf("held: %v, %v, want null by device-bed/main", held, err)
	}

	pod.Kill(t, "main")
	pod.WaitRestarted(t, "main", 1)
	check(pod.Inspect(t, "main", "/dev"))
	if got := len(p.Allocated()); got != 1 {
		t.Errorf("%d calls of Allocate, want 1", got)
	}

	second := b.StartPod(t, bed.Workload("second", resource, 1))
	if status := second.WaitFailed(t).Status; status.Reason != "UnexpectedAdmissionError" {
		t.Errorf("second pod: %s: %s, want UnexpectedAdmissionError", status.Reason, status.Message)
	}
	pod.Delete(t)
}

// TestBedCDI runs a pod with its own network and a node from a CDI name, over a restart
// of the kubelet and a reboot.
func TestBedCDI(t *testing.T) {
	t.Parallel()
	const resource = "example.com/zero"
	b := bed.New(t, bed.Options{})
	node := filepath.Join(b.Dir, "dev", "zero")
	b.Mknod(t, node, 1, 5)
	spec := `{"cdiVersion": "0.5.0", "kind": "example.com/sample", "devices": [{"name": "zero", "containerEdits": {
		"env": ["SAMPLE=zero"],
		"deviceNodes": [{"path": "/dev/sample", "hostPath": "` + node + `", "permissions": "rw"}]}}]}`
	writeSpec := func() {
		if err := os.WriteFile(filepath.Join(b.CDIDir(), "sample.json"), []byte(spec), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	writeSpec()
	p := &sample.Plugin{
		Resource: resource,
		IDs:      []string{"zero"},
		Respond: func([]string) *api.ContainerAllocateResponse {
			return &api.ContainerAllocateResponse{CdiDevices: []*api.CDIDevice{{Name: "example.com/sample=zero"}}}
		},
	}
	p.Start(t, b.DevicePlugins())
	b.Kubelet.WaitAllocatable(t, resource, 1)

	workload := bed.Workload("cdi", resource, 1)
	workload.Spec.HostNetwork = false
	pod := b.StartPod(t, workload)
	uid := pod.WaitRunning(t).UID
	check := func() {
		t.Helper()
		r := pod.Report(t, "main")
		n, ok := r.Node("/dev/sample")
		if !ok || n.Type != "c" || n.Major != 1 || n.Minor != 5 || r.Env["SAMPLE"] != "zero" {
			t.Errorf("node %+v, environment %v, want c 1:5 and SAMPLE=zero", n, r.Env)
		}
		if len(r.Interfaces) != 2 {
			t.Errorf("network devices %v, want two", r.Interfaces)
		}
	}
	check()

	b.Kubelet.Restart(t)
	b.Kubelet.WaitReady(t)
	if got := pod.WaitRunning(t); got.UID != uid || got.Status.ContainerStatuses[0].RestartCount != 0 {
		t.Errorf("after a restart of the kubelet: %+v, want the same pod without a restart", got.Status)
	}

	b.Reboot(t)
	if b.Kubelet.Running() || b.Containerd.Running() {
		t.Error("a program has survived the reboot")
	}
	// An existing pod is admitted in the first milliseconds, before the sample
	// registers again.
	pod.Remove(t)
	writeSpec()
	b.Containerd.Start(t)
	b.Kubelet.Start(t)
	b.Kubelet.WaitReady(t)
	p.Start(t, b.DevicePlugins())
	b.Kubelet.WaitAllocatable(t, resource, 1)
	pod = b.StartPod(t, workload)
	pod.WaitRunning(t)
	check()
}
