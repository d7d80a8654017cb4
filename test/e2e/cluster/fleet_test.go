//go:build cluster

package cluster_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/generic-dp/generic-dp/test/e2e/cluster"
	"github.com/generic-dp/generic-dp/test/e2e/wait"
)

// canaryNode is the node that gets an edit first, and canaryName the release that serves it.
const (
	canaryNode = "canary-1"
	canaryName = "generic-dp-canary"
)

const (
	radioHead = `domain = "example.com"
`
	// radio is a resource by its condition and what it matches.
	radio = `
[[resource]]
name = "radio"
%s
match.glob = "%s"
container.path = "/dev/radio"
`
	sticksGlob = "/dev/ttyUSB*"
	wrongGlob  = "/dev/ttyACM*"
)

// fleet is a cluster of three nodes. Two of them have a stick, and a pod that holds it.
type fleet struct {
	*cluster.Cluster
	holders []v1.Pod
}

// TestFleet stages edits in both ways of docs/fleet.md, while pods hold the devices.
func TestFleet(t *testing.T) {
	t.Parallel()
	f := &fleet{Cluster: cluster.New(t)}
	began := time.Now()
	f.Hardware(t).Mknod("ttyUSB0")
	f.Join(t, canaryNode).Hardware(t).Mknod("ttyUSB0")
	f.Join(t, "bare").Hardware(t)
	t.Logf("two more nodes: %v", time.Since(began).Round(10*time.Millisecond))
	f.ImportProduct(t)
	f.install(t, name, nil, everywhere)
	f.answers(t, "status", 0, "2 nodes, 2 of 2 devices Healthy, 2 of 2 slots free", "3 of 3 nodes answered")
	f.Apply(t, cluster.Deployment("holder", "example.com/radio", 2))
	f.holders = f.WaitPods(t, "holder", 2, 0)

	t.Run("two definitions", f.stageDefinition)
	t.Run("two releases", f.stageRelease)
	// No edit has touched a running container.
	for i, pod := range f.WaitPods(t, "holder", 2, 0) {
		before := f.holders[i]
		if pod.UID != before.UID || pod.Status.ContainerStatuses[0].RestartCount > 0 {
			t.Errorf("pod %s was replaced or restarted: %+v", before.Name, pod.Status)
		}
	}
}

// everywhere is the configuration without a stage.
var everywhere = radioHead + fmt.Sprintf(radio, "", sticksGlob)

// stageDefinition applies a wrong edit to the canary by a second definition of the resource.
func (f *fleet) stageDefinition(t *testing.T) {
	staged := radioHead +
		fmt.Sprintf(radio, `when.node_name = "!canary-*"`, sticksGlob) +
		fmt.Sprintf(radio, `when.node_name = "canary-*"`, wrongGlob)
	f.answers(t, "diff "+f.file(t, staged), 3, "removed example.com/radio "+canaryNode+" default/holder-", "3 nodes answered, 2 without a change")
	began := time.Now()
	f.install(t, name, nil, staged)
	f.answers(t, "status", 0, "ttyUSB0 is Retiring", "2 nodes, 1 of 2 devices Healthy, 0 of 1 slot free", "3 of 3 nodes answered")
	f.answers(t, "status --node "+canaryNode, 0, "no match selects it any more", "1 of 1 node answered")
	t.Logf("the wrong edit is seen after %v", time.Since(began).Round(time.Second))
	began = time.Now()
	f.Helm(t, "rollback", name, "--namespace", name)
	f.answers(t, "status", 0, "2 nodes, 2 of 2 devices Healthy, 0 of 2 slots free")
	t.Logf("it is undone after %v", time.Since(began).Round(time.Second))
}

// stageRelease gives the canary to a second release, whose configuration is broken at first.
func (f *fleet) stageRelease(t *testing.T) {
	onCanary := map[string]any{"nodeSelector": map[string]string{"generic-dp": "canary"}}
	f.install(t, name, map[string]any{"affinity": notCanary}, everywhere)
	f.install(t, canaryName, onCanary, strings.Replace(everywhere, "match.glob", "macth.glob", 1))
	began := time.Now()
	f.Kubectl(t, "", "label", "node", canaryNode, "generic-dp=canary")
	f.answers(t, "status --namespace "+canaryName, 0, `unknown key "macth"`, "1 of 1 node answered")
	t.Logf("the broken edit of the other release is seen after %v", time.Since(began).Round(time.Second))
	f.answers(t, "status", 0, "2 nodes, 2 of 2 devices Healthy, 0 of 2 slots free", "3 of 3 nodes answered")
	f.install(t, canaryName, onCanary, everywhere)
	f.answers(t, "diff "+f.file(t, everywhere), 0, "3 nodes answered, 3 without a change")
	// The first release selects the node again: its pod waits for the other one, which answers.
	f.install(t, name, nil, everywhere)
	f.Kubectl(t, "", "--namespace", name, "rollout", "status", "daemonset/"+name)
	f.answers(t, "status", 0, "2 nodes, 2 of 2 devices Healthy, 0 of 2 slots free", "3 of 3 nodes answered")
	began = time.Now()
	f.Helm(t, "uninstall", canaryName, "--namespace", canaryName, "--wait")
	f.answers(t, "status", 0, "2 nodes, 2 of 2 devices Healthy, 0 of 2 slots free", "3 of 3 nodes answered")
	t.Logf("the first release serves the canary again after %v", time.Since(began).Round(time.Second))
}

// notCanary is the affinity of the release that leaves the canary to the other one.
var notCanary = &v1.Affinity{NodeAffinity: &v1.NodeAffinity{
	RequiredDuringSchedulingIgnoredDuringExecution: &v1.NodeSelector{
		NodeSelectorTerms: []v1.NodeSelectorTerm{{
			MatchExpressions: []v1.NodeSelectorRequirement{{
				Key:      "generic-dp",
				Operator: v1.NodeSelectorOpNotIn,
				Values:   []string{"canary"},
			}},
		}},
	},
}}

// file writes a configuration to a file.
func (f *fleet) file(t *testing.T, config string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "radio.toml")
	if err := os.WriteFile(name, []byte(config), 0o644); err != nil {
		t.Fatal(err)
	}
	return name
}

// install installs or upgrades a release in a namespace of the same name.
func (f *fleet) install(t *testing.T, release string, values map[string]any, config string) {
	t.Helper()
	all := map[string]any{"config": map[string]string{"10-radio.toml": config}}
	for key, value := range values {
		all[key] = value
	}
	helmIn(t, f.Cluster, release, all, "upgrade", "--install", release, chartDir)
}

// answers waits until a question to all nodes has an exit status and an answer with all of want.
func (f *fleet) answers(t *testing.T, question string, status int, want ...string) {
	t.Helper()
	wait.Until(t, limit, question, func() error {
		text, got := plugin(t, f.Cluster, strings.Fields(question)...)
		plain := strings.Join(strings.Fields(text), " ")
		for _, w := range want {
			if !strings.Contains(plain, w) {
				return fmt.Errorf("want %q in\n%s", w, text)
			}
		}
		if got != status {
			return fmt.Errorf("status %d, want %d: %s", got, status, text)
		}
		return nil
	})
}
