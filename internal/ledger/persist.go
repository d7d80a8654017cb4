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
	"sort"
	"strings"
	"time"

	"github.com/generic-dp/generic-dp/internal/device"
	"github.com/generic-dp/generic-dp/internal/sys/atomicfile"
)

const (
	stateFile    = "state.json"
	stateVersion = 1
	badFile      = stateFile + ".bad"
	laterFile    = stateFile + ".later"
)

// Files are the names of the files of the state in a directory.
func Files() []string {
	return []string{stateFile, stateFile + atomicfile.TempSuffix, badFile, laterFile, laterFile + atomicfile.TempSuffix}
}

// Persisted is all state that survives a restart.
type Persisted struct {
	// Boot is the boot in which it was written, see State.
	Boot      string       `json:"boot,omitempty"`
	Decisions Decisions    `json:"decisions"`
	Resources []Remembered `json:"resources,omitempty"`
	Injected  Injected     `json:"injected,omitempty"`
	// Health are the sets of devices of containers with a health directory, by its name.
	Health map[string]HealthSet `json:"health,omitempty"`
	// Holds are the pods that hold slots or held them last, as far as they may run.
	Holds []Hold `json:"holds,omitempty"`
	// USB are the USB devices that were read in this boot, by sysfs path.
	USB map[string]device.KnownUSB `json:"usb,omitempty"`
	// DRA is set if the driver for dynamic resource allocation has run.
	DRA bool `json:"dra,omitempty"`
	// Later is set if a later version of the program wrote it: this is the part that
	// is understood.
	Later bool `json:"-"`
}

// Hold is a pod that holds a slot of a resource, by its UID.
type Hold struct {
	Slot     string `json:"slot"`
	Pod      string `json:"pod"`
	Resource string `json:"resource"`
}

// Injected are the nodes that links and CDI entries point to: the ID of each
// (device.NodeID), by the ID of the listed device and the path. They show whether a
// path still points to the injected node, even if the configuration, and with it the ID
// of the device, has changed since.
type Injected map[string]map[string]string

// Add records a node. One without an ID has no hardware and is not recorded.
func (i Injected) Add(device, path, node string) {
	if node == "" {
		return
	}
	if i[device] == nil {
		i[device] = map[string]string{}
	}
	i[device][path] = node
}

// HealthSet is what is known of the devices of a container.
type HealthSet struct {
	IDs []string `json:"ids"`
	// Hold is how long the set is unhealthy after a loss, at least.
	Hold time.Duration `json:"hold"`
	// Nodes identify the nodes that a container may have got in this boot, by the ID of
	// the device and the path. Healthy is whether all devices were healthy last, and Lost
	// when one went or moved; zero is never.
	Nodes   map[string]map[string]string `json:"nodes,omitempty"`
	Healthy bool                         `json:"healthy,omitempty"`
	Lost    time.Time                    `json:"lost,omitzero"`
}

type stateText struct {
	Version int `json:"version"`
	// USBFields are the fields read of a USB device. A version that reads more would find
	// the rest absent until a replug.
	USBFields string `json:"usb_fields"`
	Persisted
}

// usbFields are the USBFields of this version.
var usbFields = fieldNames(reflect.TypeFor[device.USB]())

func fieldNames(t reflect.Type) string {
	var names []string
	for i := range t.NumField() {
		names = append(names, t.Field(i).Name)
	}
	return strings.Join(names, " ")
}

func (p Persisted) text() ([]byte, error) {
	text, err := json.Marshal(stateText{stateVersion, usbFields, p})
	if err != nil {
		return nil, err
	}
	return append(text, '\n'), nil
}

// Load reads the state that was saved to dir. A missing file is an empty Persisted, and
// so is an unusable one, with an error.
func Load(dir string) (Persisted, error) {
	path := filepath.Join(dir, stateFile)
	text, err := atomicfile.Read(path, atomicfile.MaxSize)
	if errors.Is(err, fs.ErrNotExist) {
		return Persisted{}, nil
	}
	var p Persisted
	if err == nil {
		p, err = parse(text)
	}
	if err != nil {
		return Persisted{}, fmt.Errorf("read the state: %q: %w", path, err)
	}
	return p, nil
}

func parse(text []byte) (Persisted, error) {
	var s stateText
	err := json.Unmarshal(text, &s)
	if s.USBFields != usbFields {
		s.USB = nil
	}
	var mistyped *json.UnmarshalTypeError // its field is left out
	switch s.Later = s.Version > stateVersion; {
	case s.Later && (err == nil || errors.As(err, &mistyped)):
		return s.Persisted, nil
	case err == nil && s.Version == stateVersion:
		return s.Persisted, nil
	case err == nil:
		err = fmt.Errorf("version %d: want %d", s.Version, stateVersion)
	}
	return Persisted{}, err
}

// SetAside keeps a file that Load could not read, or of a later version, from the next
// save, as state.json.bad or state.json.later.
func SetAside(dir string, later bool) error {
	path := filepath.Join(dir, stateFile)
	if !later {
		return os.Rename(path, filepath.Join(dir, badFile))
	}
	// The original stays: the program may die before the next save.
	text, err := atomicfile.Read(path, atomicfile.MaxSize)
	if err == nil {
		err = atomicfile.Write(filepath.Join(dir, laterFile), text, 0o600)
	}
	return err
}

// Prepare returns a function that writes p, as it is now, to dir: it makes a missing dir,
// and writes atomically, only if p differs. One process at a time may save to a directory.
func Prepare(dir string, p Persisted) (save func() error) {
	path := filepath.Join(dir, stateFile)
	text, encoding := p.text()
	return func() error {
		err := encoding
		if err == nil {
			err = os.MkdirAll(dir, 0o700)
		}
		if err == nil {
			err = atomicfile.Write(path, text, 0o600)
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
	// Slots up to the last listed one, retired ones included.
	Slots int      `json:"slots"`
	NUMA  []int    `json:"numa,omitempty"`
	Nodes []string `json:"nodes,omitempty"` // keys, sorted
	// Now is the ID of this version, if the device keeps that of the version before.
	Now string `json:"now,omitempty"`
	// Moves is set if its interfaces move into the container that holds it. Hardware is
	// the sysfs path of their hardware, if any, in the boot in which it was seen.
	Moves    bool   `json:"moves,omitempty"`
	Hardware string `json:"hardware,omitempty"`
}

// Remember returns the state to persist, by name and ID. It contains no times: clocks
// may be wrong during boot.
func (s State) Remember() []Remembered {
	var all []Remembered
	for _, res := range s.resources {
		if len(res.records) == 0 {
			continue
		}
		kept := Remembered{Name: res.name}
		for _, id := range slices.SortedFunc(maps.Keys(res.records), device.CompareNatural) {
			rec := res.records[id]
			kept.Devices = append(kept.Devices, RememberedDevice{ID: id, Slots: rec.listed, NUMA: rec.offer.NUMA, Nodes: rec.keys, Now: rec.now, Moves: rec.net.moves, Hardware: rec.net.hardware})
		}
		all = append(all, kept)
	}
	sort.Slice(all, func(i, j int) bool { return device.CompareNatural(all[i].Name, all[j].Name) < 0 })
	return all
}

// Names lists the resources with listed devices, sorted.
func (s State) Names() []string {
	var names []string
	for _, res := range s.resources {
		if len(res.records) > 0 {
			names = append(names, res.name)
		}
	}
	slices.SortFunc(names, device.CompareNatural)
	return names
}

// State returns the state of a process that has just started, in the boot with this ID
// (/proc/sys/kernel/random/boot_id; empty is unknown): remembered devices are listed,
// and gone until they are matched. Their times restart. Interfaces that had moved before
// a reboot are back. Invalid devices are left out.
func (p Persisted) State(boot string) State {
	rebooted := boot == "" || boot != p.Boot
	var s State
	names, ids := make(map[string]bool), make(map[string]bool)
	for _, kept := range p.Resources {
		if kept.Name == "" || names[kept.Name] {
			continue
		}
		names[kept.Name] = true
		res := resource{name: kept.Name, records: make(map[string]record)}
		for _, d := range kept.Devices {
			negative := slices.ContainsFunc(d.NUMA, func(n int) bool { return n < 0 })
			if !device.ValidID(d.ID) || ids[d.ID] || d.Slots < 1 || d.Slots > device.MaxSlots || negative {
				continue
			}
			ids[d.ID] = true
			if rebooted {
				d.Moves, d.Hardware = false, ""
			}
			res.records[d.ID] = record{pending: true, offer: device.Offer{ID: d.ID, Slots: d.Slots, NUMA: d.NUMA}, listed: d.Slots, keys: d.Nodes, now: d.Now, net: netState{moves: d.Moves, hardware: d.Hardware, held: d.Moves}}
		}
		if len(res.records) > 0 {
			s.resources = append(s.resources, res)
		}
	}
	return s
}
