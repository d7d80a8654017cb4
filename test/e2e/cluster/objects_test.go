//go:build cluster

package cluster_test

import (
	"bytes"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/generic-dp/generic-dp/test/e2e/bed"
	"github.com/generic-dp/generic-dp/test/e2e/cluster"
	"github.com/generic-dp/generic-dp/test/e2e/product"
)

// options are values that are combined with every distribution.
var options = []string{
	"{}",
	"{dra: {enabled: true, resources: [example.com/zigbee]}}",
	"{evict: {enabled: true, priorityClassName: system-cluster-critical, affinity: {podAffinity: {}}}}",
	`
hostSys: true
openNodes: true
nfd: {enabled: true}
dra: {enabled: true, resources: [example.com/zigbee, example.com/My_Stick]}
evict: {enabled: true}
allow: [net, "mount:/opt"]
securityContextConstraints: {create: true}
podMonitor: {enabled: true, scrapeTimeout: 10s, labels: {a: b}, relabelings: [{action: labeldrop, regex: pod}], metricRelabelings: [{action: labeldrop, regex: id}]}
prometheusRule: {enabled: true}
dashboard: {enabled: true, annotations: {grafana_folder: Nodes}}
extraObjects: [{apiVersion: v1, kind: ConfigMap, metadata: {name: "{{ .Release.Name }}-extra"}}]
networkPolicy: {egress: [{to: [{ipBlock: {cidr: 10.0.0.0/8}}]}]}
namespace: {create: true}
`,
}

// TestObjects validates everything in deploy, in every combination, and the objects of the
// pages, with the API server: it decodes them strictly and admits them, but does not store
// them.
func TestObjects(t *testing.T) {
	t.Parallel()
	bed.OnEachVersion(t, runObjects)
}

func runObjects(t *testing.T, v bed.Version) {
	c := cluster.NewWith(t, cluster.Options{Plane: v, Kubelet: v})
	c.Kubectl(t, "", "create", "namespace", namespace)
	// Pods are admitted only if their account exists. That of the namespace default does.
	c.Kubectl(t, "", "-n", namespace, "create", "serviceaccount", name)
	for _, file := range customResources(t) {
		c.Kubectl(t, "", "apply", "--server-side", "-f", file)
	}
	c.Kubectl(t, "", "wait", "--for=condition=Established", "crd", "--all", "--timeout=60s")
	dryRun := func(t *testing.T, objects string) {
		t.Helper()
		out := c.Kubectl(t, objects, "apply", "--dry-run=server", "--validate=strict", "-f", "-")
		if !strings.Contains(out, "(server dry run)") {
			t.Errorf("kubectl prints no object:\n%s", out)
		}
	}

	files, err := filepath.Glob(filepath.Join(chartDir, "distributions", "*.yaml"))
	if err != nil || len(files) == 0 {
		t.Fatalf("distributions: %q, %v", files, err)
	}
	none := filepath.Join(t.TempDir(), "none.yaml")
	must(t, os.WriteFile(none, []byte("{}\n"), 0o644))
	for _, file := range append(files, none) {
		t.Run("chart "+filepath.Base(file), func(t *testing.T) {
			for _, option := range options {
				values := filepath.Join(t.TempDir(), "values.yaml")
				must(t, os.WriteFile(values, []byte(option), 0o644))
				flags := []string{"--namespace", namespace, "--values", file, "--values", values}
				c.Helm(t, append([]string{"lint", "--strict", chartDir}, flags...)...)
				// Without a server, helm assumes a version that the chart refuses.
				dryRun(t, c.Helm(t, append([]string{"template", name, chartDir, "--kube-version", v.Minor + ".0"}, flags...)...))
			}
		})
	}

	for _, dir := range []string{"deploy", "deploy/dra"} {
		t.Run("kustomize "+dir, func(t *testing.T) {
			dryRun(t, c.Kubectl(t, "", "kustomize", product.Repository(dir)))
		})
	}

	t.Run("pages", func(t *testing.T) { dryRun(t, objectsOfPages(t, v)) })
	t.Run("slices", func(t *testing.T) { runSlices(t, c) })
}

// runSlices runs the tests TestCluster* of package dra on the API server and the scheduler, with the
// rights of the components.
func runSlices(t *testing.T, c *cluster.Cluster) {
	c.Kubectl(t, "", "apply", "-f", product.Repository("deploy", "dra/generic-dp.yaml"))
	tests := filepath.Join(t.TempDir(), "dra.test")
	build := exec.Command("go", "test", "-c", "-tags", "grpcnotrace,cluster", "-o", tests, "./internal/kubelet/dra")
	build.Dir = product.Repository()
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if text, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	text, err := c.Try("", tests, append([]string{"-test.v", "-test.run=TestCluster"}, c.ClientArgs(t)...)...)
	t.Logf("%s", text)
	must(t, err)
}

// customResources returns the files of the custom resource definitions whose objects the chart
// can create, in the modules that crds/go.mod pins.
func customResources(t *testing.T) (files []string) {
	t.Helper()
	for module, names := range map[string][]string{
		"github.com/openshift/api": {"payload-manifests/crds/0000_03_config-operator_01_securitycontextconstraints.crd.yaml"},
		"github.com/prometheus-operator/prometheus-operator": {
			"example/prometheus-operator-crd/monitoring.coreos.com_podmonitors.yaml",
			"example/prometheus-operator-crd/monitoring.coreos.com_prometheusrules.yaml",
		},
	} {
		cmd := exec.CommandContext(t.Context(), "go", "mod", "download", "-json", module)
		cmd.Dir = product.Repository("test", "e2e", "crds")
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("download %s: %v\n%s", module, err, out)
		}
		var downloaded struct{ Dir string }
		if err := json.NewDecoder(bytes.NewReader(out)).Decode(&downloaded); err != nil && err != io.EOF {
			t.Fatal(err)
		}
		for _, name := range names {
			files = append(files, filepath.Join(downloaded.Dir, name))
		}
	}
	return files
}

var (
	yamlBlock = regexp.MustCompile("(?ms)^```yaml\n(.*?)^```$")
	// kinds are the objects of the pages that an API server has.
	kinds = map[bed.Version]*regexp.Regexp{
		bed.Current: regexp.MustCompile(`(?m)^kind: (Pod|Deployment|ResourceClaim|ResourceClaimTemplate)$`),
		bed.Next:    regexp.MustCompile(`(?m)^kind: (Pod|Deployment|ResourceClaim|ResourceClaimTemplate|DeviceTaintRule)$`),
	}
)

// objectsOfPages are the objects in blocks of the pages, and the examples.
func objectsOfPages(t *testing.T, v bed.Version) string {
	t.Helper()
	pages, err := filepath.Glob(product.Repository("docs", "*.md"))
	if err != nil || len(pages) == 0 {
		t.Fatalf("pages: %q, %v", pages, err)
	}
	var objects []string
	for _, page := range append(pages, product.Repository("README.md")) {
		text, err := os.ReadFile(page)
		must(t, err)
		for _, m := range yamlBlock.FindAllStringSubmatch(string(text), -1) {
			if kinds[v].MatchString(m[1]) {
				objects = append(objects, m[1])
			}
		}
	}
	if len(objects) < 7 {
		t.Errorf("%d objects in the pages, want at least 7", len(objects))
	}
	example, err := os.ReadFile(product.Repository("examples", "pods", "follow.yaml"))
	must(t, err)
	return strings.Join(append(objects, string(example)), "---\n")
}

// must ends the test after an error of its own steps.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
