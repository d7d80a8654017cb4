// Command generic-dp offers a host's devices to the kubelet, as a TOML file
// says. See README.md for what it is for and config/reference.toml for what
// the file may say.
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

	"github.com/spf13/cobra"
)

// version is set by the linker: -X main.version=v1.2.3.
var version = "unknown"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// errReported ends a command with status 1 whose problems are printed already.
var errReported = errors.New("reported")

// run is the whole command: 0 for success, 1 for a failure, 2 for a call that
// is not understood.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	var f flags
	root := newRoot(&f)
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	err := root.ExecuteContext(ctx)
	err = errors.Join(err, f.close())
	var usage usageError
	switch {
	case err == nil:
		return 0
	case errors.Is(err, errReported):
		return 1
	case errors.As(err, &usage):
		fmt.Fprintf(stderr, "error: %s\n  hint: generic-dp %s--help lists what is understood\n", usage, usage.command)
		return 2
	default:
		printError(stderr, err)
		return 1
	}
}

// printError writes an error, and what follows its first line, as they are.
func printError(w io.Writer, err error) {
	fmt.Fprintf(w, "error: %s\n", strings.TrimRight(err.Error(), "\n"))
}

// usageError is a call that is not understood.
type usageError struct {
	error
	command string
}

func newRoot(f *flags) *cobra.Command {
	serve := newServe(f)
	root := &cobra.Command{
		Use:   "generic-dp",
		Short: "offer a host's devices to the kubelet, as a TOML file says",
		Long: `generic-dp offers a host's devices to the kubelet, as a TOML file says.

It finds devices by path, PCI or USB identity, lists them as extended
resources, and tells the kubelet what a container needs to use them. Without a
subcommand it serves.`,
		Args:              noArgs,
		RunE:              serve.RunE,
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error { return f.unpack(cmd) },
		SilenceErrors:     true,
		SilenceUsage:      true,
		Version:           version,
	}
	f.register(root.PersistentFlags())
	f.registerServe(root.Flags())
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error { return usageError{err, commandPath(cmd)} })
	root.AddCommand(serve, newCDI(f), newStatus(f), newCheck(f), newDevices(f), newTry(f), newSnapshot(f), newClean(f), newImport(), newSchema(), newVersion())
	return root
}

func newVersion() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "print the version",
		Args:  noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := fmt.Fprintf(cmd.OutOrStdout(), "generic-dp %s\n", version)
			return err
		},
	}
}

// noArgs refuses arguments; an unknown subcommand arrives as one.
func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	what := "unexpected argument"
	if cmd == cmd.Root() {
		what = "unknown command"
	}
	return usageError{fmt.Errorf("%s %q", what, args[0]), commandPath(cmd)}
}

// commandPath is the subcommand with a trailing space, or nothing.
func commandPath(cmd *cobra.Command) string {
	if cmd == cmd.Root() {
		return ""
	}
	return cmd.Name() + " "
}
