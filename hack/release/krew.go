package main

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// krewManifest is the manifest of the plugin for Krew, beside the archives that it names.
const krewManifest = "generic-dp-krew.yaml"

// downloads is where a release has its files.
const downloads = "https://github.com/generic-dp/generic-dp/releases/download/"

// krewHead is the manifest without platforms, see https://krew.sigs.k8s.io/docs/developer-guide/plugin-manifest.
const krewHead = `apiVersion: krew.googlecontainertools.github.com/v1alpha2
kind: Plugin
metadata:
  name: generic-dp
spec:
  version: %s
  homepage: https://github.com/generic-dp/generic-dp
  shortDescription: Devices of all nodes, and why a pod has none
  description: |
    Shows the host devices that generic-dp offers on all nodes and the pods that hold
    them, finds a device by its serial number, explains why a pod does not get its
    device, and shows what an edit of the configuration would change.
  caveats: |
    Needs the DaemonSet of generic-dp, and the right to exec into its pods.
  platforms:
`

const krewPlatform = `  - selector:
      matchLabels: {os: %s, arch: %s}
    uri: %s
    sha256: %x
    bin: %s
`

// pluginPlatform is a platform of the plugin, in Go's terms, which are also Krew's.
type pluginPlatform struct{ os, arch string }

// pluginPlatforms are the platforms of the plugin.
var pluginPlatforms = []pluginPlatform{
	{"linux", "amd64"},
	{"linux", "arm64"},
	{"darwin", "amd64"},
	{"darwin", "arm64"},
	{"windows", "amd64"},
	{"windows", "arm64"},
}

func (p pluginPlatform) String() string { return p.os + "-" + p.arch }

// program is the name of the program in the archive.
func (p pluginPlatform) program() string {
	if p.os == "windows" {
		return "kubectl-generic_dp.exe"
	}
	return "kubectl-generic_dp"
}

// buildPlugin builds the plugin for a platform and returns the program.
func (r *release) buildPlugin(ctx context.Context, p pluginPlatform) ([]byte, error) {
	dir, err := os.MkdirTemp("", "generic-dp-plugin-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	program := filepath.Join(dir, p.program())
	err = r.make(ctx, []string{"GOOS=" + p.os, "GOARCH=" + p.arch}, "plugin", "PLUGIN="+program)
	if err != nil {
		return nil, err
	}
	return os.ReadFile(program)
}

// krew builds an archive with the plugin of kubectl for each platform, and the manifest by which Krew
// installs it.
func (r *release) krew(ctx context.Context) ([]string, error) {
	license, err := os.ReadFile(filepath.Join(r.source, "LICENSE"))
	if err != nil {
		return nil, err
	}
	var made []string
	var manifest strings.Builder
	fmt.Fprintf(&manifest, krewHead, r.version)
	for _, p := range pluginPlatforms {
		program, err := r.buildPlugin(ctx, p)
		if err != nil {
			return nil, err
		}
		archive, err := packPlugin(p.program(), program, license)
		if err != nil {
			return nil, err
		}
		file := filepath.Join(r.out, "kubectl-generic_dp-"+p.String()+".tar.gz")
		if err := os.WriteFile(file, archive, 0o644); err != nil {
			return nil, err
		}
		made = append(made, file)
		uri := downloads + r.version + "/" + filepath.Base(file)
		fmt.Fprintf(&manifest, krewPlatform, p.os, p.arch, uri, sha256.Sum256(archive), p.program())
	}
	file := filepath.Join(r.out, krewManifest)
	return append(made, file), os.WriteFile(file, []byte(manifest.String()), 0o644)
}

// packPlugin makes the archive of a platform. Krew requires the license in it.
func packPlugin(name string, program, license []byte) ([]byte, error) {
	var archive bytes.Buffer
	compressed, err := gzip.NewWriterLevel(&archive, gzip.BestCompression)
	if err != nil {
		return nil, err
	}
	content := []file{
		{name: name, mode: 0o755, data: program},
		{name: "LICENSE", mode: 0o644, data: license},
	}
	if err := writeTar(compressed, content); err != nil {
		return nil, err
	}
	err = compressed.Close()
	return archive.Bytes(), err
}
