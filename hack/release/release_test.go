package main

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	cdx "github.com/CycloneDX/cyclonedx-go"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
)

// maxImage is the maximum size of one platform's image, compressed, in bytes.
const maxImage = 20 << 20

// The image of each platform contains only the static binary, is small, and reproducible.
func TestImage(t *testing.T) {
	t.Parallel()
	var digests []string
	for range 2 {
		out := t.TempDir()
		r := release{source: "../..", out: out, version: "v0.0.1-test"}
		files, err := r.image(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		archive := filepath.Join(out, "generic-dp-image.tar")
		if !slices.Contains(files, archive) {
			t.Fatalf("files: %v, want %s among them", files, archive)
		}
		data, err := os.ReadFile(archive)
		if err != nil {
			t.Fatal(err)
		}
		sum := sha256.Sum256(data)
		digests = append(digests, hex.EncodeToString(sum[:]))
		if len(digests) == 1 {
			checkImages(t, out, archive)
			checkSBOM(t, filepath.Join(out, "generic-dp.cdx.json"))
		}
	}
	if digests[0] != digests[1] {
		t.Errorf("two builds differ: %v", digests)
	}
}

func checkImages(t *testing.T, out, archive string) {
	t.Helper()
	dir := t.TempDir()
	untar(t, archive, dir)
	index, err := layout.ImageIndexFromPath(dir)
	if err != nil {
		t.Fatal(err)
	}
	top, err := index.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	if len(top.Manifests) != 1 || top.Manifests[0].Annotations["io.containerd.image.name"] != imageName+":v0.0.1-test" {
		t.Fatalf("index: %+v", top.Manifests)
	}
	images, err := index.ImageIndex(top.Manifests[0].Digest)
	if err != nil {
		t.Fatal(err)
	}
	list, err := images.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, m := range list.Manifests {
		found = append(found, m.Platform.String())
		img, err := images.Image(m.Digest)
		if err != nil {
			t.Fatal(err)
		}
		checkImage(t, img, filepath.Join(out, "generic-dp-linux-"+m.Platform.Architecture+strings.TrimPrefix(m.Platform.Variant, "v")))
	}
	if want := []string{"linux/amd64", "linux/arm64", "linux/arm/v7"}; !slices.Equal(found, want) {
		t.Errorf("platforms: %v, want %v", found, want)
	}
}

func checkImage(t *testing.T, img v1.Image, binary string) {
	t.Helper()
	config, err := img.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	if c := config.Config; c.User != "0:0" || !slices.Equal(c.Entrypoint, []string{"/generic-dp"}) || !slices.Equal(c.Cmd, []string{"serve"}) {
		t.Errorf("%s: config %+v", binary, config.Config)
	}
	layers, err := img.Layers()
	if err != nil || len(layers) != 1 || len(config.RootFS.DiffIDs) != 1 {
		t.Fatalf("%s: %d layers, %d diff IDs, %v", binary, len(layers), len(config.RootFS.DiffIDs), err)
	}
	if size, err := layers[0].Size(); err != nil || size > maxImage {
		t.Errorf("%s: %d bytes, %v, want at most %d", binary, size, err, maxImage)
	}
	content, err := layers[0].Uncompressed()
	if err != nil {
		t.Fatal(err)
	}
	defer content.Close()
	r := tar.NewReader(content)
	header, err := r.Next()
	if err != nil || header.Name != "generic-dp" || header.Mode != 0o755 {
		t.Fatalf("%s: %+v, %v", binary, header, err)
	}
	got, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	want, err := os.ReadFile(binary)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s is not what is in the image", binary)
	}
	if _, err := r.Next(); !errors.Is(err, io.EOF) {
		t.Errorf("%s: there is more in the image: %v", binary, err)
	}
}

// checkSBOM checks for known components of the binary.
func checkSBOM(t *testing.T, file string) {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var bom cdx.BOM
	if err := cdx.NewBOMDecoder(f, cdx.BOMFileFormatJSON).Decode(&bom); err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{}
	for _, c := range *bom.Components {
		names[c.Name] = c.Version != ""
	}
	for _, want := range []string{
		"stdlib", "google.golang.org/grpc", "k8s.io/kubelet", "github.com/BurntSushi/toml",
		"tags.cncf.io/container-device-interface", "github.com/jaypipes/ghw", "generic-dp-linux-amd64",
	} {
		if !names[want] {
			t.Errorf("the bill of materials lacks %s", want)
		}
	}
}

func untar(t *testing.T, archive, dir string) {
	t.Helper()
	f, err := os.Open(archive)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for r := tar.NewReader(f); ; {
		header, err := r.Next()
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(dir, header.Name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func TestPackageVersion(t *testing.T) {
	t.Parallel()
	for version, want := range map[string]string{
		"v1.2.3":             "1.2.3",
		"v1.2.3-4-gabcdef0":  "1.2.3.4.gabcdef0",
		"978e09f-dirty":      "0~git.978e09f.dirty",
		"c0ffee0":            "0~git.c0ffee0",
		"unknown":            "0~git.unknown",
		"v1.2.3-4-g12-dirty": "1.2.3.4.g12.dirty",
	} {
		if got := packageVersion(version); got != want {
			t.Errorf("%s: %s, want %s", version, got, want)
		}
	}
}

// The package installs, runs and goes, on this very machine: only where that is
// asked for.
func TestInstall(t *testing.T) {
	if os.Getenv("GENERIC_DP_INSTALL") == "" {
		t.Skip("GENERIC_DP_INSTALL is not set: this installs a package on the machine")
	}
	out := t.TempDir()
	r := release{source: "../..", out: out, version: "v0.0.1-test"}
	if _, err := r.packages(t.Context()); err != nil {
		t.Fatal(err)
	}
	command := func(name string, args ...string) string {
		t.Helper()
		text, err := exec.Command(name, args...).CombinedOutput()
		if err != nil {
			t.Fatalf("%s %v: %v\n%s", name, args, err, text)
		}
		return string(text)
	}
	arch := strings.TrimSpace(command("dpkg", "--print-architecture"))
	command("dpkg", "-i", filepath.Join(out, "generic-dp_0.0.1.test_"+arch+".deb"))
	t.Cleanup(func() { _ = exec.Command("dpkg", "-P", "generic-dp").Run() })
	if text := command("/usr/bin/generic-dp", "version"); text != "generic-dp v0.0.1-test\n" {
		t.Errorf("version: %q", text)
	}
	for _, unit := range []string{"generic-dp.service", "generic-dp-cdi.service"} {
		text := command("systemd-analyze", "verify", "--man=no", "/usr/lib/systemd/system/"+unit)
		if strings.Contains(text, "generic-dp") {
			t.Errorf("systemd-analyze verify %s: %s", unit, text)
		}
		text = command("systemd-analyze", "security", "--offline=true", "--threshold=30", "--no-pager", "/usr/lib/systemd/system/"+unit)
		if !strings.Contains(text, " OK ") {
			t.Errorf("systemd-analyze security %s: want OK or better\n%s", unit, text)
		}
	}
	command("dpkg", "-P", "generic-dp")
	for _, gone := range []string{"/usr/bin/generic-dp", "/usr/lib/systemd/system/generic-dp.service", "/usr/share/doc/generic-dp", "/etc/generic-dp"} {
		if _, err := os.Lstat(gone); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s is still there: %v", gone, err)
		}
	}
}
