package cli

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
	// interrupted, and a read of the host may block forever.
	endWithin = 930 * time.Millisecond
	// endSlowlyWithin is the same for a command with the annotation EndsSlowly.
	endSlowlyWithin = 7 * time.Second
)

// EndsSlowly is the annotation of a command that has its own, longer limits for its end.
const EndsSlowly = "ends-slowly"

// errAbandoned says that a command did not end in time after a signal. Its goroutine still runs
// when the process exits.
var errAbandoned = errors.New("stopped by a signal before the end")

// Program is a program with commands.
type Program struct {
	// Root is the root command, prepared by Setup.
	Root *cobra.Command
	// Cleanup returns the directory with temporary files of the command, empty for none. It is called
	// after the command, even while an abandoned command still runs. It may be nil.
	Cleanup func() string
}

// Run is a whole program. It returns the exit status: 0 for success, 1 for a failure, 2 for an
// invalid command line, or the value of a StatusError. args are the arguments without the name of
// the program. A cancelled ctx stops the command; Run then returns within endWithin, or
// endSlowlyWithin.
func (p Program) Run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	p.Root.SetArgs(args)
	// Both outputs may show text that a device or a container chose.
	out := &printable{Writer: stdout, isColoured: hasColours(stdout)}
	p.Root.SetOut(out)
	p.Root.SetErr(&printable{Writer: stderr, isColoured: hasColours(stderr)})
	// cobra's help succeeds for an unknown command, with the help of the program.
	p.Root.InitDefaultHelpCmd()
	if help, _, _ := p.Root.Find([]string{"help"}); help != p.Root {
		help.Args = func(_ *cobra.Command, args []string) error {
			named, rest, _ := p.Root.Find(args)
			return NoArgs(named, rest)
		}
	}
	// The files are removed after the command, even if it failed or was abandoned. Only Run knows
	// when it has ended.
	within := endWithin
	called, _, err := p.Root.Find(args)
	if err == nil && called.Annotations[EndsSlowly] != "" {
		within = endSlowlyWithin
	}
	cmd, err := execute(ctx, p.Root, within)
	if err == nil {
		err = out.failed
	}
	// An abandoned command may still read or write the files, so the removal may also fail.
	if p.Cleanup != nil {
		err = errors.Join(err, os.RemoveAll(p.Cleanup()))
	}
	return exitStatus(cmd, err)
}

// exitStatus prints the error of a command and returns the exit status. The order of the cases
// matters for joined errors: a command that has reported its problems prints nothing more.
func exitStatus(cmd *cobra.Command, err error) int {
	isUsage := errors.As(err, new(UsageError))
	var other StatusError
	switch {
	case err == nil:
		return 0
	// The reader of a closed pipe, such as head, has seen enough: a message would be noise.
	case errors.Is(err, ErrReported), errors.Is(err, syscall.EPIPE):
		return 1
	case errors.As(err, &other):
		return int(other)
	case isUsage:
		fmt.Fprintf(cmd.ErrOrStderr(), "error: %v\n  hint: see %s --help\n", err, cmd.CommandPath())
		return 2
	}
	// Errors of several lines may end with a newline of their own.
	fmt.Fprintf(cmd.ErrOrStderr(), "error: %s\n", strings.TrimRight(err.Error(), "\n"))
	return 1
}

// execute runs a command in a goroutine of its own and returns the command with its error. If it has
// not ended some time after ctx, it is abandoned, and the returned command is the root. The caller must
// only read what is safe for concurrent use then. A command without a signal has no deadline.
func execute(ctx context.Context, root *cobra.Command, within time.Duration) (*cobra.Command, error) {
	type result struct {
		cmd *cobra.Command
		err error
	}
	// With a capacity of 1, an abandoned goroutine can still send its result and end.
	ended := make(chan result, 1)
	go func() {
		cmd, err := root.ExecuteContextC(ctx)
		ended <- result{cmd, err}
	}()
	interrupted := ctx.Done()
	var late <-chan time.Time
	for {
		select {
		case r := <-ended:
			return r.cmd, r.err
		case <-late:
			return root, errAbandoned
		case <-interrupted:
			late = time.After(within)
			interrupted = nil
		}
	}
}
