package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// platform is one that is built for, in the words of Go.
type platform struct{ arch, arm string }

// platforms are what nodes run on.
var platforms = []platform{{arch: "amd64"}, {arch: "arm64"}, {arch: "arm", arm: "7"}}

func (p platform) String() string { return p.arch + p.arm }

// build makes the static binary for a platform, with the flags of the
// Makefile's build target, and returns where it is.
func (r *release) build(ctx context.Context, p platform) (string, error) {
	binary, err := filepath.Abs(filepath.Join(r.out, "generic-dp-linux-"+p.String()))
	if err != nil {
		return "", err
	}
	// The Makefile is the one place that knows how.
	cmd := exec.CommandContext(ctx, "make", "--no-print-directory", "build", "BIN="+binary, "VERSION="+r.version)
	cmd.Dir = r.source
	cmd.Env = append(os.Environ(), "GOOS=linux", "GOARCH="+p.arch, "GOARM="+p.arm, "GOFLAGS=-buildvcs=false")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("building for %s: %w\n%s", p, err, strings.TrimSpace(string(out)))
	}
	return binary, nil
}
