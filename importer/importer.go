// Package importer turns the configurations of other device plugins into one
// of this program: generic-device-plugin of squat, smarter-device-manager and
// the SR-IOV network device plugin.
//
// What comes out offers the same devices under the same resource names, as far
// as the language has it. What it has not, or has in another way, is said in a
// comment at the resource that it is about, and as a warning: nothing is lost
// in silence. Configurations are taken as administrators have them: as files,
// as values of flags, and inside the manifests of Kubernetes (ConfigMap,
// DaemonSet and other kinds with containers).
//
// Everything is read as YAML, of which JSON is a part, and by the text that is
// written there: whoever decodes "vendor: 0403" gets a number that means
// something else.
package importer

import (
	"fmt"
	"slices"
	"strings"
)

// Format is whose configuration it is.
type Format string

// The formats.
const (
	// Auto is whichever of the others it looks like.
	Auto Format = "auto"
	// Squat is squat/generic-device-plugin.
	Squat Format = "squat"
	// Smarter is smarter-project/smarter-device-manager.
	Smarter Format = "smarter"
	// SRIOV is k8snetworkplumbingwg/sriov-network-device-plugin.
	SRIOV Format = "sriov"
)

// Formats lists what Options.Format may be.
func Formats() []Format { return []Format{Auto, Squat, Smarter, SRIOV} }

// project is the name of the program behind a format.
func (f Format) project() string {
	switch f {
	case Squat:
		return "generic-device-plugin"
	case Smarter:
		return "smarter-device-manager"
	case SRIOV:
		return "sriov-network-device-plugin"
	}
	return string(f)
}

// Options say how a configuration is read.
type Options struct {
	// Format is empty or Auto where it is to be found out.
	Format Format
	// Domain is the domain of names for which the input has none; empty is
	// the default of the program that it is for.
	Domain string
}

// Result is what becomes of a configuration.
type Result struct {
	// Format that was found.
	Format Format
	// TOML is the configuration, with comments.
	TOML []byte
	// Warnings name what was not carried over as it was, one line each with
	// file and place. The comments of TOML say the same.
	Warnings []string
}

// Problems are everything that is wrong with an input: one line each, with
// file, line, place, value and rule.
type Problems []string

func (p Problems) Error() string { return strings.Join(p, "\n") }

// maxInput is how long an input may be: what Kubernetes takes for a ConfigMap.
const maxInput = 1 << 20

// Convert reads the configuration of another program; file is how messages
// speak of it. The error is Problems.
func Convert(file string, data []byte, o Options) (*Result, error) {
	if o.Format == "" {
		o.Format = Auto
	}
	if !slices.Contains(Formats(), o.Format) {
		return nil, Problems{fmt.Sprintf("format %q is not known: want one of %q", o.Format, Formats())}
	}
	if len(data) > maxInput {
		return nil, Problems{fmt.Sprintf("%s: is too long: want at most %d bytes", file, maxInput)}
	}
	im := &importing{file: file, options: o, format: o.Format}
	sources := im.find(data)
	if len(sources) == 0 && len(im.problems) == 0 {
		im.problems = append(im.problems, file+": no configuration of "+o.Format.wanted()+" is in it")
	}
	im.read(sources)
	if len(im.problems) == 0 && !slices.ContainsFunc(im.out.resources, func(r *resource) bool { return !r.off }) {
		im.problems = append(im.problems, file+": "+strings.Join(append([]string{"nothing in it can be carried over"}, im.warnings...), "\n"))
	}
	if len(im.problems) > 0 {
		return nil, im.problems
	}
	im.out.head = append([]string{fmt.Sprintf("Imported from %s, a configuration of %s.", oneLine(file), im.format.project())}, im.out.head...)
	return &Result{Format: im.format, TOML: im.out.render(), Warnings: im.warnings}, nil
}

// wanted is what was looked for.
func (f Format) wanted() string {
	if f != Auto {
		return f.project()
	}
	return strings.Join([]string{Squat.project(), Smarter.project(), "or " + SRIOV.project()}, ", ")
}

// read converts what was found, all of which has to be of one format.
func (im *importing) read(sources []source) {
	for _, s := range sources {
		if im.format == Auto {
			im.format = s.format
		}
		if s.format != im.format {
			s.at.report(fmt.Sprintf("is a configuration of %s: want %s alone", s.format.project(), im.format.project()))
			return
		}
	}
	switch im.format {
	case Squat:
		im.squat(sources)
	case Smarter:
		im.smarter(sources)
	case SRIOV:
		im.sriov(sources)
	}
}

// importing is one conversion.
type importing struct {
	file     string
	options  Options
	format   Format
	problems Problems
	warnings []string
	out      document
	// domain and prefix are what flags in a manifest say.
	domain, prefix string
	// mounts are host paths that are mounted.
	mounts []string
}

// warn records what is not carried over, once, and returns it as a comment.
func (im *importing) warn(place, text string) string {
	line := im.file + ": "
	if place != "" {
		line += place + ": "
	}
	if line += text; !slices.Contains(im.warnings, line) {
		im.warnings = append(im.warnings, line)
	}
	return text
}

// warnAhead is a warning that has no resource to stand at.
func (im *importing) warnAhead(place, text string) {
	im.warn(place, text)
	if place != "" {
		text = place + ": " + text
	}
	im.head(text)
}

// head adds a comment in front of everything, once.
func (im *importing) head(text string) {
	if !slices.Contains(im.out.head, text) {
		im.out.head = append(im.out.head, text)
	}
}

// oneLine is s with nothing that ends a comment.
func oneLine(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || r == '\u2028' || r == '\u2029' || r == '\u0085' {
			return ' '
		}
		return r
	}, s)
}
