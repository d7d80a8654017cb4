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
	cmd := exec.CommandContext(ctx, "make", "--no-print-directory", "build", "BIN="+binary, "VERSION="+r.version)
	cmd.Dir = r.source
	cmd.Env = append(os.Environ(), "GOOS=linux", "GOARCH="+p.arch, "GOARM="+p.arm, "GOFLAGS=-buildvcs=false")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("building for %s: %w\n%s", p, err, strings.TrimSpace(string(out)))
	}
	return binary, nil
}
