package main

import (
	"strings"
	"testing"
)

func TestCommandLine(t *testing.T) {
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	for _, tt := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"--help"}, 0, "evicts the pods of a cluster"},
		{[]string{"--after=10ms"}, 2, "--after: want at least 1s"},
		{[]string{"--per-minute=0"}, 2, "--per-minute: want at least 1"},
		{[]string{"--log-format=xml"}, 2, "--log-format: want text or json"},
		{[]string{"--log-level=loud"}, 2, "log-level"},
		{[]string{"--dra"}, 2, "-dra"},
		{[]string{"pods"}, 2, `unexpected argument "pods"`},
		{nil, 1, "evict.enabled = true"},
	} {
		var stderr strings.Builder
		code := run(t.Context(), tt.args, &stderr)
		if code != tt.code || !strings.Contains(stderr.String(), tt.want) {
			t.Errorf("%q: exit status %d, %q; want %d and %q", tt.args, code, stderr.String(), tt.code, tt.want)
		}
	}
}
