package main

import (
	"crypto/sha256"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// pluginPlatforms are the platforms of the plugin, as Krew names them.
var pluginPlatforms = []struct{ OS, Arch string }{
	{"linux", "amd64"},
	{"linux", "arm64"},
	{"darwin", "amd64"},
	{"darwin", "arm64"},
	{"windows", "amd64"},
	{"windows", "arm64"},
}

// checkKrew checks that the manifest names the archives of the release with their digests, and that
// the program in them is the one for the platform.
func checkKrew(t *testing.T, out, version string) {
	var plugin struct {
		Metadata struct{ Name string }
		Spec     struct {
			Version          string
			ShortDescription string
			Platforms        []struct {
				Selector struct{ MatchLabels struct{ OS, Arch string } }
				URI      string
				SHA256   string
				Bin      string
			}
		}
	}
	must(t, yaml.UnmarshalStrict([]byte(readFile(t, filepath.Join(out, "generic-dp-krew.yaml"))), new(map[string]any)))
	must(t, yaml.Unmarshal([]byte(readFile(t, filepath.Join(out, "generic-dp-krew.yaml"))), &plugin))
	// The rules of Krew's validation package, and of its guide for short descriptions.
	isValid := plugin.Metadata.Name == "generic-dp" && plugin.Spec.Version == version && strings.HasPrefix(version, "v")
	if !isValid || len(plugin.Spec.ShortDescription) > 50 || len(plugin.Spec.Platforms) != len(pluginPlatforms) {
		t.Errorf("%+v", plugin)
	}
	for i, p := range plugin.Spec.Platforms {
		want := pluginPlatforms[i]
		if p.Selector.MatchLabels.OS != want.OS || p.Selector.MatchLabels.Arch != want.Arch {
			t.Errorf("selector %+v, want %s", p.Selector, want)
		}
		if want := "https://github.com/generic-dp/generic-dp/releases/download/" + version + "/"; !strings.HasPrefix(p.URI, want) {
			t.Errorf("uri %s, want %s", p.URI, want)
		}
		archive := filepath.Join(out, path.Base(p.URI))
		if sum := fmt.Sprintf("%x", sha256.Sum256([]byte(readFile(t, archive)))); sum != p.SHA256 {
			t.Errorf("%s has the digest %s, not %s", archive, sum, p.SHA256)
		}
		dir := t.TempDir()
		command(t, "tar", "-xzf", archive, "-C", dir)
		// The formats of programs: ELF, Mach-O and PE.
		magic := map[string]string{"linux": "\x7fELF", "darwin": "\xcf\xfa\xed\xfe", "windows": "MZ"}[want.OS]
		if !strings.HasPrefix(readFile(t, filepath.Join(dir, p.Bin)), magic) {
			t.Errorf("%s has a program of another system than %s", archive, want)
		}
		info, err := os.Stat(filepath.Join(dir, p.Bin))
		if err != nil || info.Mode().Perm() != 0o755 {
			t.Errorf("%s: %v, %v, want mode 0755", p.Bin, info, err)
		}
	}
}
