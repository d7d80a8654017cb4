package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// platform is a target platform, in Go's terms.
type platform struct{ arch, arm string }

// platforms are the platforms of releases.
var platforms = []platform{{arch: "amd64"}, {arch: "arm64"}, {arch: "arm", arm: "7"}}

func (p platform) String() string { return p.arch + p.arm }

// build builds the static binary for a platform with the Makefile's build target and
// returns its path.
func (r *release) build(ctx context.Context, p platform) (string, error) {
	binary, err := filepath.Abs(filepath.Join(r.out, "generic-dp-linux-"+p.String()))
	if err != nil {
		return "", err
	}
	err = r.make(ctx, []string{"GOOS=linux", "GOARCH=" + p.arch, "GOARM=" + p.arm}, "build", "BIN="+binary)
	return binary, err
}

// make runs a target of the Makefile that builds programs for the platform in env.
func (r *release) make(ctx context.Context, env []string, args ...string) error {
	cmd := exec.CommandContext(ctx, "make", "--no-print-directory", "VERSION="+r.version)
	cmd.Args = append(cmd.Args, args...)
	cmd.Dir = r.source
	cmd.Env = append(os.Environ(), "GOFLAGS=-buildvcs=false")
	cmd.Env = append(cmd.Env, env...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("building for %s: %w\n%s", strings.Join(env, " "), err, strings.TrimSpace(string(out)))
	}
	return nil
}
