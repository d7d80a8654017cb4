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
	must(t, os.MkdirAll(root+"/bus/pci/devices", 0o755))
	must(t, os.Symlink("../../../devices/pci0000:00/0000:00:02.0", root+"/bus/pci/devices/0000:00:02.0"))
	var log bytes.Buffer
	s := New(Options{Sysfs: root, Log: slog.New(slog.NewTextHandler(&log, nil))})
	entries, err := s.sysfs.PCI(nil)
	must(t, err)

	all := map[string]*device.PCI{"0000:00:02.0": {Vendor: "8086"}}
	asked := 0
	s.ghw = func(string) (map[string]*device.PCI, error) {
		if asked++; asked == 1 {
			return nil, nil
		}
		return all, nil
	}
	if found, _ := s.askGHW(entries); len(found) != 1 || asked != 2 {
		t.Errorf("found %v, asked %d times; want all, and twice", found, asked)
	}
	if found, _ := s.askGHW(entries); len(found) != 1 || asked != 3 {
		t.Errorf("found %v, asked %d times; want all, and once more", found, asked)
	}
	s.ghw = func(string) (map[string]*device.PCI, error) { return nil, errors.New("no database") }
	for range 3 {
		if found, left := s.askGHW(entries); found != nil || len(left) != 1 {
			t.Errorf("found %v, to compare with %v; want nothing, and the list", found, left)
		}
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
