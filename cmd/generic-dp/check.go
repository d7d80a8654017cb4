package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/generic-dp/generic-dp/config"
	"github.com/generic-dp/generic-dp/internal/agent"
	"github.com/generic-dp/generic-dp/internal/kubelet/dra"
	"github.com/generic-dp/generic-dp/internal/tools/catalog"
	"github.com/generic-dp/generic-dp/internal/tools/manifest"
)

// checkReport is the output of `check -o json`. Files are in the order of the arguments.
type checkReport struct {
	Files []checkedFile `json:"files"`
	// stderr gets the problems in the table, so that standard output only has the results.
	stderr io.Writer
}

// checkedFile is the result for one configuration. The counts are 0 if its text is invalid.
type checkedFile struct {
	// Path is the argument as it was given. It may be a directory, and "-" for standard input.
	Path      string `json:"path"`
	OK        bool   `json:"ok"`
	Resources int    `json:"resources"`
	// Devices is the number of devices on this host that a container can get, and Unusable the
	// number of devices that it cannot get.
	Devices  int `json:"devices"`
	Unusable int `json:"unusable"`
	// Problems are mistakes, and OK is set if there are none. A problem that only shows on this
	// host has the line and column 0.
	Problems []config.Problem `json:"problems"`
	// Notes may be intended. They do not affect OK and the exit status.
	Notes []config.Problem `json:"notes"`
}

// newCheck returns the command check. The exit status is 1 if a configuration has a problem. It
// checks all configurations before it fails, but stops at a file that cannot be read.
func newCheck(f *flags) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "check [PATH...]",
		Short: "validate configurations (default --config) and report all problems",
		Long: `check validates configurations (default --config; - is standard input), reports
all problems, and says what they select on this host. PATH may also be a YAML or
JSON file that contains a configuration: a ConfigMap, a HelmRelease or the values
of the chart. Problems have the lines of that file.`,
	}
	f.add(cmd, configFlags, hostFlags)
	check := func(cmd *cobra.Command, paths []string) (reporter, error) {
		if len(paths) == 0 {
			paths = []string{f.config}
		}
		report := checkReport{
			Files:  []checkedFile{},
			stderr: cmd.ErrOrStderr(),
		}
		var bad error
		for _, path := range paths {
			file, err := f.check(cmd.Context(), path)
			// reports still prints the configurations that were checked before.
			if err != nil {
				return report, err
			}
			// All configurations are checked: CI should report the mistakes of every file at
			// once.
			if !file.OK {
				bad = errReported
			}
			report.Files = append(report.Files, file)
		}
		return report, bad
	}
	return reports(cmd, check, "json", "yaml")
}

// check validates one configuration. Its problems are in the result; an error means that the file
// or the host cannot be read. An invalid configuration is not matched with the host, because its
// resources are not known. The lists in the result are never nil, so that JSON has no null.
func (f *flags) check(ctx context.Context, path string) (checkedFile, error) {
	file := checkedFile{
		Path:     path,
		Problems: []config.Problem{},
		Notes:    []config.Problem{},
	}
	cfg, err := f.load(path)
	// errors.As stores the problems in the result if err contains some.
	if errors.As(err, (*config.Problems)(&file.Problems)) {
		// Hints of other packages name commands without the flags of this one.
		for i := range file.Problems {
			file.Problems[i].Hint = f.completeCommands(file.Problems[i].Hint)
		}
		return file, nil
	}
	if err != nil {
		return file, err
	}
	view, err := f.scan(ctx, cfg)
	if err != nil {
		return file, err
	}
	file.Notes = append(file.Notes, cfg.Notes...)
	for _, n := range view.Matched.Notes {
		// A mistake that depends on the name of the node is no mistake of the file: it may be
		// checked on a machine that is not a node.
		isMistake := n.Error && !n.OfNode
		if isMistake {
			file.Problems = append(file.Problems, n.Problem)
		} else {
			file.Notes = append(file.Notes, n.Problem)
		}
	}
	file.Notes = append(file.Notes, fluxNotes(path)...)
	file.Notes = append(file.Notes, busNodeNotes(view)...)
	file.Notes = append(file.Notes, firmwareNotes(cfg)...)
	file.Notes = append(file.Notes, f.absenceNotes(path, cfg, view)...)
	file.Devices, file.Unusable = countDevices(view)
	f.locate(path, cfg, file.Problems)
	f.locate(path, cfg, file.Notes)
	for i := range file.Notes {
		file.Notes[i].Hint = f.completeCommands(file.Notes[i].Hint)
	}
	file.OK = len(file.Problems) == 0
	file.Resources = len(cfg.Resources)
	return file, nil
}

// locate gives the problems that matching has found the positions of their resources, in the
// manifest if the path names one.
func (f *flags) locate(path string, cfg *config.Config, problems []config.Problem) {
	// A manifest was valid a moment ago. Without it, the positions are those in its files.
	m := &manifest.Configuration{}
	if path == "-" || isManifest(path) {
		own, err := f.readText(path)
		if err == nil {
			m = own
		}
	}
	for i, p := range problems {
		if p.Line > 0 {
			continue
		}
		problems[i] = m.Locate(cfg.Locate(p))
	}
}

// firmwareNotes warns of resources with a USB device that gets another ID once its firmware is loaded.
// Without its port as its identity, a container would hold an ID that no longer exists.
func firmwareNotes(cfg *config.Config) []config.Problem {
	var notes []config.Problem
	for i := range cfg.Resources {
		r := &cfg.Resources[i]
		if r.GroupBy == "usb.path" {
			continue
		}
		var named []string
		for _, m := range r.Match {
			named = append(named, m.Hardware["usb"]["id"].Patterns()...)
		}
		ids := catalog.Reenumerating(named)
		if ids == nil {
			continue
		}
		all := strings.Join(ids, `", "`)
		notes = append(notes, config.Problem{
			Place: r.Place,
			Text:  fmt.Sprintf(`the USB device has the IDs "%s" before and after a program loads its firmware, and its ID changes with them`, all),
			Hint:  fmt.Sprintf(`match.usb.id = ["%s"], each = "usb.path" and container.cdi = true make its port its identity, as generic-dp init writes it`, all),
		})
	}
	return notes
}

// countDevices counts the devices that a container can get, and the devices that it cannot get,
// such as a disk without dangerous = true. A device with shared = true in two resources counts
// twice.
func countDevices(view *agent.View) (usable, unusable int) {
	for _, m := range view.Matched.Resources {
		for _, o := range m.Offers {
			if o.Problem == "" {
				usable++
			} else {
				unusable++
			}
		}
	}
	return usable, unusable
}

// maxAbsences limits the notes about resources without devices: the configuration of a fleet has
// resources for other hosts.
const maxAbsences = 3

// absenceNotes says why resources have no device on this host: a note for each of the first
// maxAbsences resources, and one for all others. path is the argument of check, for the command
// in the hint.
func (f *flags) absenceNotes(path string, cfg *config.Config, view *agent.View) []config.Problem {
	var notes []config.Problem
	more := 0
	// Explain returns the resources in the order of cfg.Resources.
	for i, e := range view.Explain(cfg, nil, nil) {
		r := &cfg.Resources[i]
		// A resource whose condition does not hold on this host is intended to have no devices.
		isInactive := slices.Contains(view.Matched.Inactive, r)
		if isInactive || len(e.Offered) > 0 {
			continue
		}
		if len(notes) == maxAbsences {
			more++
			continue
		}
		notes = append(notes, config.Problem{
			Place: r.Place,
			Text:  "no device on this host: " + e.Reason,
		})
	}
	if more > 0 {
		notes = append(notes, config.Problem{
			Text: count(more, "more resource") + " without a device on this host",
			Hint: f.commandFor(path, "devices") + " lists all resources",
		})
	}
	return notes
}

// table writes problems to stderr, and everything else to stdout. Problems have the format
// FILE:LINE:COLUMN, which editors and CI systems recognize.
func (r checkReport) table(stdout io.Writer, _ bool) error {
	var err error
	for _, c := range r.Files {
		for _, n := range c.Notes {
			fmt.Fprintf(stdout, "note: %s\n", n)
		}
		for _, p := range c.Problems {
			fmt.Fprintln(r.stderr, p)
		}
		if !c.OK {
			continue
		}
		found := count(c.Devices, "device") + " on this host"
		if c.Unusable > 0 {
			found += fmt.Sprintf(", %d cannot be used", c.Unusable)
		}
		_, err = fmt.Fprintf(stdout, "%s: ok: %s, %s\n", c.Path, count(c.Resources, "resource"), found)
	}
	return err
}

// newSchema returns the command schema. Its output only depends on the version of the program.
func newSchema() *cobra.Command {
	return withoutFlags(&cobra.Command{
		Use:   "schema",
		Short: "print the JSON Schema of the configuration, for editors",
		Long: `schema prints the JSON Schema (draft 4) of the configuration. Editors with TOML
support use it to complete, document and check keys if the first line of a file
names it:

  #:schema ./generic-dp.schema.json`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			text, err := config.Schema()
			if err != nil {
				return err
			}
			_, err = cmd.OutOrStdout().Write(text)
			return err
		},
	})
}

// newClasses returns the command classes. It does not read the host, so that it also runs on the
// machine of an administrator. Warnings go to standard error, because the output is for kubectl
// apply. It fails if there is no class to print, since kubectl would reject an empty input.
func newClasses(f *flags) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "classes",
		Short: "print the DeviceClasses of resources with api = \"dra\"",
		Long: `classes prints the DeviceClass of each resource with api = "dra" (dynamic
resource allocation), for kubectl apply. Pods may then request the resource like
any other extended resource, or name the class in a claim.`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := f.load(f.config)
			if err != nil {
				return err
			}
			var all []string
			for _, r := range cfg.Resources {
				if r.API != config.APIDRA {
					continue
				}
				// The class itself is valid for every version. Only the claims behave
				// differently.
				if what, version, otherwise := r.NeedsVersion(); what != "" {
					fmt.Fprintf(cmd.ErrOrStderr(), "warning: %s: %s needs Kubernetes %s: %s\n", r.Place, what, version, otherwise)
				}
				hasVariables := r.NameText != nil
				if hasVariables {
					fmt.Fprintf(cmd.ErrOrStderr(), "warning: %s: the name depends on the hardware: each resulting name needs a class\n", r.Place)
					continue
				}
				all = append(all, dra.Class(r.Name))
			}
			if len(all) == 0 {
				return fmt.Errorf(`%s: no resource with a fixed name has api = "dra"`, f.config)
			}
			// A line with three dashes separates the documents of a YAML stream.
			_, err = fmt.Fprint(cmd.OutOrStdout(), strings.Join(all, "---\n"))
			return err
		},
	}
	f.add(cmd, []string{"config", "allow", "domains"})
	return cmd
}
