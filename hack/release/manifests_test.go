package main

import (
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/yaml"
)

// The files that make manifests writes are up to date.
func TestMadeFromChart(t *testing.T) {
	t.Parallel()
	made, err := checkout.fromChart()
	must(t, err)
	for file, want := range made {
		have := readFile(t, file)
		if have != string(want) {
			t.Errorf("%s differs from the chart: run make manifests", file)
		}
	}
}

// Pages name the files and the chart as a release makes them.
func TestPagesNameRelease(t *testing.T) {
	t.Parallel()
	for page, want := range map[string]string{
		"README.md":                        "oci://ghcr.io/generic-dp/charts/generic-dp\n",
		"deploy/helm/generic-dp/README.md": "`oci://ghcr.io/generic-dp/charts/generic-dp`",
		"deploy/helm/artifacthub-repo.yml": " ghcr.io/generic-dp/charts/generic-dp:",
		"docs/fleet.md":                    "--manifest=generic-dp-krew.yaml`",
	} {
		if !strings.Contains(readFile(t, filepath.Join(checkout.source, page)), want) {
			t.Errorf("%s does not name %s", page, want)
		}
	}
}

// With all values, volumes and mounts agree, and every directory of a
// flag is mounted.
func TestChartVariants(t *testing.T) {
	t.Parallel()
	variants := map[string]string{
		"default": "",
		"everything": `{cdi: {enabled: true}, nfd: {enabled: true}, hostSys: true, allow: ["hooks", "net", "cdi:nvidia.com/*", "mount:/opt"], domains: ["home.example"], networkPolicy: {scrapers: [{podSelector: {}}], egress: [{to: [{ipBlock: {cidr: 10.0.0.0/8}}]}]}, podMonitor: {enabled: true, scrapeTimeout: 10s,
			labels: {release: prometheus}, relabelings: [{action: labeldrop, regex: pod}], metricRelabelings: [{action: labeldrop, regex: id}]},
			prometheusRule: {enabled: true, labels: {a: b}}, dashboard: {enabled: true, annotations: {grafana_folder: Nodes}}, securityContextConstraints: {create: true},
			extraObjects: [{apiVersion: v1, kind: ConfigMap, metadata: {name: "{{ .Release.Name }}-extra"}}], namespace: {create: true}, selinuxType: container_device_plugin_t, imagePullSecrets: [{name: x}], podAnnotations: {a: b}, podLabels: {c: d},
			nameOverride: dp, fullnameOverride: devices, namespaceOverride: hardware, commonLabels: {team: edge}, daemonSetAnnotations: {e: f}, revisionHistoryLimit: 0,
			serviceAccount: {create: true, annotations: {g: h}}, podSecurityContext: {fsGroup: 7}, probes: {startup: null, readiness: {periodSeconds: 9}},
			image: {registry: "", digest: "sha256:0000000000000000000000000000000000000000000000000000000000000000"}, config: {10-mine.toml: ""}, defaultConfig: true,
			extraArgs: [--node-name=edge], extraEnv: [{name: A, value: "1"}], extraVolumes: [{name: extra, emptyDir: {}}],
			extraVolumeMounts: [{name: extra, mountPath: /extra, readOnly: true}]}`,
		"evict": `{evict: {enabled: true, optIn: true, tolerations: [{operator: Exists}], after: 1m30s, perMinute: 1, priorityClassName: high,
			affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key: a, operator: Exists}]}]}}}},
			fullnameOverride: devices, commonLabels: {team: edge}, imagePullSecrets: [{name: x}]}`,
		"dra":              `{dra: {enabled: true, resources: ["example.com/zigbee", "example.com/My_Stick.v2"]}, serviceAccount: {name: mine}, fullnameOverride: devices}`,
		"open nodes":       `{openNodes: true}`,
		"no pod resources": `{paths: {podResources: ""}}`,
		"own ConfigMap":    `{existingConfigMap: mine}`,
		"no account":       `{serviceAccount: {create: false}}`,
		"health.tcp":       `{config: {10-mine.toml: "health.tcp = \"bridge:6638\""}}`,
		"SCC, open nodes":  `{openNodes: true, securityContextConstraints: {create: true}, serviceAccount: {create: false}}`,
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
			must(t, err)
			daemonSets := 0
			for doc := range strings.SplitSeq(string(rendered), "---\n") {
				if daemonSet := decode(t, doc); daemonSet != nil {
					daemonSets++
					checkDaemonSet(t, daemonSet, strings.Contains(text, "openNodes: true"))
				}
			}
			if daemonSets != 1 {
				t.Errorf("%d DaemonSets, want 1", daemonSets)
			}
		})
	}
}

// By default the network policies admit scrapers only, and no connection of the program unless
// it may need one.
func TestNetworkPolicy(t *testing.T) {
	t.Parallel()
	for values, denied := range map[string]bool{
		"": true,
		`{config: {10-mine.toml: "match.glob = \"/dev/tcpdump\""}}`:      true,
		`{config: {10-mine.toml: "health.tcp = \"bridge:6638\""}}`:       false,
		`{config: {10-mine.toml: "health = { tcp = \"bridge:6638\" }"}}`: false,
		"dra: {enabled: true}":                  false,
		"existingConfigMap: mine":               false,
		"evict: {enabled: true}":                true, // its own pod is not selected
		"networkPolicy: {enabled: false}":       false,
		"networkPolicy: {egress: []}":           false, // the other policy has the rule
		"networkPolicy: {egress: [{to: [{}]}]}": false,
	} {
		text := renderTemplates(t, "generic-dp", values)["networkpolicy.yaml"]
		_, second, found := strings.Cut(text, "---\n")
		if found != denied {
			t.Errorf("%q: has a policy without egress: %t, want %t", values, found, denied)
		}
		if !found {
			continue
		}
		var policy networkingv1.NetworkPolicy
		must(t, yaml.UnmarshalStrict([]byte(second), &policy))
		want := networkingv1.NetworkPolicySpec{
			PodSelector: metav1.LabelSelector{MatchLabels: map[string]string{
				"app.kubernetes.io/name":     "generic-dp",
				"app.kubernetes.io/instance": "generic-dp",
			}},
			PolicyTypes: []networkingv1.PolicyType{"Egress"},
		}
		if !reflect.DeepEqual(policy.Spec, want) {
			t.Errorf("%q: %+v, want %+v", values, policy.Spec, want)
		}
	}
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

// decode decodes a document if it is a DaemonSet, as strictly as the API server. The cluster suite has
// the API server itself validate all objects.
func decode(t *testing.T, doc string) *appsv1.DaemonSet {
	t.Helper()
	if !strings.Contains(doc, "\nkind: DaemonSet\n") {
		return nil
	}
	daemonSet := &appsv1.DaemonSet{}
	if err := yaml.UnmarshalStrict([]byte(doc), daemonSet); err != nil {
		t.Errorf("%v in\n%s", err, doc)
	}
	return daemonSet
}

// checkDaemonSet checks mounts, privileges and labels. opensNodes is set if the program opens nodes of
// the host.
func checkDaemonSet(t *testing.T, d *appsv1.DaemonSet, opensNodes bool) {
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
	for _, v := range c.Env {
		dir := v.Value
		if v.Name == "GENERIC_DP_POD_RESOURCES" {
			dir = filepath.Dir(dir)
		}
		below := func(path string) bool { return strings.HasPrefix(path, dir+"/") }
		if strings.HasPrefix(dir, "/") && !slices.Contains(paths, dir) && !slices.ContainsFunc(paths, below) {
			t.Errorf("the directory of %s is not mounted; mounts: %v", v.Name, paths)
		}
	}
	for _, m := range c.VolumeMounts {
		writes := slices.Contains([]string{"device-plugins", "run", "state", "cdi", "nfd", "plugins-registry"}, m.Name)
		if m.ReadOnly == writes {
			t.Errorf("mount %s: readOnly is %t, want %t", m.Name, m.ReadOnly, !writes)
		}
	}
	// Only a privileged container can open nodes of the host.
	drops := c.SecurityContext.Capabilities != nil && slices.Contains(c.SecurityContext.Capabilities.Drop, "ALL")
	isPrivileged := c.SecurityContext.Privileged != nil && *c.SecurityContext.Privileged
	if drops == isPrivileged || isPrivileged != opensNodes {
		t.Errorf("privileged: %t, drops all capabilities: %t; opens nodes: %t", isPrivileged, drops, opensNodes)
	}
	for k, v := range d.Spec.Selector.MatchLabels {
		if d.Spec.Template.Labels[k] != v {
			t.Errorf("the pods' labels are %v, want %s=%s as in the selector", d.Spec.Template.Labels, k, v)
		}
	}
}

// The error for an invalid value names it, and says what to write instead of values that people type.
func TestChartRejects(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`{imag: {}}`:                        "imag",
		`{listen: {port: "9418"}}`:          "listen",
		`{paths: {run: run/generic-dp}}`:    "paths",
		`{allow: ["root"]}`:                 "allow",
		`{config: {generic-dp_tmol: ""}}`:   `config: "generic-dp_tmol" is not the name of a file: write config: {10-mine.toml: TEXT}`,
		`{defaultConfig: "no"}`:             "defaultConfig",
		`{image: {digest: sha256:0}}`:       "image",
		`{fullnameOverride: A_B}`:           "fullnameOverride",
		`{probes: {startup: 3}}`:            "probes",
		`{commonLabels: {a: 1}}`:            "commonLabels",
		`{serviceAccount: {token: true}}`:   "serviceAccount",
		`{extraArgs: [serve]}`:              "extraArgs",
		`{log: {level: loud}}`:              "log",
		`{cdi: {enable: true}}`:             "cdi",
		`{podMonitor: {enabled: "false"}}`:  "podMonitor",
		`{config: {resource: [{}]}}`:        "config",
		`{podMonitor: {timeout: 3s}}`:       "podMonitor",
		`{config: {domain: example.com}}`:   `config: "domain" is not the name of a file`,
		`{config: {sub/10-mine.toml: ""}}`:  `config: "sub/10-mine.toml" is not the name of a file`,
		`{serviceMonitor: {enabled: true}}`: "use podMonitor.enabled",
	} {
		if _, err := checkout.render(parseYAML(t, text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want an error that names %s", text, err, want)
		}
	}
}
