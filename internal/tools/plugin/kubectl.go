package plugin

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"time"
)

// Kubectl runs kubectl.
type Kubectl interface {
	// Run runs kubectl with an input, nil for none, until it ends or ctx is cancelled. It returns
	// what kubectl wrote to standard output, also after a failure. The error contains what kubectl
	// wrote to standard error.
	Run(ctx context.Context, input []byte, args ...string) (output []byte, err error)
}

// Program is the kubectl of the user. Program implements Kubectl.
type Program struct {
	// Command is the program and its first arguments, such as "k3s", "kubectl".
	Command []string
	// Flags select the cluster: --context and --kubeconfig.
	Flags []string
}

// waitDelay limits the wait for the output of kubectl after it was killed: a child of it, such
// as a credential plugin, may keep the pipe open.
const waitDelay = time.Second

// Run implements Kubectl.
func (p Program) Run(ctx context.Context, input []byte, args ...string) ([]byte, error) {
	argv := slices.Concat(p.Command, p.Flags, args)
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.WaitDelay = waitDelay
	// Without input, standard input is /dev/null: kubectl must not read from the terminal.
	if input != nil {
		cmd.Stdin = bytes.NewReader(input)
	}
	var stdout, stderr bytes.Buffer
	cmd.Stdout = &stdout
	cmd.Stderr = &stderr
	err := cmd.Run()
	switch {
	// The error of a killed process would only say that it was killed.
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case errors.Is(err, exec.ErrNotFound):
		return nil, fmt.Errorf("%s is not in $PATH\n  hint: --kubectl names another program, such as \"k3s kubectl\"", argv[0])
	case err != nil:
		return stdout.Bytes(), failure(err, stderr.String())
	}
	return stdout.Bytes(), nil
}

// remoteExit begins the line that kubectl exec writes if the program in the container failed.
const remoteExit = "command terminated with exit code"

// failure is the error for a call that failed, with the messages of kubectl or of the program in
// the container.
func failure(err error, stderr string) error {
	stderr = strings.TrimSpace(stderr)
	before, _, isRemote := strings.Cut(stderr, remoteExit)
	if isRemote {
		// The program has written its messages before kubectl wrote its own.
		text := strings.TrimPrefix(strings.TrimSpace(before), "error: ")
		return errors.New(text)
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

// errEmpty is the error for an answer without a value.
var errEmpty = errors.New("the answer is empty")

// decode decodes a JSON value. An answer without a value is errEmpty.
func decode(text []byte, into any) error {
	if len(bytes.TrimSpace(text)) == 0 {
		return errEmpty
	}
	if err := json.Unmarshal(text, into); err != nil {
		return fmt.Errorf("the answer is not valid JSON: %w", err)
	}
	return nil
}

// get reads one object. It fails after readTimeout.
func (f *Fleet) get(ctx context.Context, into any, args ...string) error {
	ctx, cancel := context.WithTimeoutCause(ctx, readTimeout, errNoAnswer(readTimeout))
	defer cancel()
	text, err := f.Kubectl.Run(ctx, nil, slices.Concat([]string{"get"}, args, []string{"-o", "json"})...)
	if err != nil {
		return err
	}
	return decode(text, into)
}

// list reads a list of objects. args begin with the kind.
func list[T any](ctx context.Context, f *Fleet, args ...string) ([]T, error) {
	var answer struct{ Items []T }
	err := f.get(ctx, &answer, args...)
	return answer.Items, err
}

// errNoAnswer is the error for a node or an API server that is too slow.
func errNoAnswer(limit time.Duration) error {
	return fmt.Errorf("no answer within %s", limit)
}
