package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
)

// The time that a command may take to end after a signal.
const (
	// endWithin is the time until a command is abandoned. Matching many devices is not
	// interrupted, and a read of the host may block forever. serve ends earlier and has no
	// temporary files, see agent.Run.
	endWithin = 930 * time.Millisecond
	// removeWithin is the additional time for removing temporary files.
	removeWithin = 50 * time.Millisecond
)

// errAbandoned says that a command did not end in time after a signal.
var errAbandoned = errors.New("stopped by a signal before the end")

// run is the whole program. It returns the exit status: 0 for success, 1 for a failure, 2 for an
// invalid command line.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	f := newFlags()
	root := newRoot(f)
	if len(args) > 0 && strings.HasPrefix(args[0], cobra.ShellCompRequestCmd) {
		// Registering completions takes time and memory, which serve does not have.
		complete(root)
	}
	root.SetArgs(args)
	root.SetOut(printable{stdout})
	root.SetErr(printable{stderr})
	late, forget := lateAfter(ctx)
	defer forget()
	cmd, err := execute(ctx, root, late)
	err = errors.Join(err, removeUnpacked(f, late))
	return exitStatus(f, cmd, err)
}

// exitStatus prints the error of a command and returns the exit status.
func exitStatus(f *flags, cmd *cobra.Command, err error) int {
	isUsage := errors.As(err, new(usageError))
	switch {
	case err == nil:
		return 0
	case errors.Is(err, errReported), errors.Is(err, syscall.EPIPE):
		return 1
	case isUsage:
		fmt.Fprintf(cmd.ErrOrStderr(), "error: %v\n  hint: see %s --help\n", err, cmd.CommandPath())
		return 2
	}
	message := f.completeCommands(err.Error())
	fmt.Fprintf(cmd.ErrOrStderr(), "error: %s\n", strings.TrimRight(message, "\n"))
	return 1
}

// lateAfter returns a channel that is closed endWithin after ctx ends. stop releases it.
func lateAfter(ctx context.Context) (late <-chan struct{}, stop func() bool) {
	isLate := make(chan struct{})
	stop = context.AfterFunc(ctx, func() {
		time.AfterFunc(endWithin, func() {
			close(isLate)
		})
	})
	return isLate, stop
}

// execute runs a command. When it is late, it is abandoned, and the returned command is the root.
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

// removeUnpacked removes the files of an unpacked recording. Once the command is late, it waits
// no longer than removeWithin, so that a large recording may leave files in the temporary
// directory.
func removeUnpacked(f *flags, late <-chan struct{}) error {
	unpacked := f.temporary.Load()
	if unpacked == nil {
		return nil
	}
	removed := make(chan error, 1)
	go func() {
		removed <- os.RemoveAll(*unpacked)
	}()
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
