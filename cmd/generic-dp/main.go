// Command generic-dp is a generic Kubernetes device plugin: it advertises the host devices
// that a TOML file selects to the kubelet. See README.md for its use and
// config/reference.toml for the configuration.
//
// Each command has a file with its name. The commands that serve are in serve.go, and the
// commands that only read the text of a configuration are in check.go. main.go lists all
// commands, and run.go runs one of them. flags.go defines the flags, input.go loads
// configurations and scans the host, and output.go prints reports.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
)

// version is set by the linker: -X main.version=v1.2.3.
var version = "unknown"

func main() {
	// Without this, a write to a closed pipe would end the process before it has removed its
	// temporary files. Now the write fails instead.
	signal.Ignore(syscall.SIGPIPE)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// errReported ends a command that has already printed its problems. The exit status is 1.
var errReported = errors.New("reported")

// usageError is an invalid command line.
type usageError struct{ error }

func newRoot(f *flags) *cobra.Command {
	root := &cobra.Command{
		Use:   "generic-dp",
		Short: "generic Kubernetes device plugin, configured in TOML",
		Long: `generic-dp is a generic Kubernetes device plugin, configured in TOML. It finds
host devices by path, USB or PCI identity, advertises them to the kubelet as
extended resources, and injects them into containers: generic-dp serve.`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return cmd.Help()
		},
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error {
			f.remember(cmd)
			return f.unpack(cmd)
		},
		SilenceErrors: true,
		SilenceUsage:  true,
		Version:       version,
	}
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error {
		return usageError{err}
	})
	root.AddCommand(
		newDevices(f),
		newInit(f),
		newCheck(f),
		newExplain(f),
		newTry(f),
		newAllocate(f),
		newDiff(f),
		newImport(f),
		newSchema(),
		newClasses(f),
		newServe(f),
		newCDI(f),
		newStatus(f),
		newDoctor(f),
		newSnapshot(f),
		newClean(f),
		newEvict(f),
		newVersion(),
	)
	return root
}

func newVersion() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "version",
		Short: "print the version",
		Args:  noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := fmt.Fprintf(cmd.OutOrStdout(), "generic-dp %s\n", version)
			return err
		},
	}
	return withoutFlags(cmd)
}

// withoutFlags removes the flags of all commands from the help of a command that uses none. It
// does not set a template, because that would link text/template: with it, the linker keeps
// 2 MB of unused methods.
func withoutFlags(cmd *cobra.Command) *cobra.Command {
	cmd.SetUsageFunc(func(cmd *cobra.Command) error {
		_, err := fmt.Fprintf(cmd.OutOrStdout(), "Usage:\n  %s\n", cmd.CommandPath())
		return err
	})
	return cmd
}

// noArgs rejects arguments. An argument of the root command is an unknown command.
func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	first := args[0]
	if cmd == cmd.Root() {
		return unknownCommand(cmd, first)
	}
	readsConfig := cmd.Flags().Lookup("allow") != nil
	if readsConfig && strings.HasSuffix(first, ".toml") {
		return usageError{fmt.Errorf("unexpected argument %q: use --config %s", first, first)}
	}
	return usageError{fmt.Errorf("unexpected argument %q", first)}
}

// unknownCommand returns the error for a command that does not exist. It suggests commands with
// a similar name.
func unknownCommand(root *cobra.Command, name string) error {
	root.SuggestionsMinimumDistance = 2
	similar := root.SuggestionsFor(name)
	if len(similar) == 0 {
		return usageError{fmt.Errorf("unknown command %q", name)}
	}
	return usageError{fmt.Errorf("unknown command %q: did you mean %s?", name, orList(similar))}
}

// wantArgs rejects fewer arguments than least and more than most. want says which arguments the
// command has.
func wantArgs(least, most int, want string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		if len(args) < least || len(args) > most {
			return usageError{errors.New(want)}
		}
		return nil
	}
}
