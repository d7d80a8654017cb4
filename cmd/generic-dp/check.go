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
	"github.com/generic-dp/generic-dp/internal/tools/answer"
	"github.com/generic-dp/generic-dp/internal/tools/catalog"
	"github.com/generic-dp/generic-dp/internal/tools/cli"
)

// checkReport is the output of `check -o json`.
type checkReport struct {
	answer.Check
	// stderr gets the problems in the table, so that standard output only has the results.
	stderr io.Writer
}

// newCheck returns the command check. The exit status is 1 if a configuration has a problem. It
// checks all configurations before it fails, but stops at a file that cannot be read.
func newCheck(f *flags) *cobra.Command {
	var against string
	cmd := &cobra.Command{
		Use:   "check [PATH...]",
		Short: "validate configurations (default --config) and report all problems",
		Long: `check validates configurations (default --config; - is standard input), reports
all problems, and says what they select on this host. PATH may also be a YAML or
JSON file that contains a configuration: a ConfigMap, a HelmRelease or the values
of the chart. Problems have the lines of that file.

--against shows what the configuration would change on this host, or on a
recorded one, compared with OLD: devices that are added, removed or moved to
another resource, IDs that change, and what a container would get. OLD is another
configuration, or "served" for the one that serve accepts or has kept. It asks
the instance at --listen which containers hold devices: they keep them while
they run.`,
	}
	f.add(cmd, configFlags, hostFlags, []string{"listen"})
	cmd.Flags().StringVar(&against, "against", "", "another configuration: show what changes on this host, and for which pods")
	check := func(cmd *cobra.Command, paths []string) (cli.Reporter, error) {
		if len(paths) == 0 {
			paths = []string{f.config}
		}
		if against == "-" {
			return nil, cli.Usagef("--against: want a path: only the checked configuration may be standard input")
		}
		report := checkReport{stderr: cmd.ErrOrStderr()}
		report.Files = []answer.File{}
		var bad error
		for _, path := range paths {
			file, err := f.check(cmd.Context(), path, against)
			// reports still prints the configurations that were checked before.
			if err != nil {
				return report, err
			}
			// All configurations are checked: CI should report the mistakes of every file at
			// once.
			if !file.OK {
				bad = cli.ErrReported
			}
			report.Files = append(report.Files, file)
		}
		return report, bad
	}
	return cli.Reports(cmd, check, "json")
}

// check validates one configuration, and compares it with another one unless against is empty. Its problems are in the result; an error means that the file
// or the host cannot be read. An invalid configuration is not matched with the host, because its
// resources are not known. The lists in the result are never nil, so that JSON has no null.
func (f *flags) check(ctx context.Context, path, against string) (answer.File, error) {
	file := answer.File{
		Path:     path,
		Problems: []config.Problem{},
		Notes:    []config.Problem{},
	}
	cfg, err := f.load(path)
	// errors.As stores the problems in the result if err contains some.
	if errors.As(err, (*config.Problems)(&file.Problems)) {
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
		if isMistake(n) {
			file.Problems = append(file.Problems, n.Problem)
		} else {
			file.Notes = append(file.Notes, n.Problem)
		}
	}
	file.Notes = append(file.Notes, firmwareNotes(cfg)...)
	file.Notes = append(file.Notes, absenceNotes(cfg, view)...)
	file.Devices, file.Unusable = countDevices(view)
	// Matching does not know the positions of resources.
	for _, list := range [][]config.Problem{file.Problems, file.Notes} {
		for i, p := range list {
			if p.Line == 0 {
				list[i] = cfg.Locate(p)
			}
		}
	}
	if against != "" {
		file.Against, err = f.compareWith(ctx, against, view)
		if err != nil {
			return file, err
		}
	}
	file.OK = len(file.Problems) == 0
	file.Resources = len(cfg.Resources)
	return file, nil
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
// maxAbsences resources, and one for all others.
func absenceNotes(cfg *config.Config, view *agent.View) []config.Problem {
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
			Text: cli.Count(more, "more resource") + " without a device on this host",
			Hint: "generic-dp devices lists all resources",
		})
	}
	return notes
}

// Table writes problems to stderr, and everything else to stdout. Problems have the format
// FILE:LINE:COLUMN, which editors and CI systems recognize.
func (r checkReport) Table(stdout io.Writer, _ bool) error {
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
		found := cli.Count(c.Devices, "device") + " on this host"
		if c.Unusable > 0 {
			found += fmt.Sprintf(", %d cannot be used", c.Unusable)
		}
		_, err = fmt.Fprintf(stdout, "%s: ok: %s, %s\n", c.Path, cli.Count(c.Resources, "resource"), found)
		if c.Against != nil {
			err = writeComparison(stdout, c.Against)
		}
	}
	return err
}
