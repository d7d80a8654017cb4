package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/goreleaser/nfpm/v2"
	_ "github.com/goreleaser/nfpm/v2/deb" // formats register themselves
	"github.com/goreleaser/nfpm/v2/files"
	_ "github.com/goreleaser/nfpm/v2/rpm"
)

// formats of packages, as named by nfpm.
var formats = []string{"deb", "rpm"}

// rpmBuildHost replaces the name of the build machine, by which builds would differ.
const rpmBuildHost = "reproducible.generic-dp.example"

// packages builds packages for nodes and edge machines: the binary, the systemd units,
// the man page, completions and the documentation. The administrator enables a unit.
func (r *release) packages(ctx context.Context) ([]string, error) {
	dir, err := os.MkdirTemp("", "generic-dp-manual-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	manual, err := r.manual(ctx, dir)
	if err != nil {
		return nil, err
	}
	var made []string
	for _, p := range platforms {
		binary, err := r.build(ctx, p)
		if err != nil {
			return nil, err
		}
		for _, format := range formats {
			file, err := r.pack(p, format, binary, manual)
			if err != nil {
				return nil, fmt.Errorf("%s for %s: %w", format, p, err)
			}
			made = append(made, file)
		}
	}
	return made, nil
}

func (r *release) pack(p platform, format, binary string, manual map[string]string) (string, error) {
	script := func(name string) string { return filepath.Join(r.source, "deploy", "systemd", name) }
	contents := files.Contents{
		{Source: binary, Destination: "/usr/bin/generic-dp", FileInfo: &files.ContentFileInfo{Mode: 0o755}},
		{Source: script("generic-dp.service"), Destination: "/usr/lib/systemd/system/generic-dp.service", FileInfo: &files.ContentFileInfo{Mode: 0o644}},
		{Source: script("generic-dp-cdi.service"), Destination: "/usr/lib/systemd/system/generic-dp-cdi.service", FileInfo: &files.ContentFileInfo{Mode: 0o644}},
		{Destination: "/etc/generic-dp", Type: files.TypeDir, FileInfo: &files.ContentFileInfo{Mode: 0o755}},
		{Destination: "/usr/share/doc/generic-dp", Type: files.TypeDir, FileInfo: &files.ContentFileInfo{Mode: 0o755}},
		{Source: filepath.Join(r.source, "LICENSE"), Destination: "/usr/share/doc/generic-dp/copyright", Type: files.TypeRPMLicense},
		{Source: filepath.Join(r.source, "config", "reference.toml"), Destination: "/usr/share/doc/generic-dp/config/reference.toml", Type: files.TypeRPMDoc},
		{Source: filepath.Join(r.source, "examples", "configs"), Destination: "/usr/share/doc/generic-dp/examples/configs", Type: files.TypeTree},
		{Source: filepath.Join(r.source, "examples", "pods"), Destination: "/usr/share/doc/generic-dp/examples/pods", Type: files.TypeTree},
	}
	pages, err := r.pages()
	if err != nil {
		return "", err
	}
	contents = append(contents, pages...)
	for source, target := range manual {
		if format == "rpm" {
			target = strings.Replace(target, "zsh/vendor-completions", "zsh/site-functions", 1)
		}
		contents = append(contents, &files.Content{Source: source, Destination: target, FileInfo: &files.ContentFileInfo{Mode: 0o644}})
	}
	if format == "deb" {
		// dpkg does not know RPM's types of files.
		for _, c := range contents {
			if c.Type == files.TypeRPMDoc || c.Type == files.TypeRPMLicense {
				c.Type = files.TypeFile
			}
		}
	}
	info := nfpm.WithDefaults(&nfpm.Info{
		Name: "generic-dp", Arch: p.String(), Platform: "linux", Version: packageVersion(r.version),
		Section: "admin", Priority: "optional", Maintainer: "generic-dp <maintainers@generic-dp.example>",
		Description: "configuration-driven Kubernetes device plugin for arbitrary host devices\n" +
			"Advertises host devices to the kubelet as a TOML file configures, or, without a\n" +
			"kubelet, keeps CDI specs current for podman, docker and nerdctl.",
		Homepage: "https://github.com/generic-dp/generic-dp", License: "Apache-2.0",
		MTime: time.Unix(0, 0).UTC(),
		Overridables: nfpm.Overridables{
			Contents: contents,
			RPM:      nfpm.RPM{BuildHost: rpmBuildHost},
			Scripts: nfpm.Scripts{
				PostInstall: script("postinstall.sh"), PreRemove: script("preremove.sh"), PostRemove: script("postremove.sh"),
			},
		},
	})
	if err := nfpm.PrepareForPackager(info, format); err != nil {
		return "", err
	}
	packager, err := nfpm.Get(format)
	if err != nil {
		return "", err
	}
	file := filepath.Join(r.out, packager.ConventionalFileName(info))
	out, err := os.Create(file)
	if err != nil {
		return "", err
	}
	defer out.Close()
	if err := packager.Package(info, out); err != nil {
		return "", err
	}
	return file, out.Close()
}

// pages are the pages and pictures of the documentation. The directory also has a test.
func (r *release) pages() (files.Contents, error) {
	var pages files.Contents
	for _, pattern := range []string{"*.md", "docs/*.md", "docs/pictures/*", "matchers/*.md", "test/*.md"} {
		found, err := filepath.Glob(filepath.Join(r.source, pattern))
		if err != nil {
			return nil, err
		}
		for _, file := range found {
			name, err := filepath.Rel(r.source, file)
			if err != nil {
				return nil, err
			}
			pages = append(pages, &files.Content{
				Source:      file,
				Destination: "/usr/share/doc/generic-dp/" + name,
				FileInfo:    &files.ContentFileInfo{Mode: 0o644},
			})
		}
	}
	return pages, nil
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
