//go:build cluster

package cluster_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/generic-dp/generic-dp/test/e2e/bed"
	"github.com/generic-dp/generic-dp/test/e2e/cluster"
	"github.com/generic-dp/generic-dp/test/e2e/product"
	"github.com/generic-dp/generic-dp/test/e2e/wait"
)

// The two nodes beside the real one: the API server waits forever for the kubelet of hanging, and
// nobody reports the status of lost.
const (
	hangingNode = "hanging"
	lostNode    = "lost"
	// hangingPort is where the kubelet of hanging accepts connections and never answers.
	hangingPort = 10999
)

// fleetConfig has a resource for each reason. %s is the prefix of the test's device nodes.
const fleetConfig = `
domain = "example.com"
[[resource]]
name = "one"
match.glob = "/dev/%[1]s-one"
container.path = "/dev/one"
[[resource]]
name = "pulled"
match.glob = "/dev/%[1]s-pulled"
container.path = "/dev/pulled"
[[resource]]
name = "free"
count = 4
match.glob = "/dev/%[1]s-free"
[[resource]]
name = "absent"
match.usb.id = "ffff:ffff"
`

// fleetBed is a cluster with the DaemonSet, device nodes, and two nodes without a kubelet.
type fleetBed struct {
	*cluster.Cluster
	prefix string
}

// TestFleet asks the fleet of a real cluster with the real kubectl: three nodes, of which one does
// not answer and one is not ready, and pods that fail for different reasons.
func TestFleet(t *testing.T) {
	t.Parallel()
	f := newFleetBed(t)
	f.start(t)
	t.Run("why", f.testWhy)
	t.Run("status", f.testStatus)
	t.Run("find", f.testFind)
	t.Run("diff", f.testDiff)
	t.Run("snapshot", f.testSnapshot)
}

func newFleetBed(t *testing.T) *fleetBed {
	t.Helper()
	f := &fleetBed{Cluster: cluster.New(t)}
	f.ImportProduct(t)
	f.prefix = "generic-dp-fleet-" + filepath.Base(f.Dir)
	for i, name := range []string{"one", "pulled", "free"} {
		path := f.device(name)
		f.Mknod(t, path, 240, uint32(200+i))
		t.Cleanup(func() { _ = os.Remove(path) })
	}
	f.install(t)
	f.WaitDaemonSet(t, namespace, name)
	f.WaitResource(t, "example.com/free", 4)
	f.addNodes(t)
	return f
}

// install applies the manifest with the configuration of the test. An edit of the ConfigMap would take
// the kubelet a minute.
func (f *fleetBed) install(t *testing.T) {
	t.Helper()
	text, err := os.ReadFile(product.Repository("deploy", "generic-dp.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	configMap, err := json.Marshal(f.configMap(fmt.Sprintf(fleetConfig, f.prefix)))
	if err != nil {
		t.Fatal(err)
	}
	docs := strings.Split(string(text), "---\n")
	for i, doc := range docs {
		if strings.Contains(doc, "kind: ConfigMap") {
			docs[i] = string(configMap) + "\n"
		}
	}
	f.Kubectl(t, strings.Join(docs, "---\n"), "apply", "-f", "-")
}

// configMap is the ConfigMap of the DaemonSet.
func (f *fleetBed) configMap(text string) *v1.ConfigMap {
	return &v1.ConfigMap{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace},
		Data:       map[string]string{"10-generic-dp.toml": text},
	}
}

// device is the path of a device node.
func (f *fleetBed) device(name string) string { return "/dev/" + f.prefix + "-" + name }

// addNodes makes the nodes without a kubelet, and lets the DaemonSet's pod on hanging run as far as
// the API server knows.
func (f *fleetBed) addNodes(t *testing.T) {
	t.Helper()
	listener := f.Listen(t, fmt.Sprintf("127.0.0.1:%d", hangingPort))
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() { _, _ = io.Copy(io.Discard, conn) }()
		}
	}()
	for _, name := range []string{hangingNode, lostNode} {
		f.Apply(t, &v1.Node{
			TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Node"},
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"kubernetes.io/os": "linux"}},
		})
		room := map[string]string{"cpu": "4", "memory": "8Gi", "pods": "110"}
		f.patchStatus(t, "node", name, map[string]any{"capacity": room, "allocatable": room})
	}
	var pod v1.Pod
	wait.Until(t, limit, "pods of the DaemonSet on the nodes without a kubelet", func() error {
		pods, err := f.Pods(namespace, "app.kubernetes.io/name=generic-dp")
		if err != nil {
			return err
		}
		i := slices.IndexFunc(pods, func(p v1.Pod) bool { return p.Spec.NodeName == hangingNode })
		if i < 0 || len(pods) != 3 {
			return fmt.Errorf("%d pods", len(pods))
		}
		pod = pods[i]
		return nil
	})
	f.patchStatus(t, "pod", pod.Name, v1.PodStatus{Phase: v1.PodRunning})
}

// patchStatus changes the status of an object, as a kubelet does.
func (f *fleetBed) patchStatus(t *testing.T, kind, name string, status any) {
	t.Helper()
	text, err := json.Marshal(map[string]any{"status": status})
	if err != nil {
		t.Fatal(err)
	}
	f.Kubectl(t, "", "-n", namespace, "patch", kind, name, "--subresource=status", "--type=merge", "-p", string(text))
}

// heartbeat makes the node hanging ready for the next seconds, until the controller misses its
// kubelet.
func (f *fleetBed) heartbeat(t *testing.T) {
	t.Helper()
	now := metav1.Now()
	f.patchStatus(t, "node", hangingNode, v1.NodeStatus{
		Addresses:       []v1.NodeAddress{{Type: v1.NodeInternalIP, Address: "127.0.0.1"}},
		DaemonEndpoints: v1.NodeDaemonEndpoints{KubeletEndpoint: v1.DaemonEndpoint{Port: hangingPort}},
		Conditions:      []v1.NodeCondition{{Type: v1.NodeReady, Status: v1.ConditionTrue, LastHeartbeatTime: now, LastTransitionTime: now}},
	})
}

// fleet runs kubectl generic-dp and returns its output and exit status.
func (f *fleetBed) fleet(t *testing.T, args ...string) (string, int) {
	t.Helper()
	dir := t.TempDir()
	plugin := filepath.Join(dir, "kubectl-generic_dp")
	if err := os.Symlink(filepath.Join(filepath.Dir(product.Binary(t)), "kubectl-generic_dp"), plugin); err != nil {
		t.Fatal(err)
	}
	// kubectl finds its plugins, and the plugin finds kubectl, in $PATH.
	path := "PATH=" + dir + ":" + filepath.Dir(f.Tool("kubectl")) + ":" + os.Getenv("PATH")
	argv := append([]string{path, f.Tool("kubectl"), "generic-dp"}, args...)
	argv = append(argv, "--kubeconfig", f.Kubeconfig(), "--timeout", "5s")
	text, err := f.Try("", "env", argv...)
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return text, exit.ExitCode()
	}
	if err != nil {
		t.Fatalf("%v: %v\n%s", args, err, text)
	}
	return text, 0
}

// start creates the pods. Each fails for another reason.
func (f *fleetBed) start(t *testing.T) {
	t.Helper()
	holder := bed.Workload("holder", "example.com/one", 1)
	// The bed names pods like static pods.
	lost := bed.Workload("lost-"+bed.NodeName, "example.com/pulled", 1)
	for _, p := range []*v1.Pod{holder, lost} {
		f.CreatePod(t, p)
	}
	for _, p := range []*v1.Pod{holder, lost} {
		f.waitPhase(t, p.Name, v1.PodRunning)
	}
	// The device of a running container, and of a container that starts afterwards.
	if err := os.Remove(f.device("pulled")); err != nil {
		t.Fatal(err)
	}
	f.WaitResource(t, "example.com/pulled", 0)

	waiting := bed.Workload("held", "example.com/one", 1)
	typo := bed.Workload("typo", "example.com/oen", 1)
	absent := bed.Workload("absent", "example.com/absent", 1)
	unhealthy := bed.Workload("unhealthy", "example.com/pulled", 1)
	many := bed.Workload("many", "example.com/free", 5)
	selector := bed.Workload("selector", "example.com/free", 1)
	selector.Spec.NodeSelector = map[string]string{"floor": "top"}
	// A pod that is bound to a node without the scheduler: the kubelet refuses it.
	refused := bed.Workload("refused", "example.com/one", 1)
	refused.Spec.NodeName = bed.NodeName
	for _, p := range []*v1.Pod{waiting, typo, absent, unhealthy, many, selector, refused} {
		f.CreatePod(t, p)
	}
	f.waitPhase(t, "refused", v1.PodFailed)
	// The runtime cannot create a container whose link is gone.
	f.PodOf("lost").Kill(t, "main")
}

func (f *fleetBed) waitPhase(t *testing.T, name string, phase v1.PodPhase) {
	t.Helper()
	wait.Until(t, limit, fmt.Sprintf("pod %s %s", name, phase), func() error {
		p, err := cluster.Get[v1.Pod](f.Cluster, "/api/v1/namespaces/default/pods/"+name)
		if err == nil && p.Status.Phase != phase {
			err = fmt.Errorf("%s: %s", p.Status.Phase, p.Status.Message)
		}
		return err
	})
}

func (f *fleetBed) testWhy(t *testing.T) {
	for pod, want := range map[string]string{
		"held":      "held: other pods hold devices of example.com/one",
		"typo":      "not-configured: no node has example.com/oen",
		"absent":    "no-device: no node has example.com/absent",
		"unhealthy": "unhealthy: devices of example.com/pulled are not Healthy",
		"many":      "too-many: the pod requests 5 of example.com/free",
		"selector":  "scheduler: the scheduler says: 0/",
		"refused":   "failed: the pod has failed on bed: ",
		"lost-bed":  "lost: the pod has lost its device",
	} {
		wait.Until(t, limit, "reason of "+pod, func() error {
			text, code := f.fleet(t, "why", pod)
			plain := strings.Join(strings.Fields(text), " ")
			if code != 0 || !strings.Contains(plain, want) {
				return fmt.Errorf("status %d, want %q in\n%s", code, want, text)
			}
			return nil
		})
	}
	t.Run("cordoned", func(t *testing.T) {
		f.Kubectl(t, "", "cordon", bed.NodeName)
		defer f.Kubectl(t, "", "uncordon", bed.NodeName)
		f.CreatePod(t, bed.Workload("cordoned", "example.com/free", 1))
		wait.Until(t, limit, "cordoned", func() error {
			text, _ := f.fleet(t, "why", "default/cordoned")
			if !strings.Contains(text, "unschedulable") || !strings.Contains(text, "bed has") {
				return errors.New(text)
			}
			return nil
		})
		f.DeletePod(t, "cordoned")
	})
}

func (f *fleetBed) testStatus(t *testing.T) {
	wait.Until(t, limit, "status of the fleet", func() error {
		f.heartbeat(t)
		began := time.Now()
		text, code := f.fleet(t, "status")
		if code != 0 {
			return fmt.Errorf("status %d: %s", code, text)
		}
		for _, want := range []string{"default/holder", "no answer within 5s", "the node is not ready", "1 of 3 nodes answered", " is Unhealthy since "} {
			if !strings.Contains(text, want) {
				return fmt.Errorf("want %q in\n%s", want, text)
			}
		}
		for line := range strings.Lines(text) {
			if len(strings.TrimSuffix(line, "\n")) > 80 && len(strings.Fields(line)) > 1 {
				t.Errorf("more than 80 columns: %s", line)
			}
		}
		t.Logf("status took %v:\n%s", time.Since(began).Round(10*time.Millisecond), text)
		return nil
	})
}

func (f *fleetBed) testFind(t *testing.T) {
	text, code := f.fleet(t, "find", f.prefix+"-one")
	if code != 0 || !strings.Contains(text, "example.com/one") || !strings.Contains(text, "default/holder") {
		t.Errorf("status %d, want example.com/one and its holder:\n%s", code, text)
	}
	if text, code := f.fleet(t, "find", "no-such-device"); code != 1 {
		t.Errorf("status %d, want 1:\n%s", code, text)
	}
}

// testDiff asks for an edit that removes a held device, as a ConfigMap.
func (f *fleetBed) testDiff(t *testing.T) {
	edited := strings.Replace(fmt.Sprintf(fleetConfig, f.prefix), `name = "one"`, `name = "other"`, 1)
	text, err := json.Marshal(f.configMap(edited))
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "configmap.json")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	out, code := f.fleet(t, "diff", file)
	if code != 3 || !strings.Contains(out, "moves to example.com/other") || !strings.Contains(out, "default/holder") {
		t.Errorf("status %d, want 3 and the holder:\n%s", code, out)
	}
	t.Log(out)
}

func (f *fleetBed) testSnapshot(t *testing.T) {
	text, code := f.fleet(t, "snapshot", bed.NodeName, "-")
	if code != 0 || !strings.Contains(text, "redacted:     yes") || !strings.Contains(text, "-- dev/") {
		t.Errorf("status %d, want a recording:\n%.2000s", code, text)
	}
}
