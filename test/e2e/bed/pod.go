package bed

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/generic-dp/generic-dp/test/e2e/inspect"
	"github.com/generic-dp/generic-dp/test/e2e/wait"
)

// Workload returns a pod with one container, "main", that requests n devices of a
// resource, reports its environment (see [Pod.Report]) and runs until stopped. Tests
// may change anything in it.
func Workload(name, resourceName string, n int64) *v1.Pod {
	no, grace := false, int64(1)
	return &v1.Pod{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: metav1.NamespaceDefault},
		Spec: v1.PodSpec{
			// Saves some hundred milliseconds of a CNI plugin.
			HostNetwork:                   true,
			AutomountServiceAccountToken:  &no,
			EnableServiceLinks:            &no,
			TerminationGracePeriodSeconds: &grace,
			Containers:                    []v1.Container{Container("main", resourceName, n)},
		},
	}
}

// Container returns a container like that of [Workload].
func Container(name, resourceName string, n int64) v1.Container {
	c := v1.Container{
		Name:            name,
		Image:           Image,
		ImagePullPolicy: v1.PullNever,
		Command:         []string{"/tool", "run", "/dev"},
	}
	if n > 0 {
		c.Resources.Limits = v1.ResourceList{v1.ResourceName(resourceName): *resource.NewQuantity(n, resource.DecimalSI)}
	}
	return c
}

// Pod is a static pod of a bed.
type Pod struct {
	Name string
	bed  *Bed
}

// StartPod writes the manifest of a pod, without waiting.
func (b *Bed) StartPod(t testing.TB, pod *v1.Pod) *Pod {
	t.Helper()
	p := b.PodOf(pod.Name)
	text, err := json.Marshal(pod)
	if err != nil {
		t.Fatal(err)
	}
	// The kubelet reads a file when it appears and ignores dot files.
	next := filepath.Join(b.manifests(), "."+pod.Name)
	writeFile(t, next, string(text))
	if err := os.Rename(next, p.manifest()); err != nil {
		t.Fatal(err)
	}
	return p
}

// PodOf is a pod of an API server that is named like a static pod: name and node.
func (b *Bed) PodOf(name string) *Pod { return &Pod{Name: name, bed: b} }

func (p *Pod) manifest() string { return filepath.Join(p.bed.manifests(), p.Name+".json") }

// Status returns the status of the pod from the kubelet.
func (p *Pod) Status(ctx context.Context) (*v1.Pod, error) {
	pods, err := p.bed.Kubelet.Pods(ctx)
	if err != nil {
		return nil, err
	}
	for i := range pods {
		if pods[i].Name == p.Name+"-"+p.bed.Node {
			return &pods[i], nil
		}
	}
	return nil, fmt.Errorf("the kubelet has no pod %s", p.Name)
}

// Wait waits until the status of the pod satisfies check, and returns it.
func (p *Pod) Wait(t testing.TB, what string, check func(*v1.Pod) error) *v1.Pod {
	t.Helper()
	var pod *v1.Pod
	wait.Until(t, podLimit, "pod "+p.Name+" "+what, func() (err error) {
		if pod, err = p.Status(t.Context()); err != nil {
			return err
		}
		if err := check(pod); err != nil {
			status, _ := json.Marshal(pod.Status)
			return fmt.Errorf("%w: %s", err, status)
		}
		return nil
	})
	return pod
}

// WaitRunning waits until all containers of the pod run.
func (p *Pod) WaitRunning(t testing.TB) *v1.Pod {
	t.Helper()
	return p.Wait(t, "running", Running)
}

// Running is a check that all containers of a pod run.
func Running(pod *v1.Pod) error {
	if pod.Status.Phase != v1.PodRunning {
		return fmt.Errorf("phase %s", pod.Status.Phase)
	}
	for _, c := range pod.Status.ContainerStatuses {
		if c.State.Running == nil {
			return fmt.Errorf("container %s does not run", c.Name)
		}
	}
	return nil
}

// WaitFailed waits until the pod has failed. A rejected pod has failed permanently.
func (p *Pod) WaitFailed(t testing.TB) *v1.Pod {
	t.Helper()
	return p.Wait(t, "failed", func(pod *v1.Pod) error {
		if pod.Status.Phase != v1.PodFailed {
			return fmt.Errorf("phase %s", pod.Status.Phase)
		}
		return nil
	})
}

// WaitRestarted waits until a container has been restarted n times and runs.
func (p *Pod) WaitRestarted(t testing.TB, container string, n int32) *v1.Pod {
	t.Helper()
	return p.Wait(t, fmt.Sprintf("restarted %d times", n), func(pod *v1.Pod) error {
		c, err := statusOf(pod, container)
		if err == nil && (c.RestartCount < n || c.State.Running == nil) {
			err = fmt.Errorf("%d restarts", c.RestartCount)
		}
		return err
	})
}

// Remove removes the manifest, without waiting.
func (p *Pod) Remove(t testing.TB) {
	t.Helper()
	if err := os.Remove(p.manifest()); err != nil {
		t.Fatal(err)
	}
}

// Delete removes the manifest and waits until no process of the pod runs, which is
// later than the kubelet dropping the pod.
func (p *Pod) Delete(t testing.TB) {
	t.Helper()
	pod, err := p.Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	p.Remove(t)
	wait.Until(t, podLimit, "end of pod "+p.Name, func() error {
		if _, err := p.Status(t.Context()); err == nil {
			return errors.New("the kubelet still has it")
		}
		alive, err := p.bed.Containerd.alive(t.Context(), pod.UID)
		if alive {
			err = errors.New("a container still runs")
		}
		return err
	})
}

// Runs reports whether a container or the sandbox of the pod with this UID runs, whatever the
// kubelet knows of it.
func (b *Bed) Runs(t testing.TB, uid types.UID) bool {
	t.Helper()
	alive, err := b.Containerd.alive(t.Context(), uid)
	if err != nil {
		t.Fatal(err)
	}
	return alive
}

// Kill kills a container. The kubelet restarts it.
func (p *Pod) Kill(t testing.TB, container string) {
	t.Helper()
	p.bed.Containerd.kill(t, p.containerID(t, container))
}

// Exec runs a command in a container. There is only /tool, see its usage.
func (p *Pod) Exec(t testing.TB, container string, argv ...string) (stdout, stderr string, code int) {
	t.Helper()
	return p.bed.Containerd.exec(t, p.containerID(t, container), argv...)
}

// Inspect returns a report of the container's current environment, with the device nodes
// below dirs.
func (p *Pod) Inspect(t testing.TB, container string, dirs ...string) inspect.Report {
	t.Helper()
	stdout, stderr, code := p.Exec(t, container, append([]string{"/tool", "inspect"}, dirs...)...)
	if code != 0 {
		t.Fatalf("inspect: exit code %d: %s", code, stderr)
	}
	return parse(t, stdout)
}

// Report returns the report of a container of [Workload] at its latest start. It is
// read from the log, so that the container need not run.
func (p *Pod) Report(t testing.TB, container string) inspect.Report {
	t.Helper()
	var line string
	wait.Until(t, podLimit, "report of "+container, func() error {
		for _, l := range strings.Split(p.Log(t, container), "\n") {
			if strings.HasPrefix(l, "{") && strings.HasSuffix(l, "}") {
				line = l
				return nil
			}
		}
		return errors.New("not in its log")
	})
	return parse(t, line)
}

func parse(t testing.TB, text string) inspect.Report {
	t.Helper()
	var r inspect.Report
	if err := json.Unmarshal([]byte(text), &r); err != nil {
		t.Fatalf("report: %v: %s", err, text)
	}
	return r
}

// Log returns the output of a container since its latest start.
func (p *Pod) Log(t testing.TB, container string) string {
	t.Helper()
	pod, err := p.Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return p.bed.PodLog(t, pod, container)
}

// PodLog is [Pod.Log] for any pod of the bed, by its status. It removes the CRI's
// framing, "time stream tag text", where the tag P marks a partial line.
func (b *Bed) PodLog(t testing.TB, pod *v1.Pod, container string) string {
	t.Helper()
	c, err := statusOf(pod, container)
	if err != nil {
		t.Fatal(err)
	}
	dir := fmt.Sprintf("%s_%s_%s", pod.Namespace, pod.Name, pod.UID)
	text, err := os.ReadFile(filepath.Join(b.podLogs(), dir, container, fmt.Sprintf("%d.log", c.RestartCount)))
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	var out strings.Builder
	for line := range strings.Lines(string(text)) {
		fields := strings.SplitN(strings.TrimSuffix(line, "\n"), " ", 4)
		if len(fields) < 4 {
			continue
		}
		out.WriteString(fields[3])
		if fields[2] != "P" {
			out.WriteByte('\n')
		}
	}
	return out.String()
}

// containerID returns the runtime's ID of a running container.
func (p *Pod) containerID(t testing.TB, container string) string {
	t.Helper()
	var id string
	p.Wait(t, "with container "+container, func(pod *v1.Pod) error {
		c, err := statusOf(pod, container)
		if err != nil {
			return err
		}
		if c.State.Running == nil {
			return errors.New("does not run")
		}
		_, id, _ = strings.Cut(c.ContainerID, "://")
		return nil
	})
	return id
}

// statusOf returns the status of a container of any kind, by name.
func statusOf(pod *v1.Pod, container string) (v1.ContainerStatus, error) {
	for _, list := range [][]v1.ContainerStatus{pod.Status.ContainerStatuses, pod.Status.InitContainerStatuses} {
		for _, c := range list {
			if c.Name == container {
				return c, nil
			}
		}
	}
	return v1.ContainerStatus{}, fmt.Errorf("no status of container %s", container)
}
