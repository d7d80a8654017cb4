package main

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"helm.sh/helm/v3/pkg/chart"
	"helm.sh/helm/v3/pkg/chart/loader"
)

// sumsName is the file with the digests of all other files.
const sumsName = "SHA256SUMS"

// maxImage is the maximum size of one platform's image, compressed, in bytes.
const maxImage = 20 << 20

// Builds in two directories are equal byte for byte; subtests check their contents.
func TestRelease(t *testing.T) {
	t.Parallel()
	version := chartVersion(t)
	var sums []string
	var out string
	for range 2 {
		dir := t.TempDir()
		copySource(t, dir)
		out = t.TempDir()
		command(t, "make", "-C", dir, "release", "VERSION="+version, "OUT="+out)
		files, err := os.ReadDir(out)
		must(t, err)
		text := readFile(t, filepath.Join(out, sumsName))
		if lines := strings.Count(text, "\n"); lines != len(files)-1 {
			t.Errorf("%s has %d checksums, want %d", sumsName, lines, len(files)-1)
		}
		sums = append(sums, text)
	}
	if sums[0] != sums[1] {
		t.Errorf("two builds differ:\n%s\n%s", sums[0], sums[1])
	}
	command(t, "sh", "-c", "cd "+out+" && sha256sum --check --strict "+sumsName)
	t.Run("image", func(t *testing.T) { checkImages(t, out, filepath.Join(out, "generic-dp-image.tar"), version) })
	t.Run("bill of materials", func(t *testing.T) { checkSBOM(t, out, version) })
	t.Run("chart", func(t *testing.T) { checkChart(t, out, version) })
	t.Run("packages", func(t *testing.T) { checkPackages(t, out) })
	t.Run("krew", func(t *testing.T) { checkKrew(t, out, version) })
	t.Run("another version than the chart's", func(t *testing.T) {
		cmd := exec.Command("../release.sh", "chart")
		cmd.Env = append(os.Environ(), "VERSION="+version+"-rc.1", "OUT="+t.TempDir())
		if text, err := cmd.CombinedOutput(); err == nil || !strings.Contains(string(text), "Chart.yaml") {
			t.Errorf("release.sh chart: %s, %v, want an error that names Chart.yaml", text, err)
		}
	})
}

// chartVersion is the version that the chart installs.
func chartVersion(t *testing.T) string {
	chart, err := loader.Load(checkout.chart(""))
	must(t, err)
	return chart.AppVersion()
}

// copySource copies the files of the repository, with new times.
func copySource(t *testing.T, dir string) {
	t.Helper()
	command(t, "sh", "-c", "cd ../.. && git ls-files -z --cached --others --exclude-standard --deduplicate | xargs -0 cp --parents -t "+dir)
}

// command runs a command, which must succeed, and returns its output.
func command(t *testing.T, name string, args ...string) string {
	t.Helper()
	text, err := exec.Command(name, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %v: %v\n%s", name, args, err, text)
	}
	return string(text)
}

// checkChart checks that the archive has the files that Helm reads in the directory.
func checkChart(t *testing.T, out, version string) {
	t.Helper()
	packed, err := loader.Load(filepath.Join(out, "generic-dp-"+strings.TrimPrefix(version, "v")+".tgz"))
	must(t, err)
	unpacked, err := loader.Load(checkout.chart(""))
	must(t, err)
	names := func(files []*chart.File) (names []string) {
		for _, f := range files {
			names = append(names, f.Name)
		}
		return slices.Sorted(slices.Values(names))
	}
	want := slices.Sorted(slices.Values(append(names(unpacked.Raw), "LICENSE")))
	if have := names(packed.Raw); !slices.Equal(have, want) || len(want) == 1 {
		t.Errorf("the chart's archive has %q, want %q", have, want)
	}
}

// checkPackages checks the number of packages, their reproducibility and completions.
func checkPackages(t *testing.T, out string) {
	t.Helper()
	rpms, err := filepath.Glob(filepath.Join(out, "*.rpm"))
	if err != nil || len(rpms) != len(platforms) {
		t.Errorf("RPM packages %q, %v, want %d", rpms, err, len(platforms))
	}
	for _, file := range rpms {
		if text, err := os.ReadFile(file); err != nil || !bytes.Contains(text, []byte("\x00reproducible.generic-dp.example\x00")) {
			t.Errorf("%s names the machine that has built it: %v", file, err)
		}
	}
	if _, err := exec.LookPath("dpkg-deb"); err != nil {
		t.Skip("dpkg-deb is not installed: ", err)
	}
	dir := t.TempDir()
	debs, err := filepath.Glob(filepath.Join(out, "*_"+strings.TrimSpace(command(t, "dpkg", "--print-architecture"))+".deb"))
	if err != nil || len(debs) != 1 {
		t.Fatalf("Debian packages %q, %v, want one for this machine", debs, err)
	}
	command(t, "dpkg-deb", "--extract", debs[0], dir)
	if tests := command(t, "find", dir, "-name", "*_test.go"); tests != "" {
		t.Errorf("the package has tests: %s", tests)
	}
	completions := map[string]string{
		"bash": "usr/share/bash-completion/completions/generic-dp",
		"zsh":  "usr/share/zsh/vendor-completions/_generic-dp",
		"fish": "usr/share/fish/vendor_completions.d/generic-dp.fish",
	}
	for shell, path := range completions {
		text, err := os.ReadFile(filepath.Join(dir, path))
		if err != nil || !strings.Contains(string(text), "generic-dp") {
			t.Errorf("completion of %s: %v, want a script for generic-dp", shell, err)
		}
	}
	completed := command(t, "bash", "-c", `PATH=`+dir+`/usr/bin:$PATH; . `+filepath.Join(dir, completions["bash"])+`
		_get_comp_words_by_ref() { words=(generic-dp expl); cword=1 cur=expl prev=generic-dp; }
		COMP_LINE="generic-dp expl" COMP_POINT=15 COMP_WORDS=(generic-dp expl) COMP_CWORD=1
		__start_generic-dp 2>/dev/null; printf "%s\n" "${COMPREPLY[@]}"`)
	if !strings.HasPrefix(completed, "explain") {
		t.Errorf("bash completes \"generic-dp expl\" to %q, want explain", completed)
	}
}

func checkImages(t *testing.T, out, archive, version string) {
	t.Helper()
	dir := t.TempDir()
	command(t, "tar", "-xf", archive, "-C", dir)
	index, err := layout.ImageIndexFromPath(dir)
	must(t, err)
	top, err := index.IndexManifest()
	must(t, err)
	if len(top.Manifests) != 1 || top.Manifests[0].Annotations["io.containerd.image.name"] != imageName+":"+version {
		t.Fatalf("index: %+v, want one manifest named %s:%s", top.Manifests, imageName, version)
	}
	images, err := index.ImageIndex(top.Manifests[0].Digest)
	must(t, err)
	list, err := images.IndexManifest()
	must(t, err)
	var found []string
	for _, m := range list.Manifests {
		found = append(found, m.Platform.String())
		img, err := images.Image(m.Digest)
		must(t, err)
		checkImage(t, img, filepath.Join(out, "generic-dp-linux-"+m.Platform.Architecture+strings.TrimPrefix(m.Platform.Variant, "v")))
	}
	if want := []string{"linux/amd64", "linux/arm64", "linux/arm/v7"}; !slices.Equal(found, want) {
		t.Errorf("platforms: %v, want %v", found, want)
	}
}

func checkImage(t *testing.T, img v1.Image, binary string) {
	t.Helper()
	config, err := img.ConfigFile()
	must(t, err)
	if c := config.Config; c.User != "0:0" || !slices.Equal(c.Entrypoint, []string{"/generic-dp"}) || !slices.Equal(c.Cmd, []string{"serve"}) {
		t.Errorf("%s: config %+v, want user 0:0, entrypoint /generic-dp, command serve", binary, c)
	}
	layers, err := img.Layers()
	if err != nil || len(layers) != 1 || len(config.RootFS.DiffIDs) != 1 {
		t.Fatalf("%s: %d layers, %d diff IDs, %v, want one of each", binary, len(layers), len(config.RootFS.DiffIDs), err)
	}
	if size, err := layers[0].Size(); err != nil || size > maxImage {
		t.Errorf("%s: %d bytes, %v, want at most %d", binary, size, err, maxImage)
	}
	content, err := layers[0].Uncompressed()
	must(t, err)
	defer content.Close()
	r := tar.NewReader(content)
	for _, suffix := range []string{"", "-evict"} {
		header, err := r.Next()
		if err != nil || header.Name != "generic-dp"+suffix || header.Mode != 0o755 {
			t.Fatalf("%s: the layer has %+v, %v, want generic-dp%s of mode 0755", binary, header, err, suffix)
		}
		got, err := io.ReadAll(r)
		must(t, err)
		if string(got) != readFile(t, binary+suffix) {
			t.Errorf("generic-dp%s in the image differs from %s%s", suffix, binary, suffix)
		}
	}
	if _, err := r.Next(); !errors.Is(err, io.EOF) {
		t.Errorf("%s: after the binaries, the layer has %v, want its end", binary, err)
	}
}

// checkSBOM compares the bill of materials of each program with `go version -m` of the program, and
// checks that it is about it.
func checkSBOM(t *testing.T, out, version string) {
	t.Helper()
	type component struct{ Name, Version, PURL string }
	for _, program := range []string{"generic-dp", "generic-dp-evict"} {
		var bom struct {
			Metadata   struct{ Component component }
			Components []component
		}
		must(t, json.Unmarshal([]byte(readFile(t, filepath.Join(out, program+".cdx.json"))), &bom))
		about := bom.Metadata.Component
		if about.Version != version || !strings.HasSuffix(about.PURL, "#cmd/"+program) {
			t.Errorf("the bill of materials of %s is about %s %s", program, about.PURL, about.Version)
		}
		var listed []string
		for _, c := range bom.Components {
			listed = append(listed, c.Name+" "+c.Version)
		}
		slices.Sort(listed)
		for _, p := range platforms {
			binary := strings.Replace(program, "generic-dp", "generic-dp-linux-"+p.name, 1)
			text := command(t, "go", "version", "-m", filepath.Join(out, binary))
			_, goVersion, _ := strings.Cut(strings.SplitN(text, "\n", 2)[0], ": ")
			modules := []string{"std " + strings.TrimSpace(goVersion)}
			for line := range strings.Lines(text) {
				if fields := strings.Fields(line); fields[0] == "dep" {
					modules = append(modules, fields[1]+" "+fields[2])
				}
			}
			slices.Sort(modules)
			if !slices.Equal(listed, modules) || len(modules) < 2 {
				t.Errorf("the bill of materials has %q, want the modules of %s, %q", listed, binary, modules)
			}
		}
	}
}

// Without the artifacts of the version, publish.sh says which file is missing and what makes it.
func TestPublishWithoutArtifacts(t *testing.T) {
	t.Parallel()
	out := t.TempDir()
	cmd := exec.Command("../publish.sh", "localhost:1")
	cmd.Env = append(os.Environ(), "VERSION=v1.2.3", "OUT="+out)
	text, err := cmd.CombinedOutput()
	want := "publish: " + out + "/generic-dp-image.tar does not exist: make release VERSION=v1.2.3 makes it\n"
	if err == nil || string(text) != want {
		t.Errorf("publish.sh prints %q, %v, want %q", text, err, want)
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
		cmd := exec.Command("../release.sh", "package-version")
		cmd.Env = append(os.Environ(), "VERSION="+version)
		if got, err := cmd.Output(); err != nil || string(got) != want+"\n" {
			t.Errorf("release.sh package-version of %q is %q, %v, want %q", version, got, err, want)
		}
	}
}

// Installs the package on this machine, runs the program and removes the package.
func TestInstall(t *testing.T) {
	if os.Getenv("GENERIC_DP_INSTALL") == "" {
		t.Skip("GENERIC_DP_INSTALL is not set: this installs a package on the machine")
	}
	out := t.TempDir()
	command(t, "make", "-C", "../..", "packages", "VERSION=v0.0.1-test", "OUT="+out)
	arch := strings.TrimSpace(command(t, "dpkg", "--print-architecture"))
	command(t, "dpkg", "-i", filepath.Join(out, "generic-dp_0.0.1.test_"+arch+".deb"))
	t.Cleanup(func() { _ = exec.Command("dpkg", "-P", "generic-dp").Run() })
	if text := command(t, "/usr/bin/generic-dp", "version"); text != "generic-dp v0.0.1-test\n" {
		t.Errorf("generic-dp version prints %q, want generic-dp v0.0.1-test", text)
	}
	for _, unit := range []string{"generic-dp.service", "generic-dp-cdi.service"} {
		text := command(t, "systemd-analyze", "verify", "--man=no", "/usr/lib/systemd/system/"+unit)
		if strings.Contains(text, "generic-dp") {
			t.Errorf("systemd-analyze verify %s: want no finding\n%s", unit, text)
		}
		text = command(t, "systemd-analyze", "security", "--offline=true", "--threshold=30", "--no-pager", "/usr/lib/systemd/system/"+unit)
		if !strings.Contains(text, " OK ") {
			t.Errorf("systemd-analyze security %s: want OK or better\n%s", unit, text)
		}
	}
	command(t, "dpkg", "-P", "generic-dp")
	for _, gone := range []string{"/usr/bin/generic-dp", "/usr/lib/systemd/system/generic-dp.service", "/usr/share/doc/generic-dp", "/etc/generic-dp"} {
		if _, err := os.Lstat(gone); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s is left after the removal: %v", gone, err)
		}
	}
}

// must ends the test after an error of its own steps.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
