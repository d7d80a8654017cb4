// Command generic-dp is a generic Kubernetes device plugin: it advertises host devices
// to the kubelet as a TOML file configures. See README.md for its use and
// config/reference.toml for the configuration.
//
// Each command has a file of its name; those that serve are in serve.go, those about the
// text of a configuration alone in check.go. flags.go has all flags, and how a command
// loads the configuration and scans the host; output.go prints what commands report.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
)

// version is set by the linker: -X main.version=v1.2.3.
var version = "unknown"

func main() {
	// A write to a closed pipe is an error, so that temporary files are removed.
	signal.Ignore(syscall.SIGPIPE)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// errReported ends a command that has already printed its problems with status 1.
var errReported = errors.New("reported")

// usageError is an invalid command line.
type usageError struct{ error }

// run is the whole command. It returns the exit status: 0 for success, 1 for a failure,
// 2 for an invalid command line.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	f := newFlags()
	root := newRoot(f)
	if len(args) > 0 && strings.HasPrefix(args[0], cobra.ShellCompRequestCmd) {
		complete(root) // what serve would take time and memory for
	}
	root.SetArgs(args)
	root.SetOut(printable{stdout})
	root.SetErr(printable{stderr})
	late := make(chan struct{})
	forget := context.AfterFunc(ctx, func() { time.AfterFunc(endWithin, func() { close(late) }) })
	defer forget()
	cmd, err := execute(ctx, root, late)
	err = errors.Join(err, removeUnpacked(f, late))
	switch {
	case err == nil:
		return 0
	case errors.Is(err, errReported), errors.Is(err, syscall.EPIPE):
		return 1
	case errors.As(err, new(usageError)):
		fmt.Fprintf(cmd.ErrOrStderr(), "error: %v\n  hint: see %s --help\n", err, cmd.CommandPath())
		return 2
	}
	fmt.Fprintf(cmd.ErrOrStderr(), "error: %s\n", strings.TrimRight(err.Error(), "\n"))
	return 1
}

// removeUnpacked removes the files of an unpacked recording. When it is late, it takes no longer
// than removeWithin: a large recording leaves files in the temporary directory then.
func removeUnpacked(f *flags, late <-chan struct{}) error {
	unpacked := f.temporary.Load()
	if unpacked == nil {
		return nil
	}
	removed := make(chan error, 1)
	go func() { removed <- os.RemoveAll(*unpacked) }()
	select {
	case err := <-removed:
		return err
	case <-late:
	}
	select {
	case err := <-removed:
		return err
	case <-time.After(removeWithin):
		return fmt.Errorf("%s could not be removed in time", *unpacked)
	}
}

const (
	// endWithin is how long a command may take to end after a signal. A match of many devices is
	// not interrupted, and a read of the host may block for ever. Serving ends earlier and unpacks
	// nothing, see agent.Run.
	endWithin    = 930 * time.Millisecond
	removeWithin = 50 * time.Millisecond
)

var errAbandoned = errors.New("stopped by a signal before the end")

// execute runs a command, and abandons it when it is late. The command that it returns is the root
// then.
func execute(ctx context.Context, root *cobra.Command, late <-chan struct{}) (*cobra.Command, error) {
	type result struct {
		cmd *cobra.Command
		err error
	}
	ended := make(chan result, 1)
	go func() {
		cmd, err := root.ExecuteContextC(ctx)
		ended <- result{cmd, err}
	}()
	select {
	case r := <-ended:
		return r.cmd, r.err
	case <-late:
		return root, errAbandoned
	}
}

func newRoot(f *flags) *cobra.Command {
	root := &cobra.Command{
		Use:   "generic-dp",
		Short: "generic Kubernetes device plugin, configured in TOML",
		Long: `generic-dp is a generic Kubernetes device plugin, configured in TOML. It finds
host devices by path, USB or PCI identity, advertises them to the kubelet as
extended resources, and injects them into containers: generic-dp serve.`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if cmd.Flags().NFlag() > 0 { // a unit of an older version must not end with success
				return usageError{errors.New("no command: want one such as serve")}
			}
			return cmd.Help()
		},
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error { return f.unpack(cmd) },
		SilenceErrors:     true,
		SilenceUsage:      true,
		Version:           version,
	}
	root.PersistentFlags().AddFlagSet(f.pick("config", "sysfs", "dev", "state-dir", "node-name", "log-format", "log-level"))
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usageError{err} })
	root.AddCommand(
		newDevices(f), newInit(f), newCheck(f), newExplain(f), newTry(f), newAllocate(f), newDiff(f), newImport(f), newSchema(), newClasses(f),
		newServe(f), newCDI(f), newStatus(f), newDoctor(f), newSnapshot(f), newClean(f), newEvict(f), newVersion(),
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

// withoutFlags leaves the flags of all commands out of the help of one that uses none. A
// template of our own would link text/template, and with it 2 MB of unused methods.
func withoutFlags(cmd *cobra.Command) *cobra.Command {
	cmd.SetUsageFunc(func(cmd *cobra.Command) error {
		_, err := fmt.Fprintf(cmd.OutOrStdout(), "Usage:\n  %s\n", cmd.CommandPath())
		return err
	})
	return cmd
}

// noArgs rejects arguments; of the root command they are unknown subcommands.
func noArgs(cmd *cobra.Command, args []string) error {
	switch {
	case len(args) == 0:
		return nil
	case cmd == cmd.Root():
		cmd.SuggestionsMinimumDistance = 2
		if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
			return usageError{fmt.Errorf("unknown command %q: did you mean %s?", args[0], orList(near))}
		}
		return usageError{fmt.Errorf("unknown command %q", args[0])}
	}
	if strings.HasSuffix(args[0], ".toml") && cmd.Flags().Lookup("allow") != nil { // it reads a configuration
		return usageError{fmt.Errorf("unexpected argument %q: want --config %[1]s", args[0])}
	}
	return usageError{fmt.Errorf("unexpected argument %q", args[0])}
}

// wantArgs rejects numbers of arguments below least or above most.
func wantArgs(least, most int, want string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		if len(args) < least || len(args) > most {
			return usageError{errors.New(want)}
		}
		return nil
	}
}
