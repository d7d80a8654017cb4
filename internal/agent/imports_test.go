package agent_test

import (
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/generic-dp/generic-dp/"

// allowed is what each package may import of this module: imports go one way,
// as ARCHITECTURE.md draws it.
var allowed = map[string][]string{
	"device":               {},
	"sysfs":                {"device", "internal/dirents"},
	"pattern":              {},
	"config":               {"device", "pattern", "internal/atomicfile"},
	"inventory":            {"sysfs", "device", "internal/dirents", "internal/slow", "internal/watch"},
	"health":               {"internal/atomicfile"},
	"matchers":             {"config", "device", "health", "pattern"},
	"ledger":               {"device", "internal/atomicfile"},
	"topology":             {"device"},
	"links":                {"device"},
	"cdi":                  {"device", "internal/atomicfile", "internal/slow"},
	"plugin":               {"internal/dialed", "internal/watch", "device"},
	"dra":                  {"cdi", "device", "internal/atomicfile", "internal/kubeapi", "internal/watch", "plugin"},
	"podresources":         {"internal/dialed"},
	"metrics":              {"device"},
	"evict":                {"internal/kubeapi", "metrics"},
	"importer":             {"device", "pattern"},
	"catalog":              {"device", "matchers", "pattern"},
	"internal/kubeapi":     {},
	"internal/kubeapitest": {"internal/kubeapi"},
	"internal/kubelettest": {},
	"internal/fakekubelet": {},
	"internal/atomicfile":  {},
	"internal/dialed":      {},
	"internal/dirents":     {},
	"internal/slow":        {},
	"internal/watch":       {},
	"machine":              {"inventory", "sysfs", "device"},
	"internal/sysfstest":   {"machine", "inventory", "sysfs", "device"},
}

// only lists the only importers of some packages.
var only = map[string][]string{
	module + "internal/kubelettest": {}, // only tests
	module + "internal/kubeapitest": {},
	"github.com/BurntSushi/toml":    {"config"},
	"github.com/jaypipes/ghw":       {"inventory"},
	"k8s.io/kubelet":                {"dra", "plugin", "podresources", "internal/kubelettest", "internal/fakekubelet"},
	"tags.cncf.io":                  {"cdi", "config"},
	"google.golang.org/grpc":        {"dra", "plugin", "podresources", "internal/dialed", "internal/kubelettest", "internal/fakekubelet"},
	"github.com/spf13/cobra":        {"cmd/generic-dp"},
	"github.com/coreos/go-systemd":  {"cmd/generic-dp"},
	"go.yaml.in/yaml":               {"cdi", "importer"},
	"github.com/bmatcuk/doublestar": {},
}

func TestImportsGoOneWay(t *testing.T) {
	t.Parallel()
	out, err := exec.Command("go", "list", "-tags", "grpcnotrace", "-json=ImportPath,Imports", "../...").Output()
	if err != nil {
		t.Fatal(err)
	}
	seen := 0
	for dec := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p struct {
			ImportPath string
			Imports    []string
		}
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		seen++
		name := strings.TrimPrefix(p.ImportPath, module)
		may, bounded := allowed[name]
		for _, imported := range p.Imports {
			inner, own := strings.CutPrefix(imported, module)
			if own && bounded && !slices.Contains(may, inner) {
				t.Errorf("%s imports %s: want at most %v", name, inner, may)
			}
			for prefix, users := range only {
				if (imported == prefix || strings.HasPrefix(imported, prefix+"/")) && !slices.Contains(users, name) {
					t.Errorf("%s imports %s: only %v may", name, imported, users)
				}
			}
		}
	}
	if seen < len(allowed) {
		t.Errorf("go list named %d packages, want at least %d", seen, len(allowed))
	}
}
