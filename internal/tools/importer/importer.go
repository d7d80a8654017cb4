// Package importer converts configurations of other device plugins (see Format) to TOML.
//
// A conversion has three steps, each in separate files:
//
//   - find.go, yaml.go: find the configurations anywhere in the input
//   - squat.go, smarter.go, sriov.go, rdma.go, kubevirt.go, akri.go, nvidia.go: decode one
//     format into resources; glob.go translates patterns and regular expressions
//   - resource.go, toml.go: resolve conflicts between resources, and write them
//
// Besides, before.go lists the devices of the other plugin, for import --check.
//
// The result offers the same devices under the same resource names, as far as our
// configuration can express them. Every difference is a comment at its resource, and a
// warning.
//
// Input is decoded as YAML, of which JSON is a subset, with scalars as text: a typed
// decoder would read "vendor: 0403" as an octal number.
package importer

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"sort"
	"strings"
)

// Format is the plugin that a configuration is for.
type Format string

// The formats.
const (
	// Auto detects the format.
	Auto Format = "auto"
	// Squat is squat/generic-device-plugin.
	Squat Format = "squat"
	// Smarter is smarter-project/smarter-device-manager.
	Smarter Format = "smarter"
	// SRIOV is k8snetworkplumbingwg/sriov-network-device-plugin.
	SRIOV Format = "sriov"
	// RDMA is Mellanox/k8s-rdma-shared-dev-plugin.
	RDMA Format = "rdma"
	// KubeVirt is permittedHostDevices of KubeVirt.
	KubeVirt Format = "kubevirt"
	// Akri is a Configuration of project-akri/akri.
	Akri Format = "akri"
	// NVIDIA is NVIDIA/k8s-device-plugin.
	NVIDIA Format = "nvidia"
)

// formats are the formats other than Auto, with the plugin's name in messages.
var formats = []struct {
	format  Format
	plugin  string
	convert func(*conversion, []source)
}{
	{Squat, "generic-device-plugin", (*conversion).squat},
	{Smarter, "smarter-device-manager", (*conversion).smarter},
	{SRIOV, "sriov-network-device-plugin", (*conversion).sriov},
	{RDMA, "k8s-rdma-shared-dev-plugin", (*conversion).rdma},
	{KubeVirt, "KubeVirt", (*conversion).kubeVirt},
	{Akri, "Akri", (*conversion).akri},
	{NVIDIA, "NVIDIA's device plugin", (*conversion).nvidia},
}

// Formats lists the values of Options.Format.
func Formats() []Format {
	all := []Format{Auto}
	for _, f := range formats {
		all = append(all, f.format)
	}
	return all
}

// plugin is the name of the plugin.
func (f Format) plugin() string {
	for _, known := range formats {
		if known.format == f {
			return known.plugin
		}
	}
	return "a device plugin that import knows"
}

// Options of a conversion.
type Options struct {
	// Format of the input; empty means Auto.
	Format Format
	// Domain of resource names, instead of the one that the input sets or the
	// plugin's default.
	Domain string
}

// Result of a conversion.
type Result struct {
	// TOML is the configuration, with comments.
	TOML []byte
	// Warnings are the differences, one line each with file and place. The
	// comments of TOML have the same text.
	Warnings []string

	before []func(*host) []Device
}

// Problems are all errors of an input, sorted by line: one line each with file,
// line, place, value and rule.
type Problems []string

func (p Problems) Error() string { return strings.Join(p, "\n") }

// maxInput is the size limit of a ConfigMap.
const maxInput = 1 << 20

// Convert converts the configuration of another plugin; file names it in
// messages. The error is Problems.
func Convert(file string, data []byte, o Options) (*Result, error) {
	if o.Format == "" {
		o.Format = Auto
	}
	if !slices.Contains(Formats(), o.Format) {
		return nil, Problems{fmt.Sprintf("unknown format %q: want one of %q", o.Format, Formats())}
	}
	if len(data) > maxInput {
		return nil, Problems{fmt.Sprintf("%s: is too long: want at most %d bytes", file, maxInput)}
	}
	c := &conversion{file: file, options: o, text: string(data)}
	c.find()
	for _, f := range formats {
		var sources []source
		for _, s := range c.sources {
			if s.format == f.format {
				sources = append(sources, s)
			}
		}
		if len(sources) > 0 {
			c.comment(fmt.Sprintf("Imported from %s%s, a configuration of %s.", c.file, foundIn(sources), f.plugin))
			f.convert(c, sources)
		}
	}
	c.finish()
	if len(c.problems) == 0 && !slices.ContainsFunc(c.resources, func(r *resource) bool { return !r.disabled }) {
		c.problem(0, strings.Join(append([]string{"nothing in it can be imported"}, c.warnings...), "\n"))
	}
	if len(c.problems) > 0 {
		sort.SliceStable(c.problems, func(i, j int) bool { return c.problems[i].line < c.problems[j].line })
		var all Problems
		for _, p := range c.problems {
			all = append(all, p.text)
		}
		return nil, all
	}
	return &Result{TOML: c.toml(), Warnings: c.warnings, before: c.before}, nil
}

// conversion is the state of one conversion.
type conversion struct {
	file, text string // of the input
	options    Options
	problems   []problem
	warnings   []string

	sources   []source
	workloads []*workload

	// The result.
	comments      []string // in front of all resources
	defaultDomain string   // of resource names without a domain
	resources     []*resource
	mounts        []string // for --allow
	before        []func(*host) []Device
}

// problem is an error at a line of the input, 0 if it concerns all of it.
type problem struct {
	line int
	text string
}

func (c *conversion) problem(line int, text string) {
	c.problems = append(c.problems, problem{line, c.file + ": " + text})
}

// comment adds a comment in front of all resources, once.
func (c *conversion) comment(text string) {
	c.comments = addOnce(c.comments, text)
}

// warn adds a warning, once.
func (c *conversion) warn(text string) {
	c.warnings = addOnce(c.warnings, c.file+": "+text)
}

// differs records a difference that concerns no single resource.
func (c *conversion) differs(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	c.warn(text)
	c.comment(text)
}

func addOnce(list []string, s string) []string {
	if slices.Contains(list, s) {
		return list
	}
	return append(list, s)
}

// domainOr is the domain of names without one: of the options, else the configured one.
func (c *conversion) domainOr(configured string) string {
	return cmp.Or(c.options.Domain, configured)
}

// The domain of an extended resource, and its name, as the API server accepts
// them.
const (
	subdomain = `[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*`
	namePart  = `[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?`
)

// fullMatch reports whether an expression matches all of a text. Expressions are compiled
// where they are used, since no other command needs them.
func fullMatch(expression, text string) bool {
	return regexp.MustCompile(`^(?:` + expression + `)$`).MatchString(text)
}

// checkName returns the rule that the name of a resource violates, or empty. Variables in
// it stand for anything.
func checkName(full string) string {
	domain, name, _ := strings.Cut(regexp.MustCompile(`\$\{[a-z0-9]+\}`).ReplaceAllString(full, "x"), "/")
	const longest = 253 - len("requests.") // quotas are named like this
	switch {
	case !fullMatch(subdomain, domain) || len(domain) > longest || strings.HasSuffix(domain, "kubernetes.io") || strings.HasPrefix(domain, "requests."):
		return fmt.Sprintf(`%q is no domain of a resource: want a DNS subdomain such as "example.com"`, domain)
	case !fullMatch(namePart, name):
		return fmt.Sprintf(`%.80q is no name of a resource: want at most 63 letters, digits, "-", "_" and ".", beginning and ending with a letter or digit`, name)
	}
	return ""
}
