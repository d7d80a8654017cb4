package matchers_test

import (
	"maps"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/generic-dp/generic-dp/internal/testing/sysfstest"
	"github.com/generic-dp/generic-dp/matchers"
)

// Capabilities of input devices, as /proc/bus/input/devices shows them on 64 bits.
const (
	keyboardKeys = "1000000000007 ff9f207ac14057ff febeffdfffefffff fffffffffffffffe"
	gamepadKeys  = "7cdb000000000000 0 0 0 0"
	mouseKeys    = "1f0000 0 0 0 0"
	touchKeys    = "400 0 0 0 0 0"
	powerKeys    = "10000000000000 0"
	// A gamepad with a button for recordings (KEY_RECORD).
	gamepadAndKey = "7cdb000000000000 0 8000000000 0 0"
)

// eventNode is an event node with the capabilities of its device; without keys nothing is
// known.
func eventNode(name, dir string, keys, rel, abs string) sysfstest.Node {
	n := sysfstest.Node{
		Name:      "input/" + name,
		Subsystem: "input",
		Dir:       dir + "/" + name,
	}
	if keys != "" {
		n.Attrs = map[string]string{
			dir + "/capabilities/key": keys,
			dir + "/capabilities/rel": rel,
			dir + "/capabilities/abs": abs,
		}
	}
	return n
}

// Keyboards, pointers and keys are the host's input. Game controllers, switches and sensors
// are not, whatever their nodes.
func TestDangerOfInput(t *testing.T) {
	t.Parallel()
	h := sysfstest.New(t)
	want := map[string]string{}
	for path := range judged(t, h, everyNode) {
		want[path] = ""
	}
	for name, device := range map[string]struct{ keys, rel, abs, kind string }{
		"event0": {keyboardKeys, "0", "0", "keyboard"},
		"event1": {mouseKeys, "903", "0", "pointer"},
		"event2": {touchKeys, "0", "3", "pointer"},
		"event3": {powerKeys, "0", "0", "keys"},
		"event4": {gamepadKeys, "0", "3003f", ""},
		"event5": {gamepadAndKey, "0", "3003f", ""},
		"event6": {"0", "0", "7", ""}, // an accelerometer
		"event7": {"", "", "", "unknown kind of input"},
		"event8": {"x", "0", "0", "unknown kind of input"},
	} {
		dir := "input/input" + strings.TrimPrefix(name, "event")
		h.AddNode("", eventNode(name, dir, device.keys, device.rel, device.abs))
		want["/dev/input/"+name] = ""
		if device.kind != "" {
			want["/dev/input/"+name] = "it reads and injects input of the host (input " + name + ": " + device.kind + ")"
		}
	}
	equal(t, "result", want, judged(t, h, everyNode))
}

// A hidraw node and a bus node are as dangerous as the keyboard that is read by them, also
// behind a receiver. Those of security keys, volume knobs and game controllers are not.
func TestDangerOfHID(t *testing.T) {
	t.Parallel()
	const (
		typed = "it reads and injects input of the host (input "
		bus   = "/dev/bus/usb/001/00"
	)
	h := sysfstest.New(t)
	h.AddBus()
	add := func(port, number, below, keys string, more ...sysfstest.Interface) {
		dir := h.AddUSB(sysfstest.USB{Port: port, Vendor: "046d", Product: "c31c", Serial: "S" + number,
			Interfaces: append([]sysfstest.Interface{{Class: "03", Driver: "usbhid"}}, more...)})
		hid := port + ":1.0/0003:046D:C31C.000" + number
		h.AddNode(dir, sysfstest.Node{Name: "hidraw" + number, Subsystem: "hidraw", Dir: hid + "/hidraw/hidraw" + number})
		if keys != "" {
			h.AddNode(dir, eventNode("event"+number, hid+below+"/input/input"+number, keys, "0", "0"))
		}
	}
	add("1-1", "1", "", keyboardKeys)
	add("1-2", "2", "/0003:046D:4024.0009", keyboardKeys) // the keyboard of a receiver
	add("1-3", "3", "", "")                               // a security key
	add("1-4", "4", "", powerKeys)                        // a volume knob
	add("1-5", "5", "", gamepadKeys)
	add("1-6", "6", "", keyboardKeys, sysfstest.Interface{Number: 1, Class: "0b", Driver: "usbfs"}) // a token that types
	want := map[string]string{
		"/dev/hidraw1": typed + "event1: keyboard)", bus + "2": typed + "event1: keyboard)",
		"/dev/hidraw2": typed + "event2: keyboard)", bus + "3": typed + "event2: keyboard)",
		"/dev/hidraw3": "", bus + "4": "",
		"/dev/hidraw4": "", bus + "5": "",
		"/dev/hidraw5": "", bus + "6": "",
		"/dev/hidraw6": typed + "event6: keyboard)", bus + "7": "",
	}
	got := judged(t, h, "match.glob = [\"/dev/hidraw*\", \"/dev/bus/**\"]\neach = \"node\"")
	root := bus + "1"
	if why := got[root]; why != "it switches off every device below a USB hub (USB hub usb1)" {
		t.Errorf("root hub: %q", why)
	}
	delete(got, root)
	equal(t, "result", want, got)
}

// The buses of the chipset and of graphics cards have chips of the board. The buses of a
// board's header and of adapters do not.
func TestDangerOfI2C(t *testing.T) {
	t.Parallel()
	h := sysfstest.New(t)
	want := map[string]string{}
	add := func(parent, number, why string) {
		bus := "i2c-" + number
		h.AddNode(parent, sysfstest.Node{Name: bus, Subsystem: "i2c-dev", Dir: bus + "/i2c-dev/" + bus})
		want["/dev/"+bus] = why
	}
	const chips = "it commands chips of the board, of graphics cards or of monitors (i2c-dev i2c-"
	function := func(address, class string) string {
		return h.AddPCI(sysfstest.PCI{Address: address, Vendor: "8086", Device: "a323", Class: class})
	}
	add(function("0000:00:1f.4", "0c0500"), "0", chips+"0 of PCI function 0000:00:1f.4)")
	add(function("0000:00:02.0", "030000"), "1", chips+"1 of PCI function 0000:00:02.0)")
	add(function("0000:00:0a.0", "088000"), "2", chips+"2 of PCI function 0000:00:0a.0)")
	add(function("0000:00:15.0", "118000"), "3", "") // the header of a board
	add(h.AddPlatform(sysfstest.Platform{Path: "soc/fe804000.i2c", Driver: "i2c-bcm2835"}), "4", "")
	equal(t, "result", want, judged(t, h, "match.glob = \"/dev/i2c-*\"\neach = \"node\""))
}

// A misc device that nobody knows is dangerous unless it belongs to hardware.
func TestDangerOfUnknownMisc(t *testing.T) {
	t.Parallel()
	h := sysfstest.New(t)
	card := h.AddPCI(sysfstest.PCI{Address: "0000:3b:00.0", Vendor: "10ee", Device: "5000", Class: "120000"})
	h.AddNode(card, sysfstest.Node{Name: "transcoder0", Subsystem: "misc", Major: 10, Minor: 300})
	h.AddNode("", sysfstest.Node{Name: "control", Subsystem: "misc", Major: 10, Minor: 301})
	h.AddNode("", sysfstest.Node{Name: "renamed", Subsystem: "misc", Major: 10, Minor: 229})
	h.AddNode("", sysfstest.Node{Name: "rdma_cm", Subsystem: "misc", Major: 10, Minor: 302})
	got := judged(t, h, "match.subsystem = \"misc\"\neach = \"node\"")
	maps.DeleteFunc(got, func(path, _ string) bool { return path == "/dev/fuse" })
	want := map[string]string{
		"/dev/transcoder0": "",
		"/dev/control":     "it is a misc device without hardware that is not known to be harmless (misc control)",
		"/dev/renamed":     "", // the static minor number of FUSE
		"/dev/rdma_cm":     "",
	}
	equal(t, "result", want, got)
}

// A dangerous node beside others is left out of hardware, with a note, unless the match
// names the node or wants dangerous nodes.
func TestDangerousSideNodes(t *testing.T) {
	t.Parallel()
	h := sysfstest.New(t)
	nic := h.AddPCI(sysfstest.PCI{Address: "0000:3b:00.0", Vendor: "15b3", Device: "1021", Class: "020000"})
	h.AddNode(nic, sysfstest.Node{Name: "fwctl/fwctl0", Subsystem: "fwctl"})
	gpu := h.AddPCI(sysfstest.PCI{Address: "0000:5e:00.0", Vendor: "1002", Device: "73bf", Class: "030000"})
	h.AddNode(gpu, sysfstest.Node{Name: "dri/renderD128", Subsystem: "drm"})
	h.AddNode(gpu, sysfstest.Node{Name: "drm_dp_aux0", Subsystem: "drm_dp_aux_dev"})
	disk := h.AddPCI(sysfstest.PCI{Address: "0000:00:17.0", Vendor: "8086", Device: "a352", Class: "010601"})
	h.AddNode(disk, sysfstest.Disk("sda"))
	snap, opts := scanned(t, h)
	const (
		fwctl = "/dev/fwctl/fwctl0 is dangerous: it commands firmware (fwctl fwctl0)"
		aux   = "/dev/drm_dp_aux0 is dangerous: it commands chips of the board, of graphics cards or of monitors (drm_dp_aux_dev drm_dp_aux0)"
	)
	for _, tt := range []struct{ name, match, want, note string }{
		{"a network card", `match.pci.class = "02"`, "x: 0000:3b:00.0", fwctl},
		{"all nodes of a graphics card", `match.pci.class = "03"`, "x: 0000:5e:00.0 /dev/dri/renderD128", aux},
		{"a pattern", `match = { pci = { class = "03" }, glob = ["/dev/dri/*", "/dev/drm*"] }`, "x: 0000:5e:00.0 /dev/dri/renderD128", aux},
		{"a path", `match = { pci = { class = "03" }, glob = ["/dev/dri/*", "/dev/drm_dp_aux0"] }`, "x: 0000:5e:00.0 /dev/dri/renderD128 !" + aux + refused, ""},
		{"wanted and not allowed", `match = { pci = { class = "03" }, dangerous = true }`, "x: 0000:5e:00.0 /dev/dri/renderD128 !" + aux + refused, ""},
		{"a node of its own", `match = { pci = { class = "02" }, glob = "/dev/fwctl/*" }`, "x: 0000:3b:00.0 !" + fwctl + refused, ""},
		{"a disk", `match.pci.class = "01"`, "x: 0000:00:17.0 !/dev/sda is dangerous: it is a block device" + refused, ""},
		{"a pool", "each = \"all\"\nmatch = { pci = { class = [\"02\", \"03\"] } }\ncontainer.cdi = true", "x: all:example.com:x /dev/dri/renderD128", "/dev/drm_dp_aux0 and 1 more"},
	} {
		result := matchers.Match(parse(t, tt.match), snap, nil, opts)
		got := sayAll(result.Resources[0].Offers)
		equal(t, tt.name, []string{strings.TrimPrefix(tt.want, "x: ")}, got)
		var notes []string
		for _, n := range result.Notes {
			if strings.Contains(n.Text, "left out of its device") {
				notes = append(notes, n.Text)
			}
		}
		if tt.note == "" && len(notes) > 0 || tt.note != "" && (len(notes) != 1 || !strings.Contains(notes[0], tt.note)) {
			t.Errorf("%s: notes %q, want one with %q", tt.name, notes, tt.note)
		}
	}
}

// Each row of VERDICTS.md is a verdict with a source, and the program reads them all.
func TestVerdicts(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("VERDICTS.md")
	if err != nil {
		t.Fatal(err)
	}
	row := regexp.MustCompile("^\\| (harmless|dangerous( if \\w+)?) \\| [^|]+ \\| (`\\S+ \\S+` \\| (-|`\\S+ \\S+`)|- \\| `\\S+ \\S+`) \\| [^|]+ \\|\n$")
	table := string(page)[strings.Index(string(page), "|---"):]
	rows := 0
	for line := range strings.Lines(table) {
		if rows++; rows > 1 && !row.MatchString(line) {
			t.Errorf("not a verdict: %s", line)
		}
	}
	if rows < 149 {
		t.Errorf("%d rows", rows)
	}
}
