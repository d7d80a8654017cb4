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
	if err := yaml.UnmarshalStrict([]byte(readFile(t, filepath.Join(out, krewManifest))), new(map[string]any)); err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal([]byte(readFile(t, filepath.Join(out, krewManifest))), &plugin); err != nil {
		t.Fatal(err)
	}
	// The rules of Krew's validation package, and of its guide for short descriptions.
	isValid := plugin.Metadata.Name == "generic-dp" && plugin.Spec.Version == version && strings.HasPrefix(version, "v")
	if !isValid || len(plugin.Spec.ShortDescription) > 50 || len(plugin.Spec.Platforms) != len(platforms) {
		t.Errorf("%+v", plugin)
	}
	for i, p := range plugin.Spec.Platforms {
		if p.Selector.MatchLabels.OS != "linux" || p.Selector.MatchLabels.Arch != platforms[i].arch {
			t.Errorf("selector %+v, want %s", p.Selector, platforms[i].arch)
		}
		if want := downloads + version + "/"; !strings.HasPrefix(p.URI, want) {
			t.Errorf("uri %s, want %s", p.URI, want)
		}
		archive := filepath.Join(out, path.Base(p.URI))
		if sum := fmt.Sprintf("%x", sha256.Sum256([]byte(readFile(t, archive)))); sum != p.SHA256 {
			t.Errorf("%s has the digest %s, not %s", archive, sum, p.SHA256)
		}
		dir := t.TempDir()
		command(t, "tar", "-xzf", archive, "-C", dir)
		binary := readFile(t, filepath.Join(out, "generic-dp-linux-"+platforms[i].String()))
		if readFile(t, filepath.Join(dir, p.Bin)) != binary {
			t.Errorf("%s has another program than that of %s", archive, platforms[i])
		}
		info, err := os.Stat(filepath.Join(dir, p.Bin))
		if err != nil || info.Mode().Perm() != 0o755 {
			t.Errorf("%s: %v, %v, want mode 0755", p.Bin, info, err)
		}
	}
}
