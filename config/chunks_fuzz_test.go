package config

import (
	"errors"
	"strings"
	"testing"

	"github.com/BurntSushi/toml"
	"github.com/google/go-cmp/cmp"
)

// Where the library loses nothing of a whole text, it is the same in parts;
// and where it takes the parts, it takes the whole.
func FuzzChunks(f *testing.F) {
	for _, s := range []string{
		"a = 1\n[[resource]]\nx = \"[[resource]]\"\n[[ resource ]]\nx = '''\n[[resource]]\n'''\n",
		"[[resource]]\nmatch = [\n{ a = 1 }, # [[resource]]\n]\n[[\"resource\"]]\r\nmatch.b = 2\r\n[resource.c]\nd = [[1],\n[2]]\n",
		"[[resource]]\n[[resource.match]]\na.b = 1\n[[resource.match]]\na.c = \"\"\"x\\\"\"\"\"\"\"\n\t[['resource']]\n",
		"resource = [{}]\n[other]\n[[resource]]\n[other.x]\n",
		"[[resource]]\n[a]\nb = 1\n[[resource]]\n[a]\nb = 2\n",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if at, _ := overload([]byte(s)); at > 0 {
			t.Skip()
		}
		parts, _, err := decodeChunks([]byte(s))
		whole, wholeErr := decodeText([]byte(s))
		var lost lostError
		var syntax toml.ParseError
		switch {
		case errors.As(err, &lost) || errors.As(wholeErr, &lost):
		case (err == nil) != (wholeErr == nil):
			// A table that is unknown may stand in several parts.
			if err == nil && errors.As(wholeErr, &syntax) && strings.Contains(syntax.Message, "already been defined") {
				return
			}
			t.Fatalf("in parts: %v; whole: %v", err, wholeErr)
		case err == nil:
			if diff := cmp.Diff(whole["resource"], parts["resource"]); diff != "" {
				t.Fatalf("resources (-whole +parts):\n%s", diff)
			}
		}
	})
}
