// Package importer converts configurations of other device plugins (see Format) to TOML.
//
// A conversion has three steps, each in separate files:
//
//   - find.go, text.go, command.go, embedded.go, yaml.go: find the configurations anywhere
//     in the input. foreign.go names other kinds of files and says what to do with them.
//   - One file for each format, which implements the interface format (formats.go). Formats
//     share udevrule.go for rules of udev, goglob.go and regexp.go for patterns, and
//     hostdevice.go for the device nodes of plain containers.
//   - resource.go, overlap.go, toml.go: resolve conflicts between resources and write them.
//
// For import --check, the files *check.go list the devices that the other plugin offers on
// a host by its own rules.
//
// The result offers the same devices under the same resource names, as far as our
// configuration can express them. Every difference is a comment at its resource and a
// warning.
//
// Input is decoded as YAML, of which JSON is a subset, with scalars as text: a typed
// decoder would read "vendor: 0403" as an octal number.
package importer

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/generic-dp/generic-dp/internal/order"
)

// Options of a conversion.
type Options struct {
	// Format of the input; empty means Auto.
	Format Format
	// Domain of resource names. It replaces the domain of the input and the plugin's
	// default.
	Domain string
	// Neighbours returns the texts of other files in the directory of the input, by name.
	// They are only searched for pods that request the imported resources, when the input
	// does not say which domain the resources have. It may be nil.
	Neighbours func() map[string]string
}

// Result of a conversion.
type Result struct {
	// TOML is the configuration, with comments.
	TOML []byte
	// Warnings are the differences, one line each with file and place. The
	// comments of TOML have the same text.
	Warnings []string
	// NotCompared are the plugins whose devices Before does not list.
	NotCompared []string

	before []lister
}

// Problems are all errors of an input, sorted by line: one line each with file,
// line, place, value and rule.
type Problems []string

// Error is all problems, one per line, so that a command can print them as they are.
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
		return nil, Problems{fmt.Sprintf("%s: is too long: the limit is %d bytes", file, maxInput)}
	}
	c := &conversion{
		file:    file,
		options: o,
		text:    string(data),
	}
	c.find()
	for _, f := range formats {
		c.convertSources(f)
	}
	c.finish()
	c.reportEmptyResult()
	if len(c.problems) > 0 {
		return nil, c.sortedProblems()
	}
	return &Result{
		TOML:        c.toml(),
		Warnings:    c.warnings,
		NotCompared: c.notCompared,
		before:      c.before,
	}, nil
}

// conversion is the state of one conversion.
type conversion struct {
	file     string // of the input, for messages
	text     string // of the input
	options  Options
	problems []problem
	warnings []string

	// searchPlain is set while formats are searched that are not device plugins.
	searchPlain bool
	sources     []source
	workloads   []*workload

	// The result, from here on.

	// comments are in front of all resources.
	comments []string
	// defaultDomain is the domain of resource names without one.
	defaultDomain string
	resources     []*resource
	// mounts are words of the flag --allow that the mounts of the result need.
	mounts []string
	// before lists the devices of the other plugin, and notCompared names plugins without
	// such a list.
	before      []lister
	notCompared []string
}

// convertSources converts the configurations of a format.
func (c *conversion) convertSources(f knownFormat) {
	var sources []source
	for _, s := range c.sources {
		if s.format == f.name {
			sources = append(sources, s)
		}
	}
	if len(sources) == 0 {
		return
	}
	c.comment(fmt.Sprintf("Imported from %s%s, a configuration of %s.", c.file, foundIn(sources), f.plugin))
	compared := len(c.before)
	// The slots of plain containers are the number of containers.
	if !f.plain {
		sources = distinct(sources)
	}
	f.convert(c, sources)
	if len(c.before) == compared {
		c.notCompared = append(c.notCompared, f.plugin)
	}
}

// distinct leaves out the sources that are the same as an earlier one: a bundle of an operator, for
// example, has its samples once more as text.
func distinct(sources []source) []source {
	var kept []source
	for _, s := range sources {
		isRepeated := slices.ContainsFunc(kept, func(other source) bool {
			return s.flag == other.flag && s.workload.equal(other.workload) && sameContent(s.Node, other.Node)
		})
		if !isRepeated {
			kept = append(kept, s)
		}
	}
	return kept
}

// sameContent reports whether two nodes of YAML have the same content.
func sameContent(a, b *yaml.Node) bool {
	return a.Kind == b.Kind && a.Value == b.Value && slices.EqualFunc(a.Content, b.Content, sameContent)
}

// reportEmptyResult reports an input without a single resource that can be imported. The
// warnings say why.
func (c *conversion) reportEmptyResult() {
	if len(c.problems) > 0 {
		return
	}
	for _, r := range c.resources {
		if !r.disabled {
			return
		}
	}
	reasons := append([]string{"nothing in it can be imported"}, c.warnings...)
	c.problem(0, strings.Join(reasons, "\n"))
}

// sortedProblems are the problems in the order of the input, as a compiler reports them.
func (c *conversion) sortedProblems() Problems {
	order.Stable(c.problems, func(a, b problem) int {
		return cmp.Compare(a.line, b.line)
	})
	var all Problems
	for _, p := range c.problems {
		all = append(all, p.text)
	}
	return all
}

// problem is an error at a line of the input, 0 if it concerns the whole input.
type problem struct {
	line int
	text string
}

// problem records an error at a line of the input.
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

// addOnce appends a text unless the list has it: several devices often have one difference.
func addOnce(list []string, s string) []string {
	if slices.Contains(list, s) {
		return list
	}
	return append(list, s)
}

// domainOr returns the domain of resource names without one: the domain of the options,
// otherwise the configured domain.
func (c *conversion) domainOr(configured string) string {
	return cmp.Or(c.options.Domain, configured)
}
