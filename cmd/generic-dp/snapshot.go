package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/generic-dp/generic-dp/config"
	"github.com/generic-dp/generic-dp/internal/agent"
	"github.com/generic-dp/generic-dp/internal/device"
	"github.com/generic-dp/generic-dp/internal/host/inventory"
	"github.com/generic-dp/generic-dp/internal/host/recording"
	"github.com/generic-dp/generic-dp/internal/tools/catalog"
	"github.com/generic-dp/generic-dp/internal/tools/cli"
)

// newSnapshot returns the command snapshot. Package recording has the format of the file, and
// unpack is the other direction.
func newSnapshot(f *flags) *cobra.Command {
	var redact bool
	cmd := &cobra.Command{
		Use:   "snapshot FILE",
		Short: "record the devices of this host in a text file, for a bug report",
		Long: `snapshot records what generic-dp reads below /sys and /dev of this host in a
text file ("-" is standard output). With the file, other commands print the same
as on this host: --sysfs FILE. From /proc it records the names of network
interfaces, which of them have routes or addresses, and the drivers of nodes
without an entry in sysfs. If there is a configuration at
--config, the attributes that it names (attr) are recorded too, and the names of
the files that it finds outside of /dev.

--redact replaces serials of USB devices, names made of serials, UUIDs and
labels (/dev/disk/by-id/...), and interface names made of addresses. Equal
serials stay equal and IDs stay distinct. Of the attributes that the
configuration names, only attributes known to be harmless are kept. Kernel
release, paths, other names and manufacturer strings stay: review the file
before you share it.`,
		Args: cli.WantArgs(1, 1, "want one FILE, or - for standard output"),
		RunE: func(cmd *cobra.Command, args []string) error {
			// The permissions are not checked, since nothing is offered.
			cfg, err := read(f.config)
			cfg, err = f.optional(cmd, cfg, err)
			if err != nil {
				return err
			}
			options := recording.Options{
				Head:   f.snapshotHead(redact),
				Redact: redact,
				Also:   f.alsoRecorded(cfg),
			}
			archive, err := recording.Record(cmd.Context(), f.paths.Inventory(), options)
			if err != nil {
				return err
			}
			if args[0] == "-" {
				// Escapes for the terminal would change the recording.
				_, err = cli.Unescaped(cmd.OutOrStdout()).Write(archive)
				return err
			}
			// The archive is complete before the file is opened, so that a failed scan leaves no
			// file.
			return cli.WritePrivate(args[0], archive)
		},
	}
	// --sysfs may name a recording, so that --redact also works for an existing one.
	f.add(cmd, hostFlags, []string{"config", "node-name"})
	cmd.Flags().BoolVar(&redact, "redact", false, "replace serials and names made of them")
	return cmd
}

// alsoRecorded returns the reads beyond a scan: attributes and files that the configuration names, and
// attributes that init and devices --all read. Commands then print the same with the recording as
// on the host. recording.Record calls it with attributes that remember each read.
func (f *flags) alsoRecorded(cfg *config.Config) func(*device.Snapshot, *inventory.Attributes) []string {
	// This only prepares the function. The reads take place while the host is recorded.
	readConfig := agent.Record(cfg, f.options(io.Discard))
	return func(snap *device.Snapshot, attrs *inventory.Attributes) []string {
		catalog.Read(snap, attrs)
		return readConfig(snap, attrs)
	}
}

// snapshotHead returns the description at the start of a recording. It is text for people, which
// unpack ignores. It has no name of the host and no date.
func (f *flags) snapshotHead(redact bool) string {
	kernel := "unknown"
	architecture := "unknown"
	var uts unix.Utsname
	// A recording of a recording has another kernel.
	if f.unpacked == "" && unix.Uname(&uts) == nil {
		kernel = unix.ByteSliceToString(uts.Release[:])
		architecture = unix.ByteSliceToString(uts.Machine[:])
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
  generic-dp try --sysfs THIS-FILE --config CONFIG

`, kernel, architecture, version, redacted)
}

// unpack replaces the host with the recording that --sysfs names, if it is a file. run removes
// the unpacked files, even if unpack fails. It runs before every command, and does nothing for
// commands without --sysfs.
func (f *flags) unpack(cmd *cobra.Command) error {
	// Only commands that read the host have the flag.
	readsHost := cmd.Flags().Lookup("sysfs") != nil
	if !readsHost {
		return nil
	}
	file := f.paths.Sysfs
	info, err := os.Stat(file)
	if err != nil || !info.Mode().IsRegular() {
		return nil // the scan reports a missing directory
	}
	// The kubelet would offer devices that this host does not have.
	if cmd.Name() == "serve" {
		return cli.Usagef("--sysfs: %q is a recording and cannot be served: use try", file)
	}
	if cmd.Name() == "doctor" {
		return cli.Usagef("--sysfs: %q is a recording, and doctor checks the host that it runs on: use devices and explain", file)
	}
	if cmd.Flags().Changed("dev") {
		return cli.Usagef("--dev: the recording %q contains its own /dev: use only --sysfs", file)
	}
	archive, err := os.ReadFile(file)
	if err != nil {
		return fmt.Errorf("--sysfs: %w", err)
	}
	// A scan reads directories and files, so the recording must be on disk. TMPDIR says where.
	unpacked, err := os.MkdirTemp("", "generic-dp-recording-")
	if err != nil {
		return fmt.Errorf("--sysfs: unpacking a recording: %w\n  hint: TMPDIR names a directory for it", err)
	}
	// Both are set before anything is unpacked, so that run also removes a part of a recording.
	f.unpacked = unpacked
	f.temporary.Store(&unpacked)
	err = recording.Unpack(f.unpacked, archive)
	if err != nil {
		return fmt.Errorf("--sysfs: %q: %w", file, err)
	}
	tree := recording.Tree{Root: f.unpacked}
	f.paths.Sysfs = tree.Sysfs()
	f.paths.Dev = tree.Dev()
	f.paths.Files = tree.Files()
	// The CDI specs of this machine say nothing about the recorded host.
	f.paths.SpecDirs = []string{filepath.Join(f.unpacked, "cdi")}
	if !cmd.Flags().Changed("state-dir") {
		// The identity decisions of this machine do not apply to the recorded host.
		f.paths.StateDir = filepath.Join(f.unpacked, "state")
	}
	return nil
}
