package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/generic-dp/generic-dp/config"
	"github.com/generic-dp/generic-dp/internal/kubelet/dra"
)

// checkReport is the output of `check -o json`.
type checkReport struct {
	Files  []checkedFile `json:"files"`
	stderr io.Writer
}

// checkedFile is the result for one configuration.
type checkedFile struct {
	Path      string `json:"path"`
	OK        bool   `json:"ok"`
	Resources int    `json:"resources"`
	Devices   int    `json:"devices"` // on this host
	// Line and Column are 0 for a problem that only this host shows.
	Problems []config.Problem `json:"problems"`
	Notes    []config.Problem `json:"notes"`
}

func newCheck(f *flags) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "check [PATH...]",
		Short: "validate configurations (default --config) and report all problems",
		Long: `check validates configurations (default --config; - is standard input), reports
all problems, and says what they select on this host.`,
	}
	cmd.Flags().AddFlagSet(f.pick("allow", "domains"))
	return reports(cmd, func(cmd *cobra.Command, paths []string) (reporter, error) {
		if len(paths) == 0 {
			paths = []string{f.config}
		}
		report := checkReport{Files: []checkedFile{}, stderr: cmd.ErrOrStderr()}
		var bad error
		for _, path := range paths {
			file, err := f.check(cmd.Context(), path)
			if err != nil {
				return report, err
			}
			if !file.OK {
				bad = errReported
			}
			report.Files = append(report.Files, file)
		}
		return report, bad
	}, "json", "yaml")
}

// check validates one configuration.
func (f *flags) check(ctx context.Context, path string) (checkedFile, error) {
	file := checkedFile{Path: path, Problems: []config.Problem{}, Notes: []config.Problem{}}
	cfg, err := f.load(path)
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
		if n.Error && !n.OfNode {
			file.Problems = append(file.Problems, n.Problem)
		} else {
			file.Notes = append(file.Notes, n.Problem)
		}
	}
	file.Notes = append(file.Notes, busNodeNotes(view)...)
	for _, m := range view.Matched.Resources {
		file.Devices += len(m.Offers)
	}
	file.OK, file.Resources = len(file.Problems) == 0, len(cfg.Resources)
	return file, nil
}

// table writes problems to stderr, and the rest to stdout.
func (r checkReport) table(stdout io.Writer, _ bool) (err error) {
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
		if c.Devices == 0 {
			found += " (generic-dp devices says why)"
		}
		_, err = fmt.Fprintf(stdout, "%s: ok: %s, %s\n", c.Path, count(c.Resources, "resource"), found)
	}
	return err
}

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

func newClasses(f *flags) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "classes",
		Short: "print the DeviceClasses of resources by dynamic resource allocation",
		Long: `classes prints the DeviceClass of each resource with api = "dra", for kubectl
apply. Pods may then request the resource like any other extended resource, or
name the class in a claim.`,
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
				if version, otherwise := r.NeedsVersion(); version != "" {
					fmt.Fprintf(cmd.ErrOrStderr(), "warning: %s: capacity with count needs Kubernetes %s: %s\n", r.Place, version, otherwise)
				}
				if r.NameText == nil {
					all = append(all, dra.Class(r.Name))
				} else {
					fmt.Fprintf(cmd.ErrOrStderr(), "warning: %s: the name depends on the hardware: one class is needed for each result\n", r.Place)
				}
			}
			if len(all) == 0 {
				return fmt.Errorf(`%s: no resource of a fixed name has api = "dra"`, f.config)
			}
			_, err = fmt.Fprint(cmd.OutOrStdout(), strings.Join(all, "---\n"))
			return err
		},
	}
	cmd.Flags().AddFlagSet(f.pick("allow", "domains"))
	return cmd
}
