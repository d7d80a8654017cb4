package main

import (
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/yaml"
)

// The files that make manifests writes are up to date.
func TestMadeFromChart(t *testing.T) {
	t.Parallel()
	made, err := checkout.fromChart()
	if err != nil {
		t.Fatal(err)
	}
	for file, want := range made {
		have := readFile(t, file)
		if have != string(want) {
			t.Errorf("%s differs from the chart: run make manifests", file)
		}
	}
}

// With all values the manifests are valid, volumes and mounts agree, and every directory of a
// flag is mounted.
func TestChartVariants(t *testing.T) {
	t.Parallel()
	variants := map[string]string{
		"default": "",
		"everything": `{cdi: {enabled: true}, nfd: {enabled: true}, hostSys: true, allow: ["hooks", "net", "cdi:nvidia.com/*", "mount:/opt"], domains: ["home.example"], networkPolicy: {scrapers: [{podSelector: {}}], egress: [{to: [{ipBlock: {cidr: 10.0.0.0/8}}]}]}, podMonitor: {enabled: true},
			prometheusRule: {enabled: true}, namespace: {create: true}, selinuxType: container_device_plugin_t, imagePullSecrets: [{name: x}], podAnnotations: {a: b}, podLabels: {c: d},
			nameOverride: dp, fullnameOverride: devices, namespaceOverride: hardware, commonLabels: {team: edge}, daemonSetAnnotations: {e: f}, revisionHistoryLimit: 0,
			serviceAccount: {create: true, annotations: {g: h}}, podSecurityContext: {fsGroup: 7}, probes: {startup: null, liveness: {periodSeconds: 9}},
			image: {registry: "", digest: "sha256:0000000000000000000000000000000000000000000000000000000000000000"}, config: {10-mine.toml: ""}, defaultConfig: true,
			extraArgs: [--node-name=edge], extraEnv: [{name: A, value: "1"}], extraVolumes: [{name: extra, emptyDir: {}}],
			extraVolumeMounts: [{name: extra, mountPath: /extra, readOnly: true}]}`,
		"evict":            `{evict: {enabled: true, optIn: true, tolerations: [{operator: Exists}], after: 1m30s, perMinute: 1}, fullnameOverride: devices, commonLabels: {team: edge}, imagePullSecrets: [{name: x}]}`,
		"dra":              `{dra: {enabled: true, resources: ["example.com/zigbee", "example.com/My_Stick.v2"]}, serviceAccount: {name: mine}, fullnameOverride: devices}`,
		"open nodes":       `{openNodes: true}`,
		"no pod resources": `{paths: {podResources: ""}}`,
		"own ConfigMap":    `{existingConfigMap: mine}`,
	}
	files, err := filepath.Glob("../../deploy/helm/generic-dp/distributions/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("distributions: %q, %v", files, err)
	}
	for _, file := range files {
		variants[filepath.Base(file)] = readFile(t, file)
	}
	for name, text := range variants {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rendered, err := checkout.render(parseYAML(t, text))
			if err != nil {
				t.Fatal(err)
			}
			daemonSets := 0
			for doc := range strings.SplitSeq(string(rendered), "---\n") {
				if daemonSet := decode(t, doc); daemonSet != nil {
					daemonSets++
					checkDaemonSet(t, daemonSet)
				}
			}
			if daemonSets != 1 {
				t.Errorf("%d DaemonSets, want 1", daemonSets)
			}
		})
	}
}

// By default the network policy admits scrapers alone, and any egress, for health.tcp.
func TestNetworkPolicy(t *testing.T) {
	t.Parallel()
	for values, want := range map[string]networkingv1.NetworkPolicySpec{
		"": {PolicyTypes: []networkingv1.PolicyType{"Ingress"}, Ingress: []networkingv1.NetworkPolicyIngressRule{{
			Ports: []networkingv1.NetworkPolicyPort{{Port: new(intstr.FromInt32(9418))}},
			From: []networkingv1.NetworkPolicyPeer{{NamespaceSelector: &metav1.LabelSelector{
				MatchLabels: map[string]string{"kubernetes.io/metadata.name": "monitoring"}}}},
		}}},
		"networkPolicy: {scrapers: [], egress: []}": {PolicyTypes: []networkingv1.PolicyType{"Ingress", "Egress"}},
	} {
		have := renderObject[networkingv1.NetworkPolicy](t, "generic-dp", "networkpolicy.yaml", values)
		have.Spec.PodSelector = metav1.LabelSelector{}
		if !reflect.DeepEqual(have.Spec, want) {
			t.Errorf("%q: %+v, want %+v", values, have.Spec, want)
		}
	}
}

// decode decodes a document as strictly as the API server. The result is nil for other kinds
// than DaemonSet.
func decode(t *testing.T, doc string) *appsv1.DaemonSet {
	t.Helper()
	var kind struct {
		Kind string `json:"kind"`
	}
	if err := yaml.Unmarshal([]byte(doc), &kind); err != nil {
		t.Fatalf("%v in\n%s", err, doc)
	}
	var daemonSet *appsv1.DaemonSet
	var into any
	switch kind.Kind {
	case "":
		return nil // the comment at the start
	case "DaemonSet":
		daemonSet = &appsv1.DaemonSet{}
		into = daemonSet
	case "Namespace":
		into = &corev1.Namespace{}
	case "ServiceAccount":
		into = &corev1.ServiceAccount{}
	case "ConfigMap":
		into = &corev1.ConfigMap{}
	case "Deployment":
		into = &appsv1.Deployment{}
	case "ClusterRole":
		into = &rbacv1.ClusterRole{}
	case "ClusterRoleBinding":
		into = &rbacv1.ClusterRoleBinding{}
	case "NetworkPolicy":
		into = &networkingv1.NetworkPolicy{}
	case "ValidatingAdmissionPolicy":
		into = &admissionv1.ValidatingAdmissionPolicy{}
	case "ValidatingAdmissionPolicyBinding":
		into = &admissionv1.ValidatingAdmissionPolicyBinding{}
	case "DeviceClass":
		into = &resourcev1.DeviceClass{}
	case "PodMonitor", "PrometheusRule":
		into = &map[string]any{} // types of the Prometheus operator
	default:
		t.Errorf("unexpected kind %q", kind.Kind)
		return nil
	}
	if err := yaml.UnmarshalStrict([]byte(doc), into); err != nil {
		t.Errorf("%v in\n%s", err, doc)
	}
	return daemonSet
}

func checkDaemonSet(t *testing.T, d *appsv1.DaemonSet) {
	t.Helper()
	pod := d.Spec.Template.Spec
	c := pod.Containers[0]
	var volumes, mounted, paths []string
	for _, v := range pod.Volumes {
		volumes = append(volumes, v.Name)
	}
	for _, m := range c.VolumeMounts {
		mounted = append(mounted, m.Name)
		paths = append(paths, m.MountPath)
	}
	slices.Sort(volumes)
	slices.Sort(mounted)
	if !slices.Equal(volumes, mounted) {
		t.Errorf("volumes %v, want the mounted ones, %v", volumes, mounted)
	}
	for _, arg := range c.Args {
		flag, dir, _ := strings.Cut(arg, "=")
		if flag == "--pod-resources" {
			dir = filepath.Dir(dir)
		}
		below := func(path string) bool { return strings.HasPrefix(path, dir+"/") }
		if strings.HasPrefix(dir, "/") && !slices.Contains(paths, dir) && !slices.ContainsFunc(paths, below) {
			t.Errorf("the directory of %s is not mounted; mounts: %v", arg, paths)
		}
	}
	for _, m := range c.VolumeMounts {
		writes := slices.Contains([]string{"device-plugins", "run", "state", "cdi", "nfd", "plugins-registry"}, m.Name)
		if m.ReadOnly == writes {
			t.Errorf("mount %s: readOnly is %t, want %t", m.Name, m.ReadOnly, !writes)
		}
	}
	for k, v := range d.Spec.Selector.MatchLabels {
		if d.Spec.Template.Labels[k] != v {
			t.Errorf("the pods' labels are %v, want %s=%s as in the selector", d.Spec.Template.Labels, k, v)
		}
	}
}

// The error for an invalid value names it.
func TestChartRejects(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`{imag: {}}`:                       "imag",
		`{listen: {port: "9418"}}`:         "listen.port",
		`{paths: {run: run/generic-dp}}`:   "paths.run",
		`{allow: ["root"]}`:                "allow",
		`{config: {generic-dp_tmol: ""}}`:  "generic-dp_tmol",
		`{defaultConfig: "no"}`:            "defaultConfig",
		`{image: {digest: sha256:0}}`:      "image.digest",
		`{fullnameOverride: A_B}`:          "fullnameOverride",
		`{probes: {startup: 3}}`:           "probes.startup",
		`{commonLabels: {a: 1}}`:           "commonLabels",
		`{serviceAccount: {token: true}}`:  "serviceAccount",
		`{extraArgs: [serve]}`:             "extraArgs",
		`{log: {level: loud}}`:             "log.level",
		`{cdi: {enable: true}}`:            "cdi",
		`{podMonitor: {enabled: "false"}}`: "podMonitor.enabled",
	} {
		if _, err := checkout.render(parseYAML(t, text)); err == nil || !strings.Contains(err.Error(), strings.Split(want, ".")[0]) {
			t.Errorf("%s: %v, want an error that names %s", text, err, want)
		}
	}
}
