package fleet

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"time"
)

// shell is a kubectl that runs a script with the arguments of the call.
func shell(script string) Program {
	return Program{Command: []string{"sh", "-c", script, "kubectl"}}
}

// discard reads nothing from the output.
func discard(io.Reader) error { return nil }

func TestProgramFailures(t *testing.T) {
	t.Parallel()
	for script, want := range map[string]string{
		`echo "Error from server (Forbidden): pods is forbidden" >&2; exit 1`:            "kubectl: (Forbidden): pods is forbidden",
		`echo "error: no context exists" >&2; exit 1`:                                    "kubectl: no context exists",
		`printf 'error: no instance\ncommand terminated with exit code 1\n' >&2; exit 1`: "no instance",
		`exit 3`: "kubectl: exit status 3",
		`printf 'E1126 02:21:13.1 7 memcache.go:265] "Unhandled Error"\nE1126 02:21:13.2 7 memcache.go:265] "Unhandled Error"\nThe connection was refused\n' >&2; exit 1`: "kubectl: The connection was refused",
		`printf 'E1126 02:21:13.1 7 a.go:1] first\nE1126 02:21:13.2 7 a.go:1] last\n' >&2; exit 1`:                                                                        "kubectl: E1126 02:21:13.2 7 a.go:1] last",
	} {
		err := shell(script).Run(t.Context(), Call{Output: discard})
		if err == nil || err.Error() != want {
			t.Errorf("%s: %v, want %s", script, err, want)
		}
		var remote *RemoteError
		isRemote := strings.Contains(script, "terminated")
		if errors.As(err, &remote) != isRemote {
			t.Errorf("%s: %#v is of the wrong type", script, err)
		}
	}
	err := Program{Command: []string{"no-kubectl-anywhere"}}.Run(t.Context(), Call{Output: discard})
	if err == nil || !strings.HasPrefix(err.Error(), "no-kubectl-anywhere is not in $PATH\n  hint: --kubectl") {
		t.Errorf("without kubectl: %v", err)
	}
}

// Flags come before the arguments, and input reaches the program.
func TestProgramPasses(t *testing.T) {
	t.Parallel()
	p := shell(`echo "$@"; cat`)
	p.Flags = []string{"--context=a b"}
	var text []byte
	err := p.Run(t.Context(), Call{
		Args:   []string{"get", "pods"},
		Input:  []byte("input"),
		Output: readAll(&text),
	})
	if want := "--context=a b get pods\ninput"; err != nil || string(text) != want {
		t.Errorf("%q, %v, want %q", text, err, want)
	}
}

// A kubectl that does not answer is ended, even if a child of it keeps the output open.
func TestProgramThatHangs(t *testing.T) {
	t.Parallel()
	for _, script := range []string{"exec sleep 1000", "sleep 5 & wait"} {
		ctx, cancel := context.WithTimeoutCause(t.Context(), 100*time.Millisecond, errors.New("no answer"))
		defer cancel()
		err := shell(script).Run(ctx, Call{Output: discard})
		if err == nil || err.Error() != "no answer" {
			t.Errorf("%s: %v, want no answer", script, err)
		}
	}
}

// A program that writes more than is read does not block.
func TestProgramThatWritesMore(t *testing.T) {
	t.Parallel()
	var first struct{ A int }
	err := shell(`echo '{"a": 1}'; head -c 1000000 /dev/zero`).Run(t.Context(), Call{Output: decode(&first)})
	if err != nil || first.A != 1 {
		t.Errorf("%+v, %v", first, err)
	}
}

func TestDecodeItems(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`{"kind": "List", "metadata": {"a": [1]}, "items": [{"metadata": {"name": "a"}}, {"metadata": {"name": "b"}}], "x": 1}`: "a b",
		`{"items": []}`: "",
		`{"items": [{"metadata": {"name": "a"}}, {"meta`: "error",
		`not json`: "error",
	} {
		var names []string
		err := decodeItems(strings.NewReader(text), func(p Pod) { names = append(names, p.Metadata.Name) })
		got := strings.Join(names, " ")
		if err != nil {
			got = "error"
		}
		if got != want {
			t.Errorf("%s: %s, want %s", text, got, want)
		}
	}
}

func TestQuantity(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]int{"": 0, "1": 1, "100": 100, "2k": 2000, "1M": 1000000} {
		if got := quantity(text); got != want {
			t.Errorf("%q: %d, want %d", text, got, want)
		}
	}
}
