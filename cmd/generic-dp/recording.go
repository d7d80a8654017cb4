package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/generic-dp/generic-dp/machine"
)

// unpack puts a recording that --sysfs names in place of the host. What it
// makes is for close to remove.
func (f *flags) unpack(cmd *cobra.Command) error {
	file := f.paths.Sysfs
	info, err := os.Stat(file)
	if err != nil || !info.Mode().IsRegular() {
		return nil // who reads it says what is wrong
	}
	if cmd == cmd.Root() || cmd.Name() == "serve" || cmd.Name() == "cdi" || cmd.Name() == "status" {
		return usageError{fmt.Errorf("--sysfs: %q is a recording: there is nothing to serve; want try", file), commandPath(cmd)}
	}
	if cmd.Flags().Changed("dev") {
		return usageError{fmt.Errorf("--dev: the recording %q of --sysfs has a /dev of its own; want one of the two", file), commandPath(cmd)}
	}
	archive, err := os.ReadFile(file)
	if err != nil {
		return fmt.Errorf("--sysfs: %w", err)
	}
	f.unpacked, err = os.MkdirTemp("", "generic-dp-recording-")
	if err != nil {
		return fmt.Errorf("--sysfs: unpacking a recording: %w", err)
	}
	if err := machine.Unpack(f.unpacked, archive); err != nil {
		return fmt.Errorf("--sysfs: %q: %w", file, err)
	}
	tree := machine.Tree{Root: f.unpacked}
	f.paths.Sysfs, f.paths.Dev = tree.Sysfs(), tree.Dev()
	// Another host's CDI devices are none of this one's.
	f.paths.SpecDirs = []string{filepath.Join(f.unpacked, "cdi")}
	if !cmd.Flags().Changed("state-dir") {
		// What was decided about the devices of this host says nothing of others.
		f.paths.StateDir = filepath.Join(f.unpacked, "state")
	}
	return nil
}

// close removes what was unpacked.
func (f *flags) close() error {
	if f.unpacked == "" {
		return nil
	}
	if err := os.RemoveAll(f.unpacked); err != nil {
		return errors.Join(errors.New("removing an unpacked recording"), err)
	}
	return nil
}
