package main

import (
	"os"
	"strings"
	"testing"
)

// A variable replaces the default of a shared flag, and a flag replaces the variable. It is not
// parallel, since it sets variables.
func TestFlagsFromTheEnvironment(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := dir + "/" + name
		must(t, os.WriteFile(path, []byte(text), 0o600))
		return path
	}
	const resource = `[[resource]]
name = "example.com/%"
match.glob = "/dev/null"
`
	fromVariable := write("variable.toml", strings.Replace(resource, "%", "variable", 1)+"container.env.PATH = \"/x\"\n")
	fromFlag := write("flag.toml", strings.Replace(resource, "%", "flag", 1))
	t.Setenv("GENERIC_DP_CONFIG", fromVariable)
	t.Setenv("GENERIC_DP_STATE_DIR", dir)
	check := func(want string, code int, args ...string) {
		t.Helper()
		var out strings.Builder
		have := run(t.Context(), args, &out, &out)
		if have != code || !strings.Contains(out.String(), want) {
			t.Errorf("%v: status %d, want %d with %q:\n%s", args, have, code, want, out.String())
		}
	}
	check(`env in --allow`, 1, "devices")
	t.Setenv("GENERIC_DP_ALLOW", "env")
	check("example.com/variable", 0, "devices")
	check("example.com/flag", 0, "devices", "--config", fromFlag)
	// A flag that only one command has, or that a command does not have, is not read.
	t.Setenv("GENERIC_DP_AGAINST", "nothing")
	t.Setenv("GENERIC_DP_LISTEN", "no address")
	check("flag.toml: ok", 0, "check", "--listen", ":1", fromFlag)
	check(`GENERIC_DP_LISTEN="no address": want HOST:PORT`, 2, "status")
	t.Setenv("GENERIC_DP_ALLOW", "everything")
	check(`GENERIC_DP_ALLOW="everything"`, 2, "devices")
}
