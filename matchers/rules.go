package matchers

import (
	"math/big"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/generic-dp/generic-dp/internal/device"
)

// The functions in this file judge the device behind a character node, for the verdicts that do not depend on its
// class alone.

// The codes of include/uapi/linux/input-event-codes.h.
const (
	btnMisc       = 0x100 // lower codes are keys
	btnLeft       = 0x110
	btnJoystick   = 0x120
	btnDigi       = 0x140 // codes from btnJoystick are buttons of game controllers
	btnToolFinger = 0x145
	btnTouch      = 0x14a
	axisX         = 0
	axisY         = 1
	relWheel      = 8
)

// letterRows are the first and last key of the three rows of letters.
var letterRows = [][2]int{
	{16, 25}, // KEY_Q to KEY_P
	{30, 38}, // KEY_A to KEY_L
	{44, 50}, // KEY_Z to KEY_M
}

// inputKind is the kind of an input device, as far as it concerns the host.
type inputKind string

const (
	// The text becomes part of the reason. It is empty for devices that do not concern the host.
	noInput      inputKind = "" // sensors, switches, game controllers
	keyboard     inputKind = "keyboard"
	someKeys     inputKind = "keys"    // power buttons, remote controls, volume keys
	pointer      inputKind = "pointer" // mice, touchpads, touchscreens
	unknownInput inputKind = "unknown kind of input"
)

// inputKind judges the device of an event node by the codes that it reports. The kernel's console
// accepts keys from any device that has keys, and a write to the event node is a report of the
// device. A game controller may have a few keys, but no letters.
func (m *run) inputKind(n *device.Node) inputKind {
	dir := path.Dir(n.SysPath)
	// SysPath is ".../input/input3/event5". The capabilities belong to the input device above
	// it.
	keys, known := m.bits(dir, "capabilities/key")
	// It may be a keyboard. The verdict changes as soon as the attribute can be read.
	if !known {
		return unknownInput
	}
	// A keyboard with a joystick button is still a keyboard: letters come first.
	for _, row := range letterRows {
		if hasAny(keys, row[0], row[1]+1) {
			return keyboard
		}
	}
	// This comes before other keys, because game controllers have a few of them.
	if hasAny(keys, btnJoystick, btnDigi) {
		return noInput
	}
	// Code 0 is KEY_RESERVED.
	if hasAny(keys, 1, btnMisc) {
		return someKeys
	}
	// An axis that cannot be read counts as absent.
	rel, _ := m.bits(dir, "capabilities/rel")
	abs, _ := m.bits(dir, "capabilities/abs")
	// A touchscreen or touchpad reports absolute axes, a mouse reports relative axes.
	hasTouch := hasCodes(keys, btnTouch) || hasCodes(keys, btnToolFinger)
	hasButton := hasCodes(keys, btnLeft)
	isMouse := hasButton && hasCodes(rel, axisX, axisY)
	isTablet := (hasButton || hasTouch) && hasCodes(abs, axisX, axisY)
	hasWheel := hasCodes(rel, relWheel)
	if isMouse || isTablet || hasWheel {
		return pointer
	}
	return noInput
}

// hostInput names the kind of the device of an event node. It is empty if the device does not
// concern the host.
func (m *run) hostInput(n *device.Node) string {
	kind := m.inputKind(n)
	if kind == noInput {
		return ""
	}
	return kernelName(n) + ": " + string(kind)
}

// hostInputOfHID names the event node of a keyboard or pointer that is below the HID device of a hidraw
// node, ".../0003:046D:C31C.0001/hidraw/hidraw0". A wireless keyboard, for example, is below its
// receiver.
func (m *run) hostInputOfHID(n *device.Node) string {
	dir := path.Dir(path.Dir(n.SysPath))
	return m.typingDevice(m.snap.Nodes, func(e *device.Node) bool {
		return strings.HasPrefix(e.SysPath, dir+"/")
	})
}

// typingDevice names the first keyboard or pointer of the nodes that belong to a device.
// Devices with only a few keys do not count, because many headsets and monitors have volume keys.
func (m *run) typingDevice(nodes []*device.Node, belongs func(*device.Node) bool) string {
	for _, e := range nodes {
		if !isEventNode(e) || !belongs(e) {
			continue
		}
		kind := m.inputKind(e)
		// An unknown kind counts, because the device may be a keyboard.
		if kind != noInput && kind != someKeys {
			return kernelName(e) + ": " + string(kind)
		}
	}
	return ""
}

// isEventNode reports whether a node is an event node. The subsystem input also has the nodes of
// mousedev and joydev, "mouse0" and "js0".
func isEventNode(n *device.Node) bool {
	return n.Subsystem == "input" && strings.HasPrefix(path.Base(n.SysPath), "event")
}

// boardClasses are the classes of PCI functions whose I2C buses contain chips of the board:
// display controllers, system peripherals and SMBus (include/linux/pci_ids.h).
var boardClasses = []string{"03", "08", "0c05"}

// boardBus names an I2C bus with chips that belong to the machine.
func (m *run) boardBus(n *device.Node) string {
	h := n.Hardware
	// A bus of a USB adapter, or of a board without PCI, is not judged here.
	if h == nil || h.PCI == nil {
		return ""
	}
	class := h.PCI.Class
	for _, prefix := range boardClasses {
		if strings.HasPrefix(class, prefix) {
			return kernelName(n) + " of PCI function " + h.Name
		}
	}
	return ""
}

// The classes of USB interfaces and devices (include/uapi/linux/usb/ch9.h).
const (
	usbMassStorage = "08"
	usbHub         = "09"
	usbSmartCard   = "0b"
)

// busNodeOf returns the USB device whose bus node n is, or nil.
func busNodeOf(n *device.Node) *device.Hardware {
	h := n.Hardware
	// Other nodes of the device have a directory of their own below its directory.
	if h == nil || h.USB == nil || n.SysPath != h.Path {
		return nil
	}
	return h
}

// hasInterface reports whether a USB device has an interface of a class. The device may have the
// class 00 then, which means that its interfaces have the classes.
func hasInterface(h *device.Hardware, class string) bool {
	return slices.ContainsFunc(h.USB.Interfaces, func(i device.USBInterface) bool {
		return i.Class == class
	})
}

// ofBusNode returns a function that judges the USB device of a bus node.
func ofBusNode(judge func(m *run, h *device.Hardware) string) func(m *run, n *device.Node) string {
	return func(m *run, n *device.Node) string {
		h := busNodeOf(n)
		if h == nil {
			return ""
		}
		return judge(m, h)
	}
}

// usbHub names a hub.
func (m *run) usbHub(h *device.Hardware) string {
	// The class of an interface also counts, since the class of the device may be 00.
	isHub := h.USB.Class == usbHub || hasInterface(h, usbHub)
	if isHub || h.IsRootHub() {
		return "USB hub " + h.Name
	}
	return ""
}

// usbDisk names the disk of a USB device. Through the bus node, a container can
// detach the driver and command the disk. The disk of a new mass storage device may not exist yet.
func (m *run) usbDisk(h *device.Hardware) string {
	for _, disk := range h.Nodes {
		if disk.Type == device.BlockNode {
			return "USB device of " + disk.Path
		}
	}
	if hasInterface(h, usbMassStorage) {
		return "USB device of mass storage"
	}
	return ""
}

// typeCAN is the type of a CAN interface (ARPHRD_CAN in include/uapi/linux/if_arp.h).
const typeCAN = 280

// usbNet names the network interface of a USB device. The type is read from sysfs,
// because most snapshots have no interfaces. Whether the host uses the interface does not matter: it may
// do so later. A CAN interface has neither addresses nor routes.
func (m *run) usbNet(h *device.Hardware) string {
	types, unread := m.Host.Attr(h.Path, "*:*/net/*/type", m.deadline.end())
	isOther := func(text string) bool {
		kind, err := strconv.Atoi(strings.TrimSpace(text))
		return err == nil && kind != typeCAN
	}
	if unread || slices.ContainsFunc(types, isOther) {
		return "USB device of a network interface"
	}
	return ""
}

// usbInput names the keyboard or pointer of a USB device. A security token is an
// exception: it types its passwords as a keyboard, and programs for smart cards use its bus node.
func (m *run) usbInput(h *device.Hardware) string {
	if hasInterface(h, usbSmartCard) {
		return ""
	}
	// All event nodes of the device belong to it.
	return m.typingDevice(h.Nodes, func(*device.Node) bool {
		return true
	})
}

// bits reads a set of codes. known is false if it cannot be read.
func (m *run) bits(dir, name string) (set *big.Int, known bool) {
	values, unread := m.Host.Attr(dir, name, m.deadline.end())
	if unread || len(values) == 0 {
		return new(big.Int), false
	}
	return parseCodes(values[0])
}

// hasCodes reports whether a set of codes has all of some codes.
func hasCodes(set *big.Int, codes ...int) bool {
	for _, code := range codes {
		if set.Bit(code) == 0 {
			return false
		}
	}
	return true
}

// hasAny reports whether a set of codes has a code from first to before end.
func hasAny(set *big.Int, first, end int) bool {
	for code := first; code < end; code++ {
		if set.Bit(code) == 1 {
			return true
		}
	}
	return false
}

// parseCodes parses an attribute of input capabilities: longs in hexadecimal digits, the highest first. The
// kernel leaves out the highest longs if they are zero (input_print_bitmap in drivers/input/input.c).
// A 32-bit process reads longs of 32 bits, even from a 64-bit kernel (input_bits_to_string).
func parseCodes(text string) (set *big.Int, ok bool) {
	words := strings.Fields(text)
	isLong := func(word string) bool {
		return len(word) > 8
	}
	digits := 16
	if strconv.IntSize == 32 && !slices.ContainsFunc(words, isLong) {
		digits = 8
	}
	var all strings.Builder
	for _, word := range words {
		all.WriteString(strings.Repeat("0", max(0, digits-len(word))) + word)
	}
	// An empty set is "0" in sysfs, so that an empty text is not an answer.
	set, ok = new(big.Int).SetString(all.String(), 16)
	if !ok {
		return new(big.Int), false
	}
	return set, true
}
