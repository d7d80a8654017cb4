package importer_test

import (
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"

	"github.com/generic-dp/generic-dp/config"
	"github.com/generic-dp/generic-dp/internal/tools/importer"
)

var update = flag.Bool("update", false, "rewrite the results in testdata/golden")

// The files of an archive in testdata/golden in addition to the input.
const (
	wantTOML     = "want.toml"
	wantWarnings = "want.warnings"
)

// Each archive has an input and its result, which is a valid configuration.
func TestGolden(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/golden/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("archives: %v, %v", files, err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			t.Parallel()
			archive, err := txtar.ParseFile(file)
			if err != nil {
				t.Fatal(err)
			}
			input := archive.Files[0]
			result, err := importer.Convert(input.Name, input.Data, importer.Options{})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := config.Parse(config.File{Name: "imported.toml", Data: result.TOML}); err != nil {
				t.Errorf("the result is refused: %v\n%s", err, result.TOML)
			}
			got := []txtar.File{
				{Name: wantTOML, Data: result.TOML},
				{Name: wantWarnings, Data: []byte(strings.Join(append(result.Warnings, ""), "\n"))},
			}
			if *update {
				archive.Files = append(archive.Files[:1:1], got...)
				if err := os.WriteFile(file, txtar.Format(archive), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			if diff := cmp.Diff(archive.Files[1:], got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// unknownDomain is reported for devices whose domain nothing tells.
const unknownDomain = `in: the domain of the resources is unknown: the default was "squat.ai" before version 0.2.0 of generic-device-plugin and is "devic.es" since, and no image with a version and no pod that requests them was found: import with --domain=squat.ai or --domain=devic.es`

// All problems of an input are reported, by line, with place, value and rule.
func TestProblems(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name, in string
		format   importer.Format
		want     []string
	}{
		{
			name: "squat: values", in: `devices:
- name: A
  groups:
  - count: many
    paths:
    - path: dev/x
      mountPath: x/
      permissions: rx
      type: Link
      optional: perhaps
    - limit: 2
    usb: [{vendor: 10c4}, {vendor: 10c4, product: ea60}]
- groups: {}
- {name: ok, groups: [{usb: [{vendor: "10cz", product: ea60}]}]}
`,
			want: []string{
				unknownDomain,
				`in: line 2: device 1 ("A"): name: "A" is not a valid name of a device: use at least two lower-case letters, digits and "-", beginning and ending with a letter or digit`,
				`in: line 4: device 1 ("A"): group 1: count: "many": want a number such as 10`,
				`in: line 4: device 1 ("A"): group 1: sets both paths and usb: only one of them is allowed`,
				`in: line 6: device 1 ("A"): group 1: path 1: path: "dev/x" is not an absolute, clean path such as "/dev/ttyUSB*"`,
				`in: line 7: device 1 ("A"): group 1: path 1: mountPath: "x/" is not an absolute, clean path such as "/dev/zigbee"`,
				`in: line 8: device 1 ("A"): group 1: path 1: permissions: "rx": want some of "r", "w" and "m", each once`,
				`in: line 9: device 1 ("A"): group 1: path 1: type: "Link": want "Device" or "Mount"`,
				`in: line 10: device 1 ("A"): group 1: path 1: optional: "perhaps": want true or false`,
				`in: line 11: device 1 ("A"): group 1: path 2: the path is missing`,
				`in: line 13: device 2: groups: a mapping: want a list`,
				`in: line 13: device 2: the name is missing`,
				`in: line 14: device 3 ("ok"): group 1: usb 1: vendor: "10cz" is not a hexadecimal ID: want four digits such as "10c4"`,
			},
		},
		{
			name: "squat: no path at all", in: "devices: [{name: app, groups: [{paths: [1]}, {paths: [{path: x}]}]}]",
			want: []string{
				`in: line 1: device 1 ("app"): group 1: path 1: "1": want a mapping`,
				`in: line 1: device 1 ("app"): group 2: path 1: path: "x" is not an absolute, clean path such as "/dev/ttyUSB*"`,
			},
		},
		{
			name: "squat: nothing that can be imported", in: "devices: [{name: app, groups: [{paths: [{path: /run/app}]}]}]",
			want: []string{
				`in: nothing in it can be imported`,
				`in: device 1 ("app"): group 1: path 1: not imported: "/run/app" as a device: device nodes are below /dev`,
				`in: device 1 ("app"): not imported: no paths and no usb to select`,
			},
		},
		{
			name: "squat: domain", in: "domain: Squat\ndevices: [{name: fuse, groups: [{paths: [{path: /dev/fuse}]}]}]",
			want: []string{`in: line 2: device 1 ("fuse"): "Squat" is not a valid domain of a resource: use a DNS subdomain such as "example.com"`},
		},
		{
			name: "squat: a flag without a value", in: "[--device]",
			want: []string{`in: line 1: item 1: --device without a value`},
		},
		{
			name: "smarter", format: importer.Smarter, in: "- devicematch: ^video[0-9\n  nummaxdevices: -1\n- nummaxdevices: 1\n- x\n",
			want: []string{
				"in: line 1: entry 1 (\"^video[0-9\"): devicematch: error parsing regexp: missing closing ]: `[0-9`",
				`in: line 2: entry 1 ("^video[0-9"): nummaxdevices: "-1": want a number such as 10`,
				`in: line 3: entry 2: devicematch is missing: set a regular expression such as "^video[0-9]*$"`,
				`in: line 4: entry 3: "x": want a mapping`,
			},
		},
		{
			name: "sriov", in: `{"resourceList": [
{"resourceName": "a b", "resourcePrefix": "x_y", "deviceType": "gpu", "selectors": [
  {"vendors": "8086"},
  {"devices": ["x"], "pciAddresses": ["3b:00.0"], "pfNames": ["eth0#1-"], "isRdma": true, "vdpaType": "vhost"}]},
{"resourceName": "n"},
{"resourceName": "n", "resourceName": "m", "selectors": {}}]}`,
			want: []string{
				`in: line 2: resource 1 ("a b"): deviceType: "gpu": want one of ["netDevice" "accelerator" "auxNetDevice"]`,
				`in: line 2: resource 1 ("a b"): "x_y" is not a valid domain of a resource: use a DNS subdomain such as "example.com"`,
				`in: line 3: resource 1 ("a b"): selector 1: vendors: "8086": want a list of strings`,
				`in: line 4: resource 1 ("a b"): selector 2: devices: "x": want four hexadecimal digits`,
				`in: line 4: resource 1 ("a b"): selector 2: pciAddresses: "3b:00.0": want an address such as "0000:3b:02.1"`,
				`in: line 4: resource 1 ("a b"): selector 2: pfNames: "eth0#1-": want a network interface, with or without virtual functions: "ens1f0#0,2-7"`,
				`in: line 4: resource 1 ("a b"): selector 2: sets both isRdma and vdpaType: only one of them is allowed`,
				`in: line 5: resource 2 ("n"): selectors are missing: at least one is required`,
				`in: line 6: resource 3: mapping key "resourceName" already defined at line 6`,
			},
		},
		{
			name: "rdma", in: `{"configList": [{"resourcePrefix": "x_y", "resourceName": "a", "rdmaHcaMax": 1, "devices": ["ib0"]},
{"resourceName": "-", "rdmaHcaMax": 1, "devices": ["ib0"]},
{"resourceName": "all", "rdmaHcaMax": 1},
{"resourceName": "none", "rdmaHcaMax": 1, "selectors": {"vendors": []}},
{"resourceName": "both", "rdmaHcaMax": 1, "devices": ["ib0"], "selectors": {"vendors": ["15b3"]}}]}`,
			want: []string{
				`in: line 1: resource 1 ("a"): "x_y" is not a valid domain of a resource: use a DNS subdomain such as "example.com"`,
				`in: line 2: resource 2 ("-"): "-" is not a valid name of a resource: use at most 63 letters, digits, "-", "_" and ".", beginning and ending with a letter or digit`,
				`in: line 3: resource 3 ("all"): sets neither selectors nor devices: one of them is required`,
				`in: line 4: resource 4 ("none"): sets neither selectors nor devices: one of them is required`,
				`in: line 5: resource 5 ("both"): sets both selectors and devices: only one of them is allowed`,
			},
		},
		{name: "sriov: no resources", in: `{"resourceList": []}`, want: []string{`in: line 1: resourceList is empty: at least one resource is required`}},
		{
			name: "sriov: selectors and information", in: `{"resourceList": [
{"selectors": 1, "additionalInfo": {"*": 1}, "resourceName": "n"},
{"selectors": [{"vdpaType": "x", "vendors": [""], "linkTypes": [{}]}], "resourceName": "n"}]}`,
			want: []string{
				`in: line 2: resource 1 ("n"): selectors: "1": want a selector or a list of them`,
				`in: line 2: resource 1 ("n"): additionalInfo: want keys and strings for PCI addresses and "*"`,
				`in: line 3: resource 2 ("n"): selector 1: vendors: an empty string is not allowed`,
				`in: line 3: resource 2 ("n"): selector 1: linktype 1: a mapping: want a string`,
				`in: line 3: resource 2 ("n"): selector 1: vendors: "": want four hexadecimal digits`,
				`in: line 3: resource 2 ("n"): selector 1: vdpaType: "x": want "vhost" or "virtio"`,
			},
		},
		{
			name: "texts", in: "devices:\n- name: ab\n  NAME: cd\n  groups:\n  - paths: [{path: \"/dev/a\\tb\"}, {path: /dev/" + strings.Repeat("x", 256) + "}]\n",
			want: []string{
				`in: line 3: device 1 ("ab"): NAME: is set twice`,
				`in: line 5: device 1 ("ab"): group 1: path 1: path: "/dev/a\tb": only printable characters are allowed`,
				`in: line 5: device 1 ("ab"): group 1: path 1: the path is missing`,
				`in: line 5: device 1 ("ab"): group 1: path 2: path: "/dev/xxxxxxxxxxxxxxx"... is too long: the limit is 256 bytes`,
				`in: line 5: device 1 ("ab"): group 1: path 2: the path is missing`,
			},
		},
		{name: "an anchor that contains itself", in: "a: &a [*a]\n", want: []string{`in: line 1: invalid YAML: anchor 'a' value contains itself`}},
		{name: "a long mapping", in: "a: {" + strings.Repeat("a: 1,", 1001) + "}\n", want: []string{`in: line 1: invalid YAML: more than 1000 keys`}},
		{
			name: "a Helm template", in: "kind: ConfigMap\ndata:\n  # {{ a comment }}\n  conf.yaml: |\n    {{- toYaml .Values.config | nindent 4 }}\n",
			want: []string{`in: line 5: "{{- toYaml .Values.config | nindent 4 }}" is a template: import what it renders, such as the output of helm template`},
		},
		{
			name: "a template in a text", in: "data:\n  conf.yaml: |\n    - devicematch: ^fuse$\n      nummaxdevices: {{ .Values.max }}\n",
			want: []string{`in: line 4: "nummaxdevices: {{ .Values.max }}" is a template: import what it renders, such as the output of helm template`},
		},
		{
			name: "a template in a value", in: "devices:\n- name: '{{ name }}'\n  groups: [{paths: [{path: /dev/fuse}]}]\n",
			want: []string{`in: line 2: "{{ name }}" is a template: import what it renders, such as the output of helm template`},
		},
		{
			name: "a file elsewhere", in: "containers: [{args: [--config=/config/config.yaml]}]",
			want: []string{`in: no configuration of a device plugin that import knows found: the arguments name the file /config/config.yaml, import that`},
		},
		{
			name: "another format than requested", format: importer.Squat, in: "- devicematch: ^fuse$\n",
			want: []string{`in: line 1: is a configuration of smarter-device-manager: want generic-device-plugin only`},
		},
		{
			name: "rdma: an empty name", in: `{configList: [{resourceName: a, rdmaHcaMax: 1, selectors: {ifNames: [" "]}}]}`,
			want: []string{`in: line 1: resource 1 ("a"): selectors: ifNames: an empty string is not allowed`},
		},
		{
			name: "rdma: an ID", in: `{configList: [{resourceName: a, rdmaHcaMax: 1, selectors: {deviceIDs: ["0x101Z"]}}]}`,
			want: []string{`in: line 1: resource 1 ("a"): selectors: deviceIDs: "0x101Z": want four hexadecimal digits`},
		},
		{
			name: "akri: nothing to discover", in: "{apiVersion: akri.sh/v0, kind: Configuration, spec: {capacity: 1}}",
			want: []string{`in: line 1: configuration 1: discoveryDetails is missing: udevRules are required`},
		},
		{name: "not YAML", in: "a: [1\nb", want: []string{`in: line 2: invalid YAML: did not find expected ',' or ']'`}},
		{name: "our own", in: "domain = \"a.b\"\n[[resource]]\nname: [\n", want: []string{`in: is a configuration of generic-dp: it needs no import: see generic-dp check`}},
		{name: "nothing", in: "a: 1\n", want: []string{`in: no configuration of a device plugin that import knows found`}},
		{name: "empty", in: "", format: importer.SRIOV, want: []string{`in: no configuration of sriov-network-device-plugin found`}},
		{name: "no format", format: "intel", want: []string{`unknown format "intel": want one of ["auto" "squat" "smarter" "sriov" "rdma" "kubevirt" "akri" "nvidia" "compose" "quadlet" "pod" "udev"]`}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			result, err := importer.Convert("in", []byte(test.in), importer.Options{Format: test.format})
			var problems importer.Problems
			if result != nil || !errors.As(err, &problems) {
				t.Fatalf("Convert() = %v, %v, want nil and Problems", result, err)
			}
			if diff := cmp.Diff(test.want, strings.Split(problems.Error(), "\n")); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// An input is rejected or becomes a valid configuration.
func FuzzConvert(f *testing.F) {
	files, err := filepath.Glob("testdata/golden/*.txtar")
	if err != nil {
		f.Fatal(err)
	}
	for _, file := range files {
		archive, err := txtar.ParseFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(string(archive.Files[0].Data))
	}
	for _, s := range []string{
		`[{devicematch: "(?i)^[\x00-\x{10ffff}]{0,9}|a**$", nummaxdevices: 1}]`,
		`{name: ab, groups: [{paths: [{path: '/dev/\[{}[\]^-a]?'}]}]}`,
		"a: &a {<<: *a, name: x, groups: *a}",
		"[{devicematch: '.*a.*b.*c.*d.*e.*f.*g.*h.*i', nummaxdevices: 2}]",
		`{configList: [{resourceName: a, rdmaHcaMax: 1, selectors: {deviceIDs: ["0x101B"], linkTypes: ["a b"], ifNames: ["["]}}]}`,
		"[{devicematch: '^( |a)$', nummaxdevices: 1}, {devicematch: '^snd/ |^b$', nummaxdevices: 1}]",
		"permittedHostDevices: {usb: [{resourceName: intel.com/10g, selectors: [{vendor: 8086, product: '1563'}]}]}",
		`{discoveryDetails: {udevRules: ['ATTR{idVendor}!="0"', 'ENV{DEVNAME}=="/sys/x"', 'SUBSYSTEM=="|usb"', 'SUBSYSTEM=="pci", ATTR{class}=="0x03000", ATTR{vendor}=="g*"']}}`,
		"{akri: {discoveryDetails: {udevRules: ['KERNEL==\"a.*\", ATTR{b}!=\"[\"']}}}",
		"services: {a: {devices: [\"/dev/\\x01\", /dev/a:/dev/b/../c:rr, {source: /dev/x, target: y}]}}",
		"SUBSYSTEM==\"tty|\", ATTRS{idVendor}==\"![\", SYMLINK+=\"a/../b c\", MODE=\"x\"\n",
		"ATTR{0}!=\"0\"TAG=\"\"\nAA=\"\xf9\"SYMLINK= \"\"",
		"usB:\n- seleCtors:\n  - {vendor: 0,produCt-: 0}",
		"[Container]\nAddDevice=0/0=0",
		"[Container]\nAddDevice=-/dev/a:b\nAddDevice=a/b=c\nVolume=/dev/shm:/x\nPodmanArgs=--device /dev/\\\n",
		"helm install a --set udev.udevRules[0]='KERNEL==\"a\\,b\"',udev.udevRules[x]=1 --set a[1.b=c\n",
		"docker run --device /dev/a --device=/dev/b:/c:m 'x\n",
		"[{devicematch: '^snd/()?$', nummaxdevices: 2}, {devicematch: '^snd/(a|)$', nummaxdevices: 2}, {devicematch: '^(a|){2}$', nummaxdevices: 2}]",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, in string) {
		result, err := importer.Convert("in", []byte(in), importer.Options{})
		if (result == nil) == (err == nil) {
			t.Fatalf("Convert(%q) = %v, %v", in, result, err)
		}
		if err != nil {
			return
		}
		if _, err := config.Parse(config.File{Name: "imported.toml", Data: result.TOML}); err != nil {
			t.Fatalf("the result of %q is refused: %v\n%s", in, err, result.TOML)
		}
	})
}
