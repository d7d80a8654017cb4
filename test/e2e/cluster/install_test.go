//go:build cluster

package cluster_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/generic-dp/generic-dp/test/e2e/bed"
	"github.com/generic-dp/generic-dp/test/e2e/cluster"
	"github.com/generic-dp/generic-dp/test/e2e/product"
	"github.com/generic-dp/generic-dp/test/e2e/wait"
)

const (
	namespace = "generic-dp"
	name      = "generic-dp"
	// limit is longer than the kubelet needs to update a ConfigMap volume: that takes up to a
	// periodic sync of the pod, a minute, and the time that its cache of ConfigMaps may be old.
	limit = 3 * time.Minute
)

// heldConfig has a device that one container may hold, and a resource that needs CDI specs.
const heldConfig = `
domain = "example.com"
[[resource]]
name = "held"
match.glob = "/dev/null"
container.path = "/dev/held"
[[resource]]
name = "absent"
match.usb.id = "ffff:ffff"
[[resource]]
name = "specified"
match.glob = "/dev/zero"
container.cdi = true
`

// configMap is the ConfigMap of the manifest, with another configuration.
func configMap(text string) *v1.ConfigMap {
	return &v1.ConfigMap{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace},
		Data:       map[string]string{"10-generic-dp.toml": text},
	}
}

var manifest = product.Repository("deploy", "generic-dp.yaml")

// TestLeastPrivilege installs the manifest, edits its ConfigMap, asks the fleet with the real kubectl,
// and removes all. It checks the privileges of the running process; at last it removes each mount of
// the manifest in turn and expects a failure.
func TestLeastPrivilege(t *testing.T) {
	t.Parallel()
	c := cluster.New(t)
	c.ImportProduct(t)
	began := time.Now()
	c.Kubectl(t, "", "apply", "-f", manifest)
	first := c.WaitDaemonSet(t, namespace, name)
	c.WaitResource(t, "example.com/fuse", 100)
	t.Logf("from kubectl apply to allocatable: %v", time.Since(began).Round(10*time.Millisecond))
	checkPrivileges(t, c, first)

	began = time.Now()
	c.Apply(t, configMap(heldConfig))
	c.WaitResource(t, "example.com/held", 1)
	t.Logf("from the edit of the ConfigMap to allocatable: %v", time.Since(began).Round(10*time.Millisecond))
	now := c.WaitDaemonSet(t, namespace, name)
	if now.UID != first.UID || now.Status.ContainerStatuses[0].RestartCount != 0 {
		t.Errorf("the edit restarted the program: %+v", now.Status)
	}
	t.Run("broken edit", func(t *testing.T) {
		c.Apply(t, configMap(strings.Replace(heldConfig, "match.glob", "macth.glob", 1)))
		wait.Until(t, limit, "the problem in the log", func() error {
			if text := c.PodLog(t, &now, name); !strings.Contains(text, "macth") {
				return errors.New(text)
			}
			return nil
		})
		c.WaitDaemonSet(t, namespace, name)
		c.WaitResource(t, "example.com/held", 1)
		c.Apply(t, configMap(heldConfig))
	})
	t.Run("fleet", func(t *testing.T) { askFleet(t, c) })
	t.Run("uninstall", func(t *testing.T) {
		c.Kubectl(t, "", "delete", "-f", manifest, "--wait=true", "--timeout=60s")
		c.WaitResource(t, "example.com/held", 0)
		clean(t, c)
	})
	t.Run("mounts", func(t *testing.T) { removeMounts(t, c) })
}

// askFleet asks the plugin of kubectl, which calls kubectl. Scripts have its reports.
func askFleet(t *testing.T, c *cluster.Cluster) {
	c.CreatePod(t, bed.Workload("holder", "example.com/held", 1))
	wait.Until(t, limit, "pod holder", func() error {
		p, err := cluster.Get[v1.Pod](c, "/api/v1/namespaces/default/pods/holder")
		if err == nil && p.Status.Phase != v1.PodRunning {
			err = errors.New(string(p.Status.Phase))
		}
		return err
	})
	c.CreatePod(t, bed.Workload("held", "example.com/held", 1))
	c.CreatePod(t, bed.Workload("absent", "example.com/absent", 1))
	edited := filepath.Join(t.TempDir(), "configmap.json")
	text, err := json.Marshal(configMap(strings.Replace(heldConfig, `name = "held"`, `name = "other"`, 1)))
	must(t, err)
	must(t, os.WriteFile(edited, text, 0o600))
	for _, question := range []struct {
		args   string
		status int
		want   string
	}{
		{"status", 0, "default/holder"},
		{"status", 0, "1 of 1 node answered"},
		{"why held", 0, "held: other pods hold devices of example.com/held"},
		{"why absent", 0, "no-device: no node has example.com/absent"},
		{"find /dev/null", 0, "default/holder"},
		{"find no-such-device", 1, "no device"},
		{"diff " + edited, 3, "moves to example.com/other"},
		{"snapshot " + bed.NodeName + " -", 0, "redacted: yes"},
	} {
		wait.Until(t, limit, question.args, func() error {
			text, status := plugin(t, c, strings.Fields(question.args)...)
			plain := strings.Join(strings.Fields(text), " ")
			if status != question.status || !strings.Contains(plain, question.want) {
				return fmt.Errorf("status %d, want %d and %q in\n%.4000s", status, question.status, question.want, text)
			}
			return nil
		})
	}
	for _, pod := range []string{"holder", "held", "absent"} {
		c.DeletePod(t, pod)
	}
}

// plugin runs kubectl generic-dp and returns its output and exit status.
func plugin(t *testing.T, c *cluster.Cluster, args ...string) (string, int) {
	t.Helper()
	dir := t.TempDir()
	must(t, os.Symlink(filepath.Join(filepath.Dir(product.Binary(t)), "kubectl-generic_dp"), filepath.Join(dir, "kubectl-generic_dp")))
	// kubectl finds its plugins, and the plugin finds kubectl, in $PATH.
	path := "PATH=" + dir + ":" + filepath.Dir(c.Tool("kubectl")) + ":" + os.Getenv("PATH")
	argv := append([]string{path, c.Tool("kubectl"), "generic-dp"}, args...)
	text, err := c.Try("", "env", append(argv, "--kubeconfig", c.Kubeconfig())...)
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return text, exit.ExitCode()
	}
	if err != nil {
		t.Fatalf("%v: %v\n%s", args, err, text)
	}
	return text, 0
}

// clean removes the leftovers of an installation with the subcommand clean, and checks
// that it removes all.
func clean(t *testing.T, c *cluster.Cluster) {
	t.Helper()
	if text, err := c.Try("", product.Binary(t), "clean"); err != nil {
		t.Fatalf("clean: %v\n%s", err, text)
	}
	for _, dir := range []string{"/run/generic-dp", "/var/lib/generic-dp", "/run/cdi"} {
		entries, err := os.ReadDir(c.Path(dir))
		if err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
		for _, e := range entries {
			t.Errorf("left on the node: %s/%s", dir, e.Name())
		}
	}
	entries, err := os.ReadDir(c.DevicePlugins())
	must(t, err)
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), "kubelet") { // its socket and its checkpoint
			t.Errorf("left among the kubelet's plugins: %s", e.Name())
		}
	}
}

// daemonSet is the DaemonSet of the manifest.
func daemonSet(t *testing.T) *appsv1.DaemonSet {
	t.Helper()
	text, err := os.ReadFile(manifest)
	must(t, err)
	for doc := range strings.SplitSeq(string(text), "---\n") {
		var d appsv1.DaemonSet
		must(t, yaml.Unmarshal([]byte(doc), &d))
		if d.Kind == "DaemonSet" {
			return &d
		}
	}
	t.Fatal("the manifest has no DaemonSet")
	return nil
}

// complaints are in the log without a mount, or in the output of status. They name the flag, and thereby the
// line of the manifest, at fault.
var complaints = map[string]string{
	"config":         "--config",
	"dev":            "/host/dev",
	"cgroup":         "cgroups are not visible",
	"device-plugins": "--kubelet-dir",
	"run":            "--run-dir",
	"state":          "--state-dir",
	"pod-resources":  "Holders are unknown",
	"cdi":            "--cdi-dir",
}

// removeMounts runs the program without each of the mounts of the manifest.
func removeMounts(t *testing.T, c *cluster.Cluster) {
	c.Kubectl(t, "", "apply", "-f", manifest)
	c.Apply(t, configMap(heldConfig))
	for _, mount := range daemonSet(t).Spec.Template.Spec.Containers[0].VolumeMounts {
		if mount.Name == "cdi-static" {
			continue // foreign specs, for configurations that name their devices
		}
		want, ok := complaints[mount.Name]
		if !ok {
			t.Errorf("mount %s of the manifest: this test knows no failure without it", mount.Name)
			continue
		}
		d := daemonSet(t)
		// Alone, so that no other pod replaces it.
		d.Spec.UpdateStrategy.RollingUpdate = nil
		d.Spec.UpdateStrategy.Type = appsv1.RollingUpdateDaemonSetStrategyType
		spec := &d.Spec.Template.Spec
		spec.Volumes = slices.DeleteFunc(spec.Volumes, func(v v1.Volume) bool { return v.Name == mount.Name })
		container := &spec.Containers[0]
		container.VolumeMounts = slices.DeleteFunc(container.VolumeMounts, func(m v1.VolumeMount) bool { return m.Name == mount.Name })
		container.Args = append(container.Args, "--log-level=debug")
		c.Kubectl(t, "", "-n", namespace, "delete", "daemonset", name, "--wait", "--cascade=foreground")
		c.Apply(t, d)
		wait.Until(t, limit, "complaint about "+mount.Name, func() error {
			logs := allLogs(t, c)
			if mount.Name == "pod-resources" { // the kubelet is asked for the names of pods when somebody wants to know them
				logs, _ = c.TryKubectl("", "-n", namespace, "exec", "daemonset/"+name, "--", "/generic-dp", "status")
			}
			if !strings.Contains(logs, want) {
				return fmt.Errorf("want %q in\n%s", want, logs)
			}
			return nil
		})
	}
}

// allLogs is the log of all existing pods of the program.
func allLogs(t *testing.T, c *cluster.Cluster) string {
	t.Helper()
	files, err := filepath.Glob(fmt.Sprintf("%s/pods/%s_*/%s/*.log", c.Dir, namespace, name))
	must(t, err)
	var all strings.Builder
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			continue // removed meanwhile
		}
		all.Write(text)
	}
	return all.String()
}

// checkPrivileges checks the privileges of a pod's process, as the kernel shows them.
func checkPrivileges(t *testing.T, c *cluster.Cluster, pod v1.Pod) {
	t.Helper()
	status := c.ProcessStatus(t, "/generic-dp")
	for key, want := range map[string]string{
		"Uid":        "0\t0\t0\t0",
		"CapEff":     "0000000000000000",
		"CapPrm":     "0000000000000000",
		"CapBnd":     "0000000000000000",
		"CapAmb":     "0000000000000000",
		"NoNewPrivs": "1",
		"Seccomp":    "2",
	} {
		if status[key] != want {
			t.Errorf("%s of the process: %q, want %q", key, status[key], want)
		}
	}
	if pod.Spec.HostNetwork || pod.Spec.HostPID || pod.Spec.HostIPC {
		t.Errorf("the pod shares a namespace of the host, want none: %+v", pod.Spec)
	}
	for _, v := range pod.Spec.Volumes {
		if v.Projected != nil {
			t.Errorf("the pod has a token, want none: %+v", v)
		}
	}
	writes := c.ProcessWrites(t, "/generic-dp")
	if want := []string{"/dev/termination-log", "/etc/hosts", "/run/generic-dp", "/var/lib/generic-dp", "/var/lib/kubelet/device-plugins", "/var/run/cdi"}; !slices.Equal(writes, want) {
		t.Errorf("the program may write to %v, want %v", writes, want)
	}
}
