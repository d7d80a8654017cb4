package importer

import (
	"fmt"
	"regexp"
)

// foreign is a kind of file that import recognizes and does not convert.
type foreign struct {
	// what it is, after "is ".
	what string
	// text is an expression that its text has.
	text string
	// advice says what to do instead.
	advice string
}

// foreignKinds are the kinds in the order in which they are tested: files of one kind of
// object before languages, in which the objects may be embedded.
var foreignKinds = []foreign{
	{
		what:   "a SriovNetworkNodePolicy",
		text:   `(?m)^\s*kind:\s*["']?SriovNetworkNodePolicy`,
		advice: "the SR-IOV operator writes a configuration of sriov-network-device-plugin from it: import that ConfigMap, device-plugin-config, as kubectl get configmap -o yaml prints it",
	},
	{
		what:   "a rule of Node Feature Discovery",
		text:   `(?m)^\s*kind:\s*["']?NodeFeature(Rule|Group)|matchFeatures:`,
		advice: "it only labels nodes; select the same hardware with pci.id or usb.id in a match, or write one with generic-dp init",
	},
	{
		what:   "a CDI specification",
		text:   `["']?cdiVersion["']?\s*:`,
		advice: `keep it, and offer its devices with match.cdi_device = "KIND=*"`,
	},
	{
		what:   "rules of Prometheus",
		text:   `(?m)^\s*kind:\s*["']?PrometheusRule|^\s*- alert:|^\s*- record:`,
		advice: "it has no devices; see the metrics of generic-dp in docs/metrics.md",
	},
	{
		what:   "a configuration of LXC, Incus or Proxmox",
		text:   `(?m)^\s*lxc\.(cgroup2?\.devices|mount\.entry)|^\s*type:\s*["']?unix-(char|block|hotplug)|^dev[0-9]+:\s*/dev/`,
		advice: `write a resource for each device, with its path as match.glob, or let generic-dp init write one`,
	},
	{
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
		advice: "import a file whose services have devices, or volumes below /dev",
	},
	{
		what:   "a unit of Podman or systemd without devices",
		text:   `(?m)^\[(Container|Service|Unit)\]\s*$`,
		advice: "import a unit with AddDevice",
	},
	{
		what:   "udev rules that are more than conditions and a name",
		text:   `(?m)^\s*(SUBSYSTEM|ACTION|KERNEL|ATTRS?\{\w+\})[!=]="`,
		advice: "import a file of rules only; the conditions of a rule are keys of match: usb.id, usb.serial, subsystem, attr",
	},
	{
		what:   "a configuration of generic-dp",
		text:   `(?m)^\[\[resource\]\]`,
		advice: "it needs no import: see generic-dp check",
	},
	{
		what:   "a pod without volumes of /dev",
		text:   `(?m)^\s*-?\s*["']?containers["']?:`,
		advice: "import the configuration of a device plugin, or a pod with hostPath volumes of devices",
	},
	{what: "Nix", text: `(?m)^\s*\{[^{}:]*\.\.\.\s*\}:|^\s*(with|inherit) [\w.]+;|=\s*''\s*$`, advice: adviceRender},
	{what: "CUE", text: `(?m)^package \w+\s*$[\s\S]*^\w[\w-]*:\s*[\w"{\[]|^import "`, advice: adviceRender},
	{what: "Terraform", text: `(?m)^(resource|module|provider|variable|terraform|locals|data)\b[^:=]*\{`, advice: adviceRender},
	{what: "Jsonnet", text: `(?m)^local \w+ = |::\s*\{`, advice: adviceRender},
	{what: "a program", text: `(?m)^#!.*\b(python|perl|node|ruby)|^package \w+$|^(import|from) [\w.]+( import .*)?$|^#include `, advice: adviceRender},
	{what: "a shell script", text: `(?m)\A#!.*sh\b`, advice: adviceRender},
	{what: "Markdown", text: "(?m)^#{1,6} \\S|^```|\\]\\(https?://", advice: adviceRender},
	{what: "HTML or XML", text: `(?i)\A\s*<(!doctype|html|\?xml)`, advice: adviceRender},
}

// adviceRender is the advice for languages in which a configuration may be embedded.
const adviceRender = "no configuration of a device plugin was found in it: import the YAML or JSON alone, or what it renders"

// foreignKind says what the input is and what to do with it, if it is recognizably no
// configuration of a device plugin.
func (c *conversion) foreignKind() string {
	for _, f := range foreignKinds {
		if regexp.MustCompile(f.text).MatchString(c.text) {
			return fmt.Sprintf("is %s: %s", f.what, f.advice)
		}
	}
	return ""
}
