package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/generic-dp/generic-dp/agent"
	"github.com/generic-dp/generic-dp/config"
	"github.com/generic-dp/generic-dp/matchers"
)

// checkReport is the output of `check -o json`.
type checkReport struct {
	Files []checkedFile `json:"files"`
}

// checkedFile is the result for one configuration.
type checkedFile struct {
	Path      string    `json:"path"`
	OK        bool      `json:"ok"`
	Resources int       `json:"resources"`
	Devices   int       `json:"devices"` // on this host
	Problems  []problem `json:"problems"`
	Notes     []problem `json:"notes"`
}

// problem is a mistake, or a note. Line and column are 0 where only this host shows it.
type problem struct {
	File   string `json:"file"`
	Line   int    `json:"line"`
	Column int    `json:"column"`
	Place  string `json:"place"`
	Text   string `json:"text"`
	Hint   string `json:"hint"`

	line string // as printed
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
	file := checkedFile{Path: path, Problems: []problem{}, Notes: []problem{}}
	cfg, err := f.load(path)
	var problems config.Problems
	if errors.As(err, &problems) {
		for _, p := range problems {
			file.Problems = append(file.Problems, problem{p.File, p.Line, p.Column, p.Place, p.Text, p.Hint, p.String()})
		}
		return file, nil
	}
	if err != nil {
		return file, err
	}
	view, err := f.view(ctx, cfg)
	if err != nil {
		return file, err
	}
	for _, p := range cfg.Notes {
		file.Notes = append(file.Notes, problem{p.File, p.Line, p.Column, p.Place, p.Text, p.Hint, "note: " + p.String()})
	}
	for _, n := range view.Matched.Notes {
		p := problem{Place: n.Place, Text: n.Text, Hint: n.Hint}
		var line strings.Builder
		if n.Error && !n.OfNode {
			printNote(&line, "", n)
			p.line = strings.TrimSuffix(line.String(), "\n")
			file.Problems = append(file.Problems, p)
			continue
		}
		printNote(&line, "note: ", n)
		p.line = strings.TrimSuffix(line.String(), "\n")
		file.Notes = append(file.Notes, p)
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
		fmt.Fprintln(stdout, n.line)
	}
	for _, p := range c.Problems {
		fmt.Fprintln(stderr, p.line)
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

// printNote prints a note, with its hint on a separate line.
func printNote(w io.Writer, kind string, n matchers.Note) {
	fmt.Fprintf(w, "%s%s: %s\n", kind, n.Place, n.Text)
	if n.Hint != "" {
		fmt.Fprintf(w, "  hint: %s\n", n.Hint)
	}
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
