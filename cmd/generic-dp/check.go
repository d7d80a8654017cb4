package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/generic-dp/generic-dp/agent"
	"github.com/generic-dp/generic-dp/config"
)

// checkReport is the output of `check -o json`.
type checkReport struct {
	Files []checkedFile `json:"files"`
}

// checkedFile is the result for one configuration.
type checkedFile struct {
	Path      string `json:"path"`
	OK        bool   `json:"ok"`
	Resources int    `json:"resources"`
	Devices   int    `json:"devices"` // on this host
	// Line and column are 0 where only this host shows it.
	Problems []config.Problem `json:"problems"`
	Notes    []config.Problem `json:"notes"`
}

func newCheck(f *flags) *cobra.Command {
	var output *string
	cmd := &cobra.Command{
		Use:   "check [PATH...]",
		Short: "validate configurations (default --config) and report all problems",
		Long: `check validates configurations (default --config; - is standard input), reports
all problems, and says what they select on this host.`,
		RunE: func(cmd *cobra.Command, paths []string) error {
			if len(paths) == 0 {
				paths = []string{f.config}
			}
			var report checkReport
			var bad error
			for _, path := range paths {
				file, err := f.check(cmd.Context(), path)
				if err != nil {
					return err
				}
				if !file.OK {
					bad = errReported
				}
				report.Files = append(report.Files, file)
				if *output != "table" {
					continue
				}
				if err := file.print(cmd.OutOrStdout(), cmd.ErrOrStderr()); err != nil {
					return err
				}
			}
			if *output != "table" {
				if err := encode(cmd.OutOrStdout(), *output, report); err != nil {
					return err
				}
			}
			return bad
		},
	}
	cmd.Flags().AddFlagSet(f.pick("allow", "domains"))
	output = outputFlag(cmd, "table", "json", "yaml")
	return cmd
}

// check validates one configuration.
func (f *flags) check(ctx context.Context, path string) (checkedFile, error) {
	file := checkedFile{Path: path, Problems: []config.Problem{}, Notes: []config.Problem{}}
	cfg, err := f.load(path)
	var problems config.Problems
	if errors.As(err, &problems) {
		file.Problems = problems
		return file, nil
	}
	if err != nil {
		return file, err
	}
	view, err := f.view(ctx, cfg)
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
	for _, m := range view.Matched.Resources {
		file.Devices += len(m.Offers)
	}
	file.OK, file.Resources = len(file.Problems) == 0, len(cfg.Resources)
	return file, nil
}

// print writes problems to stderr, and the rest to stdout.
func (c checkedFile) print(stdout, stderr io.Writer) (err error) {
	for _, n := range c.Notes {
		fmt.Fprintf(stdout, "note: %s\n", n)
	}
	for _, p := range c.Problems {
		fmt.Fprintln(stderr, p)
	}
	if c.OK {
		_, err = fmt.Fprintf(stdout, "%s: ok: %s, %s on this host\n", c.Path, count(c.Resources, "resource"), count(c.Devices, "device"))
	}
	return err
}

// view scans the host once and matches cfg. It uses the identity decisions of a
// serving instance if readable, so that both show the same IDs.
func (f *flags) view(ctx context.Context, cfg *config.Config) (*agent.View, error) {
	return agent.Scan(ctx, cfg, f.options(io.Discard))
}

func count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
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
