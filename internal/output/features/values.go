package features

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/generic-dp/generic-dp/internal/order"
	"github.com/generic-dp/generic-dp/internal/output"
)

// maxLabel is the maximum length of the value of a label, and of its name after the domain
// (k8s.io/apimachinery/pkg/util/validation).
const maxLabel = 63

// feature is the name of a label.
type feature struct{ resource, name string }

func (f feature) String() string { return f.resource + "." + f.name }

func compareFeatures(a, b feature) int {
	return cmp.Or(cmp.Compare(a.resource, b.resource), cmp.Compare(a.name, b.name))
}

// values are the lines with the features of healthy devices. Different values of one feature are
// sorted and joined. The error is about features that are left out, since Node Feature Discovery
// drops a label that the API server would refuse.
func values(devices []output.Device) ([]byte, error) {
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
