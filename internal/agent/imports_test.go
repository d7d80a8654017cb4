package agent_test

import (
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/generic-dp/generic-dp"

// group is a part of the tree whose packages may import the same other parts.
type group struct {
	name string
	// folders contain the packages of the group, below the root of the module.
	folders []string
	// imports are the groups whose packages this group may import, besides its own.
	imports []string
}

// groups is the direction of imports that ARCHITECTURE.md draws. Every package belongs to
// exactly one group. The groups host, decisions, output and kubelet do not know each other:
// agent connects them.
var groups = []group{
	{name: "vocabulary", folders: []string{"internal/device", "internal/pattern", "internal/order"}},
	{name: "sys", folders: []string{"internal/sys"}},
	{name: "config", folders: []string{"config"}, imports: []string{"vocabulary", "sys"}},
	{name: "matchers", folders: []string{"matchers"}, imports: []string{"vocabulary", "config"}},
	{name: "host", folders: []string{"internal/host"}, imports: []string{"vocabulary", "sys"}},
	{name: "holds", folders: []string{"internal/holds"}, imports: []string{"vocabulary", "sys", "host"}},
	{name: "decisions", folders: []string{"internal/ledger"}, imports: []string{"vocabulary", "sys"}},
	{name: "cdi", folders: []string{"cdi"}, imports: []string{"vocabulary", "sys"}},
	{name: "output", folders: []string{"internal/output"}, imports: []string{"vocabulary", "sys", "cdi"}},
	{name: "kubelet", folders: []string{"internal/kubelet"}, imports: []string{"vocabulary", "sys", "cdi", "holds"}},
	{name: "status", folders: []string{"internal/status"}, imports: []string{"vocabulary", "sys"}},
	{name: "agent", folders: []string{"internal/agent"}, imports: []string{
		"vocabulary", "sys", "config", "matchers", "host", "holds", "decisions", "cdi", "output", "kubelet", "status",
	}},
	{name: "tools", folders: []string{"internal/tools"}, imports: []string{
		"vocabulary", "sys", "config", "matchers", "kubelet", "status",
	}},
	// The root package is the API for other programs.
	{name: "root", folders: []string{""}, imports: []string{"config", "kubelet", "agent"}},
	{name: "cmd", folders: []string{"cmd"}, imports: []string{
		"root", "vocabulary", "sys", "config", "matchers", "host", "decisions", "cdi", "output", "kubelet", "status", "agent", "tools",
	}},
	// The packages below only belong to tests.
	{name: "testing", folders: []string{"internal/testing"}, imports: []string{"vocabulary", "sys", "host", "kubelet"}},
	{name: "tests", folders: []string{"docs", "examples", "hack", "test"}, imports: []string{"testing"}},
}

// onlyImporters lists the packages that may import a library or a package.
var onlyImporters = map[string][]string{
	"github.com/BurntSushi/toml":    {"config"},
	"github.com/jaypipes/ghw":       {"internal/host/inventory"},
	"k8s.io/kubelet":                {"internal/kubelet", "internal/kubelet/dra", "internal/kubelet/plugin", "internal/testing/kubelettest", "test/floor"},
	"tags.cncf.io":                  {"cdi", "config"},
	"google.golang.org/grpc":        {"internal/kubelet", "internal/kubelet/dra", "internal/kubelet/plugin", "internal/testing/kubelettest", "test/floor"},
	"github.com/spf13/cobra":        {"cmd/generic-dp", "internal/tools/cli", "internal/tools/plugin"},
	"github.com/coreos/go-systemd":  {"cmd/generic-dp"},
	"github.com/jaypipes/pcidb":     {"internal/tools/catalog"},
	"go.yaml.in/yaml":               {"cdi", "cmd/generic-dp", "internal/tools/cli", "internal/tools/importer", "internal/tools/manifest"},
	"github.com/bmatcuk/doublestar": {}, // only tests
}

// groupOf returns the group of a package, nil if it is in none. The path is relative to the module.
func groupOf(path string) *group {
	for i := range groups {
		for _, folder := range groups[i].folders {
			if path == folder || strings.HasPrefix(path, folder+"/") {
				return &groups[i]
			}
		}
	}
	return nil
}

func TestImportsGoOneWay(t *testing.T) {
	t.Parallel()
	out, err := exec.Command("go", "list", "-tags", "grpcnotrace", "-json=ImportPath,Imports", "../../...").Output()
	must(t, err)
	decoder := json.NewDecoder(strings.NewReader(string(out)))
	empty := map[string]bool{}
	for _, g := range groups {
		empty[g.name] = true
	}
	for {
		var listed struct {
			ImportPath string
			Imports    []string
		}
		err := decoder.Decode(&listed)
		if errors.Is(err, io.EOF) {
			break
		}
		must(t, err)
		path := strings.TrimPrefix(strings.TrimPrefix(listed.ImportPath, module), "/")
		own := groupOf(path)
		if own == nil {
			t.Errorf("package %s is in no group: add its folder to groups, and to ARCHITECTURE.md", path)
			continue
		}
		delete(empty, own.name)
		for _, imported := range listed.Imports {
			if problem := checkImport(own, path, imported); problem != "" {
				t.Errorf("%s imports %s: %s", path, imported, problem)
			}
		}
	}
	for name := range empty {
		t.Errorf("group %s has no package", name)
	}
}

// The program that runs on every node has nothing that runs kubectl or converts configurations of
// other plugins, and the plugin of kubectl has nothing that only compiles on Linux.
func TestProgramsAreSeparate(t *testing.T) {
	t.Parallel()
	for program, forbidden := range map[string][]string{
		"generic-dp":         {"internal/tools/importer", "internal/tools/plugin"},
		"kubectl-generic_dp": {"internal/agent", "internal/host", "internal/kubelet"},
	} {
		out, err := exec.Command("go", "list", "-tags", "grpcnotrace", "-deps", "../../cmd/"+program).Output()
		must(t, err)
		for imported := range strings.Lines(string(out)) {
			for _, path := range forbidden {
				if strings.HasPrefix(strings.TrimSpace(imported)+"/", module+"/"+path+"/") {
					t.Errorf("%s links %s", program, path)
				}
			}
		}
	}
}

// checkImport returns why a package of a group may not import another package, empty if it may.
func checkImport(own *group, path, imported string) string {
	for library, importers := range onlyImporters {
		isOf := imported == library || strings.HasPrefix(imported, library+"/")
		if isOf && !slices.Contains(importers, path) {
			return "only " + strings.Join(importers, ", ") + " may"
		}
	}
	inner, isOurs := strings.CutPrefix(imported+"/", module+"/")
	if !isOurs {
		return ""
	}
	inner = strings.TrimSuffix(inner, "/") // of the root package nothing is left
	other := groupOf(inner)
	if other == nil || other == own || slices.Contains(own.imports, other.name) {
		return ""
	}
	return "group " + own.name + " may only import " + strings.Join(own.imports, ", ")
}

// reference is a function and the file that ARCHITECTURE.md names for it.
var reference = regexp.MustCompile("`([A-Za-z]+)` \\(`([a-z/_]+\\.go)`\\)")

// file is any Go file that the page names.
var file = regexp.MustCompile("`([a-z/_]+\\.go)`")

// The walks through the code and the folders of ARCHITECTURE.md are true.
func TestArchitecture(t *testing.T) {
	t.Parallel()
	const root = "../.."
	page, err := os.ReadFile(filepath.Join(root, "ARCHITECTURE.md"))
	must(t, err)
	for _, m := range file.FindAllStringSubmatch(string(page), -1) {
		if _, err := os.Stat(filepath.Join(root, m[1])); err != nil {
			t.Errorf("the page names a file that does not exist: %v", err)
		}
	}
	references := reference.FindAllStringSubmatch(string(page), -1)
	if len(references) < 20 {
		t.Errorf("%d references to functions, want at least 20: has their form changed?", len(references))
	}
	for _, m := range references {
		function, path := m[1], m[2]
		source, err := os.ReadFile(filepath.Join(root, path))
		if err != nil {
			continue // reported above
		}
		declared := regexp.MustCompile(`(?m)^func (\([^)]*\) )?` + function + `[\[(]`)
		if !declared.Match(source) {
			t.Errorf("%s declares no function %s", path, function)
		}
	}
	for _, g := range groups {
		for _, folder := range g.folders {
			if strings.HasPrefix(folder, "internal/") && !strings.Contains(string(page), "`"+folder) {
				t.Errorf("the page does not name the folder %s", folder)
			}
		}
	}
}
