package main

import (
	"bytes"
	"fmt"
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
# values and a namespace of its own. "make manifests" writes it; edit the chart.
`

// trailing is white space that templates leave at the ends of lines.
var trailing = regexp.MustCompile(`(?m)[ \t]+$`)

// order is the order in which kinds are applied.
var order = []string{"namespace.yaml", "configmap.yaml", "daemonset.yaml"}

// manifests writes the plain manifest from the chart.
func (r *release) manifests() ([]string, error) {
	text, err := r.render(map[string]any{"namespace": map[string]any{"create": true}})
	if err != nil {
		return nil, err
	}
	file := filepath.Join(r.source, "deploy", manifestName)
	return []string{file}, os.WriteFile(file, text, 0o644)
}

// render renders the chart with these values into one file.
func (r *release) render(values map[string]any) ([]byte, error) {
	chart, err := loader.Load(filepath.Join(r.source, "deploy", "helm", "generic-dp"))
	if err != nil {
		return nil, err
	}
	options := chartutil.ReleaseOptions{Name: "generic-dp", Namespace: "generic-dp", IsInstall: true}
	kubernetes := *chartutil.DefaultCapabilities
	kubernetes.KubeVersion = chartutil.KubeVersion{Version: "v1.30.0", Major: "1", Minor: "30"} // or later
	all, err := chartutil.ToRenderValues(chart, values, options, &kubernetes)
	if err != nil {
		return nil, fmt.Errorf("values: %w", err)
	}
	rendered, err := engine.Render(chart, all)
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
		// It is applied without Helm.
		fmt.Fprintf(&out, "---\n%s\n", strings.ReplaceAll(byName[name], "\n    app.kubernetes.io/managed-by: Helm", ""))
	}
	text := strings.ReplaceAll(out.String(), "\n        app.kubernetes.io/managed-by: Helm", "")
	return []byte(trailing.ReplaceAllString(text, "")), nil
}

func rank(name string) int {
	if i := slices.Index(order, name); i >= 0 {
		return i
	}
	return len(order)
}
