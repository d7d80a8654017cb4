package dra

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/generic-dp/generic-dp/internal/device"
)

const parametersHead = `"apiVersion":"generic-dp.github.io/v1alpha1","kind":"ContainerParameters"`

// loader is an Options.EnvReader.
func loader(name string) string {
	if strings.HasPrefix(name, "LD_") {
		return "the loader"
	}
	return ""
}

func TestParameters(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]parameters{
		`{` + parametersHead + `}`:                                       {},
		` {` + parametersHead + `,"path":"/dev/modem"}`:                  {Placement: device.Placement{Path: "/dev/modem"}},
		`{` + parametersHead + `,"path":"/dev/sticks/"}`:                 {Placement: device.Placement{Path: "/dev/sticks/"}},
		`{` + parametersHead + `,"permissions":"r"}`:                     {Placement: device.Placement{Permissions: "r"}},
		`{` + parametersHead + `,"env":{"SERIAL":"STICK_SERIAL"}}`:       {Env: map[string]string{"SERIAL": "STICK_SERIAL"}},
		`{` + parametersHead + `,"env":{"A":"_a1"},"permissions":"wrm"}`: {Placement: device.Placement{Permissions: "wrm"}, Env: map[string]string{"A": "_a1"}},
	} {
		if got, err := parseParameters([]byte(text), loader); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v, %v, want %+v", text, got, err, want)
		}
	}
}

// Each rule has its own message, which names the field, the value and the rule.
func TestParameterProblems(t *testing.T) {
	t.Parallel()
	const wantPath = `want a clean path below /dev, such as "/dev/modem"`
	const wantPermissions = `want some of "r", "w" and "m", each once`
	const wantName = `can't be the name of a variable: want letters, digits and "_"`
	many := map[string]string{}
	for i := range maxEnv + 1 {
		many[fmt.Sprint("A", i)] = "B"
	}
	tooMany, _ := json.Marshal(many)
	for field, want := range map[string]string{
		`"paht":"/dev/modem"`:         `unknown field "paht": want apiVersion, kind, path, permissions or env`,
		`"Path":"/dev/modem"`:         `unknown field "Path": want apiVersion, kind, path, permissions or env`,
		`"path":1`:                    `path: want a string`,
		`"env":["A"]`:                 `env: want an object of strings`,
		`"env":{"A":1}`:               `env: want an object of strings`,
		`"path":""`:                   `path "": ` + wantPath,
		`"path":"modem"`:              `path "modem": ` + wantPath,
		`"path":"/etc/passwd"`:        `path "/etc/passwd": ` + wantPath,
		`"path":"/dev/../etc/passwd"`: `path "/dev/../etc/passwd": ` + wantPath,
		`"path":"/dev"`:               `path "/dev": ` + wantPath,
		`"path":"/dev/"`:              `path "/dev/": ` + wantPath,
		`"path":"/dev//modem"`:        `path "/dev//modem": ` + wantPath,
		`"path":"/dev/a b"`:           `path "/dev/a b": want letters, digits and "/._:+-"`,
		`"path":"/dev/${id}"`:         `path "/dev/${id}": want letters, digits and "/._:+-"`,
		`"path":"/dev/null"`:          `path "/dev/null": /dev/null belongs to the container itself`,
		`"path":"/dev/pts/0"`:         `path "/dev/pts/0": /dev/pts belongs to the container itself`,
		`"path":"/dev/shm/"`:          `path "/dev/shm/": /dev/shm belongs to the container itself`,
		`"permissions":""`:            `permissions "": ` + wantPermissions,
		`"permissions":"rx"`:          `permissions "rx": ` + wantPermissions,
		`"permissions":"rr"`:          `permissions "rr": ` + wantPermissions,
		`"env":{"A":""}`:              `env.A: "" ` + wantName,
		`"env":{"A":"1A"}`:            `env.A: "1A" ` + wantName,
		`"env":{"A":"B=C"}`:           `env.A: "B=C" ` + wantName,
		`"env":{"A":"LD_PRELOAD"}`:    `env.A: "LD_PRELOAD" can't be the name of a variable: the loader reads it`,
		`"env":` + string(tooMany):    `env has 33 names: at most 32 are allowed`,
		`"apiVersion":"v2"`:           `apiVersion "v2" and kind "ContainerParameters": want "generic-dp.github.io/v1alpha1" and "ContainerParameters"`,
		`"kind":"Pod"`:                `apiVersion "generic-dp.github.io/v1alpha1" and kind "Pod": want "generic-dp.github.io/v1alpha1" and "ContainerParameters"`,
		`"path":"/dev/` + strings.Repeat("a", 256) + `"`: `path "/dev/` + strings.Repeat("a", 256) + `": is longer than 255 bytes`,
		`"env":{"A":"` + strings.Repeat("A", 129) + `"}`: `env.A: "` + strings.Repeat("A", 129) + `" is longer than 128 bytes`,
	} {
		text := `{` + parametersHead + `,` + field + `}`
		got, err := parseParameters([]byte(text), loader)
		if err == nil || err.Error() != want || !reflect.DeepEqual(got, parameters{}) {
			t.Errorf("%s:\n got %v\nwant %s", field, err, want)
		}
	}
	for _, text := range []string{"", "null", "[]", `"a"`, "{", "{} {}", `{"a":1`} {
		if _, err := parseParameters([]byte(text), loader); err == nil || err.Error() != "want an object" {
			t.Errorf("%q: %v, want an error", text, err)
		}
	}
}

// config makes the configurations of an allocation: source, requests separated by commas, fields.
func configs(t *testing.T, list ...[3]string) (out []deviceConfig) {
	t.Helper()
	for _, c := range list {
		requests, _ := json.Marshal(slices.DeleteFunc(strings.Split(c[1], ","), func(r string) bool { return r == "" }))
		text := fmt.Sprintf(`{"source":%q,"requests":%s,"opaque":{"driver":%q,"parameters":{%s,%s}}}`, c[0], requests, Driver, parametersHead, c[2])
		var one deviceConfig
		if err := json.Unmarshal([]byte(text), &one); err != nil {
			t.Fatal(err)
		}
		out = append(out, one)
	}
	return out
}

// The class counts more than the claim, field by field, and parameters are for the requests that they
// name.
func TestParametersOfSources(t *testing.T) {
	t.Parallel()
	p := New(Options{EnvReader: loader})
	all := configs(t,
		[3]string{"FromClass", "", `"permissions":"r","env":{"A":"CLASS"}`},
		[3]string{"FromClaim", "stick", `"path":"/dev/stick","permissions":"rw","env":{"A":"CLAIM","B":"C"}`},
		[3]string{"FromClaim", "gpu/small", `"path":"/dev/gpu"`},
	)
	for request, want := range map[string]parameters{
		"stick":     {Placement: device.Placement{Path: "/dev/stick", Permissions: "r"}, Env: map[string]string{"A": "CLASS", "B": "C"}},
		"stick/one": {Placement: device.Placement{Path: "/dev/stick", Permissions: "r"}, Env: map[string]string{"A": "CLASS", "B": "C"}},
		"gpu/small": {Placement: device.Placement{Path: "/dev/gpu", Permissions: "r"}, Env: map[string]string{"A": "CLASS"}},
		"gpu/large": {Placement: device.Placement{Permissions: "r"}, Env: map[string]string{"A": "CLASS"}},
	} {
		if got, err := p.parametersOf(all, request); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v, %v, want %+v", request, got, err, want)
		}
	}
	twice := append(all, configs(t, [3]string{"FromClaim", "", `"path":"/dev/other"`})...)
	if _, err := p.parametersOf(twice, "stick"); err == nil || err.Error() != `parameters of the claim: path is "/dev/stick" and "/dev/other"` {
		t.Errorf("two paths: %v", err)
	}
	bad := configs(t, [3]string{"FromClass", "", `"hooks":[]`})
	if _, err := p.parametersOf(bad, "stick"); err == nil || err.Error() != `parameters of the DeviceClass: unknown field "hooks": want apiVersion, kind, path, permissions or env` {
		t.Errorf("a bad class: %v", err)
	}
}

func TestRenamedEnvironment(t *testing.T) {
	t.Parallel()
	env := map[string]string{"A": "1", "B": "2", "C": "3"}
	before := maps.Clone(env)
	group := func(names ...map[string]string) (out []allocated) {
		for _, n := range names {
			out = append(out, allocated{parameters: parameters{Env: n}})
		}
		return out
	}
	type names = map[string]string
	for _, test := range []struct {
		group []allocated
		want  names
		err   string
	}{
		{group: group(nil), want: before},
		{group: group(names{"A": "X"}, nil), want: names{"X": "1", "B": "2", "C": "3"}},
		{group: group(names{"A": "B", "B": "A"}), want: names{"B": "1", "A": "2", "C": "3"}},
		{group: group(names{"A": "X"}, names{"A": "X", "C": "Y"}), want: names{"X": "1", "B": "2", "Y": "3"}},
		{group: group(names{"D": "X"}), err: "parameters: env.D: the configuration sets no such variable for the devices"},
		{group: group(names{"A": "C"}), err: "parameters: env.A: the container has a variable C already"},
		{group: group(names{"A": "X", "B": "X"}), err: "parameters: env.B: the container has a variable X already"},
		{group: group(names{"A": "X"}, names{"A": "Y"}), err: `parameters of several requests: env.A is "X" and "Y"`},
	} {
		got, err := renamed(env, test.group)
		if fmt.Sprint(err) != test.err && (err != nil || test.err != "") || !maps.Equal(got, test.want) {
			t.Errorf("%+v: %v, %v, want %v, %s", test.group, got, err, test.want, test.err)
		}
	}
	if !maps.Equal(env, before) {
		t.Errorf("the environment of the device was changed: %v", env)
	}
}

// A parameter is a value or an error, and a valid value leads only below /dev.
func FuzzParameters(f *testing.F) {
	for _, text := range []string{
		"{}",
		`{` + parametersHead + `,"path":"/dev/a/","permissions":"rw","env":{"A":"B"}}`,
		`{` + parametersHead + `,"path":"/dev/../a"}`,
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		p, err := parseParameters(text, loader)
		if err != nil {
			if !reflect.DeepEqual(p, parameters{}) {
				t.Errorf("%q: both %+v and %v", text, p, err)
			}
			return
		}
		isBelowDev := strings.HasPrefix(p.Path, "/dev/") && !strings.Contains(p.Path, "..")
		if p.Path != "" && !isBelowDev {
			t.Errorf("%q: path %q", text, p.Path)
		}
		if strings.Trim(p.Permissions, "rwm") != "" {
			t.Errorf("%q: permissions %q", text, p.Permissions)
		}
		for name, to := range p.Env {
			if to == "" || strings.ContainsAny(to, "=\x00") || strings.HasPrefix(to, "LD_") {
				t.Errorf("%q: %q becomes %q", text, name, to)
			}
		}
	})
}
