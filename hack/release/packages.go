package main

import (
	"context"
	_ "embed"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/goreleaser/nfpm/v2"
	_ "github.com/goreleaser/nfpm/v2/deb" // formats register themselves
	_ "github.com/goreleaser/nfpm/v2/rpm"
)

// formats of packages, as named by nfpm.
var formats = []string{"deb", "rpm"}

// packageConfig is what the packages contain. pack replaces its variables.
//
//go:embed nfpm.yaml
var packageConfig string

// packages builds the packages of all platforms.
func (r *release) packages(ctx context.Context) ([]string, error) {
	dir, err := os.MkdirTemp("", "generic-dp-manual-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	if err := r.writeManual(ctx, dir); err != nil {
		return nil, err
	}
	var made []string
	for _, p := range platforms {
		binary, err := r.build(ctx, p)
		if err != nil {
			return nil, err
		}
		for _, format := range formats {
			file, err := r.pack(p, format, binary, dir)
			if err != nil {
				return nil, fmt.Errorf("%s for %s: %w", format, p, err)
			}
			made = append(made, file)
		}
	}
	return made, nil
}

// pack builds a package. manual is the directory with the man page and the completions.
func (r *release) pack(p platform, format, binary, manual string) (string, error) {
	source, err := filepath.Abs(r.source)
	if err != nil {
		return "", err
	}
	variables := map[string]string{
		"ARCH":    p.String(),
		"VERSION": packageVersion(r.version),
		"BINARY":  binary,
		"MANUAL":  manual,
		"SOURCE":  source,
	}
	text := os.Expand(packageConfig, func(name string) string { return variables[name] })
	config, err := nfpm.Parse(strings.NewReader(text))
	if err != nil {
		return "", err
	}
	if err := nfpm.PrepareForPackager(&config.Info, format); err != nil {
		return "", err
	}
	packager, err := nfpm.Get(format)
	if err != nil {
		return "", err
	}
	file := filepath.Join(r.out, packager.ConventionalFileName(&config.Info))
	out, err := os.Create(file)
	if err != nil {
		return "", err
	}
	defer out.Close()
	if err := packager.Package(&config.Info, out); err != nil {
		return "", err
	}
	return file, out.Close()
}

// released is the prefix of the version of a release.
var released = regexp.MustCompile(`^[0-9]+\.[0-9]+\.`)

// packageVersion is a version in the grammar of dpkg and rpm, which starts with a digit
// and has no "-". Development versions sort before all releases.
func packageVersion(version string) string {
	plain := strings.ReplaceAll(strings.TrimPrefix(version, "v"), "-", ".")
	if !released.MatchString(plain) {
		return "0~git." + plain
	}
	return plain
}
