package config_test

import (
	"strings"
	"testing"

	"github.com/generic-dp/generic-dp/config"
)

// Dotted keys of one element of a list of tables do not replace each other, although the TOML library
// (v1.6.0) loses the first of them.
func TestDottedKeysOfAnElement(t *testing.T) {
	t.Parallel()
	cfg := parse(t, `
domain = "example.com"
[[resource]]
name = "licence"
[[resource.match]]
virtual = ["a"]
[[resource.match]]
virtual.name = "b"
virtual.vars.host = "x"
`)
	second := cfg.Resources[0].Match[1].Virtual[0]
	if second.Name != "b" || second.Vars["host"] != "x" {
		t.Errorf("%+v, want both keys", second)
	}
}

// A table and a list that are complete have no further keys.
func TestCompleteValues(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"resource = [{}]\n[[resource]]\n",
		"[[resource]]\nmatch = [{}]\nmatch.glob = 1\n",
		"[[resource]]\nmatch = {}\n[resource.match]\nglob = 1\n",
		"domain = 'x'\n[[resource]]\n[domain]\n",
		"domain = 'x'\n[[resource]]\n[[domain]]\n",
	} {
		_, err := config.Parse(config.File{Name: "test.toml", Data: []byte(text)})
		if err == nil || !strings.Contains(err.Error(), "is already given in line ") {
			t.Errorf("%q: error %v, want one that names the line of the value", text, err)
		}
	}
	// The library accepts this text, and drops the second line.
	_, err := config.Parse(config.File{Name: "test.toml", Data: []byte("[[resource]]\nmatch.glob = '/dev/x'\nmatch = true\n")})
	if err == nil || !strings.Contains(err.Error(), `test.toml:3:1: "match" is already given in line 2`) {
		t.Errorf("error %v, want one that names both lines", err)
	}
}
