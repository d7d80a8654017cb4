package config

import (
	"cmp"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/generic-dp/generic-dp/device"
)

// Allow is what the author of the DaemonSet lets the author of the
// configuration ask for (--allow). The zero Allow is nothing.
type Allow struct {
	Hooks, Dangerous bool
	// Mounts are the paths at or below which host paths may be mounted.
	Mounts []string
}

// The words of --allow.
const (
	allowHooks     = "hooks"
	allowDangerous = "dangerous"
	allowMount     = "mount:"
)

// ParseAllow reads a list with commas such as "hooks,mount:/run/vendor"; an
// empty one allows nothing.
func ParseAllow(s string) (Allow, error) {
	var a Allow
	if strings.TrimSpace(s) == "" {
		return a, nil
	}
	for word := range strings.SplitSeq(s, ",") {
		word = strings.TrimSpace(word)
		prefix, isMount := strings.CutPrefix(word, allowMount)
		switch {
		case word == allowHooks:
			a.Hooks = true
		case word == allowDangerous:
			a.Dangerous = true
		case isMount && (!strings.HasPrefix(prefix, "/") || path.Clean(prefix) != prefix):
			return Allow{}, fmt.Errorf("%q is not an absolute, clean path: want one such as %q", word, allowMount+"/run/vendor")
		case isMount:
			a.Mounts = append(a.Mounts, prefix)
		default:
			return Allow{}, fmt.Errorf("%q is not understood: want %q, %q or %q with a path behind", word, allowHooks, allowDangerous, allowMount)
		}
	}
	slices.Sort(a.Mounts)
	a.Mounts = slices.Compact(a.Mounts)
	return a, nil
}

// String is a as ParseAllow reads it.
func (a Allow) String() string {
	var words []string
	if a.Hooks {
		words = append(words, allowHooks)
	}
	if a.Dangerous {
		words = append(words, allowDangerous)
	}
	for _, p := range a.Mounts {
		words = append(words, allowMount+p)
	}
	return strings.Join(words, ",")
}

// AllowsMount reports whether a path of the host may be mounted: a clean one
// at or below one of a.Mounts.
func (a Allow) AllowsMount(hostPath string) bool {
	return path.Clean(hostPath) == hostPath && a.mayMount(hostPath, true)
}

// mayMount reports whether a path that begins with prefix, or is it where it
// is whole, may be at or below one of a.Mounts.
func (a Allow) mayMount(prefix string, whole bool) bool {
	return slices.ContainsFunc(a.Mounts, func(allowed string) bool {
		dir := strings.TrimSuffix(allowed, "/") + "/"
		return strings.HasPrefix(prefix, dir) || prefix == allowed || !whole && strings.HasPrefix(dir, prefix)
	})
}

// Check returns what of the configuration is not allowed, as an error of type
// Problems, or nil. Paths with variables or wildcards are among it where what
// they begin with decides; else what they lead to is to be asked of
// AllowsMount.
func (c *Config) Check(a Allow) error {
	var problems []Problem
	for i := range c.Resources {
		problems = append(problems, a.check(&c.Resources[i])...)
	}
	if len(problems) > 0 {
		return sorted(problems)
	}
	return nil
}

func (a Allow) check(r *Resource) (problems []Problem) {
	report := func(place, what, flag string) {
		problems = append(problems, Problem{
			Place: place,
			Text:  what + " is not allowed: want it in --allow, which says what a configuration may ask for",
			Hint:  "add " + flag + " to --allow",
		})
	}
	mount := func(place, written, prefix string, whole bool) {
		if !a.mayMount(prefix, whole) {
			dir := prefix
			if !whole {
				dir = strings.TrimSuffix(prefix[:strings.LastIndexByte(prefix, '/')+1], "/")
			}
			report(place, "mounting "+quote(written), allowMount+cmp.Or(dir, "PATH"))
		}
	}
	globs := func(place string, v Values) {
		for _, p := range v.positive {
			mount(place, p.written, p.prefix, p.wild == nil)
		}
	}
	text := func(place string, t device.Text) {
		prefix := ""
		if len(t) > 0 {
			prefix = t[0].Literal
		}
		mount(place, t.String(), prefix, len(t.Vars()) == 0)
	}

	if len(r.Container.Hooks) > 0 && !a.Hooks {
		report(r.Place+": container.hooks", "running programs as root on the host", allowHooks)
	}
	for i := range r.Match {
		m := &r.Match[i]
		if m.Dangerous && !a.Dangerous {
			report(m.Place+": dangerous", "what the host depends on", allowDangerous)
		}
		if m.Mount {
			globs(m.Place+": glob", m.Glob)
		}
	}
	for i := range r.With {
		switch c := &r.With[i]; {
		case !c.Mount:
		case c.Glob != "":
			if v, err := ParseGlob(c.Glob); err == nil {
				globs(c.Place+": glob", v)
			}
		default:
			text(c.Place+": path", c.Path)
		}
	}
	for i := range r.Container.Mounts {
		text(fmt.Sprintf("%s: container.mounts %d: host_path", r.Place, i+1), r.Container.Mounts[i].HostPath)
	}
	return problems
}
