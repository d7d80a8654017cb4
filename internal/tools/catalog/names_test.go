package catalog_test

import (
	"compress/gzip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/generic-dp/generic-dp/internal/device"
	"github.com/generic-dp/generic-dp/internal/tools/catalog"
)

// A file of names has comments and blank lines within vendors, subsystems below products, and
// other sections.
const smallPCI = `#
#	List of PCI ID's
#

10de  NVIDIA Corporation
	20b0  GA100 [A100 SXM4 40GB]
# a comment within a vendor
	20b2  GA100 [A100 SXM4 80GB]
		10de 1463  A100-SXM4-80GB

	2330  GH100 [H100 SXM5 80GB]
8086  Intel Corporation
	0b30  FPGA Controller
C 03  Display controller
	00  VGA compatible controller
		00  VGA controller
`

const smallUSB = `10c4  Silicon Labs
# a comment within a vendor
	ea60  CP210x UART Bridge

	ea70  CP2105 Dual UART Bridge

# Other sections follow the vendors.
C 09  Hub
	00  Unused
		00  Full speed (or root) hub
AT 0100  USB Streaming
HID 21  HID
R 04  Feature
BIAS 0  Not Applicable
L 0001  Arabic
	01  Saudi Arabia
HUT 01  Generic Desktop Controls
	000  Undefined
`

func writeFile(t *testing.T, dir, name, text string) {
	t.Helper()
	err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600)
	if err != nil {
		t.Fatal(err)
	}
}

func function(vendor, product string) *device.Hardware {
	return &device.Hardware{Bus: device.PCIBus, PCI: &device.PCI{Vendor: vendor, Device: product}}
}

func usbDevice(vendor, product string) *device.Hardware {
	return &device.Hardware{Bus: device.USBBus, USB: &device.USB{Vendor: vendor, Product: product}}
}

func TestNames(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	writeFile(t, dir, "pci.ids", smallPCI)
	writeFile(t, dir, "usb.ids", smallUSB)
	gpu := usbDevice("10c4", "ea70")
	gpu.USB.ProductName = " Own name "
	for _, test := range []struct {
		h               *device.Hardware
		vendor, product string
	}{
		{function("10de", "20b0"), "NVIDIA Corporation", "GA100 [A100 SXM4 40GB]"},
		{function("10de", "20b2"), "NVIDIA Corporation", "GA100 [A100 SXM4 80GB]"},
		{function("10de", "2330"), "NVIDIA Corporation", "GH100 [H100 SXM5 80GB]"},
		{function("10de", "1463"), "NVIDIA Corporation", ""},
		{function("8086", "0b30"), "Intel Corporation", "FPGA Controller"},
		{function("10c4", "ea60"), "", ""},
		{usbDevice("10c4", "ea60"), "Silicon Labs", "CP210x UART Bridge"},
		{usbDevice("10de", "20b0"), "", ""},
		{gpu, "Silicon Labs", "Own name"},
		{&device.Hardware{Bus: device.MDevBus, MDev: &device.MDev{Name: "GRID T4-1B"}}, "", "GRID T4-1B"},
		{&device.Hardware{Bus: device.PlatformBus}, "", ""},
	} {
		snap := &device.Snapshot{Hardware: []*device.Hardware{test.h}}
		names, err := catalog.ReadNames(snap, []string{filepath.Join(dir, "nothing"), dir})
		if err != nil {
			t.Fatal(err)
		}
		vendor, product := names.Of(test.h)
		if vendor != test.vendor || product != test.product {
			t.Errorf("%+v %+v is %q %q: want %q %q", test.h.PCI, test.h.USB, vendor, product, test.vendor, test.product)
		}
	}
}

// Some distributions compress the files.
func TestCompressedNames(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	var compressed strings.Builder
	w := gzip.NewWriter(&compressed)
	_, err := w.Write([]byte(smallPCI))
	if err != nil {
		t.Fatal(err)
	}
	err = w.Close()
	if err != nil {
		t.Fatal(err)
	}
	writeFile(t, dir, "pci.ids.gz", compressed.String())
	gpu := function("10de", "2330")
	names, err := catalog.ReadNames(&device.Snapshot{Hardware: []*device.Hardware{gpu}}, []string{dir})
	if err != nil {
		t.Fatal(err)
	}
	if vendor, product := names.Of(gpu); vendor != "NVIDIA Corporation" || product != "GH100 [H100 SXM5 80GB]" {
		t.Errorf("%q %q", vendor, product)
	}
}

// A file in another format has no names, and says so; the other one has.
func TestBrokenNames(t *testing.T) {
	t.Parallel()
	for _, broken := range []string{"8086\n", "\t8086  x\n", "C\n", "8086  Intel\n\t1\n", "8086  Intel\n\t1234  x\n\t\t12\n"} {
		dir := t.TempDir()
		writeFile(t, dir, "pci.ids", broken)
		writeFile(t, dir, "usb.ids", smallUSB)
		stick := usbDevice("10c4", "ea60")
		snap := &device.Snapshot{Hardware: []*device.Hardware{function("8086", "1234"), stick}}
		names, err := catalog.ReadNames(snap, []string{dir})
		if err == nil || !strings.Contains(err.Error(), `pci.ids" is not in the format of pci.ids`) {
			t.Errorf("%q: %v", broken, err)
		}
		if vendor, _ := names.Of(stick); vendor != "Silicon Labs" {
			t.Errorf("%q: the stick's vendor is %q", broken, vendor)
		}
	}
}
