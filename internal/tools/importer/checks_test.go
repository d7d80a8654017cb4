package importer_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/generic-dp/generic-dp/internal/tools/importer"
	"github.com/generic-dp/generic-dp/matchers"
)

// akriConfiguration is a Configuration of Akri with rules.
func akriConfiguration(details string, rules ...string) string {
	text := "apiVersion: akri.sh/v0\nkind: Configuration\nmetadata: {name: found}\nspec:\n  capacity: 2\n  discoveryHandler:\n    name: udev\n    discoveryDetails: |\n      " + details + "\n      udevRules:\n"
	for _, rule := range rules {
		text += "      - '" + rule + "'\n"
	}
	return text
}

// The import offers the nodes that Akri discovers. Values with == are patterns of fnmatch for
// KERNEL, SUBSYSTEM, ATTR and ENV, and regular expressions for the other keys and most !=.
func TestAkriOffersTheSame(t *testing.T) {
	t.Parallel()
	snap, opts := recorded(t, "desktop-xhci")
	for _, test := range []struct {
		rules   []string
		details string
		none    bool
	}{
		{rules: []string{`KERNEL=="ttyUSB*"`}},
		{rules: []string{`KERNEL=="ttyUSB?"`}},
		{rules: []string{`KERNEL=="hidraw*"`, `KERNEL=="video[0-9]*"`}},
		{rules: []string{`KERNEL=="video[0-9]+"`}, none: true},
		{rules: []string{`KERNEL=="controlC*", SUBSYSTEM=="sound"`}},
		{rules: []string{`SUBSYSTEM=="s*nd"`}},
		{rules: []string{`SUBSYSTEM=="tty", ATTRS{idVendor}=="04(03|d8)"`}},
		{rules: []string{`SUBSYSTEM=="tty", ATTRS{idVendor}=="0403", ATTRS{idProduct}!="60.0"`}},
		{rules: []string{`KERNEL=="ttyUSB[!1-9]"`}},
		{rules: []string{`KERNEL!="ttyS[0-9]", SUBSYSTEM=="tty", ATTRS{idVendor}==".*"`}},
		{rules: []string{`ENV{DEVNAME}=="/dev/ttyUSB[01]"`}},
		{rules: []string{`SUBSYSTEM=="usb", ATTR{idVendor}=="046d"`}},
		{rules: []string{`SUBSYSTEM=="tty", ENV{ID_VENDOR_ID}=="10c4", ENV{ID_MODEL_ID}=="6001"`}},
		{rules: []string{`SUBSYSTEM=="tty", ENV{ID_SERIAL_SHORT}!="A10.*", ENV{ID_BUS}=="usb"`}},
	} {
		before, now := offered(t, akriConfiguration(test.details, test.rules...), snap, opts)
		if diff := cmp.Diff(before, now); diff != "" || (len(before) == 0) != test.none {
			t.Errorf("%q: (-Akri +imported):\n%s", test.rules, diff)
		}
	}
}

// The import offers the pools of k8s-rdma-shared-dev-plugin.
func TestRDMAOffersTheSame(t *testing.T) {
	t.Parallel()
	snap, opts := recorded(t, "rdma-hcas")
	for _, selectors := range []string{
		`"selectors": {"vendors": ["15b3"]}`,
		`"selectors": {"drivers": ["mlx5_core"], "linkTypes": ["ether"]}`,
		`"selectors": {"linkTypes": ["infiniband"]}`,
		`"selectors": {"ifNames": ["ib0"]}`,
		`"devices": ["ib0"]`,
	} {
		in := `{"configList": [{"resourceName": "hca", "rdmaHcaMax": 7, ` + selectors + `}]}`
		before, now := offered(t, in, snap, opts)
		if diff := cmp.Diff(before, now); diff != "" || len(before) == 0 {
			t.Errorf("%s: (-k8s-rdma-shared-dev-plugin +imported):\n%s", selectors, diff)
		}
	}
}

// The comparison finds the functions of sriov-network-device-plugin and KubeVirt by their
// addresses.
func TestFunctionsAreCompared(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name, machine, in string
		devices           int
	}{
		{
			name: "pools", machine: "server-two-socket", devices: 4,
			in: `{"resourceList": [{"resourceName": "dpdk", "selectors": {"drivers": ["vfio-pci"], "rootDevices": ["0000:3b:00.0#0-2"]}},
				{"resourceName": "rest", "selectors": {"vendors": ["8086"], "drivers": ["vfio-pci", "iavf"]}}]}`,
		},
		{
			name: "a host device", machine: "kubevirt-host", devices: 1,
			in: "permittedHostDevices: {pciHostDevices: [{pciVendorSelector: '10de:1eb8', resourceName: nvidia.com/T4}]}",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			snap, opts := recorded(t, test.machine)
			result, cfg := convert(t, test.in)
			var now []importer.Device
			for _, m := range matchers.Match(cfg, snap, nil, opts).Resources {
				for _, o := range m.Offers {
					now = append(now, importer.Offered(m.Name, &o))
				}
			}
			before := result.Before(snap, opts.Host.(host).Attributes)
			onlyBefore, onlyNow := importer.Compare(before, now)
			if len(onlyBefore)+len(onlyNow) > 0 {
				t.Errorf("only before: %q, only now: %q", onlyBefore, onlyNow)
			}
			if len(before) != test.devices {
				t.Errorf("%d devices, want %d: %v", len(before), test.devices, before)
			}
		})
	}
}

// Files of other kinds are named, with what to do.
func TestForeignFiles(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ name, in, want string }{
		{"a policy of the SR-IOV operator", "apiVersion: sriovnetwork.openshift.io/v1\nkind: SriovNetworkNodePolicy\nspec: {resourceName: nic, nicSelector: {vendor: '8086'}}\n", "is a SriovNetworkNodePolicy: "},
		{"NFD", "apiVersion: nfd.k8s-sigs.io/v1alpha1\nkind: NodeFeatureRule\nspec: {rules: [{name: a, labels: {a: b}, matchFeatures: [{feature: usb.device}]}]}\n", "is a rule of Node Feature Discovery: "},
		{"CDI", `{"cdiVersion": "0.6.0", "kind": "a.b/c", "devices": [{"name": "d", "containerEdits": {"deviceNodes": [{"path": "/dev/fuse"}]}}]}`, "is a CDI specification: "},
		{"alerts", "kind: PrometheusRule\nspec:\n  groups:\n  - name: gdp\n    rules:\n    - alert: Gone\n      annotations: {summary: '{{ $labels.resource }} is gone'}\n", "is a file of rules of Prometheus: "},
		{"LXC", "lxc.cgroup2.devices.allow = c 226:* rwm\nlxc.mount.entry = /dev/dri dev/dri none bind,optional,create=dir\n", "is a configuration of LXC, Incus or Proxmox: "},
		{"Incus", "devices:\n  stick:\n    type: unix-char\n    path: /dev/ttyUSB0\n", "is a configuration of LXC, Incus or Proxmox: "},
		{"Nomad", "job \"zigbee\" {\n  group \"a\" {\n    task \"b\" {\n      config {\n        devices = [{ host_path = \"/dev/ttyUSB0\" }]\n      }\n    }\n  }\n}\n", "is a job of Nomad: "},
		{"Nix", "{ config, lib, ... }:\n{\n  services.udev.enable = true;\n  environment.etc.a.text = ''\n    a\n  '';\n}\n", "is Nix: "},
		{"CUE", "package kube\n\nobjects: [\"a\"]: {\n\tspec: x: [...string] | *[]\n}\n", "is CUE: "},
		{"a README", "# A title\n\nText: with *stars*: and colons.\n\n- [a](https://example.com)\n", "is Markdown: "},
		{"a page of Sphinx", "Title\n=====\n\n.. code-block:: yaml\n\n   a: *b*: c\n", "is reStructuredText: "},
		{"a page with substitutions", "Title\n=====\n\n.. code-block:: yaml\n\n   spec:\n     version: |release|\n     config: '{\"configList\": []}'\n", "line 7: \"version: |release|\" is a template: "},
		{"a template of Nix", "{ lib, ... }:\n# a comment\n{\n  a = ''\n  '';\n}\n", "is Nix: "},
		{"a script in an object", "kind: ConfigMap\ndata:\n  setup.sh: |\n    #!/bin/sh\n    echo \"groups: a: b\"\n    groups: [\n", "no configuration of "},
		{"a program of Pulumi", "import * as k8s from \"@pulumi/kubernetes\";\n\nnew k8s.helm.v3.Chart(\"akri\", {\n  chart: \"akri-dev\",\n  values: {\n    udev: {\n      discoveryDetails: {\n        udevRules: [\n          'DRIVERS==\"cp210x\"'\n        ],\n      }\n    },\n  }\n}, { provider });\n", "is a program: "},
		{"Terraform", "resource \"a\" \"b\" {\n  c = \"d\"\n}\n", "is Terraform: "},
		{"a pod without devices", "kind: Pod\nspec:\n  containers:\n  - name: a\n    image: b\n", "is a pod without volumes of /dev: "},
		{"compose without devices", "services:\n  a:\n    image: b\n", "is a file of Docker Compose without devices: "},
		{"a unit without devices", "[Unit]\nDescription=a\n[Container]\nImage=b\n", "is a unit of Podman or systemd without devices: "},
	} {
		_, err := importer.Convert("in", []byte(test.in), importer.Options{})
		if err == nil || !strings.HasPrefix(err.Error(), "in: "+test.want) {
			t.Errorf("%s: %v, want %q", test.name, err, test.want)
		}
	}
}
