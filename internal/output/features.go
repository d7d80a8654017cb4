package output

import (
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/generic-dp/generic-dp/internal/sys/files"
)

const (
	// featuresName is the name of the file. Node Feature Discovery makes a node label of each line
	// NAME=VALUE in the files that its local source reads. It skips names that begin with a dot, so the
	// file is written under hiddenName and then renamed.
	featuresName = "generic-dp"
	hiddenName   = "." + featuresName
	// maxFeatures is the size of the largest file that Node Feature Discovery reads, in bytes.
	maxFeatures = 64 << 10
	// maxLabel is the maximum length of the value of a label, and of its name after the domain
	// (k8s.io/apimachinery/pkg/util/validation).
	maxLabel = 63
)

// FeaturePaths are the files for Node Feature Discovery in a directory.
func FeaturePaths(dir string) []string {
	return []string{filepath.Join(dir, featuresName), filepath.Join(dir, hiddenName)}
}

// PlanFeatures returns what to change so that the file in dir has the number of healthy devices of
// each resource, in the order of the devices, and the values of their features. The error is about
// features that are left out; the plan is still valid. An empty dir means that no file is wanted.
func PlanFeatures(dir string, devices []Device) (files.Plan, error) {
	plan := files.Plan{Label: "--nfd-dir", KeepParent: true}
	if dir == "" {
		return plan, nil
	}
	values, err := featureValues(devices)
	text := append(healthyCounts(devices), values...)
	if len(text) > maxFeatures {
		return plan, fmt.Errorf("%s: %d bytes of features: Node Feature Discovery reads at most %d",
			plan.Label, len(text), maxFeatures)
	}
	plan.Missing = []files.File{{
		Path:    filepath.Join(dir, featuresName),
		Text:    text,
		Mode:    0o644,
		Staging: filepath.Join(dir, hiddenName),
	}}
	return plan, err
}

// healthyCounts are the lines with the number of healthy devices of each resource. A resource without a
// healthy device has no line, so that its label disappears.
func healthyCounts(devices []Device) []byte {
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

// featureValues are the lines with the features of healthy devices. Different values of one feature are
// sorted and joined. The error is about features that are left out, since Node Feature Discovery
// drops a label that the API server would refuse.
func featureValues(devices []Device) ([]byte, error) {
	// The values are by the name of the label.
	found := map[string][]string{}
	for _, d := range devices {
		if !d.Healthy {
			continue
		}
		for name, text := range d.Offer.Features {
			label := d.Resource + "." + name
			value := labelValue(text)
			if value != "" && !slices.Contains(found[label], value) {
				found[label] = append(found[label], value)
			}
		}
	}
	var lines []byte
	var errs []error
	for _, label := range slices.Sorted(maps.Keys(found)) {
		values := found[label]
		slices.Sort(values)
		value := strings.Join(values, "_")
		_, name, _ := strings.Cut(label, "/")
		if len(name) > maxLabel || len(value) > maxLabel {
			errs = append(errs, fmt.Errorf("feature %s is left out: its name after the domain, or the values of all devices, have more than %d characters", label, maxLabel))
		} else {
			lines = fmt.Appendf(lines, "%s=%s\n", label, value)
		}
	}
	return lines, errors.Join(errs...)
}

// labelValue returns a text as the value of a label, in which "-" replaces other characters.
func labelValue(text string) string {
	value := strings.Map(func(c rune) rune {
		isLetter := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
		isOther := c >= '0' && c <= '9' || strings.ContainsRune("-_.", c)
		if isLetter || isOther {
			return c
		}
		return '-'
	}, strings.TrimSpace(text))
	return strings.Trim(value, "-_.")
}
