package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/tools/txtar"

	"github.com/generic-dp/generic-dp/internal/tools/plugin"
)

// Each reason of why is explained, with what to do.
func TestFleetWhy(t *testing.T) {
	t.Parallel()
	const file = "testdata/fleet/why.txtar"
	archive, err := txtar.ParseFile(file)
	must(t, err)
	root := t.TempDir()
	for _, f := range archive.Files {
		place(t, filepath.Join(root, f.Name), string(f.Data))
	}
	for i := range archive.Files {
		golden := &archive.Files[i]
		name, isGolden := strings.CutSuffix(golden.Name, "/out")
		if !isGolden {
			continue
		}
		t.Run(name, func(t *testing.T) {
			got := explainFake(t, filepath.Join(root, "common"), filepath.Join(root, name))
			if *update {
				golden.Data = []byte(got)
			}
			if want := string(golden.Data); got != want {
				t.Errorf("got\n%s\nwant\n%s\nor -update", got, want)
			}
		})
	}
	if *update {
		if err := os.WriteFile(file, txtar.Format(archive), 0o644); err != nil {
			t.Error(err)
		}
	}
}

// explainFake explains the pod home/app of a fake cluster.
func explainFake(t *testing.T, dirs ...string) string {
	t.Helper()
	cluster, err := readFakeCluster(append([]string{"testdata/fleet/base"}, dirs...)...)
	must(t, err)
	cluster.machines = "../../testdata/machines"
	f := plugin.Fleet{
		Kubectl:  cluster,
		Selector: plugin.DefaultSelector,
		Parallel: 2,
		Timeout:  time.Minute,
	}
	report, err := f.Why(t.Context(), "home", "app")
	must(t, err)
	var text strings.Builder
	must(t, report.Table(&text, false))
	return text.String()
}
