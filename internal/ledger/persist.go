package ledger

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	"github.com/generic-dp/generic-dp/internal/device"
	"github.com/generic-dp/generic-dp/internal/order"
	"github.com/generic-dp/generic-dp/internal/sys/files"
)

const (
	stateFile    = "state.json"
	stateVersion = 1
	badFile      = stateFile + ".bad"
	// maxSize is the maximum size of the state file in bytes. What is read of it takes up to ten times as
	// much memory.
	maxSize = 4 << 20
)

// Files are the names of the files of the state in a directory.
func Files() []string {
	return []string{stateFile, stateFile + files.TempSuffix, badFile}
}

// Persisted is all state that survives a restart.
type Persisted struct {
	// Boot is the ID of the boot in which it was written, see State.
	Boot      string       `json:"boot,omitempty"`
	Decisions Decisions    `json:"decisions"`
	Resources []Remembered `json:"resources,omitempty"`
	Injected  Injected     `json:"injected,omitempty"`
	// Health are the devices that have a health directory, by ID.
	Health map[string]device.Health `json:"health_dirs,omitempty"`
	// USB are the USB devices that were read in this boot, by sysfs path.
	USB map[string]device.KnownUSB `json:"usb,omitempty"`
	// Nets are the numbers of network interfaces that the kernel does not number, by their hardware.
	Nets map[string][]device.KnownNet `json:"nets,omitempty"`
	// DRA is set if the driver for dynamic resource allocation has run.
	DRA bool `json:"dra,omitempty"`
}

// Injected are the nodes that links and CDI entries point to: the ID of each
// (device.NodeID), by the ID of the listed device and the path. They show whether a
// path still points to the injected node, even if the configuration, and with it the ID
// of the device, has changed since.
type Injected map[string]map[string]string

// Add records a node. A node without an ID has no hardware and is not recorded.
func (i Injected) Add(device, path, node string) {
	if node == "" {
		return
	}
	if i[device] == nil {
		i[device] = map[string]string{}
	}
	i[device][path] = node
}

// stateText is the content of the state file.
type stateText struct {
	Version int `json:"version"`
	// USBFields are the names of the fields that are remembered of a USB device. A version
	// that reads more fields would miss them until the device is plugged in again, so it
	// ignores devices with other fields.
	USBFields string `json:"usb_fields"`
	Persisted
}

// usbFields are the USBFields of this version.
var usbFields = fieldNames(reflect.TypeFor[device.USB]())

// fieldNames lists the fields of a struct, separated by spaces.
func fieldNames(t reflect.Type) string {
	var names []string
	for i := range t.NumField() {
		names = append(names, t.Field(i).Name)
	}
	return strings.Join(names, " ")
}

// text is the content of the state file.
func (p Persisted) text() ([]byte, error) {
	text, err := json.Marshal(stateText{stateVersion, usbFields, p})
	if err != nil {
		return nil, err
	}
	if len(text) >= maxSize {
		return nil, fmt.Errorf("%d bytes exceed the limit of %d", len(text), maxSize)
	}
	return append(text, '\n'), nil
}

// Load reads the state that was saved to dir. A missing file is an empty Persisted, and
// so is an unusable one, with an error. Of a later version it reads the fields that this version knows.
func Load(dir string) (Persisted, error) {
	path := filepath.Join(dir, stateFile)
	var s stateText
	err := files.ReadJSON(path, maxSize, &s)
	if errors.Is(err, fs.ErrNotExist) {
		return Persisted{}, nil
	}
	if err == nil && s.Version < stateVersion {
		err = fmt.Errorf("version %d: want %d", s.Version, stateVersion)
	}
	if err != nil {
		return Persisted{}, fmt.Errorf("read the state: %q: %w", path, err)
	}
	if s.USBFields != usbFields {
		s.USB = nil
	}
	return s.Persisted, nil
}

// SetAside keeps a state file that Load could not read as state.json.bad: it may be the only evidence of what
// went wrong.
func SetAside(dir string) error {
	return os.Rename(filepath.Join(dir, stateFile), filepath.Join(dir, badFile))
}

// Prepare returns a function that saves p, as it is now, to dir. The function makes the
// directory if it is missing and writes atomically, and only if the content has changed. Only
// one process at a time may save to a directory.
func Prepare(dir string, p Persisted) (save func() error) {
	path := filepath.Join(dir, stateFile)
	text, encoding := p.text()
	return func() error {
		err := encoding
		if err == nil {
			err = os.MkdirAll(dir, 0o700)
		}
		if err == nil {
			err = files.Write(path, text, 0o600)
		}
		if err != nil {
			return fmt.Errorf("--state-dir: write the state: %q: %w", path, err)
		}
		return nil
	}
}

// Remembered is the part of a resource that survives a restart: the kubelet's
// checkpoint has its devices, and the first list must contain all of them.
type Remembered struct {
	Name    string             `json:"name"`
	Devices []RememberedDevice `json:"devices"`
}

// RememberedDevice is a listed device.
type RememberedDevice struct {
	ID string `json:"id"`
	// Slots is how many slots are listed from slot 0 on, including retired ones.
	Slots int   `json:"slots"`
	NUMA  []int `json:"numa,omitempty"`
	// Nodes are the keys of the nodes, sorted.
	Nodes []string `json:"nodes,omitempty"`
	// Gone is set if the device was absent.
	Gone bool `json:"gone,omitempty"`
	// Moves is set if its interfaces move into the container that holds it.
	Moves bool `json:"moves,omitempty"`
	// Hardware is the sysfs path of the hardware of these interfaces, in the boot in which it
	// was seen, empty if there is none.
	Hardware string `json:"hardware,omitempty"`
	// Places are what the device uses of the host, see device.Conflict. They are of the boot in
	// which it was seen.
	Places []string `json:"places,omitempty"`
}

// Remember returns the state to persist, by name and ID. It contains no times: clocks
// may be wrong during boot. Devices that only the kubelet knows are left out.
func (s State) Remember() []Remembered {
	var all []Remembered
	for name, ids := range idsByResource(s.records) {
		kept := Remembered{Name: name}
		for _, id := range ids {
			rec := s.records[id]
			if rec.phase == onlyHeld {
				continue
			}
			kept.Devices = append(kept.Devices, RememberedDevice{
				ID:       id,
				Slots:    rec.listed,
				NUMA:     rec.offer.NUMA,
				Nodes:    rec.keys,
				Gone:     rec.phase == gone,
				Moves:    rec.net.moves,
				Hardware: rec.net.hardware,
				Places:   rec.offer.Places,
			})
		}
		if len(kept.Devices) > 0 {
			all = append(all, kept)
		}
	}
	order.Sort(all, func(a, b Remembered) int {
		return device.CompareNatural(a.Name, b.Name)
	})
	return all
}

// Places returns what each listed device used of the host when it was offered last, by its ID.
func (s State) Places() map[string][]string {
	places := map[string][]string{}
	for id, rec := range s.records {
		if rec.phase != onlyHeld {
			places[id] = rec.offer.Places
		}
	}
	return places
}

// Names lists the resources with listed devices, sorted.
func (s State) Names() []string {
	return slices.SortedFunc(maps.Keys(idsByResource(s.records)), device.CompareNatural)
}

// maxRemembered is what remembered devices may take of the budget, since somebody may have edited the state
// file. The rest is for new devices.
const maxRemembered = device.MaxParts / 2

// State returns the state of a process that has just started, in the boot with this ID
// (/proc/sys/kernel/random/boot_id, empty if unknown). Remembered devices are listed, as gone
// until they are matched. Their times restart. After a reboot all interfaces are back on the
// host. Invalid devices are left out.
//
// Beyond half of the limit, devices are listed with one slot. The others come back when the device is matched, or
// when the kubelet says that a container holds them. Devices beyond the limit are left out.
func (p Persisted) State(boot string) State {
	rebooted := boot == "" || boot != p.Boot
	s := State{records: map[string]record{}}
	names := map[string]bool{}
	slots := 0
	taken := 0
	for _, kept := range p.Resources {
		if kept.Name == "" || names[kept.Name] {
			continue
		}
		names[kept.Name] = true
		taken += device.ResourceParts
		for _, d := range kept.Devices {
			_, isKnown := s.records[d.ID]
			if !d.valid() || isKnown || taken > maxRemembered {
				continue
			}
			taken += device.DeviceParts + 1
			if slots+d.Slots > maxRemembered {
				d.Slots = 1
			}
			slots += d.Slots
			s.records[d.ID] = d.record(kept.Name, rebooted)
		}
	}
	return s
}

// valid reports whether the device can be listed. Somebody may have edited the state file.
func (d RememberedDevice) valid() bool {
	hasNUMA := len(d.NUMA) == 0 || slices.Min(d.NUMA) >= 0
	return hasNUMA && device.ValidID(d.ID) && d.Slots >= 1 && d.Slots <= device.MaxSlots
}

// record returns the record of a device that has not been matched yet.
func (d RememberedDevice) record(resource string, rebooted bool) record {
	rec := record{
		resource: resource,
		offer:    device.Offer{ID: d.ID, Slots: d.Slots, NUMA: d.NUMA, Places: d.Places},
		listed:   d.Slots,
		keys:     d.Nodes,
		phase:    awaited,
	}
	if d.Gone {
		rec.phase = gone
	}
	if !rebooted {
		rec.net = netState{moves: d.Moves, hardware: d.Hardware}
	}
	return rec
}
