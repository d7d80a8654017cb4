package main

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/generic-dp/generic-dp/agent"
	"github.com/generic-dp/generic-dp/config"
	"github.com/generic-dp/generic-dp/machine"
)

func newSnapshot(f *flags) *cobra.Command {
	var redact bool
	cmd := &cobra.Command{
		Use:   "snapshot FILE",
		Short: "write what is read of this host to a text file, for a bug report",
		Long: `snapshot writes what generic-dp reads below /sys and /dev of this host to one
text file, "-" for standard output. Other commands take the file in place of a
host (--sysfs FILE) and show there what they show here. Of /proc it has the names of
network interfaces, the interface of the default route, and the drivers of nodes that
sysfs does not know.

What the configuration asks for by name (attr) is written, too, where there is
one at --config.

With --redact serials of USB devices and names made of serials, UUIDs and labels
(/dev/disk/by-id/...) are replaced, as are names of interfaces made of addresses;
equal serials stay equal and IDs stay distinct. Of the attributes that the
configuration names those stay that are known to be harmless. Kernel release,
paths, other names and the strings of makers stay: it is text, look through it.`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) != 1 {
				return usageError{errors.New("want the file to write, - for standard output"), "snapshot "}
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			options := machine.Options{Head: f.snapshotHead(redact), Redact: redact}
			// What serves here is what a report is about; without a configuration
			// the host alone is worth a recording.
			cfg, err := config.Load(f.config)
			if err != nil && cmd.Flags().Changed("config") {
				return err
			}
			if err == nil {
				options.Also = agent.Record(cfg, f.options(nil))
			}
			archive, err := machine.Record(cmd.Context(), f.paths.Inventory(nil), options)
			if err != nil {
				return err
			}
			if args[0] == "-" {
				_, err = cmd.OutOrStdout().Write(archive)
				return err
			}
			return writePrivate(args[0], archive)
		},
	}
	cmd.Flags().BoolVar(&redact, "redact", false, "replace serials, and names made of them")
	return cmd
}

// snapshotHead says what a recording is, and how it is used.
func (f *flags) snapshotHead(redact bool) string {
	kernel, architecture := "unknown", "unknown"
	var uts unix.Utsname
	// A recording of a recording is not of this kernel.
	if f.unpacked == "" && unix.Uname(&uts) == nil {
		kernel, architecture = unix.ByteSliceToString(uts.Release[:]), unix.ByteSliceToString(uts.Machine[:])
	}
	redacted := "no: it holds serials"
	if redact {
		redacted = "yes: serials are REDACTED1, ..., names made of serials REDACTED-1, ..."
	}
	var b strings.Builder
	fmt.Fprintf(&b, "What generic-dp reads of a host.\nRecorded.\n\n")
	fmt.Fprintf(&b, "kernel:       %s\narchitecture: %s\ngeneric-dp:   %s\nredacted:     %s\n\n", kernel, architecture, version, redacted)
	fmt.Fprintf(&b, "To see on any machine what a configuration finds there:\n")
	fmt.Fprintf(&b, "  generic-dp devices --sysfs THIS-FILE --config CONFIG\n")
	fmt.Fprintf(&b, "  generic-dp try --once --sysfs THIS-FILE --config CONFIG\n\n")
	return b.String()
}

// writePrivate writes a file that only its owner reads, also where it exists with
// another mode: even a redacted recording is for review before others see it.
func writePrivate(name string, data []byte) error {
	file, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	info, err := file.Stat()
	if err == nil && info.Mode().IsRegular() { // /dev/stderr keeps its mode
		err = file.Chmod(0o600)
	}
	if err == nil {
		_, err = file.Write(data)
	}
	return errors.Join(err, file.Close())
}
