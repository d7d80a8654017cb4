package vm

import (
	"encoding/json"
	"path"
	"syscall"
	"testing"
	"time"

	"github.com/generic-dp/generic-dp/test/e2e/vm/wire"
)

// waitLimit is the timeout of waits, on a busy host.
const waitLimit = 30 * time.Second

// Load loads sets of modules.
func (m *Machine) Load(t testing.TB, sets ...string) {
	t.Helper()
	for _, set := range sets {
		m.call(t, "Load", set, &wire.None{})
	}
}

// Serve waits until the devices of earlier tests are gone, and starts the program under
// test with a configuration and no state, for the rest of the test.
func (m *Machine) Serve(t testing.TB, config string) {
	t.Helper()
	m.WaitFiles(t, "/sys/bus/usb/devices/[0-9]*-[1-9]*")
	m.serve(t, config)
}

// serve is Serve beside plugged devices.
func (m *Machine) serve(t testing.TB, config string) {
	t.Helper()
	m.call(t, "Serve", wire.Serve{Config: config}, &wire.None{})
	t.Cleanup(func() {
		var log string
		if err := m.try(callLimit, "Log", wire.None{}, &log); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			showLog(t, "generic-dp", log)
		}
		m.call(t, "Stop", syscall.SIGTERM, &wire.None{})
	})
}

// Restart ends the program under test with a signal and starts it again.
func (m *Machine) Restart(t testing.TB, sig syscall.Signal, config string) {
	t.Helper()
	m.call(t, "Stop", sig, &wire.None{})
	m.call(t, "Serve", wire.Serve{Config: config, Keep: true}, &wire.None{})
}

// Want waits until the latest list of a resource matches.
func (m *Machine) Want(t testing.TB, w wire.Want) wire.Got {
	t.Helper()
	if w.Within == 0 {
		w.Within = waitLimit
	}
	var got wire.Got
	m.within(t, w.Within+callLimit, "Wait", w, &got)
	return got
}

// Healthy waits until exactly these devices are listed, all of them healthy.
func (m *Machine) Healthy(t testing.TB, resource string, ids ...string) wire.List {
	t.Helper()
	return m.Want(t, wire.Want{Resource: resource, Healthy: ids}).List
}

// Lists returns all lists of a resource, oldest first.
func (m *Machine) Lists(t testing.TB, resource string) []wire.List {
	t.Helper()
	var lists []wire.List
	m.call(t, "Lists", resource, &lists)
	return lists
}

// Allocate allocates devices to a pod that holds them from then on, or to nobody if pod
// is empty.
func (m *Machine) Allocate(t testing.TB, pod, resource string, ids ...string) wire.Answer {
	t.Helper()
	var a wire.Answer
	m.call(t, "Allocate", wire.Allocate{Resource: resource, IDs: ids, Pod: pod}, &a)
	return a
}

// Links returns the targets of the existing links, by their paths.
func (m *Machine) Links(t testing.TB) map[string]string {
	t.Helper()
	var links map[string]wire.Link
	m.call(t, "Links", wire.None{}, &links)
	return targets(links)
}

func targets(links map[string]wire.Link) map[string]string {
	to := map[string]string{}
	for name, l := range links {
		to[name] = l.Target
	}
	return to
}

// WaitFiles waits until the names that match a glob are these.
func (m *Machine) WaitFiles(t testing.TB, glob string, want ...string) {
	t.Helper()
	m.within(t, waitLimit+callLimit, "Files", wire.Files{Glob: glob, Want: want, Within: waitLimit}, &[]string{})
}

// Files returns the names that match a glob.
func (m *Machine) Files(t testing.TB, glob string) []string {
	t.Helper()
	var names []string
	m.call(t, "Files", wire.Files{Glob: glob}, &names)
	return names
}

// Only returns the path of the only file that matches a glob.
func (m *Machine) Only(t testing.TB, glob string) string {
	t.Helper()
	names := m.Files(t, glob)
	if len(names) != 1 {
		t.Fatalf("%s matches %q; want one name", glob, names)
	}
	return path.Join(path.Dir(glob), names[0])
}

// Write writes to a file of sysfs.
func (m *Machine) Write(t testing.TB, path, text string) {
	t.Helper()
	m.call(t, "Write", wire.Write{Path: path, Text: text}, &wire.None{})
}

// Usage returns the resource usage of the program under test.
func (m *Machine) Usage(t testing.TB) wire.Usage {
	t.Helper()
	var u wire.Usage
	m.call(t, "Usage", wire.None{}, &u)
	return u
}

// Found is a device in the output of generic-dp devices.
type Found struct {
	ID, Health, Reason string
	Nodes              []string
	NUMA               []int
	Slots              int
}

// Run runs another process of the program under test and returns its output.
func (m *Machine) Run(t testing.TB, args ...string) string {
	t.Helper()
	var out wire.Output
	m.call(t, "Run", wire.Run{Args: args}, &out)
	return out.Stdout
}

// Devices returns the devices of each resource in the output of generic-dp devices in
// the machine.
func (m *Machine) Devices(t testing.TB) map[string][]Found {
	t.Helper()
	text := m.Run(t, "devices", "-o", "json")
	var report struct {
		Resources []struct {
			Name    string
			Devices []Found
		}
	}
	if err := json.Unmarshal([]byte(text), &report); err != nil {
		t.Fatalf("devices -o json: %v in %s", err, text)
	}
	found := map[string][]Found{}
	for _, r := range report.Resources {
		found[r.Name] = r.Devices
	}
	return found
}
