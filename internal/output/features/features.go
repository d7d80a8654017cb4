// Package features plans the feature file of this node: Node Feature Discovery makes a node
// label of each line NAME=VALUE in the files that its local source reads.
package features

import (
	"fmt"
	"path/filepath"

	"github.com/generic-dp/generic-dp/internal/output"
	"github.com/generic-dp/generic-dp/internal/sys/files"
)

const (
	// fileName is the name of the file. Node Feature Discovery skips names that begin with
	// a dot, so the file is written under hiddenName and then renamed.
	fileName   = "generic-dp"
	hiddenName = "." + fileName
	// limit is the size of the largest file that Node Feature Discovery reads, in bytes.
	limit = 64 << 10
)

// Paths are the files in a directory.
func Paths(dir string) []string {
	return []string{filepath.Join(dir, fileName), filepath.Join(dir, hiddenName)}
}

// Plan returns what to change so that the file in dir has the number of healthy devices of
// each resource, in the order of the devices, and the values of their features. The error is about
// features that are left out; the plan is still valid. An empty dir means that no file is wanted.
func Plan(dir string, devices []output.Device) (files.Plan, error) {
	plan := files.Plan{Label: "--nfd-dir", KeepParent: true}
	if dir == "" {
		return plan, nil
	}
	values, err := values(devices)
	text := append(text(devices), values...)
	if len(text) > limit {
		return plan, fmt.Errorf("%s: %d bytes of features: Node Feature Discovery reads at most %d",
			plan.Label, len(text), limit)
	}
	plan.Missing = []files.File{{
		Path:    filepath.Join(dir, fileName),
		Text:    text,
		Mode:    0o644,
		Staging: filepath.Join(dir, hiddenName),
	}}
	return plan, err
}

// text is the content of the file. A resource without a healthy device has no line, so that
// its label disappears.
func text(devices []output.Device) []byte {
	text := []byte("# healthy devices by resource\n")
	healthy := map[string]int{}
	var names []string
	for _, d := range devices {
		if !d.Healthy {
			continue
		}
		if healthy[d.Resource] == 0 {
			names = append(names, d.Resource)
		}
		healthy[d.Resource]++
	}
	for _, name := range names {
		text = fmt.Appendf(text, "%s=%d\n", name, healthy[name])
	}
	return text
}
