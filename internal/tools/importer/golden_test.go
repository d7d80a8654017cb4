package importer_test

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"

	"github.com/generic-dp/generic-dp/config"
	"github.com/generic-dp/generic-dp/internal/tools/importer"
)

var update = flag.Bool("update", false, "rewrite the results in testdata/golden")

// The files of an archive in testdata/golden in addition to the input.
const (
	wantTOML     = "want.toml"
	wantWarnings = "want.warnings"
)

// Each archive has an input and its result, which is a valid configuration.
func TestGolden(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/golden/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("archives: %v, %v", files, err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			t.Parallel()
			archive, err := txtar.ParseFile(file)
			if err != nil {
				t.Fatal(err)
			}
			input := archive.Files[0]
			result, err := importer.Convert(input.Name, input.Data, importer.Options{})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := config.Parse(config.File{Name: "imported.toml", Data: result.TOML}); err != nil {
				t.Errorf("the result is refused: %v\n%s", err, result.TOML)
			}
			isLost := strings.Contains(strings.Join(result.Warnings, "\n"), "not imported: ")
			if result.Incomplete != isLost {
				t.Errorf("Incomplete = %v, want %v", result.Incomplete, isLost)
			}
			compare(t, file, archive, []txtar.File{
				{Name: wantTOML, Data: result.TOML},
				{Name: wantWarnings, Data: []byte(strings.Join(append(result.Warnings, ""), "\n"))},
			})
		})
	}
}

// compare compares the files after the first one of an archive, and rewrites them with -update.
func compare(t *testing.T, file string, archive *txtar.Archive, got []txtar.File) {
	t.Helper()
	if diff := cmp.Diff(archive.Files[1:], got); diff != "" && !*update {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if !*update {
		return
	}
	archive.Files = append(archive.Files[:1:1], got...)
	if err := os.WriteFile(file, txtar.Format(archive), 0o644); err != nil {
		t.Fatal(err)
	}
}

// Inputs that cannot be converted are the files of one archive, and their errors the last one.
func TestRefused(t *testing.T) {
	t.Parallel()
	const file = "testdata/refused.txtar"
	archive, err := txtar.ParseFile(file)
	if err != nil {
		t.Fatal(err)
	}
	last := len(archive.Files) - 1
	var got strings.Builder
	for _, input := range archive.Files[:last] {
		result, err := importer.Convert(input.Name, input.Data, importer.Options{})
		if err == nil {
			t.Errorf("%s is accepted:\n%s", input.Name, result.TOML)
			continue
		}
		got.WriteString(err.Error() + "\n")
	}
	if *update {
		archive.Files[last].Data = []byte(got.String())
		if err := os.WriteFile(file, txtar.Format(archive), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if diff := cmp.Diff(string(archive.Files[last].Data), got.String()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// An input is rejected or becomes a valid configuration.
func FuzzConvert(f *testing.F) {
	files, err := filepath.Glob("testdata/golden/*.txtar")
	if err != nil {
		f.Fatal(err)
	}
	for _, file := range files {
		archive, err := txtar.ParseFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(string(archive.Files[0].Data))
	}
	for _, s := range []string{
		`[{devicematch: "(?i)^[\x00-\x{10ffff}]{0,9}|a**$", nummaxdevices: 1}]`,
		`{name: ab, groups: [{paths: [{path: '/dev/\[{}[\]^-a]?'}]}]}`,
		"a: &a {<<: *a, name: x, groups: *a}",
		"[{devicematch: '.*a.*b.*c.*d.*e.*f.*g.*h.*i', nummaxdevices: 2}]",
		`{configList: [{resourceName: a, rdmaHcaMax: 1, selectors: {deviceIDs: ["0x101B"], linkTypes: ["a b"], ifNames: ["["]}}]}`,
		"[{devicematch: '^( |a)$', nummaxdevices: 1}, {devicematch: '^snd/ |^b$', nummaxdevices: 1}]",
		`{discoveryDetails: {udevRules: ['KERNEL=="a[", SUBSYSTEM=="b]+", ATTR{serial}=="_"', 'ATTRS{idVendor}=="x-"']}}`,
		"usB:\n- seleCtors:\n  - {vendor: 0,produCt-: 0}",
		"args: [--device, '{name: ab, groups: [{usb: [{vendor: 0403, product: 6001}]}]}', --device]",
		"[{devicematch: '^snd/()?$', nummaxdevices: 2}, {devicematch: '^snd/(a|)$', nummaxdevices: 2}, {devicematch: '^(a|){2}$', nummaxdevices: 2}]",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, in string) {
		result, err := importer.Convert("in", []byte(in), importer.Options{})
		if (result == nil) == (err == nil) {
			t.Fatalf("Convert(%q) = %v, %v", in, result, err)
		}
		if err != nil {
			return
		}
		if _, err := config.Parse(config.File{Name: "imported.toml", Data: result.TOML}); err != nil {
			t.Fatalf("the result of %q is refused: %v\n%s", in, err, result.TOML)
		}
	})
}
