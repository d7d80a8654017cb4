package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/generic-dp/generic-dp/agent"
	"github.com/generic-dp/generic-dp/config"
	"github.com/generic-dp/generic-dp/matchers"
)

func newCheck(f *flags) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "check [PATH...]",
		Short: "validate configurations (default --config) and report all problems",
		RunE: func(cmd *cobra.Command, paths []string) error {
			if len(paths) == 0 {
				paths = []string{f.config}
			}
			var bad error
			for _, path := range paths {
				switch err := check(cmd, f, path); {
				case errors.Is(err, errReported):
					bad = err
				case err != nil:
					return err
				}
			}
			return bad
		},
	}
	cmd.Flags().AddFlagSet(f.pick("allow", "domains"))
	return cmd
}

// check validates one configuration. It prints problems on standard error and the
// result on this host on standard output.
func check(cmd *cobra.Command, f *flags, path string) error {
	stdout, stderr := cmd.OutOrStdout(), cmd.ErrOrStderr()
	cfg, err := f.load(path)
	var problems config.Problems
	if errors.As(err, &problems) {
		fmt.Fprintln(stderr, problems.Error())
		return errReported
	}
	if err != nil {
		return err
	}
	view, err := f.view(cmd.Context(), cfg)
	if err != nil {
		return err
	}
	bad := false
	for _, n := range view.Matched.Notes {
		w, kind := stdout, "note: "
		if n.Error {
			w, kind, bad = stderr, "", true
		}
		printNote(w, kind, n)
	}
	if bad {
		return errReported
	}
	devices := 0
	for _, m := range view.Matched.Resources {
		devices += len(m.Offers)
	}
	_, err = fmt.Fprintf(stdout, "%s: ok: %s, %s on this host\n", path, count(len(cfg.Resources), "resource"), count(devices, "device"))
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
	return &cobra.Command{
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
	}
}
