package output_test

import (
	"strings"
	"testing"

	"github.com/generic-dp/generic-dp/internal/device"
	"github.com/generic-dp/generic-dp/internal/output"
)

// The file has the number of healthy devices, and the values of their features as labels.
func TestFeatures(t *testing.T) {
	t.Parallel()
	at := func(resource string, healthy bool, features map[string]string) output.Device {
		return output.Device{Resource: resource, Healthy: healthy, Offer: &device.Offer{Features: features}}
	}
	long := strings.Repeat("x", 40)
	plan, err := output.PlanFeatures("/nfd", []output.Device{
		at("example.com/zigbee", true, map[string]string{"serial": "B2", "product": " CP2102N (USB) "}),
		at("example.com/zigbee", true, map[string]string{"serial": "A1", "product": "CP2102N (USB)"}),
		at("example.com/zigbee", false, map[string]string{"serial": "C3"}),
		at("example.com/other", true, map[string]string{"serial": long + "1", "empty": "?", "vendor": "10c4"}),
		at("example.com/other", true, map[string]string{"serial": long + "2"}),
	})
	const want = `# healthy devices by resource
example.com/zigbee=2
example.com/other=2
example.com/other.vendor=10c4
example.com/zigbee.product=CP2102N--USB
example.com/zigbee.serial=A1_B2
`
	if got := string(plan.Missing[0].Text); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	const left = "feature example.com/other.serial is left out: its name after the domain, or the values of all devices, have more than 63 characters"
	if err == nil || err.Error() != left {
		t.Errorf("error %v, want %s", err, left)
	}
}
