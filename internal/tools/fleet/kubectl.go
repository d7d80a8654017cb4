package fleet

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"regexp"
	"strings"
	"time"
)

// Kubectl runs kubectl.
type Kubectl interface {
	// Run runs kubectl until it ends or ctx is cancelled. The error contains what kubectl
	// wrote to standard error.
	Run(ctx context.Context, call Call) error
}

// Call is a call of kubectl.
type Call struct {
	// Args follow the program and its flags.
	Args []string
	// Input is its standard input.
	Input []byte
	// Output reads its standard output. It is called once, in another goroutine, and need not read
	// to the end.
	Output func(io.Reader) error
}

// Program is the kubectl of the user. Program implements Kubectl.
type Program struct {
	// Command is the program and its first arguments, such as "k3s", "kubectl".
	Command []string
	// Flags select the cluster: --context and --kubeconfig.
	Flags []string
}

// RemoteError is the failure of a program that kubectl exec ran in a container.
type RemoteError struct {
	// Text is what the program wrote to standard error.
	Text string
}

func (e *RemoteError) Error() string { return e.Text }

// waitDelay limits the wait for the output of kubectl after it was killed: a child of it, such
// as a credential plugin, may keep the pipe open.
const waitDelay = time.Second

// maxStderr limits how much of kubectl's standard error is kept.
const maxStderr = 64 << 10

// Run implements Kubectl. If both the program and Output fail, it returns the error of the program,
// which is usually the cause.
func (p Program) Run(ctx context.Context, call Call) error {
	argv := append([]string{}, p.Command...)
	argv = append(argv, p.Flags...)
	argv = append(argv, call.Args...)
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.WaitDelay = waitDelay
	// Without input, standard input is /dev/null: kubectl must not read from the terminal.
	if call.Input != nil {
		cmd.Stdin = bytes.NewReader(call.Input)
	}
	stderr := &limitedBuffer{room: maxStderr}
	cmd.Stderr = stderr
	stdout, ours := io.Pipe()
	cmd.Stdout = ours
	read := make(chan error, 1)
	go func() {
		err := call.Output(stdout)
		// Whatever follows is read as well: otherwise kubectl would block.
		_, _ = io.Copy(io.Discard, stdout)
		read <- err
	}()
	err := cmd.Run()
	// This is the end of the output for the reader.
	_ = ours.Close()
	readErr := <-read
	switch {
	// The error of a killed process would only say that it was killed.
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.Is(err, exec.ErrNotFound):
		return fmt.Errorf("%s is not in $PATH\n  hint: --kubectl names another program, such as \"k3s kubectl\"", argv[0])
	case err != nil:
		return failure(err, stderr.text.String())
	}
	return readErr
}

// limitedBuffer keeps the first bytes that are written to it. The rest is dropped without an error,
// so that kubectl can end.
type limitedBuffer struct {
	text bytes.Buffer
	room int
}

func (b *limitedBuffer) Write(p []byte) (int, error) {
	kept := p[:min(len(p), b.room)]
	b.room -= len(kept)
	b.text.Write(kept)
	return len(p), nil
}

// remoteExit begins the line that kubectl exec writes if the program in the container failed.
const remoteExit = "command terminated with exit code"

// failure is the error for a call that failed, with the messages of kubectl or of the program in
// the container. It is a RemoteError if the program in the container failed.
func failure(err error, stderr string) error {
	stderr = strings.TrimSpace(stderr)
	before, _, isRemote := strings.Cut(stderr, remoteExit)
	if isRemote {
		// The program has written its messages before kubectl wrote its own.
		text := strings.TrimPrefix(strings.TrimSpace(before), "error: ")
		return &RemoteError{Text: text}
	}
	if stderr == "" {
		return fmt.Errorf("kubectl: %w", err)
	}
	stderr = strings.TrimPrefix(withoutLog(stderr), "error: ")
	return fmt.Errorf("kubectl: %s", strings.TrimPrefix(stderr, "Error from server "))
}

// logLine matches a line of kubectl's log: `E1126 02:21:13.000000 4242 memcache.go:265] "Unhandled
// Error" …`. kubectl logs each of five attempts to reach the API server before its message.
var logLine = regexp.MustCompile(`^[EWI]\d{4} `)

// withoutLog returns the messages of kubectl without its log. If it only wrote a log, the last line
// is returned.
func withoutLog(stderr string) string {
	all := strings.Split(stderr, "\n")
	var messages []string
	for _, line := range all {
		if !logLine.MatchString(line) {
			messages = append(messages, line)
		}
	}
	if len(messages) == 0 {
		return all[len(all)-1]
	}
	return strings.Join(messages, "\n")
}

// isNotFound reports whether kubectl failed since an object does not exist. kubectl writes the
// reason of the API server in parentheses.
func isNotFound(err error) bool {
	return err != nil && strings.Contains(err.Error(), "(NotFound)")
}

// maxAnswer limits an object or the answer of a node, in bytes.
const maxAnswer = 64 << 20

// errEmpty is the error for an answer without a value.
var errEmpty = errors.New("the answer is empty")

// decode returns a reader of output that decodes one JSON value. An answer without a value is
// errEmpty.
func decode(into any) func(io.Reader) error {
	return func(r io.Reader) error {
		err := json.NewDecoder(io.LimitReader(r, maxAnswer)).Decode(into)
		if errors.Is(err, io.EOF) {
			return errEmpty
		}
		if err != nil {
			return fmt.Errorf("the answer is not valid JSON: %w", err)
		}
		return nil
	}
}

// get reads one object. It fails after readTimeout.
func (f *Fleet) get(ctx context.Context, into any, args ...string) error {
	ctx, cancel := context.WithTimeoutCause(ctx, readTimeout, errNoAnswer(readTimeout))
	defer cancel()
	return f.Kubectl.Run(ctx, Call{
		Args:   append(append([]string{"get"}, args...), "-o", "json"),
		Output: decode(into),
	})
}

// list reads a list of objects one after the other: the list of all nodes may have 50 MB. each is
// called for each object, also if an error follows. args begin with the kind.
func list[T any](ctx context.Context, f *Fleet, each func(T), args ...string) error {
	ctx, cancel := context.WithTimeoutCause(ctx, readTimeout, errNoAnswer(readTimeout))
	defer cancel()
	return f.Kubectl.Run(ctx, Call{
		Args:   append(append([]string{"get"}, args...), "-o", "json"),
		Output: func(r io.Reader) error { return decodeItems(r, each) },
	})
}

// appendTo returns a function for list that appends each object to a slice.
func appendTo[T any](all *[]T) func(T) {
	return func(object T) {
		*all = append(*all, object)
	}
}

// errNoAnswer is the error for a node or an API server that is too slow.
func errNoAnswer(limit time.Duration) error {
	return fmt.Errorf("no answer within %s", limit)
}

// decodeItems decodes the items of a list, without keeping the list.
func decodeItems[T any](r io.Reader, each func(T)) error {
	decoder := json.NewDecoder(r)
	if _, err := decoder.Token(); err != nil {
		return fmt.Errorf("the answer is not valid JSON: %w", err)
	}
	for decoder.More() {
		key, err := decoder.Token()
		if err != nil {
			return err
		}
		if key != "items" {
			if err := decoder.Decode(new(json.RawMessage)); err != nil {
				return err
			}
			continue
		}
		if _, err := decoder.Token(); err != nil {
			return err
		}
		for decoder.More() {
			var item T
			if err := decoder.Decode(&item); err != nil {
				return err
			}
			each(item)
		}
		if _, err := decoder.Token(); err != nil {
			return err
		}
	}
	return nil
}

// readAll returns a reader of output that keeps the whole text.
func readAll(into *[]byte) func(io.Reader) error {
	return func(r io.Reader) (err error) {
		*into, err = io.ReadAll(io.LimitReader(r, maxAnswer))
		return err
	}
}
