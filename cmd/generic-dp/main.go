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

// version is set by the linker: -X main.version=v1.2.3. A plain go build leaves it "unknown".
var version = "unknown"

// main has no logic, so that tests can call run with a context, arguments and outputs of their
// own. SIGINT and SIGTERM cancel the context. It is the only function that ends the process.
func main() {
	// Without this, a write to a closed pipe would end the process before it has removed its
	// temporary files. Now the write fails instead.
	signal.Ignore(syscall.SIGPIPE)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, commandLine(os.Args), os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// errReported ends a command that has already printed its problems. The exit status is 1.
var errReported = errors.New("reported")

// usageError is an invalid command line. The exit status is 2, and the hint names --help. Errors
// in files and on the host are no usage errors.
type usageError struct{ error }

// newRoot returns the root command with all commands. The commands share the values in f, because
// only one of them runs. Without a command it prints the help and succeeds.
func newRoot(f *flags) *cobra.Command {
	root := &cobra.Command{
		Use:   "generic-dp",
		Short: "generic Kubernetes device plugin, configured in TOML",
		Long: `generic-dp is a generic Kubernetes device plugin, configured in TOML. It finds
host devices by path, USB or PCI identity, advertises them to the kubelet as
extended resources, and injects them into containers: generic-dp serve.

The variable GENERIC_DP_<FLAG> replaces the default of a flag that several
commands share, such as GENERIC_DP_STATE_DIR for --state-dir. A flag wins.`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return cmd.Help()
		},
		// This runs before every command. remember precedes unpack, which replaces the paths in the
		// flags: a hint must repeat the paths that the user gave. A command must not have a
		// PersistentPreRunE of its own, because cobra would only run that one.
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error {
			if err := f.readEnvironment(cmd); err != nil {
				return err
			}
			f.remember(cmd)
			return f.unpack(cmd)
		},
		// exitStatus prints errors: cobra would print them with another prefix, and the usage of
		// the command after each of them.
		SilenceErrors: true,
		SilenceUsage:  true,
		Version:       version,
	}
	// An unknown flag or a bad value is also a usage error. Subcommands inherit the function.
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error {
		return usageError{err}
	})
	// The help lists the commands by name: the order here is only for readers.
	root.AddCommand(
		newDevices(f),
		newInit(f),
		newCheck(f),
		newExplain(f),
		newTry(f),
		newAllocate(f),
		newDiff(f),
		newImport(),
		newSchema(),
		newClasses(f),
		newServe(f),
		newCDI(f),
		newStatus(f),
		newDoctor(f),
		newSnapshot(f),
		newClean(f),
		newFleet(f),
		newVersion(),
	)
	return root
}

// newVersion returns the command version. Its output is one line: "generic-dp v1.2.3".
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

// noArgs rejects arguments. An argument of the root command is an unknown command. A file name as
// the argument of a command that reads a configuration is a common mistake: the error names
// --config.
func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	first := args[0]
	if cmd == cmd.Root() {
		return unknownCommand(cmd, first)
	}
	// clean also has flags for paths. Of the commands without arguments, only commands that load
	// a configuration have --allow.
	readsConfig := cmd.Flags().Lookup("allow") != nil
	if readsConfig && strings.HasSuffix(first, ".toml") {
		return usageError{fmt.Errorf("unexpected argument %q: use --config %s", first, first)}
	}
	return usageError{fmt.Errorf("unexpected argument %q", first)}
}

// unknownCommand returns the error for a command that does not exist. It suggests commands with a
// similar name: commands that begin with name, or that differ from it in at most two edits.
func unknownCommand(root *cobra.Command, name string) error {
	// cobra only sets its default of 2 in a function of its own, which does not run here. With 0,
	// it would only suggest commands that begin with name.
	root.SuggestionsMinimumDistance = 2
	similar := root.SuggestionsFor(name)
	if len(similar) == 0 {
		return usageError{fmt.Errorf("unknown command %q", name)}
	}
	return usageError{fmt.Errorf("unknown command %q: did you mean %s?", name, orList(similar))}
}

// wantArgs rejects fewer arguments than least and more than most. want says which arguments the
// command has, and is the whole text of the error: "want one FILE".
func wantArgs(least, most int, want string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		if len(args) < least || len(args) > most {
			return usageError{errors.New(want)}
		}
		return nil
	}
}
