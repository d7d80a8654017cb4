package config_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/generic-dp/generic-dp/config"
)

func TestParseAllow(t *testing.T) {
	t.Parallel()
	tests := []struct {
		in      string
		want    config.Allow
		written string
	}{
		{"", config.Allow{}, ""},
		{" ", config.Allow{}, ""},
		{"hooks", config.Allow{Hooks: true}, "hooks"},
		{"mount:/run/b, dangerous ,mount:/a,hooks,mount:/run/b", config.Allow{Hooks: true, Dangerous: true, Mounts: []string{"/a", "/run/b"}}, "hooks,dangerous,mount:/a,mount:/run/b"},
		{"mount:/", config.Allow{Mounts: []string{"/"}}, "mount:/"},
	}
	for _, tt := range tests {
		got, err := config.ParseAllow(tt.in)
		if err != nil {
			t.Errorf("ParseAllow(%q): %v", tt.in, err)
		}
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("ParseAllow(%q) (-want +got):\n%s", tt.in, diff)
		}
		if got.String() != tt.written {
			t.Errorf("String() = %q, want %q", got.String(), tt.written)
		}
	}
	for in, want := range map[string]string{
		"hook": `"hook" is not understood`, "hooks,": `"" is not understood`, "mount": `"mount" is not understood`, "Hooks": `"Hooks" is not understood`,
		"mount:": "not an absolute, clean path", "mount:run": "not an absolute, clean path", "mount:/run/": "not an absolute, clean path", "hooks,mount:/run/../etc": "not an absolute, clean path",
	} {
		got, err := config.ParseAllow(in)
		if err == nil || !strings.Contains(err.Error(), want) || got.String() != "" {
			t.Errorf("ParseAllow(%q) = %v, %v, want an error with %q", in, got, err, want)
		}
	}
}

func TestAllowsMount(t *testing.T) {
	t.Parallel()
	allow := config.Allow{Mounts: []string{"/opt/vendor", "/run/a.sock"}}
	for path, want := range map[string]bool{
		"/opt/vendor": true, "/opt/vendor/lib/x.so": true, "/run/a.sock": true,
		"/opt/vendor2": false, "/opt": false, "/": false, "/run/a.sock2": false, "/opt/vendor/../../etc": false, "/opt/vendor/": false, "opt/vendor": false, "": false,
	} {
		if got := allow.AllowsMount(path); got != want {
			t.Errorf("AllowsMount(%q) = %v, want %v", path, got, want)
		}
	}
	if !(config.Allow{Mounts: []string{"/"}}).AllowsMount("/etc/passwd") {
		t.Error("mount:/ does not allow everything")
	}
	if (config.Allow{}).AllowsMount("/etc/passwd") {
		t.Error("nothing allows something")
	}
}

func TestCheckAllow(t *testing.T) {
	t.Parallel()
	cfg := parse(t, `
domain = "example.com"
[[resource]]
name = "gpu"
match = [{ glob = "/dev/dri/*" }, { glob = "/dev/sda", dangerous = true }]
with = [
  { path = "/usr/lib/vendor", as = "mount" },
  { glob = "/opt/{a,b}/*.so", as = "mount" },
  { path = "/run/gpu-${kernel}/x", as = "mount" },
  { path = "${devnode}", as = "mount" },
  { path = "/dev/kfd" },
]
container.cdi = true
container.hooks = { hook_name = "prestart", path = "/bin/true" }
container.mounts = [{ host_path = "/etc/vendor", container_path = "/etc/vendor" }]
[[resource]]
name = "socket"
match = { as = "mount", glob = ["/run/vendor/*.sock", "/run/one", "!/run/vendor/x"] }
`)
	places := func(allow string) []string {
		t.Helper()
		a, err := config.ParseAllow(allow)
		if err != nil {
			t.Fatal(err)
		}
		err = cfg.Check(a)
		if err == nil {
			return nil
		}
		var problems config.Problems
		if !errors.As(err, &problems) {
			t.Fatalf("Check(%q) = %v, want Problems", allow, err)
		}
		var out []string
		for _, p := range problems {
			out = append(out, strings.TrimPrefix(p.Place, "test.toml: ")+" | "+p.Hint)
		}
		return out
	}
	all := []string{
		`resource 1 ("gpu"): match 2: dangerous | add dangerous to --allow`,
		`resource 1 ("gpu"): with 1: path | add mount:/usr/lib/vendor to --allow`,
		`resource 1 ("gpu"): with 2: glob | add mount:/opt/a to --allow`,
		`resource 1 ("gpu"): with 2: glob | add mount:/opt/b to --allow`,
		`resource 1 ("gpu"): with 3: path | add mount:/run to --allow`,
		`resource 1 ("gpu"): with 4: path | add mount:PATH to --allow`,
		`resource 1 ("gpu"): container.hooks | add hooks to --allow`,
		`resource 1 ("gpu"): container.mounts 1: host_path | add mount:/etc/vendor to --allow`,
		`resource 2 ("socket"): match 1: glob | add mount:/run/vendor to --allow`,
		`resource 2 ("socket"): match 1: glob | add mount:/run/one to --allow`,
	}
	if diff := cmp.Diff(all, places("")); diff != "" {
		t.Errorf("nothing allowed (-want +got):\n%s", diff)
	}
	if got := places("hooks,dangerous,mount:/"); got != nil {
		t.Errorf("everything allowed: %q", got)
	}
	some := []string{
		`resource 1 ("gpu"): match 2: dangerous | add dangerous to --allow`,
		`resource 1 ("gpu"): with 2: glob | add mount:/opt/b to --allow`,
		`resource 1 ("gpu"): container.hooks | add hooks to --allow`,
		`resource 2 ("socket"): match 1: glob | add mount:/run/one to --allow`,
	}
	// A path that starts with a variable, or with less than an allowed path, is decided
	// when it is complete.
	if diff := cmp.Diff(some, places("mount:/usr/lib,mount:/opt/a,mount:/run/gpu-1,mount:/etc,mount:/run/vendor")); diff != "" {
		t.Errorf("some allowed (-want +got):\n%s", diff)
	}

	err := cfg.Check(config.Allow{Hooks: true, Dangerous: true, Mounts: []string{"/usr", "/opt", "/run"}})
	want := `test.toml:15:23: resource 1 ("gpu"): container.mounts 1: host_path: mounting "/etc/vendor" is not allowed: want it in --allow, which says what a configuration may ask for
  hint: add mount:/etc/vendor to --allow`
	if err == nil || err.Error() != want {
		t.Errorf("Check() = %v, want %s", err, want)
	}
}
