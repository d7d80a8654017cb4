package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/generic-dp/generic-dp/config"
	"github.com/generic-dp/generic-dp/internal/agent"
	"github.com/generic-dp/generic-dp/internal/host/recording"
)

func newSnapshot(f *flags) *cobra.Command {
	var redact bool
	cmd := &cobra.Command{
		Use:   "snapshot FILE",
		Short: "record the devices of this host in a text file, for a bug report",
		Long: `snapshot records what generic-dp reads below /sys and /dev of this host in a
text file ("-" is standard output). Other commands take the file in place of a
host (--sysfs FILE) and print there what they print here. From /proc it takes
the names of network interfaces and which have routes or addresses, and the
drivers of nodes without an entry in sysfs. If there is a configuration at
--config, the attributes that it names (attr) are recorded too.

--redact replaces serials of USB devices, names made of serials, UUIDs and
labels (/dev/disk/by-id/...), and interface names made of addresses. Equal
serials stay equal and IDs stay distinct. Of the attributes that the
configuration names, only known harmless ones are kept. Kernel release, paths,
other names and manufacturer strings stay: review the file before sharing it.`,
		Args: wantArgs(1, 1, "want one FILE, or - for standard output"),
		RunE: func(cmd *cobra.Command, args []string) error {
			options := recording.Options{Head: f.snapshotHead(redact), Redact: redact}
			// The configuration is optional unless given: the host alone is useful too.
			cfg, err := config.Load(f.config)
			if err != nil && cmd.Flags().Changed("config") {
				return err
			}
			if err == nil {
				options.Also = agent.Record(cfg, f.options(io.Discard))
			}
			archive, err := recording.Record(cmd.Context(), f.paths.Inventory(), options)
			if err != nil {
				return err
			}
			if args[0] == "-" {
				_, err = cmd.OutOrStdout().(printable).Writer.Write(archive)
				return err
			}
			return writePrivate(args[0], archive)
		},
	}
	cmd.Flags().BoolVar(&redact, "redact", false, "replace serials and names made of them")
	return cmd
}

// snapshotHead returns the description at the start of a recording.
func (f *flags) snapshotHead(redact bool) string {
	kernel, architecture := "unknown", "unknown"
	var uts unix.Utsname
	// A recording of a recording has another kernel.
	if f.unpacked == "" && unix.Uname(&uts) == nil {
		kernel, architecture = unix.ByteSliceToString(uts.Release[:]), unix.ByteSliceToString(uts.Machine[:])
	}
	redacted := "no: contains serials"
	if redact {
		redacted = "yes: serials are REDACTED1, ..., names made of serials REDACTED-1, ..."
	}
	return fmt.Sprintf(`Recording of a host by generic-dp snapshot.

kernel:       %s
architecture: %s
generic-dp:   %s
redacted:     %s

To apply a configuration to this host, on any machine:
  generic-dp devices --sysfs THIS-FILE --config CONFIG
  generic-dp try --once --sysfs THIS-FILE --config CONFIG

`, kernel, architecture, version, redacted)
}

// writePrivate writes a file readable by its owner only, even if it exists with another
// mode: a recording contains serials, and a redacted one needs a review.
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

// unpack replaces the host with the recording that --sysfs names, if it is a file. run
// removes the unpacked files.
func (f *flags) unpack(cmd *cobra.Command) error {
	file := f.paths.Sysfs
	info, err := os.Stat(file)
	if err != nil || !info.Mode().IsRegular() {
		return nil // reported when it is scanned
	}
	if cmd == cmd.Root() || cmd.Name() == "serve" || cmd.Name() == "cdi" || cmd.Name() == "status" {
		return usageError{fmt.Errorf("--sysfs: %q is a recording and cannot be served: want try", file)}
	}
	if cmd.Flags().Changed("dev") {
		return usageError{fmt.Errorf("--dev: the recording %q contains its own /dev: want --sysfs alone", file)}
	}
	archive, err := os.ReadFile(file)
	if err != nil {
		return fmt.Errorf("--sysfs: %w", err)
	}
	unpacked, err := os.MkdirTemp("", "generic-dp-recording-")
	if err != nil {
		return fmt.Errorf("--sysfs: unpacking a recording: %w", err)
	}
	f.unpacked = unpacked
	f.temporary.Store(&unpacked)
	if err := recording.Unpack(f.unpacked, archive); err != nil {
		return fmt.Errorf("--sysfs: %q: %w", file, err)
	}
	tree := recording.Tree{Root: f.unpacked}
	f.paths.Sysfs = tree.Sysfs()
	f.paths.Dev = tree.Dev()
	// CDI devices of this host do not belong to another.
	f.paths.SpecDirs = []string{filepath.Join(f.unpacked, "cdi")}
	if !cmd.Flags().Changed("state-dir") {
		// Identity decisions of this host do not apply to another.
		f.paths.StateDir = filepath.Join(f.unpacked, "state")
	}
	return nil
}
