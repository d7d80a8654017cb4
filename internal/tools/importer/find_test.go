package importer_test

import (
	"strings"
	"testing"

	"github.com/generic-dp/generic-dp/internal/tools/importer"
)

// indent puts a text below a key, each line n columns to the right.
func indent(n int, text string) string {
	return strings.ReplaceAll(strings.TrimSpace(text), "\n", "\n"+strings.Repeat(" ", n))
}

// A configuration is found wherever it is in the tree, in texts too. The head says where.
func TestFind(t *testing.T) {
	t.Parallel()
	const device = `
name: tun
groups:
- count: 9
  paths: [{path: /dev/net/tun}]
`
	const devices = `
devices:
- name: tun
  groups:
  - count: 9
    paths: [{path: /dev/net/tun}]
`
	const list = "- {devicematch: ^net/tun$, nummaxdevices: 9}"
	for _, test := range []struct{ name, in, place, resource string }{
		{"arguments of a Flux HelmRelease", `
apiVersion: helm.toolkit.fluxcd.io/v2
kind: HelmRelease
metadata: {name: gdp}
spec:
  values:
    controllers:
      gdp:
        containers:
          app:
            image: {repository: ghcr.io/squat/generic-device-plugin, tag: 0.2.0@sha256:0123}
            args:
            - --device
            - |
              ` + indent(14, device), "HelmRelease/gdp spec.values.controllers.gdp.containers.app.args", "devic.es/tun"},
		{"ConfigMaps of a Flux HelmRelease", `
apiVersion: helm.toolkit.fluxcd.io/v2
kind: HelmRelease
metadata: {name: gdp}
spec:
  values:
    controllers: {gdp: {containers: {app: {image: {repository: ghcr.io/squat/generic-device-plugin, tag: 0.1.0}}}}}
    configMaps:
      config:
        data:
          config.yaml: |
            ` + indent(12, devices), "HelmRelease/gdp spec.values.configMaps.config.data.config.yaml", "squat.ai/tun"},
		{"helm.values of an Argo CD Application", `
apiVersion: argoproj.io/v1alpha1
kind: Application
metadata: {name: gdp}
spec:
  source:
    helm:
      values: |
        image: {repository: ghcr.io/squat/generic-device-plugin, tag: v0.2.1}
        config: |
          ` + indent(10, devices), "Application/gdp spec.source.helm.values.config", "devic.es/tun"},
		{"helm.valuesObject of an Argo CD Application", `
apiVersion: argoproj.io/v1alpha1
kind: Application
metadata: {name: smarter}
spec:
  source:
    helm:
      valuesObject:
        config:
        ` + indent(8, list), "Application/smarter spec.source.helm.valuesObject.config", "smarter-devices/net_tun"},
		{"values of a chart", `
gdp:
  image: {repository: ghcr.io/squat/generic-device-plugin, tag: arm64-0.2.0}
  config:
    data: |
      ` + indent(6, devices), "gdp.config.data", "devic.es/tun"},
		{"MicroShift", "genericDevicePlugin:\n  status: Enabled\n  " + indent(2, devices), "genericDevicePlugin", "device.microshift.io/tun"},
		{"MicroShift with USB devices", `
genericDevicePlugin:
  devices: [{name: key, groups: [{count: 9, usbs: [{vendor: "1050", product: "0407", serial: "1"}]}]}]`, "genericDevicePlugin", "device.microshift.io/key"},
		{"Kustomize patch in a text", `
kind: Kustomization
patches:
- target: {kind: DaemonSet}
  patch: |
    - op: replace
      path: /spec/template/spec/containers/0/args
      value:
      - --domain=example.com
      - --device
      - |
        ` + indent(8, device), "patches.patch.value", "example.com/tun"},
		{"Kustomize generator", `
configMapGenerator:
- name: smarter
  literals:
  - |-
    conf.yaml=` + indent(4, list), "configMapGenerator.literals.conf.yaml", "smarter-devices/net_tun"},
		{"Ansible variables", `
- hosts: all
  vars:
    smarter_config:
    ` + indent(4, list), "vars.smarter_config", "smarter-devices/net_tun"},
		{"Ansible tasks, with lists of groups that are others", `
- name: user
  user: {name: app, groups: [video, render]}
- name: plugin
  k8s:
    definition:
      kind: ConfigMap
      metadata: {name: smarter}
      data:
        conf.yaml: |
          ` + indent(10, list), "ConfigMap/smarter data.conf.yaml", "smarter-devices/net_tun"},
		{"a ConfigMap as kubectl prints it", `
kind: ConfigMap
metadata:
  name: smarter
  annotations:
    kubectl.kubernetes.io/last-applied-configuration: '{"data": {"conf.yaml": "- {devicematch: ^net/tun$, nummaxdevices: 9}"}, "kind": "ConfigMap"}'
data:
  conf.yaml: |
    ` + indent(4, list), "ConfigMap/smarter data.conf.yaml", "smarter-devices/net_tun"},
		{"a name in pods beside it", devices + "---\nspec: {containers: [{resources: {limits: {squat.ai/tun: 1}}}]}", "", "squat.ai/tun"},
		{"inline manifests of a Talos machine", `
machine: {type: worker, kernel: {modules: [{name: tun}]}}
cluster:
  inlineManifests:
  - name: gdp
    contents: |
      ---
      kind: DaemonSet
      metadata: {name: gdp}
      spec:
        template:
          spec:
            containers:
            - image: ghcr.io/squat/generic-device-plugin:0.2.1
              args: [--device, "{name: tun, groups: [{count: 9, paths: [{path: /dev/net/tun}]}]}"]`, "DaemonSet/gdp spec.template.spec.containers.args", "devic.es/tun"},
		{"charts of a k0s cluster", `
kind: ClusterConfig
metadata: {name: k0s}
spec:
  extensions:
    helm:
      charts:
      - name: smarter
        values: |
          config:
          ` + indent(10, list), "ClusterConfig/k0s spec.extensions.helm.charts.values.config", "smarter-devices/net_tun"},
		{"a HelmChart of k3s, without the image's repository", `
kind: HelmChart
metadata: {name: gdp}
spec:
  valuesContent: |-
    image: {tag: "0.2.0"}
    config:
      data: |
        ` + indent(8, devices), "HelmChart/gdp spec.valuesContent.config.data", "devic.es/tun"},
		{"devices beside other values of a chart", `
image: {repository: ghcr.io/squat/generic-device-plugin, tag: 0.2.0, pullPolicy: Always}
args: [--log-level=info, --domain, lab.example]
` + devices, "devices", "lab.example/tun"},
		{"a list of device beside them", "image: squat/generic-device-plugin:0.2.0\n" + strings.Replace(devices, "devices:", "device:", 1), "device", "devic.es/tun"},
		{"a chart with a name of its own for the domain", "deviceDomain: devic.es\nconfig:\n  data: |\n    " + indent(4, devices), "config.data", "devic.es/tun"},
		{"Terraform in JSON", `{"resource": {"kubernetes_daemonset": {"gdp": {"spec": {"template": {"spec": {"container": [{
			"image": "squat/generic-device-plugin:0.1.1",
			"args": ["--device", "name: tun\ngroups:\n- count: 9\n  paths:\n  - path: /dev/net/tun\n"]}]}}}}}}}`,
			"resource.kubernetes_daemonset.gdp.spec.template.spec.container.args", "squat.ai/tun"},
		{"the state of Pulumi, which has everything twice", `{"deployment": {"resources": [{
			"inputs": {"data": {"c.json": "{\"configList\": [{\"resourceName\": \"tun\", \"rdmaHcaMax\": 9, \"devices\": [\"eth1\"]}]}"}},
			"outputs": {"data": {"c.json": "{\"configList\": [{\"resourceName\": \"tun\", \"rdmaHcaMax\": 9, \"devices\": [\"eth1\"]}]}"}}}]}}`,
			"deployment.resources.inputs.data.c.json, deployment.resources.outputs.data.c.json", "rdma/tun"},
		{"a service of Docker Compose", `
services:
  gdp:
    image: squat/generic-device-plugin:0.2.0
    command: [--domain=lab.example, '--device={"name": "tun", "groups": [{"count": 9, "paths": [{"path": "/dev/net/tun"}]}]}']`,
			"services.gdp.args", "lab.example/tun"},
		{"a command line", `
services:
  gdp:
    command: --domain lab.example --log-level=info --device '{"name":"tun","groups":[{"count":9,"paths":[{"path":"/dev/net/tun"}]}]}'`,
			"services.gdp.command", "lab.example/tun"},
		{"a script", `
containers:
- image: squat/generic-device-plugin:0.2.0
  command: [sh, -c]
  args:
  - |
    set -e
    exec generic-device-plugin --device="{\"name\":\"tun\",\"groups\":[{\"count\":9,\"paths\":[{\"path\":\"/dev/net/tun\"}]}]}" --listen :8080`,
			"containers.args", "devic.es/tun"},
		{"JSON with tabs", "{\n\t\"devices\": [\n\t\t{\"name\": \"tun\", \"groups\": [{\"count\": 9, \"paths\": [{\"path\": \"/dev/net/tun\"}]}]}],\n\t\"domain\": \"example.com\"}", "", "example.com/tun"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			result, cfg := convert(t, test.in)
			if len(cfg.Resources) != 1 || cfg.Resources[0].Name != test.resource || cfg.Resources[0].Count != 9 || len(result.Warnings) != 0 {
				t.Errorf("want %s with 9 slots and no warning:\n%s%s", test.resource, result.TOML, result.Warnings)
			}
			head, _, _ := strings.Cut(string(result.TOML), "\n\n")
			place := " (" + test.place + ")"
			if test.place == "" {
				place = ""
			}
			if got := strings.ReplaceAll(head, "\n#  ", ""); !strings.HasPrefix(got, "# Imported from in"+place+", a configuration of ") {
				t.Errorf("want the place %q in:\n%s", test.place, head)
			}
		})
	}
}

// The domain is what the version of the image has by default. Without a version it is
// unknown, unless a pod requests the resource.
func TestDefaultDomain(t *testing.T) {
	t.Parallel()
	for image, want := range map[string]string{
		"ghcr.io/squat/generic-device-plugin:0.1.0":                     "squat.ai",
		"ghcr.io/squat/generic-device-plugin:v0.1":                      "squat.ai",
		"squat/generic-device-plugin:0.2.0@sha256:66c8":                 "devic.es",
		"registry:5000/squat/generic-device-plugin:amd64-1.10.2":        "devic.es",
		"squat/generic-device-plugin:36bfc606bba2064de6ede0ff2764cbb52": "",
		"squat/generic-device-plugin:amd64-a3d6f47":                     "",
		"squat/generic-device-plugin:latest":                            "",
		"squat/generic-device-plugin:latest@sha256:dc19":                "",
		"squat/generic-device-plugin":                                   "",
		"example.com/other:0.2.0":                                       "",
	} {
		in := "spec:\n  containers:\n  - image: " + image + "\n    args: ['--device={name: tun, groups: [{paths: [{path: /dev/net/tun}]}]}']\n"
		if want == "" {
			_, err := importer.Convert("in", []byte(in), importer.Options{})
			if err == nil || err.Error() != unknownDomain {
				t.Errorf("%s: %v, want %s", image, err, unknownDomain)
			}
			continue
		}
		result, _ := convert(t, in)
		if !strings.Contains(string(result.TOML), "domain = \""+want+"\"\n") || len(result.Warnings) > 0 {
			t.Errorf("%s: want %s:\n%s%s", image, want, result.TOML, result.Warnings)
		}
	}
}

// Where no version tells the domain, the pods tell it: in the input, or in the files beside
// it, if they agree.
func TestRequestedDomain(t *testing.T) {
	t.Parallel()
	const devices = "devices:\n- {name: tun, groups: [{paths: [{path: /dev/net/tun}]}]}\n"
	for _, test := range []struct {
		name, beside string
		files        map[string]string
		want         string
	}{
		{"a pod in the input", "---\nspec: {containers: [{resources: {limits: {lab.example/tun: 1}}}]}", nil, "lab.example"},
		{"a pod beside it", "", map[string]string{"a.yaml": "resources:\n  limits:\n    squat.ai/tun: 1\n    squat.ai/other: 1\n"}, "squat.ai"},
		{"JSON beside it", "", map[string]string{"a.json": `{"limits":{"devic.es/tun":"1"}}`}, "devic.es"},
		{"pods that disagree", "", map[string]string{"a.yaml": "limits: {squat.ai/tun: 1}\n", "b.yaml": "limits: {devic.es/tun: 1}\n"}, ""},
		{"another resource", "", map[string]string{"a.yaml": "limits: {squat.ai/kvm: 1}\n"}, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			o := importer.Options{Neighbours: func() map[string]string { return test.files }}
			result, err := importer.Convert("in", []byte(devices+test.beside), o)
			if test.want == "" {
				if err == nil || err.Error() != unknownDomain {
					t.Errorf("%v, want %s", err, unknownDomain)
				}
				return
			}
			if err != nil || !strings.Contains(string(result.TOML), "domain = \""+test.want+"\"\n") {
				t.Errorf("want %s: %v", test.want, err)
			}
		})
	}
}

// Two workloads with one name: both if they are on nodes with names, else the second is
// left to the reader; once if they are the same.
func TestTwoWorkloads(t *testing.T) {
	t.Parallel()
	workload := func(selector, count string) string {
		return `
kind: DaemonSet
spec:
  template:
    spec:
      nodeSelector: {` + selector + `}
      containers:
      - args: [--domain=example.com, --device, '{name: gpu, groups: [{count: ` + count + `, paths: [{path: /dev/dri}]}]}']
---`
	}
	for _, test := range []struct {
		name, in string
		want     []string
		warnings int
	}{
		{"names of nodes", workload("kubernetes.io/hostname: a", "4") + workload("kubernetes.io/hostname: b", "2"), []string{"\ncount = 4", "\nwhen.node_name = \"a\"", "\ncount = 2", "\nwhen.node_name = \"b\""}, 0},
		{"labels", workload("gpu: big", "4") + workload("gpu: small", "2"), []string{"\ncount = 4", "\n# count = 2", "# Deploy generic-dp to the same nodes as before, with the labels gpu=small."}, 1},
		{"a name twice in one", "domain: example.com\ndevices:\n- {name: gpu, groups: [{paths: [{path: /dev/kfd}]}]}\n- {name: gpu, groups: [{paths: [{path: /dev/fuse}]}]}\n", []string{"\nmatch.glob = \"/dev/kfd\"", "\n# match.glob = \"/dev/fuse\""}, 1},
		{"the same", workload("gpu: big", "4") + workload("gpu: small", "4"), []string{"\ncount = 4"}, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			result, _ := convert(t, test.in)
			for _, want := range test.want {
				if !strings.Contains(string(result.TOML), want) {
					t.Errorf("want %q in:\n%s", want, result.TOML)
				}
			}
			if len(result.Warnings) != test.warnings {
				t.Errorf("want %d warnings: %s", test.warnings, result.Warnings)
			}
		})
	}
}

// YAML and JSON in a file of another language are imported, with a warning, since what is
// between them is not understood.
func TestEmbedded(t *testing.T) {
	t.Parallel()
	const list = "- devicematch: ^fuse$ # all of them\n  nummaxdevices: 9\n"
	for _, test := range []struct{ name, in string }{
		{"Terraform", "resource \"kubernetes_config_map\" \"a\" {\n  metadata { name = \"a\" }\n  data = {\n    \"conf.yaml\" = <<CONF\n" + list + "CONF\n  }\n}\n\nresource \"b\" \"b\" {\n  labels = {\n    app: \"b\"\n  }\n}\n"},
		{"Terraform, indented", "resource \"helm_release\" \"a\" {\n  values = [<<-EOT\n    config:\n      " + indent(6, list) + "\n    EOT\n  ]\n}\n"},
		{"Nix", "{ config, ... }: {\n  services.k3s.manifests.a.content.data.\"conf.yaml\" = ''\n    " + indent(4, list) + "\n  '';\n}\n"},
		{"a shell script", "#!/bin/sh\nset -e\ncat <<EOF | kubectl apply -f -\napiVersion: v1\nkind: ConfigMap\ndata:\n  conf.yaml: |\n    " + indent(4, list) + "\nEOF\nkubectl get nodes -o wide\r\n"},
		{"Markdown", "# Devices\n\nNote: *nine* containers.\n\n```yaml\n" + list + "```\n\n- `/dev/fuse`: the node\n"},
	} {
		result, cfg := convert(t, test.in)
		if len(cfg.Resources) != 1 || cfg.Resources[0].Name != "smarter-devices/fuse" || cfg.Resources[0].Count != 9 {
			t.Errorf("%s: want fuse with 9 slots:\n%s", test.name, result.TOML)
		}
		if len(result.Warnings) != 1 || !strings.Contains(result.Warnings[0], "in: Imported from the YAML and the command lines in it, since the whole is not YAML: line ") {
			t.Errorf("%s: warnings %q", test.name, result.Warnings)
		}
	}
	for _, test := range []struct{ name, in, want string }{
		{"what is wrong in it", "# Devices\n\n```yaml\n- devicematch: ^fuse$\n nummaxdevices: 9\n```\n", "in: line 4: invalid YAML: "},
		{"nothing in it", "# Devices\n\n```\nexec: true\n```\n", "in: is Markdown: no configuration of a device plugin was found in it: "},
		{"a key twice", "devices:\n- {name: tun, groups: [{paths: [{path: /dev/net/tun}]}]}\ndevices:\n- {name: kvm, groups: [{paths: [{path: /dev/kvm}]}]}\n", `mapping key "devices" already defined at line 1`},
	} {
		if _, err := importer.Convert("in", []byte(test.in), importer.Options{}); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, want %q", test.name, err, test.want)
		}
	}
}
