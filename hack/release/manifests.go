package main

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
)

// manifestName is the plain manifest in deploy.
const manifestName = "generic-dp.yaml"

// manifestHead is the first lines of the plain manifest.
const manifestHead = `# Everything for "kubectl apply -f": the chart in helm/generic-dp with its default
# values and a namespace of its own, for Kubernetes 1.30 or later. "make manifests" writes
# it; edit the chart.
`

// helmLabels are the lines of labels by which Helm recognizes its objects.
var helmLabels = regexp.MustCompile(`(?m)^ +(app\.kubernetes\.io/managed-by|helm\.sh/chart): .*\n`)

// trailing is the white space that templates leave at the end of lines.
var trailing = regexp.MustCompile(`(?m)[ \t]+$`)

// firstTemplates are the templates whose objects are applied first, in order.
var firstTemplates = []string{"namespace.yaml", "serviceaccount.yaml", "configmap.yaml", "daemonset.yaml"}

// plainValues are the values of the plain manifest.
var plainValues = map[string]any{"namespace": map[string]any{"create": true}}

// draValues are the values of the manifest with the DRA driver.
var draValues = map[string]any{
	"namespace": map[string]any{"create": true},
	"dra":       map[string]any{"enabled": true},
}

// manifests writes the files that are made from the chart: the files in the checkout, and a manifest
// for each distribution in the output directory.
func (r *release) manifests() error {
	made, err := r.fromChart()
	if err != nil {
		return err
	}
	for file, text := range made {
		if err := os.WriteFile(file, text, 0o644); err != nil {
			return err
		}
	}
	return r.distributions()
}

// fromChart returns the files of the checkout that are made from the chart: the plain manifest, the
// manifest with the DRA driver, and the dashboard.
func (r *release) fromChart() (map[string][]byte, error) {
	deploy := filepath.Join(r.source, "deploy")
	plain, err := r.render(plainValues)
	if err != nil {
		return nil, err
	}
	dra, err := r.render(draValues)
	if err != nil {
		return nil, err
	}
	dashboard, err := os.ReadFile(filepath.Join(deploy, "grafana", "generic-dp.json"))
	return map[string][]byte{
		filepath.Join(deploy, manifestName):               plain,
		filepath.Join(deploy, "dra", manifestName):        dra,
		r.chart(filepath.Join("files", "dashboard.json")): dashboard,
	}, err
}

// distributions writes a manifest for each file of values in the chart into the output directory:
// generic-dp-talos.yaml.
func (r *release) distributions() error {
	files, err := filepath.Glob(r.chart("distributions/*.yaml"))
	if err != nil {
		return err
	}
	for _, file := range files {
		values, err := chartutil.ReadValuesFile(file)
		if err != nil {
			return err
		}
		values["namespace"] = map[string]any{"create": true}
		manifest, err := r.render(values)
		if err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
		err = os.WriteFile(filepath.Join(r.out, "generic-dp-"+filepath.Base(file)), manifest, 0o644)
		if err != nil {
			return err
		}
	}
	return nil
}

// chart is the path of a file of the chart.
func (r *release) chart(name string) string {
	return filepath.Join(r.source, "deploy", "helm", "generic-dp", name)
}

// templates renders the chart's templates with these values for a release of this name in
// the namespace generic-dp, and returns them by name.
func (r *release) templates(name string, values map[string]any) (map[string]string, error) {
	chart, err := loader.Load(r.chart(""))
	if err != nil {
		return nil, err
	}
	options := chartutil.ReleaseOptions{Name: name, Namespace: "generic-dp", IsInstall: true}
	all, err := chartutil.ToRenderValues(chart, values, options, nil)
	if err != nil {
		return nil, fmt.Errorf("values: %w", err)
	}
	rendered, err := engine.Render(chart, all)
	byName := map[string]string{}
	for path, text := range rendered {
		_, name, _ := strings.Cut(path, "/templates/")
		byName[name] = text
	}
	return byName, err
}

// render renders the chart with these values into one file.
func (r *release) render(values map[string]any) ([]byte, error) {
	rendered, err := r.templates("generic-dp", values)
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	out.WriteString(manifestHead)
	order := func(a, b string) int { return cmp.Or(rank(a)-rank(b), strings.Compare(a, b)) }
	for _, name := range slices.SortedFunc(maps.Keys(rendered), order) {
		text := strings.TrimSpace(rendered[name])
		isTest := strings.HasPrefix(name, "tests/") // of "helm test" only
		if text != "" && strings.HasSuffix(name, ".yaml") && !isTest {
			fmt.Fprintf(&out, "---\n%s\n", text)
		}
	}
	return trailing.ReplaceAll(helmLabels.ReplaceAll(out.Bytes(), nil), nil), nil
}

func rank(name string) int {
	if i := slices.Index(firstTemplates, name); i >= 0 {
		return i
	}
	return len(firstTemplates)
}
