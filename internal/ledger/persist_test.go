package ledger

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/generic-dp/generic-dp/internal/device"
)

func full() Persisted {
	return Persisted{
		Decisions: Decisions{Serials: []Serial{{ID: "usb:10c4:ea60:A1B2C3", Place: "0000:00:14.0:1.2", Contested: true}}},
		Resources: []Remembered{{Name: "example.com/zigbee", Devices: []RememberedDevice{{ID: "usb:10c4:ea60:A1B2C3", Slots: 3, NUMA: []int{0, 1}, Nodes: []string{"if00:ttyUSB"}}}}},
		Injected:  Injected{"usb:10c4:ea60:A1B2C3": {"/dev/ttyUSB0": "usb:10c4:ea60:A1B2C3:if00:ttyUSB"}},
	}
}

func save(dir string, p Persisted) error { return Prepare(dir, p)() }

// A version that reads another attribute of USB devices reads all of them again.
func TestUSBDevicesOfAVersionThatReadLess(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	saved := full()
	saved.USB = map[string]device.KnownUSB{"/sys/devices/usb1/1-1": {Inode: 7, USB: device.USB{Serial: "A1"}}}
	must(t, save(dir, saved))
	file := filepath.Join(dir, stateFile)
	text, err := os.ReadFile(file)
	must(t, err)
	for _, c := range []struct {
		text string
		usb  int
	}{{string(text), 1}, {strings.Replace(string(text), " Speed", "", 1), 0}} {
		must(t, os.WriteFile(file, []byte(c.text), 0o600))
		if got, err := Load(dir); err != nil || len(got.USB) != c.usb || len(got.Resources) != 1 {
			t.Errorf("%d USB devices and %d resources, %v: want %d and 1\n%s", len(got.USB), len(got.Resources), err, c.usb, c.text)
		}
	}
}

func TestInvalidStateIsKeptAside(t *testing.T) {
	t.Parallel()
	good, err := full().text()
	must(t, err)
	tests := []struct{ name, text, want string }{
		{"empty", "", "unexpected end"},
		{"cut off", string(good[:len(good)/2]), "unexpected end"},
		{"zeros", strings.Repeat("\x00", 100), "invalid character"},
		{"followed by more", string(good) + "{}", "after top-level value"},
		{"without a version", "{}", "version 0: want 1"},
		{"of other types", `{"version":1,"resources":{"a":1}}`, "cannot unmarshal"},
		{"too large", string(good) + strings.Repeat(" ", maxSize), "exceed the limit of"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			path := filepath.Join(dir, stateFile)
			must(t, os.WriteFile(path, []byte(tt.text), 0o600))
			got, err := Load(dir)
			if err == nil || !strings.Contains(err.Error(), tt.want) || !strings.Contains(err.Error(), path) {
				t.Errorf("error %v, want one with %q and the path", err, tt.want)
			}
			if !cmp.Equal(got, Persisted{}) {
				t.Errorf("loaded %+v", got)
			}
			if err := SetAside(dir); err != nil {
				t.Error(err)
			}
			if text, err := os.ReadFile(path + ".bad"); err != nil || string(text) != tt.text {
				t.Errorf("not kept aside: %v", err)
			}
			if _, err := Load(dir); err != nil {
				t.Errorf("second time: %v", err)
			}
			if err := save(dir, full()); err != nil {
				t.Error(err)
			}
		})
	}
}

// After a rollback, what this version understands of the state is used.
func TestStateOfALaterVersion(t *testing.T) {
	t.Parallel()
	good, err := full().text()
	must(t, err)
	dir := t.TempDir()
	later := strings.Replace(string(good), `"version":1`, `"version":2,"new":{"a":[1]}`, 1)
	must(t, os.WriteFile(filepath.Join(dir, stateFile), []byte(later), 0o600))
	got, err := Load(dir)
	if diff := cmp.Diff(full(), got); err != nil || diff != "" {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
}

func TestRestoreLeavesOutInvalidDevices(t *testing.T) {
	t.Parallel()
	one := func(id string, slots int) RememberedDevice { return RememberedDevice{ID: id, Slots: slots} }
	state := restore([]Remembered{
		{Name: "a", Devices: []RememberedDevice{one("x", 1), one("x", 2), one("not an id", 1), one("y::1", 1), one("none", 0), one("many", device.MaxSlots+1), {ID: "u", Slots: 1, NUMA: []int{0, -1}}}},
		{Name: "b", Devices: []RememberedDevice{one("x", 1), one("z", 2)}},
		{Name: "a", Devices: []RememberedDevice{one("w", 1)}},
		{Name: "", Devices: []RememberedDevice{one("v", 1)}},
		{Name: "c"},
	})
	want := []Remembered{{Name: "a", Devices: []RememberedDevice{one("x", 1)}}, {Name: "b", Devices: []RememberedDevice{one("z", 2)}}}
	equal(t, "remembers", want, state.Remember())
}

func FuzzLoad(f *testing.F) {
	good, err := full().text()
	must(f, err)
	f.Add(good)
	f.Add([]byte(`{"version":1,"resources":[{"name":"r","devices":[{"id":"x","slots":9999999,"numa":[-1]}]}]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		dir := t.TempDir()
		must(t, os.WriteFile(filepath.Join(dir, stateFile), text, 0o600))
		p, err := Load(dir)
		if err != nil && !cmp.Equal(p, Persisted{}) {
			t.Errorf("a value and an error: %v", err)
		}
		h := newMachine(t, p.Resources...)
		h.at(0).at(m)
		if err := save(dir, Persisted{Boot: p.Boot, Decisions: p.Decisions, Resources: h.state.Remember()}); err != nil {
			t.Error(err)
		}
	})
}
