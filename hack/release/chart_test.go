package main

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/yaml"
)

// checkout is the repository of this module.
var checkout = release{source: "../.."}

func readFile(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(name)
	must(t, err)
	return string(text)
}

// parseYAML parses one document into the types that Helm has for values.
func parseYAML(t *testing.T, text string) map[string]any {
	t.Helper()
	var values map[string]any
	must(t, yaml.Unmarshal([]byte(text), &values))
	return values
}

// renderTemplates renders the chart as Helm does for a release of this name.
func renderTemplates(t *testing.T, release, values string) map[string]string {
	t.Helper()
	rendered, err := checkout.templates(release, parseYAML(t, values))
	if err != nil {
		t.Fatalf("render the chart with %q: %v", values, err)
	}
	return rendered
}

// renderObject returns the object of a template.
func renderObject[T any](t *testing.T, release, template, values string) (object T) {
	t.Helper()
	if err := yaml.UnmarshalStrict([]byte(renderTemplates(t, release, values)[template]), &object); err != nil {
		t.Fatalf("%s with %q: %v", template, values, err)
	}
	return object
}

// lastObject decodes the last object of a template, such as its workload.
func lastObject(t *testing.T, text string, into any) {
	t.Helper()
	docs := strings.Split(text, "---\n")
	must(t, yaml.Unmarshal([]byte(docs[len(docs)-1]), into))
}

// The user's files replace the default one, unless both are enabled. `check` accepts every
// ConfigMap, also with another domain in the user's file.
func TestConfigFiles(t *testing.T) {
	t.Parallel()
	binary := filepath.Join(t.TempDir(), "generic-dp")
	command(t, "make", "-C", "../..", "build", "BIN="+binary)
	const mine = `10-mine.toml: "domain = \"home.example\"\n[[resource]]\nname = \"zigbee\"\nmatch = { usb.id = \"10c4:ea60\", glob = \"/dev/ttyUSB*\" }\n"`
	for values, want := range map[string][]string{
		"":                       {"99-default.toml"},
		"config: {" + mine + "}": {"10-mine.toml"},
		"{defaultConfig: true, config: {" + mine + "}}":    {"10-mine.toml", "99-default.toml"},
		"config: {10-generic-dp.toml: null, " + mine + "}": {"10-mine.toml"},
		"{defaultConfig: false}":                           nil,
	} {
		files := renderObject[corev1.ConfigMap](t, "generic-dp", "configmap.yaml", values).Data
		if have := slices.Sorted(maps.Keys(files)); !slices.Equal(have, want) {
			t.Errorf("%q: files %q, want %q", values, have, want)
		}
		if len(files) == 0 {
			continue
		}
		dir := t.TempDir()
		for name, text := range files {
			must(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644))
		}
		if out, err := exec.Command(binary, "check", dir).CombinedOutput(); err != nil {
			t.Errorf("%q: generic-dp check: %v\n%s", values, err, out)
		}
	}
}

func TestChartNames(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ release, values, name, namespace, label, account string }{
		{"generic-dp", "", "generic-dp", "generic-dp", "generic-dp", "generic-dp"},
		{"my-generic-dp", "", "my-generic-dp", "generic-dp", "generic-dp", "my-generic-dp"},
		{"edge", "serviceAccount: {create: false}", "edge-generic-dp", "generic-dp", "generic-dp", ""},
		{"edge", "{serviceAccount: {create: false}, dra: {enabled: true}}", "edge-generic-dp", "generic-dp", "generic-dp", "edge-generic-dp"},
		{"edge", "{nameOverride: dp, serviceAccount: {create: false, name: mine}}", "edge-dp", "generic-dp", "dp", "mine"},
		{"edge", "{fullnameOverride: devices, namespaceOverride: hardware, serviceAccount: {name: mine}}", "devices", "hardware", "generic-dp", "mine"},
	} {
		d := renderObject[appsv1.DaemonSet](t, c.release, "daemonset.yaml", c.values)
		pod := d.Spec.Template.Spec
		if d.Name != c.name || d.Namespace != c.namespace || d.Spec.Selector.MatchLabels["app.kubernetes.io/name"] != c.label || pod.ServiceAccountName != c.account {
			t.Errorf("%s with %q: %s/%s, selector %v, service account %q, want %+v", c.release, c.values, d.Namespace, d.Name, d.Spec.Selector.MatchLabels, pod.ServiceAccountName, c)
		}
		configMap := renderObject[corev1.ConfigMap](t, c.release, "configmap.yaml", c.values)
		if used := pod.Volumes[0].ConfigMap.Name; configMap.Name != used || configMap.Namespace != d.Namespace {
			t.Errorf("%s with %q: the pod mounts the ConfigMap %s, the chart has %s/%s", c.release, c.values, used, configMap.Namespace, configMap.Name)
		}
		account := renderObject[corev1.ServiceAccount](t, c.release, "serviceaccount.yaml", c.values)
		if account.Kind != "" && (account.Name != c.account || account.Namespace != c.namespace) {
			t.Errorf("%s with %q: service account %s/%s, want %s/%s", c.release, c.values, account.Namespace, account.Name, c.namespace, c.account)
		}
		if pod.AutomountServiceAccountToken == nil || *pod.AutomountServiceAccountToken {
			t.Errorf("%s with %q: automountServiceAccountToken is not false", c.release, c.values)
		}
		command := "kubectl -n " + c.namespace + " exec ds/" + c.name + " -- /generic-dp status\n"
		if notes := renderTemplates(t, c.release, c.values)["NOTES.txt"]; !strings.Contains(notes, command) {
			t.Errorf("%s with %q: the notes lack %q:\n%s", c.release, c.values, command, notes)
		}
	}
}

func TestChartImage(t *testing.T) {
	t.Parallel()
	digest := "sha256:" + strings.Repeat("0f", 32)
	for values, want := range map[string]string{
		"":                 imageName + ":v0.1.0",
		"image: {tag: v2}": imageName + ":v2",
		"image: {tag: v2, digest: " + digest + "}":                                imageName + "@" + digest,
		"image: {registry: mirror:5000}":                                          "mirror:5000/generic-dp/generic-dp:v0.1.0",
		"image: {registry: \"\"}":                                                 "generic-dp/generic-dp:v0.1.0",
		"image: {repository: registry.example/dp}":                                "registry.example/dp:v0.1.0",
		"image: {repository: localhost/dp}":                                       "localhost/dp:v0.1.0",
		"global: {imageRegistry: mirror:5000}":                                    "mirror:5000/generic-dp/generic-dp:v0.1.0",
		"{global: {imageRegistry: mirror:5000}, image: {registry: r.example}}":    "mirror:5000/generic-dp/generic-dp:v0.1.0",
		"{global: {imageRegistry: null}}":                                         imageName + ":v0.1.0",
		"{global: {imageRegistry: a.example}, image: {repository: b.example/dp}}": "b.example/dp:v0.1.0",
		"image: {registry: r.example, repository: team/dp.x}":                     "r.example/team/dp.x:v0.1.0",
	} {
		if have := renderObject[appsv1.DaemonSet](t, "generic-dp", "daemonset.yaml", values).Spec.Template.Spec.Containers[0].Image; have != want {
			t.Errorf("%q: image %s, want %s", values, have, want)
		}
	}
}

// The schema has exactly the keys of values.yaml.
func TestSchemaIsExact(t *testing.T) {
	t.Parallel()
	var compare func(path string, values, schema map[string]any)
	compare = func(path string, values, schema map[string]any) {
		properties, _ := schema["properties"].(map[string]any)
		if properties == nil {
			return // keys of the user, or a Kubernetes object
		}
		if schema["additionalProperties"] != false {
			t.Errorf("schema of %q: additionalProperties is not false", path)
		}
		delete(properties, "global")         // of parent charts
		delete(properties, "serviceMonitor") // refused with a hint
		if have, want := slices.Sorted(maps.Keys(properties)), slices.Sorted(maps.Keys(values)); !slices.Equal(have, want) {
			t.Errorf("schema of %q has the keys %q, values.yaml %q", path, have, want)
		}
		for key, value := range values {
			if inner, ok := value.(map[string]any); ok {
				property, _ := properties[key].(map[string]any)
				compare(path+"."+key, inner, property)
			}
		}
	}
	compare("", parseYAML(t, readFile(t, checkout.chart("values.yaml"))), parseYAML(t, readFile(t, checkout.chart("values.schema.json"))))
}

// Only pods that use the API server have a token, for an hour: an automatically mounted one,
// of 3607 s, is extended by the API server to a year.
func TestTokens(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		template, values string
		token            bool
	}{
		{"daemonset.yaml", "", false},
		{"daemonset.yaml", "evict: {enabled: true}", false},
		{"daemonset.yaml", "dra: {enabled: true}", true},
		{"evict.yaml", "evict: {enabled: true}", true},
	} {
		var object struct {
			Spec struct{ Template corev1.PodTemplateSpec }
		}
		lastObject(t, renderTemplates(t, "generic-dp", c.values)[c.template], &object)
		pod := object.Spec.Template.Spec
		if pod.AutomountServiceAccountToken == nil || *pod.AutomountServiceAccountToken {
			t.Errorf("%s with %q: automountServiceAccountToken is not false", c.template, c.values)
		}
		i := slices.IndexFunc(pod.Volumes, func(v corev1.Volume) bool { return v.Projected != nil })
		if i < 0 != !c.token {
			t.Fatalf("%s with %q: has a projected token: %t, want %t", c.template, c.values, i >= 0, c.token)
		}
		if i < 0 {
			continue
		}
		token := pod.Volumes[i].Projected.Sources[0].ServiceAccountToken
		if token.Audience != "" || *token.ExpirationSeconds != 3600 {
			t.Errorf("%s: token %+v, want one for the API server, for an hour", c.template, token)
		}
		if !slices.ContainsFunc(pod.Containers[0].VolumeMounts, func(m corev1.VolumeMount) bool {
			return m.Name == pod.Volumes[i].Name && m.ReadOnly && m.MountPath == "/var/run/secrets/kubernetes.io/serviceaccount"
		}) {
			t.Errorf("%s: want the token read-only in /var/run/secrets/kubernetes.io/serviceaccount, mounts are %v", c.template, pod.Containers[0].VolumeMounts)
		}
	}
}

// The account of evict has exactly the rights that it uses (TestRun in cmd/generic-dp-evict).
func TestEvictRights(t *testing.T) {
	t.Parallel()
	rendered := renderTemplates(t, "edge", "{evict: {enabled: true}, dra: {enabled: true}}")["evict.yaml"]
	var have []string
	for _, document := range strings.Split(rendered, "---\n") {
		var role rbacv1.ClusterRole
		must(t, yaml.Unmarshal([]byte(document), &role))
		for _, rule := range role.Rules {
			have = append(have, fmt.Sprint(rule.Verbs, rule.APIGroups, rule.Resources))
		}
	}
	want := []string{"[watch] [] [pods]", "[create] [] [pods/eviction]", "[create] [] [events]"}
	if !slices.Equal(have, want) {
		t.Errorf("rights %q, want %q", have, want)
	}
}

// The pod of evict meets the Pod Security level "restricted", has a memory limit, and is
// selected by the NetworkPolicy and PodMonitor but not by the DaemonSet.
func TestEvict(t *testing.T) {
	t.Parallel()
	for _, values := range []string{"evict: {enabled: true}, podMonitor: {enabled: true}", "nameOverride: dp, evict: {enabled: true}, podMonitor: {enabled: true}"} {
		rendered := renderTemplates(t, "edge", "{"+values+"}")
		var deployment appsv1.Deployment
		var daemonSet appsv1.DaemonSet
		var policy networkingv1.NetworkPolicy
		var monitor struct {
			Spec struct{ Selector metav1.LabelSelector }
		}
		lastObject(t, rendered["evict.yaml"], &deployment)
		lastObject(t, rendered["daemonset.yaml"], &daemonSet)
		ingress, _, _ := strings.Cut(rendered["networkpolicy.yaml"], "---\n")
		lastObject(t, ingress, &policy)
		lastObject(t, rendered["podmonitor.yaml"], &monitor)
		for kind, want := range map[string]struct {
			selector         metav1.LabelSelector
			evict, daemonSet bool
		}{
			"Deployment":    {*deployment.Spec.Selector, true, false},
			"DaemonSet":     {*daemonSet.Spec.Selector, false, true},
			"NetworkPolicy": {policy.Spec.PodSelector, true, true},
			"PodMonitor":    {monitor.Spec.Selector, true, true},
		} {
			selector, err := metav1.LabelSelectorAsSelector(&want.selector)
			must(t, err)
			if e, d := selector.Matches(labels.Set(deployment.Spec.Template.Labels)), selector.Matches(labels.Set(daemonSet.Spec.Template.Labels)); e != want.evict || d != want.daemonSet {
				t.Errorf("%s: the %s selects pods of evict: %t, want %t; of the DaemonSet: %t, want %t", values, kind, e, want.evict, d, want.daemonSet)
			}
		}
		pod := deployment.Spec.Template.Spec
		c := pod.Containers[0]
		if s := pod.SecurityContext; !*s.RunAsNonRoot || *s.RunAsUser == 0 || s.SeccompProfile.Type != corev1.SeccompProfileTypeRuntimeDefault || pod.HostNetwork || pod.HostPID {
			t.Errorf("security context of the pod: %+v, want that of the level restricted, without host namespaces", s)
		}
		if s := c.SecurityContext; *s.AllowPrivilegeEscalation || *s.Privileged || !*s.ReadOnlyRootFilesystem || !slices.Equal(s.Capabilities.Drop, []corev1.Capability{"ALL"}) || s.Capabilities.Add != nil {
			t.Errorf("security context of the container: %+v, want that of the level restricted, with a read-only root", s)
		}
		if c.Resources.Limits.Memory().IsZero() || c.LivenessProbe.HTTPGet.Path != "/healthz" || c.ReadinessProbe.HTTPGet.Path != "/readyz" {
			t.Errorf("container: want a memory limit and probes of /healthz and /readyz, got %+v", c)
		}
		for _, v := range pod.Volumes {
			if v.Projected == nil {
				t.Errorf("volume %s: want the token's alone", v.Name)
			}
		}
	}
}
