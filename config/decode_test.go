package config_test

import (
	"strings"
	"testing"

	"github.com/generic-dp/generic-dp/config"
)

// One resource may have a list where another has dotted keys, with any strings and
// comments.
func TestResourcesAreReadApart(t *testing.T) {
	t.Parallel()
	cfg := parse(t, `
domain = "example.com" # [[resource]] in a comment
[[resource]]
name = "a"
match = [{ glob = "/dev/a" },
	{ glob = "/dev/b", permissions = "r" }]
with = [{ path = "/a", container_path = "/b" }]
[[ resource ]]
name = "b"
match.glob = "/dev/ttyUSB*"
match.usb.id = "10c4:ea60"
match.usb.serial = [
	"A*",
	"[[resource]]",
]
container.env.TEXT = """
[[resource]]
name = "text"
"""
container.env.OTHER = 'x'
with.path = "/c"
with.container_path = "/d"
[["resource"]]
name = "c"
[resource.match]
glob = "/dev/c"
permissions = "w"
[resource.container]
path = "/dev/d"
`)
	if len(cfg.Resources) != 3 {
		t.Fatalf("%d resources, want 3", len(cfg.Resources))
	}
	a, b, c := cfg.Resources[0], cfg.Resources[1], cfg.Resources[2]
	if len(a.Match) != 2 || a.Match[1].Permissions != "r" {
		t.Errorf("a: %+v", a.Match)
	}
	if m := b.Match[0]; m.Glob.Empty() || m.Hardware["usb"]["id"].Empty() || len(m.Hardware["usb"]["serial"].Patterns()) != 2 {
		t.Errorf("b: %+v", b.Match)
	}
	if len(b.Container.Env) != 2 || len(b.With) != 1 || b.With[0].ContainerPath.String() != "/d" {
		t.Errorf("b: %+v", b.Container)
	}
	if c.Match[0].Permissions != "w" || c.Container.Path.String() != "/dev/d" {
		t.Errorf("c: %+v", c)
	}
}

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
