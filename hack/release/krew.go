package main

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	_ "embed"
	"fmt"
	"os"
	"path/filepath"
	"text/template"
)

// krewManifest is the manifest of the plugin for Krew, beside the archives that it names.
const krewManifest = "generic-dp-krew.yaml"

// krewTemplate is the manifest, see https://krew.sigs.k8s.io/docs/developer-guide/plugin-manifest.
//
//go:embed krew.yaml.tmpl
var krewTemplate string

// pluginPlatform is a platform of the plugin, in Go's terms, which are also Krew's.
type pluginPlatform struct {
	OS   string
	Arch string
	// SHA256 is the digest of the archive, which krew sets.
	SHA256 string
}

// pluginPlatforms are the platforms of the plugin.
var pluginPlatforms = []pluginPlatform{
	{OS: "linux", Arch: "amd64"},
	{OS: "linux", Arch: "arm64"},
	{OS: "darwin", Arch: "amd64"},
	{OS: "darwin", Arch: "arm64"},
	{OS: "windows", Arch: "amd64"},
	{OS: "windows", Arch: "arm64"},
}

// Archive is the name of the archive.
func (p pluginPlatform) Archive() string {
	return "kubectl-generic_dp-" + p.OS + "-" + p.Arch + ".tar.gz"
}

// Program is the name of the program in the archive.
func (p pluginPlatform) Program() string {
	if p.OS == "windows" {
		return "kubectl-generic_dp.exe"
	}
	return "kubectl-generic_dp"
}

// krew builds an archive with the plugin of kubectl for each platform, and the manifest by which Krew
// installs it.
func (r *release) krew(ctx context.Context) ([]string, error) {
	manifest, err := template.New(krewManifest).Parse(krewTemplate)
	if err != nil {
		return nil, err
	}
	var made []string
	var built []pluginPlatform
	for _, p := range pluginPlatforms {
		archive, err := r.packPlugin(ctx, p)
		if err != nil {
			return nil, err
		}
		file := filepath.Join(r.out, p.Archive())
		if err := os.WriteFile(file, archive, 0o644); err != nil {
			return nil, err
		}
		made = append(made, file)
		p.SHA256 = fmt.Sprintf("%x", sha256.Sum256(archive))
		built = append(built, p)
	}
	var text bytes.Buffer
	err = manifest.Execute(&text, map[string]any{"Version": r.version, "Platforms": built})
	if err != nil {
		return nil, err
	}
	file := filepath.Join(r.out, krewManifest)
	return append(made, file), os.WriteFile(file, text.Bytes(), 0o644)
}

// packPlugin builds the plugin for a platform, and returns its archive. Krew requires the license in
// it.
func (r *release) packPlugin(ctx context.Context, p pluginPlatform) ([]byte, error) {
	dir, err := os.MkdirTemp("", "generic-dp-plugin-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	built := filepath.Join(dir, p.Program())
	err = r.make(ctx, []string{"GOOS=" + p.OS, "GOARCH=" + p.Arch}, "plugin", "PLUGIN="+built)
	if err != nil {
		return nil, err
	}
	program, err := os.ReadFile(built)
	if err != nil {
		return nil, err
	}
	license, err := os.ReadFile(filepath.Join(r.source, "LICENSE"))
	if err != nil {
		return nil, err
	}
	return tarGzip(gzip.BestCompression, []file{
		{name: p.Program(), mode: 0o755, data: program},
		{name: "LICENSE", mode: 0o644, data: license},
	})
}
