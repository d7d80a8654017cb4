package main

import (
	"encoding/json"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"
)

// parse reads values as in a file of a user.
func parse(t *testing.T, text string) map[string]any {
	t.Helper()
	var values map[string]any
	if err := yaml.Unmarshal([]byte(text), &values); err != nil {
		t.Fatal(err)
	}
	return values
}

// install renders a template as Helm does for a release of this name.
func install[T any](t *testing.T, release, template, values string) T {
	t.Helper()
	rendered, err := source.templates(release, parse(t, values))
	if err != nil {
		t.Fatal(err)
	}
	var object T
	if err := yaml.UnmarshalStrict([]byte(rendered["generic-dp/templates/"+template]), &object); err != nil {
		t.Fatal(err)
	}
	return object
}

// Files of the user take the place of the default one, unless both are asked for; and what
// is in the ConfigMap is valid in any case, also with another domain in the user's file.
func TestConfigFiles(t *testing.T) {
	t.Parallel()
	builder := release{source: "../..", out: t.TempDir(), version: "v0.0.1-test"}
	binary, err := builder.build(t.Context(), platform{arch: "amd64"})
	if err != nil {
		t.Fatal(err)
	}
	const mine = `10-mine.toml: "domain = \"home.example\"\n[[resource]]\nname = \"zigbee\"\nmatch = { usb.id = \"10c4:ea60\", glob = \"/dev/ttyUSB*\" }\n"`
	for values, want := range map[string][]string{
		"":                       {"99-default.toml"},
		"config: {" + mine + "}": {"10-mine.toml"},
		"{defaultConfig: true, config: {" + mine + "}}":    {"10-mine.toml", "99-default.toml"},
		"config: {10-generic-dp.toml: null, " + mine + "}": {"10-mine.toml"},
		"{defaultConfig: false}":                           nil,
	} {
		files := install[corev1.ConfigMap](t, "generic-dp", "configmap.yaml", values).Data
		if have := slices.Sorted(maps.Keys(files)); !slices.Equal(have, want) {
			t.Errorf("%q: files %q, want %q", values, have, want)
		}
		if len(files) == 0 {
			continue
		}
		dir := t.TempDir()
		for name, text := range files {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if out, err := exec.Command(binary, "check", dir).CombinedOutput(); err != nil {
			t.Errorf("%q: generic-dp check: %v\n%s", values, err, out)
		}
	}
}

func TestChartNames(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ release, values, name, namespace, label, account string }{
		{"generic-dp", "", "generic-dp", "generic-dp", "generic-dp", ""},
		{"my-generic-dp", "", "my-generic-dp", "generic-dp", "generic-dp", ""},
		{"edge", "serviceAccount: {create: true}", "edge-generic-dp", "generic-dp", "generic-dp", "edge-generic-dp"},
		{"edge", "{nameOverride: dp, serviceAccount: {name: mine}}", "edge-dp", "generic-dp", "dp", "mine"},
		{"edge", "{fullnameOverride: devices, namespaceOverride: hardware, serviceAccount: {create: true, name: mine}}", "devices", "hardware", "generic-dp", "mine"},
	} {
		d := install[appsv1.DaemonSet](t, c.release, "daemonset.yaml", c.values)
		pod := d.Spec.Template.Spec
		if d.Name != c.name || d.Namespace != c.namespace || d.Spec.Selector.MatchLabels["app.kubernetes.io/name"] != c.label || pod.ServiceAccountName != c.account {
			t.Errorf("%s with %q: %s/%s, selector %v, service account %q, want %+v", c.release, c.values, d.Namespace, d.Name, d.Spec.Selector.MatchLabels, pod.ServiceAccountName, c)
		}
		configMap := install[corev1.ConfigMap](t, c.release, "configmap.yaml", c.values)
		if used := pod.Volumes[0].ConfigMap.Name; configMap.Name != used || configMap.Namespace != d.Namespace {
			t.Errorf("%s with %q: the pod mounts the ConfigMap %s, there is %s/%s", c.release, c.values, used, configMap.Namespace, configMap.Name)
		}
		account := install[corev1.ServiceAccount](t, c.release, "serviceaccount.yaml", c.values)
		if account.Kind != "" && (account.Name != c.account || account.Namespace != c.namespace) {
			t.Errorf("%s with %q: service account %s/%s, want %s/%s", c.release, c.values, account.Namespace, account.Name, c.namespace, c.account)
		}
		if pod.AutomountServiceAccountToken == nil || *pod.AutomountServiceAccountToken {
			t.Errorf("%s with %q: a token is mounted", c.release, c.values)
		}
		rendered, err := source.templates(c.release, parse(t, c.values))
		if err != nil {
			t.Fatal(err)
		}
		command := "kubectl -n " + c.namespace + " exec ds/" + c.name + " -- /generic-dp status\n"
		if notes := rendered["generic-dp/templates/NOTES.txt"]; !strings.Contains(notes, command) {
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
		"image: {tag: v2, digest: " + digest + "}":            imageName + "@" + digest,
		"image: {registry: mirror:5000}":                      "mirror:5000/generic-dp/generic-dp:v0.1.0",
		"image: {registry: \"\"}":                             "generic-dp/generic-dp:v0.1.0",
		"image: {repository: registry.example/dp}":            "registry.example/dp:v0.1.0",
		"image: {repository: localhost/dp}":                   "localhost/dp:v0.1.0",
		"image: {registry: r.example, repository: team/dp.x}": "r.example/team/dp.x:v0.1.0",
	} {
		if have := install[appsv1.DaemonSet](t, "generic-dp", "daemonset.yaml", values).Spec.Template.Spec.Containers[0].Image; have != want {
			t.Errorf("%q: image %s, want %s", values, have, want)
		}
	}
}

// What is added to the container and the labels arrives.
func TestChartAdditions(t *testing.T) {
	t.Parallel()
	d := install[appsv1.DaemonSet](t, "generic-dp", "daemonset.yaml", `{extraArgs: [--node-name=edge], extraEnv: [{name: A, value: b}], commonLabels: {team: edge},
		podLabels: {team: lab}, daemonSetAnnotations: {a: b}, podSecurityContext: {fsGroup: 7}, probes: {startup: null, readiness: {periodSeconds: 9}}}`)
	pod := d.Spec.Template.Spec
	c := pod.Containers[0]
	if c.Args[len(c.Args)-1] != "--node-name=edge" || c.Env[len(c.Env)-1].Name != "A" {
		t.Errorf("args %q, env %v", c.Args, c.Env)
	}
	if d.Labels["team"] != "edge" || d.Spec.Template.Labels["team"] != "lab" || d.Spec.Selector.MatchLabels["team"] != "" || d.Annotations["a"] != "b" {
		t.Errorf("labels %v, of pods %v, selector %v, annotations %v", d.Labels, d.Spec.Template.Labels, d.Spec.Selector.MatchLabels, d.Annotations)
	}
	if pod.SecurityContext == nil || pod.SecurityContext.FSGroup == nil {
		t.Errorf("security context %v", pod.SecurityContext)
	}
	if c.StartupProbe != nil || c.ReadinessProbe.PeriodSeconds != 9 || c.ReadinessProbe.HTTPGet.Path != "/readyz" || c.LivenessProbe == nil {
		t.Errorf("probes %v, %v, %v", c.StartupProbe, c.ReadinessProbe, c.LivenessProbe)
	}
	if want := "generic-dp-0.1.0"; d.Labels["helm.sh/chart"] != want {
		t.Errorf("helm.sh/chart is %q, want %q", d.Labels["helm.sh/chart"], want)
	}
}

// Every value has its place in the schema, and the schema has no other.
func TestSchemaIsExact(t *testing.T) {
	t.Parallel()
	read := func(name string) map[string]any {
		text, err := os.ReadFile(source.chart(name))
		if err != nil {
			t.Fatal(err)
		}
		return parse(t, string(text))
	}
	var compare func(path string, values, schema map[string]any)
	compare = func(path string, values, schema map[string]any) {
		properties, _ := schema["properties"].(map[string]any)
		if properties == nil {
			return // a map of the user's keys, or an object of Kubernetes
		}
		if schema["additionalProperties"] != false {
			t.Errorf("schema of %q: additionalProperties is not false", path)
		}
		delete(properties, "global") // of parent charts
		if have, want := slices.Sorted(maps.Keys(properties)), slices.Sorted(maps.Keys(values)); !slices.Equal(have, want) {
			t.Errorf("schema of %q: %q, values %q", path, have, want)
		}
		for key, value := range values {
			if inner, ok := value.(map[string]any); ok {
				property, _ := properties[key].(map[string]any)
				compare(path+"."+key, inner, property)
			}
		}
	}
	compare("", read("values.yaml"), read("values.schema.json"))
}

// Without an overlay, the base is the plain manifest, and so is what refers to it.
func TestBase(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join(source.source, "deploy", manifestName))
	if err != nil {
		t.Fatal(err)
	}
	if have, want := kustomize(t, filepath.Join(source.source, "deploy")), objects(t, string(text)); !reflect.DeepEqual(have, want) {
		t.Errorf("kustomize build deploy: %v, want %v", have, want)
	}
}

// Each distribution of the chart has an overlay, which is what the chart renders with its
// values.
func TestOverlays(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob(source.chart("distributions/*.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var distributions []string
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".yaml")
		distributions = append(distributions, name)
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		values := parse(t, string(text))
		maps.Copy(values, plainValues)
		rendered, err := source.render(values)
		if err != nil {
			t.Fatal(err)
		}
		wantSame(t, name, kustomize(t, filepath.Join(source.source, "deploy", "kustomize", name)), rendered)
	}
	entries, err := os.ReadDir(filepath.Join(source.source, "deploy", "kustomize"))
	if err != nil {
		t.Fatal(err)
	}
	var overlays []string
	for _, e := range entries {
		if e.Name() != "base" && e.Name() != "dra" && e.Name() != "evict" {
			overlays = append(overlays, e.Name())
		}
	}
	if !slices.Equal(overlays, distributions) {
		t.Errorf("overlays %q, distributions %q", overlays, distributions)
	}
}

// A component makes of the base what the chart renders.
func TestComponents(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"dra", "evict"} {
		values := map[string]any{name: map[string]any{"enabled": true}}
		maps.Copy(values, plainValues)
		rendered, err := source.render(values)
		if err != nil {
			t.Fatal(err)
		}
		own := overlay(t, map[string]string{"kustomization.yaml": "resources: [../base]\ncomponents: [../" + name + "]\n"})
		wantSame(t, name, kustomize(t, own), rendered)
	}
}

// wantSame compares what Kustomize makes with what the chart renders.
func wantSame(t *testing.T, name string, have map[string]any, rendered []byte) {
	t.Helper()
	if want := objects(t, string(rendered)); !reflect.DeepEqual(have, want) {
		have, _ := json.MarshalIndent(have, "", " ")
		want, _ := json.MarshalIndent(want, "", " ")
		t.Errorf("%s: Kustomize makes\n%s\nthe chart renders\n%s", name, have, want)
	}
}

// overlay makes a directory with these files beside copies of ours.
func overlay(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(filepath.Join(source.source, "deploy", "kustomize"))); err != nil {
		t.Fatal(err)
	}
	own := filepath.Join(dir, "own")
	if err := os.Mkdir(own, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(own, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return own
}

// A token is where the API server is used, for an hour: the API server extends the one
// that it mounts by itself, which lasts 3607 s, to a year.
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
		rendered, err := source.templates("generic-dp", parse(t, c.values))
		if err != nil {
			t.Fatal(err)
		}
		docs := strings.Split(rendered["generic-dp/templates/"+c.template], "---\n")
		var object struct {
			Spec struct{ Template corev1.PodTemplateSpec }
		}
		if err := yaml.Unmarshal([]byte(docs[len(docs)-1]), &object); err != nil {
			t.Fatal(err)
		}
		pod := object.Spec.Template.Spec
		if pod.AutomountServiceAccountToken == nil || *pod.AutomountServiceAccountToken {
			t.Errorf("%s with %q: a token is mounted by itself", c.template, c.values)
		}
		i := slices.IndexFunc(pod.Volumes, func(v corev1.Volume) bool { return v.Projected != nil })
		if i < 0 != !c.token {
			t.Fatalf("%s with %q: a token: %t, want %t", c.template, c.values, i >= 0, c.token)
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
			t.Errorf("%s: the token is not where the program reads it: %v", c.template, pod.Containers[0].VolumeMounts)
		}
	}
}

// kustomize builds a directory.
func kustomize(t *testing.T, dir string) map[string]any {
	t.Helper()
	built, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), dir)
	if err != nil {
		t.Fatal(err)
	}
	text, err := built.AsYaml()
	if err != nil {
		t.Fatal(err)
	}
	return objects(t, string(text))
}

// objects are the objects of a stream by kind, each of which occurs once.
func objects(t *testing.T, text string) map[string]any {
	t.Helper()
	byKind := map[string]any{}
	for doc := range strings.SplitSeq(text, "---\n") {
		if object := parse(t, doc); object != nil {
			byKind[object["kind"].(string)] = object
		}
	}
	return byKind
}

// The pod of evict is one that the Pod Security level "restricted" admits, has a limit, and
// belongs to the NetworkPolicy and PodMonitor but not to the DaemonSet.
func TestEvict(t *testing.T) {
	t.Parallel()
	for _, values := range []string{"evict: {enabled: true}, podMonitor: {enabled: true}", "nameOverride: dp, evict: {enabled: true}, podMonitor: {enabled: true}"} {
		rendered, err := source.templates("edge", parse(t, "{"+values+"}"))
		if err != nil {
			t.Fatal(err)
		}
		last := func(template string, into any) {
			docs := strings.Split(rendered["generic-dp/templates/"+template], "---\n")
			if err := yaml.Unmarshal([]byte(docs[len(docs)-1]), into); err != nil {
				t.Fatal(err)
			}
		}
		var deployment appsv1.Deployment
		var daemonSet appsv1.DaemonSet
		var policy networkingv1.NetworkPolicy
		var monitor struct {
			Spec struct{ Selector metav1.LabelSelector }
		}
		last("evict.yaml", &deployment)
		last("daemonset.yaml", &daemonSet)
		last("networkpolicy.yaml", &policy)
		last("podmonitor.yaml", &monitor)
		for what, of := range map[string]struct {
			selector          metav1.LabelSelector
			evict, daemonSets bool
		}{
			"Deployment":    {*deployment.Spec.Selector, true, false},
			"DaemonSet":     {*daemonSet.Spec.Selector, false, true},
			"NetworkPolicy": {policy.Spec.PodSelector, true, true},
			"PodMonitor":    {monitor.Spec.Selector, true, true},
		} {
			selector, err := metav1.LabelSelectorAsSelector(&of.selector)
			if err != nil {
				t.Fatal(err)
			}
			if e, d := selector.Matches(labels.Set(deployment.Spec.Template.Labels)), selector.Matches(labels.Set(daemonSet.Spec.Template.Labels)); e != of.evict || d != of.daemonSets {
				t.Errorf("%s: the %s selects pods of evict: %t, of the DaemonSet: %t", values, what, e, d)
			}
		}
		pod := deployment.Spec.Template.Spec
		c := pod.Containers[0]
		if s := pod.SecurityContext; !*s.RunAsNonRoot || *s.RunAsUser == 0 || s.SeccompProfile.Type != corev1.SeccompProfileTypeRuntimeDefault || pod.HostNetwork || pod.HostPID {
			t.Errorf("security context of the pod: %+v", s)
		}
		if s := c.SecurityContext; *s.AllowPrivilegeEscalation || *s.Privileged || !*s.ReadOnlyRootFilesystem || !slices.Equal(s.Capabilities.Drop, []corev1.Capability{"ALL"}) || s.Capabilities.Add != nil {
			t.Errorf("security context of the container: %+v", s)
		}
		if c.Resources.Limits.Memory().IsZero() || c.LivenessProbe.HTTPGet.Path != "/healthz" || c.ReadinessProbe.HTTPGet.Path != "/readyz" {
			t.Errorf("container: %+v", c)
		}
		for _, v := range pod.Volumes {
			if v.Projected == nil {
				t.Errorf("volume %s: want the token alone", v.Name)
			}
		}
	}
}

// The chart's annotations name the image that it installs.
func TestChartAnnotations(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(source.chart("Chart.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	chart := parse(t, string(text))
	images := chart["annotations"].(map[string]any)["artifacthub.io/images"].(string)
	if want := "image: " + imageName + ":" + chart["appVersion"].(string) + "\n"; !strings.Contains(images, want) {
		t.Errorf("artifacthub.io/images is %q, want %q in it", images, want)
	}
	icon := chart["icon"].(string)
	if _, err := os.Stat(source.chart(filepath.Base(icon))); err != nil {
		t.Errorf("icon %s: %v", icon, err)
	}
}

// The Kustomize example of the chart's README replaces the configuration of the base.
func TestReadmeKustomization(t *testing.T) {
	t.Parallel()
	readme, err := os.ReadFile(source.chart(readmeName))
	if err != nil {
		t.Fatal(err)
	}
	const remote = "https://github.com/generic-dp/generic-dp//deploy/kustomize/microk8s?ref=v0.1.0"
	_, example, _ := strings.Cut(string(readme), "```yaml\napiVersion: kustomize")
	example, _, _ = strings.Cut("apiVersion: kustomize"+example, "```")
	if !strings.Contains(example, remote) {
		t.Fatalf("the example lacks %s:\n%s", remote, example)
	}
	own := overlay(t, map[string]string{
		"kustomization.yaml": strings.Replace(example, remote, "../microk8s", 1),
		"10-zigbee.toml":     "domain = \"home.example\"\n",
	})
	configMap := kustomize(t, own)["ConfigMap"].(map[string]any)
	name, data := configMap["metadata"].(map[string]any)["name"], configMap["data"]
	if want := map[string]any{"10-zigbee.toml": "domain = \"home.example\"\n"}; name != "generic-dp" || !reflect.DeepEqual(data, want) {
		t.Errorf("ConfigMap %s: %v, want generic-dp: %v", name, data, want)
	}
}
