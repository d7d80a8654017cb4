package config

import (
	"cmp"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/generic-dp/generic-dp/device"
	"github.com/generic-dp/generic-dp/pattern"
)

// Allow are the privileges that the author of the DaemonSet grants to the author of the
// configuration (--allow). The zero Allow is none.
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

// ParseAllow parses a comma-separated list such as "hooks,mount:/run/vendor"; an empty
// one grants nothing.
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
			return Allow{}, fmt.Errorf("%q is not understood: want %q, %q or %q and a path", word, allowHooks, allowDangerous, allowMount)
		}
	}
	slices.Sort(a.Mounts)
	a.Mounts = slices.Compact(a.Mounts)
	return a, nil
}

// String formats a for ParseAllow.
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

// AllowsMount reports whether a clean path of the host may be mounted: it is at or
// below one of a.Mounts.
func (a Allow) AllowsMount(hostPath string) bool {
	return path.Clean(hostPath) == hostPath && a.mayMount(hostPath, true)
}

// mayMount reports whether a path that starts with prefix, or is prefix if whole is
// set, may be at or below one of a.Mounts.
func (a Allow) mayMount(prefix string, whole bool) bool {
	return slices.ContainsFunc(a.Mounts, func(allowed string) bool {
		dir := strings.TrimSuffix(allowed, "/") + "/"
		return strings.HasPrefix(prefix, dir) || prefix == allowed || !whole && strings.HasPrefix(dir, prefix)
	})
}

// need is a privilege that a configuration requests. The problem says where, and how to
// grant it.
type need struct {
	Problem
	allowed func(Allow) bool
}

// needs records that v requests a privilege.
func (v value) needs(what, flag string, allowed func(Allow) bool) {
	r := v.problem(what+" is not allowed: want it in --allow, which says what a configuration may ask for", "add "+flag+" to --allow")
	r.allowed = allowed
	v.w.needs = append(v.w.needs, r)
}

// needsMount records that v requests to mount paths that start with prefix, or prefix
// itself if whole is set. AllowsMount checks the results of variables and wildcards.
func (v value) needsMount(written, prefix string, whole bool) {
	dir := prefix
	if !whole {
		dir = strings.TrimSuffix(prefix[:strings.LastIndexByte(prefix, '/')+1], "/")
	}
	v.needs("mounting "+quote(written), allowMount+cmp.Or(dir, "PATH"), func(a Allow) bool { return a.mayMount(prefix, whole) })
}

// needsMounts records that v requests to mount the files that a glob selects.
func (v value) needsMounts(glob pattern.Values) {
	for _, a := range glob.Alternatives() {
		_, whole := a.Literal()
		v.needsMount(a.String(), a.Prefix(), whole)
	}
}

// needsMountOf records that v requests to mount a path.
func (v value) needsMountOf(path device.Text) {
	if len(path) > 0 {
		v.needsMount(path.String(), path[0].Literal, len(path.Vars()) == 0)
	}
}

// Check returns the requests of the configuration that are not allowed, as an error of
// type Problems, or nil. It includes paths with variables or wildcards if their prefix
// decides; otherwise AllowsMount has to check the results.
func (c *Config) Check(a Allow) error {
	var refused []Problem
	for _, n := range c.needs {
		if !n.allowed(a) {
			refused = append(refused, n.Problem)
		}
	}
	return problems(refused[:min(len(refused), maxProblems)], len(refused))
}
