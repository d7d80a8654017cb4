package matchers_test

import (
	"testing"

	"github.com/generic-dp/generic-dp/internal/sysfstest"
	"github.com/generic-dp/generic-dp/matchers"
)

// Number and class of a USB interface are those of one interface, also in reasons.
func TestExplainInterfaces(t *testing.T) {
	t.Parallel()
	h := sysfstest.NewHost(t, sysfstest.HostOptions{})
	h.AddRootHub(h.AddPCI(sysfstest.PCI{Address: "0000:00:14.0", Vendor: "8086", Device: "a36d", Class: "0c0330", Driver: "xhci_hcd"}), 1, "480")
	h.AddUSB(sysfstest.USB{Port: "1-1", Vendor: "1d50", Product: "606f", Interfaces: []sysfstest.Interface{{Class: "ff"}, {Number: 1, Class: "03"}}})
	snap, opts := scanned(t, h)
	for match, want := range map[string]string{
		`{ interface = "1", interface_class = "ff" }`: `usb.interface_class "ff" fits nothing: nearest 03 on 1-1`,
		`{ interface = "2", interface_class = "ff" }`: `usb.interface "2" fits nothing: nearest 0 on 1-1`,
		`{ interface = "1", interface_class = "03" }`: "",
	} {
		if got := matchers.Explain(parse(t, "match.usb = "+match), snap, nil, opts, nil, nil)[0].Reason; got != want {
			t.Errorf("%s: reason %q, want %q", match, got, want)
		}
	}
}
