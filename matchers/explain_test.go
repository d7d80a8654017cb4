package matchers_test

import (
	"slices"
	"testing"

	"github.com/generic-dp/generic-dp/internal/device"
	"github.com/generic-dp/generic-dp/internal/testing/sysfstest"
	"github.com/generic-dp/generic-dp/matchers"
)

// Number and class of a USB interface belong to one interface, also in reasons.
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

// A sub-function that a match ignores as such has no other reason.
func TestExplainSubFunction(t *testing.T) {
	t.Parallel()
	snap := machine(t, nics)
	i := slices.IndexFunc(snap.Hardware, func(h *device.Hardware) bool { return h.Name == "mlx5_core.sf.4" })
	for match, want := range map[string]string{
		`{ vendor = "15b3", driver = "mlx4*" }`: `pci.sriov fits nothing: a sub-function is selected by "sf" only`,
		`{ vendor = "15b3", sriov = "sf" }`:     "",
	} {
		if got := matchers.Explain(parse(t, "match.pci = "+match), snap, nil, matchers.Options{Host: &fakeHost{}}, snap.Hardware[i], nil)[0].Reason; got != want {
			t.Errorf("%s: reason %q, want %q", match, got, want)
		}
	}
}
