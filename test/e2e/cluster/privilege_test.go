//go:build cluster

package cluster_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/generic-dp/generic-dp/test/e2e/cluster"
	"github.com/generic-dp/generic-dp/test/e2e/product"
	"github.com/generic-dp/generic-dp/test/e2e/wait"
)

// daemonSet is the DaemonSet of the plain manifest.
func daemonSet(t *testing.T) *appsv1.DaemonSet {
	t.Helper()
	text, err := os.ReadFile(product.Repository("deploy", "generic-dp.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	for doc := range strings.SplitSeq(string(text), "---\n") {
		var d appsv1.DaemonSet
		if err := yaml.Unmarshal([]byte(doc), &d); err != nil {
			t.Fatal(err)
		}
		if d.Kind == "DaemonSet" {
			return &d
		}
	}
	t.Fatal("the manifest has no DaemonSet")
	return nil
}

// TestLeastPrivilege removes each privilege of the manifest in turn and expects a
// failure; and it checks the privileges of the running process.
func TestLeastPrivilege(t *testing.T) {
	t.Parallel()
	c := cluster.New(t)
	c.ImportProduct(t)
	c.Kubectl(t, "", "apply", "-f", product.Repository("deploy", "generic-dp.yaml"))
	pod := c.WaitDaemonSet(t, namespace, name)
	checkPrivileges(t, c, pod)
	configure(t, c, heldConfig+byCDI)

	// Without a mount the log names the flag, and thereby the line of the manifest, at fault.
	complaints := map[string]string{
		"config":         "--config",
		"dev":            "/host/dev",
		"cgroup":         "cgroups are not visible",
		"device-plugins": "--kubelet-dir",
		"run":            "--run-dir",
		"state":          "--state-dir",
		"pod-resources":  "held devices are unknown",
		"cdi":            "--cdi-dir",
	}
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
			if mount.Name == "pod-resources" { // the kubelet is asked for the names of pods when somebody wants to know them
				_, _ = c.TryKubectl("", "-n", namespace, "exec", "daemonset/"+name, "--", "/generic-dp", "status")
			}
			logs := allLogs(t, c)
			if !strings.Contains(logs, want) {
				return fmt.Errorf("want %q in\n%s", want, logs)
			}
			return nil
		})
	}
}

// byCDI is a resource that needs CDI specs.
const byCDI = `
[[resource]]
name = "specified"
match.glob = "/dev/zero"
container.cdi = true
`

// allLogs is the log of all existing pods of the program.
func allLogs(t *testing.T, c *cluster.Cluster) string {
	t.Helper()
	files, err := filepath.Glob(fmt.Sprintf("%s/pods/%s_*/%s/*.log", c.Dir, namespace, name))
	if err != nil {
		t.Fatal(err)
	}
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
