package importer

import (
	"fmt"
	"regexp"
)

// Most files that users try first are not configurations of a device plugin, although they are
// about devices. A message of the YAML library does not help them: these kinds get a message
// that says what to import instead.

// foreign is a kind of file that import recognizes and does not convert.
type foreign struct {
	// what it is, after "is ".
	what string
	// text is an expression that its text has.
	text string
	// advice says what to do instead.
	advice string
	// language is set for languages in which a configuration may be embedded. Comments of
	// YAML look like headings of Markdown: a language is only tested where YAML was not
	// understood.
	language bool
}

// foreignKinds are the kinds in the order in which they are tested: files of one kind of
// object before languages, in which the objects may be embedded.
var foreignKinds = []foreign{
	{
		// The operator configures the functions by the policy, and renders a key of the
		// ConfigMap for each node.
		what:   "a SriovNetworkNodePolicy",
		text:   `(?m)^\s*kind:\s*["']?SriovNetworkNodePolicy`,
		advice: "the SR-IOV operator writes a configuration of sriov-network-device-plugin from it: import that ConfigMap, device-plugin-config, as kubectl get configmap -o yaml prints it",
	},
	{
		// Rules match the same attributes of PCI and USB devices as ours, but make labels.
		what:   "a rule of Node Feature Discovery",
		text:   `(?m)^\s*kind:\s*["']?NodeFeature(Rule|Group)|matchFeatures:`,
		advice: "it only labels nodes; select the same hardware with pci.id or usb.id in a match, or write one with generic-dp init",
	},
	{
		// A specification says what a container gets, and not which pods may request it.
		what:   "a CDI specification",
		text:   `["']?cdiVersion["']?\s*:`,
		advice: `keep it, and offer its devices with match.cdi_device = "KIND=*"`,
	},
	{
		what:   "a file of rules of Prometheus",
		text:   `(?m)^\s*kind:\s*["']?PrometheusRule|^\s*- alert:|^\s*- record:`,
		advice: "it has no devices; see the metrics of generic-dp in docs/metrics.md",
	},
	{
		// LXC permits nodes by number, Incus and Proxmox name their paths.
		what:   "a configuration of LXC, Incus or Proxmox",
		text:   `(?m)^\s*lxc\.(cgroup2?\.devices|mount\.entry)|^\s*type:\s*["']?unix-(char|block|hotplug)|^dev[0-9]+:\s*/dev/`,
		advice: `write a resource for each device, with its path as match.glob, or let generic-dp init write one`,
	},
	{
		// Nomad has device plugins of its own, and host_path for its drivers.
		what:   "a job of Nomad",
		text:   `(?m)^\s*job\s+"[^"]+"\s*\{|"?TaskGroups"?\s*:`,
		advice: `write a resource for each device or host_path, with the path as match.glob, or let generic-dp init write one`,
	},
	{
		what:   "a claim or class of Dynamic Resource Allocation",
		text:   `(?m)^\s*kind:\s*["']?(ResourceClaim|DeviceClass|ResourceSlice)`,
		advice: `it selects devices of a driver; generic-dp offers devices to claims with api = "dra"`,
	},
	{
		what:   "a file of Docker Compose without devices",
		text:   `(?m)^services:\s*$`,
		advice: "import a file whose services have devices, or volumes below /dev; for GPUs of Docker's drivers (gpus, deploy.resources), see docs/devices.md",
	},
	{
		what:   "a unit of Podman or systemd without devices",
		text:   `(?m)^\[(Container|Service|Unit)\]\s*$`,
		advice: "import a unit with AddDevice",
	},
	{
		what:   "a text with udev rules in it",
		text:   `(?m)^\s*(SUBSYSTEM|ACTION|KERNEL|ATTRS?\{\w+\})[!=]="`,
		advice: "import a file of rules only; the conditions of a rule are keys of match: usb.id, usb.serial, subsystem, attr",
	},
	{
		// Somebody has imported the result.
		what:   "a configuration of generic-dp",
		text:   `(?m)^\[\[resource\]\]`,
		advice: "it needs no import: see generic-dp check",
	},
	{
		what:   "a pod without volumes of /dev",
		text:   `(?m)^\s*-?\s*["']?containers["']?:`,
		advice: "import the configuration of a device plugin, or a pod with hostPath volumes of devices",
	},
	{what: "a program", text: `(?m)^#!.*\b(python|perl|node|ruby)|^func |^import \($|^(import|from) [\w.]+( import .*)?$|^import .* from ["']|^#include |^(pub )?(fn|use|mod|struct) .*[;{(]$`, language: true},
	{what: "Nix", text: `(?m)^\s*\{[^{}:]*\.\.\.\s*\}:|^\s*(with|inherit) [\w.]+;|=\s*''\s*$`, language: true},
	{what: "CUE", text: `(?m)^package \w+\s*$[\s\S]*^\w[\w-]*:\s*[\w"{\[]`, language: true},
	{what: "Terraform", text: `(?m)^(resource|module|provider|variable|terraform|locals|data)\b[^:=]*\{`, language: true},
	{what: "Jsonnet", text: `(?m)^local \w+ = |::\s*\{`, language: true},
	{what: "a shell script", text: `(?m)\A#!.*sh\b`, language: true},
	{what: "HTML or XML", text: `(?i)\A\s*<(!doctype|html|\?xml)`, language: true},
	{what: "reStructuredText", text: `(?m)^\.\. [\w-]+::`, language: true},
	{what: "Markdown", text: "(?m)^#{2,6} [A-Z0-9]|^```|\\]\\(https?://", language: true},
}

// adviceRender is the advice for languages in which a configuration may be embedded.
const adviceRender = "no configuration of a device plugin was found in it: import the YAML or JSON alone, or what it renders"

// foreignKind says what the input is and what to do with it, if it is recognizably no
// configuration of a device plugin. Languages are only tested if the input is not YAML.
func (c *conversion) foreignKind(isYAML bool) string {
	for _, f := range foreignKinds {
		if f.language && isYAML || !regexp.MustCompile(f.text).MatchString(c.text) {
			continue
		}
		advice := f.advice
		if f.language {
			advice = adviceRender
		}
		return fmt.Sprintf("is %s: %s", f.what, advice)
	}
	return ""
}
