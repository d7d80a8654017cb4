// Command generic-dp is a generic Kubernetes device plugin: it advertises the host devices
// that a TOML file selects to the kubelet. See README.md for its use and
// config/reference.toml for the configuration.
//
// Each command has a file with its name; clean is in serve.go. edits.go and contents.go have what containers get. main.go lists all commands. flags.go
// defines the flags, and input.go loads configurations and scans the host. Package cli runs a command
// and prints its report.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/generic-dp/generic-dp/internal/tools/cli"
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
	code := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

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
		// This runs before every command. A command must not have a PersistentPreRunE of its own,
		// because cobra would only run that one.
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error {
			if err := f.readEnvironment(cmd); err != nil {
				return err
			}
			return f.unpack(cmd)
		},
		Version: version,
	}
	cli.Setup(root)
	// The help lists the commands by name: the order here is only for readers.
	root.AddCommand(
		newDevices(f),
		newInit(f),
		newCheck(f),
		newExplain(f),
		newTry(f),
		newServe(f),
		newStatus(f),
		newDoctor(f),
		newSnapshot(f),
		newClean(f),
		newVersion(),
	)
	return root
}

// newVersion returns the command version. Its output is one line: "generic-dp v1.2.3".
func newVersion() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "print the version",
		Args:  cli.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := fmt.Fprintf(cmd.OutOrStdout(), "generic-dp %s\n", version)
			return err
		},
	}
}

// run is the whole program, see cli.Program.Run.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	f := newFlags()
	program := cli.Program{
		Root:    newRoot(f),
		Cleanup: f.temporaryDir,
	}
	return program.Run(ctx, args, stdout, stderr)
}
