package plugin

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"
)

// shell is a kubectl that runs a script with the arguments of the call.
func shell(script string) Program {
	return Program{Command: []string{"sh", "-c", script, "kubectl"}}
}

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
		_, err := shell(script).Run(t.Context(), nil)
		if err == nil || err.Error() != want {
			t.Errorf("%s: %v, want %s", script, err, want)
		}
	}
	_, err := Program{Command: []string{"no-kubectl-anywhere"}}.Run(t.Context(), nil)
	if err == nil || !strings.HasPrefix(err.Error(), "no-kubectl-anywhere is not in $PATH\n  hint: --kubectl") {
		t.Errorf("without kubectl: %v", err)
	}
}

// A kubectl that does not answer is ended, even if a child of it keeps the output open.
func TestProgramThatHangs(t *testing.T) {
	t.Parallel()
	for _, script := range []string{"exec sleep 1000", "sleep 5 & wait"} {
		ctx, cancel := context.WithTimeoutCause(t.Context(), 100*time.Millisecond, errors.New("no answer"))
		defer cancel()
		_, err := shell(script).Run(ctx, nil)
		if err == nil || err.Error() != "no answer" {
			t.Errorf("%s: %v, want no answer", script, err)
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
