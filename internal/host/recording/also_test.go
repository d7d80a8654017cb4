package recording_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/generic-dp/generic-dp/internal/device"
	"github.com/generic-dp/generic-dp/internal/host/inventory"
	"github.com/generic-dp/generic-dp/internal/host/recording"
	"github.com/generic-dp/generic-dp/internal/testing/sysfstest"
)

// Attributes read by name while a host is recorded are the same in the recording, and
// unreadable ones are reported.
func TestRecordedAttributes(t *testing.T) {
	t.Parallel()
	h := sysfstest.New(t)
	h.AddBus()
	card := h.AddPCI(sysfstest.PCI{Address: "0000:03:00.0", Vendor: "1002", Device: "740f", Class: "038000", Driver: "amdgpu"})
	cam := h.AddUSB(sysfstest.USB{
		Port: "1-2", Vendor: "046d", Product: "0825", Serial: "A1B2C3D4E5",
		Interfaces: []sysfstest.Interface{{Class: "0e", Driver: "uvcvideo", Nodes: []sysfstest.Node{{Name: "video0", Subsystem: "video4linux", Major: 81, Attrs: map[string]string{"video4linux/video0/index": "0"}}}}},
	})
	video := cam + "/1-2:1.0/video4linux/video0"
	for file, text := range map[string]string{
		card + "/rom1/x": "1\n", card + "/rom2/vbios_version": "113-D67301-063\n", card + "/current_compute_partition": "SPX\n", card + "/current_memory_partition": "NPS1\n",
		card + "/nvme/nvme0/device_id": "740f\n", card + "/nvme/nvme0/subsysnqn": "nqn.2014.08.org.nvmexpress:144d144dS649NX0R\n", cam + "/busnum": "1\n",
		card + "/unique_id": "5f0e1d2c3b4a\n", card + "/current_link_width": "16\n",
		video + "/name": "Camera A1B2C3D4E5\n", card + "/not_asked_for": "1\n",
	} {
		name := filepath.Join(h.Sysfs(), file)
		must(t, os.MkdirAll(filepath.Dir(name), 0o755))
		must(t, os.WriteFile(name, []byte(text), 0o644))
	}
	must(t, os.Symlink("../../../1-2:1.0", filepath.Join(h.Sysfs(), video, "device")))
	asked := [][2]string{
		{card, "rom*/vbios_version"}, {card, "unique_id"}, {card, "current_link_width"}, {card, "missing"}, {video, "name"}, {video, "device/bInterfaceClass"},
		{card, "current_compute_partition"}, {card, "current_memory_partition"}, {card, "nvme/nvme0/device_id"}, {card, "nvme/nvme0/subsysnqn"}, {cam, "busnum"},
	}
	read := func(attrs *inventory.Attributes) (values []string) {
		for _, a := range asked {
			found, _ := attrs.Attr(a[0], a[1], time.Now().Add(time.Hour))
			values = append(values, strings.Join(found, " "))
		}
		return append(values, attrs.Driver(card))
	}
	var want []string
	also := func(snap *device.Snapshot, attrs *inventory.Attributes) []string {
		if len(snap.Hardware) != 4 {
			t.Errorf("%d devices", len(snap.Hardware))
		}
		want = read(attrs)
		return []string{"/opt/A1B2C3D4E5.bin", "/opt/empty/", "/var/uuid-02:00:00:00:00:01"}
	}
	again := func(o recording.Options) (archive string, values []string) {
		o.Also = also
		a := record(t, options(h.Tree), o)
		s := inventory.New(options(unpack(t, a)))
		if _, err := s.Scan(t.Context()); err != nil {
			t.Fatal(err)
		}
		return string(a), read(s.Attributes())
	}
	archive, got := again(recording.Options{})
	if diff := cmp.Diff(want, got); diff != "" || want[0] != "113-D67301-063" || want[5] != "0e" {
		t.Errorf("asked %q:\n%s", want, diff)
	}
	if !strings.Contains(archive, "-- host/opt/A1B2C3D4E5.bin --\n-- host/opt/empty/ --\n-- host/var/uuid-02:00:00:00:00:01 --\n") {
		t.Errorf("the archive lacks files:\n%s", archive)
	}
	if strings.Contains(archive, "not_asked_for") {
		t.Error("the archive has what nobody asked for")
	}
	archive, got = again(recording.Options{Redact: true})
	if !strings.Contains(archive, "-- host/opt/REDACTED1.bin --\n-- host/opt/empty/ --\n-- host/var/REDACTED2 --\n") {
		t.Errorf("the redacted archive lacks files:\n%s", archive)
	}
	// Attributes on neither list are left out.
	equal(t, "result", []string{"", "", "16", "", "Camera REDACTED1", "0e", "SPX", "NPS1", "740f", "", "1", "amdgpu"}, got)
	for _, leak := range []string{"A1B2C3", "5f0e1d2c", "D67301", "S649NX0R", "02:00:00"} {
		if strings.Contains(archive, leak) {
			t.Errorf("the archive has %q", leak)
		}
	}
}

// Network routes and the names of interfaces are recorded, and nothing else of /proc
// except for drivers of nodes without an entry in sysfs; a redacted recording has no
// MAC address.
func TestRecordedUse(t *testing.T) {
	t.Parallel()
	h := sysfstest.New(t)
	must(t, os.WriteFile(filepath.Join(h.Dev(), "nvidia0"), []byte("char 195:0\n"), 0o644))
	h.WriteProc("devices", "Character devices:\n  1 mem\n195 nvidia-frontend\n200 secret\n\nBlock devices:\n195 other\n")
	card := h.AddPCI(sysfstest.PCI{Address: "0000:03:00.0", Vendor: "0b95", Device: "1790", Class: "020000"})
	h.AddNet(card, sysfstest.Net{Name: "enx001122aabbcc"})
	h.AddNet("", sysfstest.Net{Name: "bond0", Bond: true})
	h.AddNet(card, sysfstest.Net{Name: "eth0", Master: "bond0"})
	h.AddNet(card, sysfstest.Net{Name: "enx001122aabbcd"})
	h.AddNet("", sysfstest.Net{Name: "vlan7", Lower: "enx001122aabbcd"})
	h.WriteProc("1/net/dev", "Inter-|\n face |\nenx001122aabbcc: 98765 1\nenx001122aabbcd: 0\neth0: 1\nlo: 9\n")
	h.WriteProc("1/net/route", "Iface\nenx001122aabbcc 00000000 0102A8C0 0003 0 0 100 00000000\nenx001122aabbcc 0002A8C0 00000000 0001 0 0 0 00FFFFFF\n")
	want := scan(t, options(h.Tree))
	archive := record(t, options(h.Tree), recording.Options{})
	equal(t, "result", want, scan(t, options(unpack(t, archive))))
	use := func(o inventory.Options) (reasons []string) {
		snap, s := sysfstest.Scan(t, o)
		attrs := s.Attributes()
		reasons = append(reasons, attrs.CharDriver(195))
		for _, n := range snap.Nets {
			reasons = append(reasons, n.Path+": "+attrs.InUse(n))
		}
		return reasons
	}
	if diff := cmp.Diff([]string{
		"nvidia-frontend", "bond0: a bond", "enx001122aabbcc: the interface of a route", "enx001122aabbcd: the link below vlan7", "eth0: a member of bond0", "vlan7: ",
	}, use(options(unpack(t, archive)))); diff != "" {
		t.Error(diff)
	}
	redacted := record(t, options(h.Tree), recording.Options{Redact: true})
	if diff := cmp.Diff([]string{
		"nvidia-frontend", "REDACTED-1: the interface of a route", "REDACTED-2: the link below vlan7", "bond0: a bond", "eth0: a member of bond0", "vlan7: ",
	}, use(options(unpack(t, redacted)))); diff != "" {
		t.Error(diff)
	}
	for _, never := range []string{"secret", "other", "0102A8C0", "98765", "0002A8C0", "02:00:00"} {
		if strings.Contains(string(archive), never) {
			t.Errorf("the recording has %q", never)
		}
	}
	for _, leak := range []string{"001122"} {
		if strings.Contains(string(redacted), leak) {
			t.Errorf("the redacted recording has %q", leak)
		}
	}
	if t.Failed() {
		t.Log(string(redacted))
	}
}
