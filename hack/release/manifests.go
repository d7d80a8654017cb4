package main

import (
	"bytes"
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

// manifestHead is the comment at the start of the plain manifest.
const manifestHead = `# Everything for "kubectl apply -f": the chart in helm/generic-dp with its default
# values and a namespace of its own, for Kubernetes 1.30 or later. "make manifests" writes
# it; edit the chart.
`

// helmLabels are lines of labels that claim an object for Helm.
var helmLabels = regexp.MustCompile(`(?m)^ +(app\.kubernetes\.io/managed-by|helm\.sh/chart): .*\n`)

// trailing is white space that templates leave at the ends of lines.
var trailing = regexp.MustCompile(`(?m)[ \t]+$`)

// order is the order in which kinds are applied.
var order = []string{"namespace.yaml", "serviceaccount.yaml", "configmap.yaml", "daemonset.yaml"}

// plainValues are the values of the plain manifest.
var plainValues = map[string]any{"namespace": map[string]any{"create": true}}

// manifests writes what is made from the chart.
func (r *release) manifests() ([]string, error) {
	made, err := r.fromChart()
	if err != nil {
		return nil, err
	}
	for file, text := range made {
		if err := os.WriteFile(file, text, 0o644); err != nil {
			return nil, err
		}
	}
	return slices.Sorted(maps.Keys(made)), nil
}

// fromChart returns the files that are made from the chart: the plain manifest, the same as
// a base for Kustomize, components for it, and the chart's README with its table of values.
func (r *release) fromChart() (map[string][]byte, error) {
	manifest, err := r.render(plainValues)
	if err != nil {
		return nil, err
	}
	rights, err := r.part("dra", "serviceaccount.yaml", "dra.yaml")
	if err != nil {
		return nil, err
	}
	evict, err := r.part("evict", "evict.yaml")
	if err != nil {
		return nil, err
	}
	readme, err := r.readme()
	deploy := filepath.Join(r.source, "deploy")
	return map[string][]byte{
		filepath.Join(deploy, manifestName):                       manifest,
		filepath.Join(deploy, "kustomize", "base", manifestName):  manifest,
		filepath.Join(deploy, "kustomize", "dra", "rights.yaml"):  rights,
		filepath.Join(deploy, "kustomize", "evict", "evict.yaml"): evict,
		r.chart(readmeName): readme,
	}, err
}

// part renders some templates with one part of the chart enabled, for a component.
func (r *release) part(name string, templates ...string) ([]byte, error) {
	rendered, err := r.templates("generic-dp", map[string]any{name: map[string]any{"enabled": true}})
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	out.WriteString("# The chart's own, which \"make manifests\" writes; edit the chart.\n")
	for _, name := range templates {
		fmt.Fprintf(&out, "---\n%s\n", strings.TrimSpace(rendered["generic-dp/templates/"+name]))
	}
	return trailing.ReplaceAll(helmLabels.ReplaceAll(out.Bytes(), nil), nil), nil
}

// chart is the path of a file of the chart.
func (r *release) chart(name string) string {
	return filepath.Join(r.source, "deploy", "helm", "generic-dp", name)
}

// templates renders the chart's templates with these values for a release of this name in
// the namespace generic-dp.
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
	return engine.Render(chart, all)
}

// render renders the chart with these values into one file.
func (r *release) render(values map[string]any) ([]byte, error) {
	rendered, err := r.templates("generic-dp", values)
	if err != nil {
		return nil, err
	}
	byName := map[string]string{}
	var names []string
	for path, text := range rendered {
		if text = strings.TrimSpace(text); text != "" && strings.HasSuffix(path, ".yaml") {
			name := filepath.Base(path)
			byName[name] = text
			names = append(names, name)
		}
	}
	slices.SortFunc(names, func(a, b string) int {
		if c := rank(a) - rank(b); c != 0 {
			return c
		}
		return strings.Compare(a, b)
	})
	var out bytes.Buffer
	out.WriteString(manifestHead)
	for _, name := range names {
		fmt.Fprintf(&out, "---\n%s\n", byName[name])
	}
	// It is applied without Helm.
	return trailing.ReplaceAll(helmLabels.ReplaceAll(out.Bytes(), nil), nil), nil
}

func rank(name string) int {
	if i := slices.Index(order, name); i >= 0 {
		return i
	}
	return len(order)
}
