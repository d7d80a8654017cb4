package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/generic-dp/generic-dp/internal/host/recording"
)

// snapshot of every recorded machine, rebuilt on disk, is a recording on which the commands
// print what they print on the machine; redacted too, it is a machine that can be scanned.
func TestSnapshotOfEveryMachine(t *testing.T) {
	t.Parallel()
	for _, machine := range recordings(t) {
		t.Run(filepath.Base(machine), func(t *testing.T) {
			t.Parallel()
			archive, err := os.ReadFile(machine)
			if err != nil {
				t.Fatal(err)
			}
			tree := recording.Tree{Root: t.TempDir()}
			err = recording.Unpack(tree.Root, archive)
			if err != nil {
				t.Fatal(err)
			}
			onDisk := []string{"--sysfs", tree.Sysfs(), "--dev", tree.Dev(), "--state-dir", t.TempDir()}
			file := filepath.Join(t.TempDir(), "snapshot.txtar")
			command(t, append([]string{"snapshot", file}, onDisk...)...)
			lists := [][]string{
				{"devices", "--all", "-o", "json", "--hwdata", "nowhere"},
				{"devices", "--all", "-o", "wide", "--hwdata", "nowhere"},
			}
			for _, list := range lists {
				want := command(t, append(list, onDisk...)...)
				got := command(t, append(list, "--sysfs", file)...)
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("%v (-machine +recording):\n%s", list, diff)
				}
			}
			wantStarter := starterOf(t, onDisk...)
			gotStarter := starterOf(t, "--sysfs", file)
			if diff := cmp.Diff(wantStarter, gotStarter); diff != "" {
				t.Errorf("init (-machine +recording):\n%s", diff)
			}
			redacted := filepath.Join(t.TempDir(), "redacted.txtar")
			command(t, append([]string{"snapshot", "--redact", redacted}, onDisk...)...)
			command(t, "devices", "--all", "--hwdata", "nowhere", "--sysfs", redacted)
		})
	}
}

// starterOf is the output of init, whatever its status: some machines have nothing for pods.
func starterOf(t *testing.T, host ...string) string {
	t.Helper()
	var out, stderr strings.Builder
	args := append([]string{"init", "--hwdata", "nowhere"}, host...)
	run(t.Context(), args, &out, &stderr)
	// The command that a hint prints names the host, which differs.
	message, _, _ := strings.Cut(stderr.String(), ": generic-dp ")
	return out.String() + message
}
