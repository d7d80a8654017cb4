package inventory

import (
	"bytes"
	"errors"
	"log/slog"
	"os"
	"strings"
	"testing"

	"github.com/generic-dp/generic-dp/device"
)

// ghw is called once more if its result is short, and given up if it fails; the problem
// is logged once.
func TestAskGHWTwice(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	const dir = "devices/pci0000:00/0000:00:02.0"
	for _, d := range []string{"/bus/pci/devices", "/dev", "/" + dir} {
		must(t, os.MkdirAll(root+d, 0o755))
	}
	must(t, os.WriteFile(root+"/"+dir+"/vendor", []byte("0x8086\n"), 0o644))
	must(t, os.Symlink("../../../"+dir, root+"/bus/pci/devices/0000:00:02.0"))
	var log bytes.Buffer
	s := New(Options{Sysfs: root, Dev: t.TempDir(), Log: slog.New(slog.NewTextHandler(&log, nil))})
	asked := 0
	scan := func(vendor string, asks int) {
		t.Helper()
		asked = 0
		snap, err := s.Scan(t.Context())
		must(t, err)
		if len(snap.Hardware) != 1 || snap.Hardware[0].PCI.Vendor != vendor || asked != asks {
			t.Errorf("hardware %+v, asked %d times; want vendor %s and %d", snap.Hardware, asked, vendor, asks)
		}
	}
	all := map[string]*device.PCI{"0000:00:02.0": {Address: "0000:00:02.0", Vendor: "10de"}}
	s.ghw = func(string) (map[string]*device.PCI, error) {
		if asked++; asked == 1 {
			return nil, nil
		}
		return all, nil
	}
	scan("10de", 2)
	s.ghw = func(string) (map[string]*device.PCI, error) { asked++; return all, nil }
	scan("10de", 1)
	s.ghw = func(string) (map[string]*device.PCI, error) { asked++; return nil, errors.New("no database") }
	for range 3 {
		scan("8086", 2)
	}
	if n := strings.Count(log.String(), "no database"); n != 1 {
		t.Errorf("said %d times; want once:\n%s", n, log.String())
	}
}

func TestSubsystemIDs(t *testing.T) {
	t.Parallel()
	for modalias, want := range map[string][2]string{
		"pci:v000010DEd00001C82sv00001043sd00008613bc03sc00i02": {"1043", "8613"},
		"": {}, "pci:v000010DEd00001C82": {}, "usb:v1D6Bp0002d0515dc09dsc00dp01ic09isc00ip00in00": {},
	} {
		if vendor, device := subsystemIDs(modalias); vendor != want[0] || device != want[1] {
			t.Errorf("%q: %q, %q; want %q", modalias, vendor, device, want)
		}
	}
}
