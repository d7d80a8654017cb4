package output

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/generic-dp/generic-dp/internal/order"
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

// feature is the name of a label.
type feature struct{ resource, name string }

func (f feature) String() string { return f.resource + "." + f.name }

func compareFeatures(a, b feature) int {
	return cmp.Or(cmp.Compare(a.resource, b.resource), cmp.Compare(a.name, b.name))
}

// featureValues are the lines with the features of healthy devices. Different values of one feature are
// sorted and joined. The error is about features that are left out, since Node Feature Discovery
// drops a label that the API server would refuse.
func featureValues(devices []Device) ([]byte, error) {
	found := map[feature]map[string]bool{}
	for _, d := range devices {
		if !d.Healthy {
			continue
		}
		for name, text := range d.Offer.Features {
			f := feature{d.Resource, name}
			value := labelValue(text)
			if value == "" {
				continue
			}
			if found[f] == nil {
				found[f] = map[string]bool{}
			}
			found[f][value] = true
		}
	}
	var lines []byte
	var errs []error
	inOrder := slices.Collect(maps.Keys(found))
	order.Sort(inOrder, compareFeatures)
	for _, f := range inOrder {
		value := strings.Join(slices.Sorted(maps.Keys(found[f])), "_")
		_, label, _ := strings.Cut(f.String(), "/")
		switch {
		case len(label) > maxLabel:
			errs = append(errs, fmt.Errorf("feature %s is left out: its name has more than %d characters after the domain", f, maxLabel))
		case len(value) > maxLabel:
			errs = append(errs, fmt.Errorf("feature %s is left out: the values of all devices have more than %d characters", f, maxLabel))
		default:
			lines = fmt.Appendf(lines, "%s=%s\n", f, value)
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
