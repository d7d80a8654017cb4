package main

import (
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
		Short: "report every problem of a configuration; without PATH that of --config",
		RunE: func(cmd *cobra.Command, paths []string) error {
			if len(paths) == 0 {
				paths = []string{f.config}
			}
			bad := false
			for _, path := range paths {
				ok, err := check(cmd, f, path)
				if err != nil {
					return err
				}
				bad = bad || !ok
			}
			if bad {
				return errReported
			}
			return nil
		},
	}
	f.registerAllow(cmd.Flags())
	return cmd
}

// check reports on one configuration: its own problems on standard error,
// what it means on this host on standard output.
func check(cmd *cobra.Command, f *flags, path string) (ok bool, err error) {
	stdout, stderr := cmd.OutOrStdout(), cmd.ErrOrStderr()
	cfg, err := f.load(path)
	var problems config.Problems
	if errors.As(err, &problems) {
		fmt.Fprintln(stderr, problems.Error())
		return false, nil
	}
	if err != nil {
		return false, err
	}
	view, err := look(cmd.Context(), f, cfg)
	if err != nil {
		return false, err
	}
	bad := false
	for _, n := range view.Matched.Notes {
		w, kind := stdout, "note: "
		if n.Error {
			w, kind, bad = stderr, "", true
		}
		printNote(w, kind, n)
	}
	if tooLarge := agent.TooLarge(view); len(tooLarge) > 0 {
		for _, problem := range tooLarge {
			fmt.Fprintln(stderr, problem)
		}
		bad = true
	}
	if bad {
		return false, nil
	}
	found := 0
	for _, m := range view.Matched.Resources {
		found += len(m.Offers)
	}
	_, err = fmt.Fprintf(stdout, "%s: ok: %s, %s on this host\n", path, count(len(cfg.Resources), "resource"), count(found, "device"))
	return true, err
}

// printNote prints a note, and its hint on a line of its own.
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
