package recording

import (
	"cmp"
	"fmt"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"

	"github.com/generic-dp/generic-dp/internal/device"
	"github.com/generic-dp/generic-dp/internal/host/inventory"
)

// redaction replaces identifying data:
//
//   - Serials of USB devices and identifiers of disks and NVMe namespaces, by REDACTED1,
//     REDACTED2, …: equal ones by equal ones. Placeholder serials stay, and so does the name of
//     the controller, which is the serial of a root hub.
//   - Names below /dev in directories of names made of serials, UUIDs and
//     labels (by-id, by-uuid, …; not by-path), and names with a serial, a long number or an
//     address, by REDACTED-1, REDACTED-2, …
//   - The serials in strings of USB devices.
//   - The serials in names of other files, and names of them with a long number or an address.
//   - Names of network interfaces that contain a MAC address ("enx…").
//
// Other paths of sysfs stay. A nil redaction replaces nothing.
type redaction struct {
	serials map[string]string // placeholder by serial, without white space around it
	words   []word            // the serials as in names and strings, the longest first
	names   map[string]string // new last element by path, for files below /dev
	nets    []word            // names of interfaces, the longest first
	// usb has the USB devices by sysfs path, to find the device of an attribute.
	usb map[string]*device.USB
}

// word is a text to replace.
type word struct{ old, new string }

// newRedaction chooses all replacements in advance, because a serial number may be in the name of
// any other device.
func newRedaction(reading *inventory.Reading) *redaction {
	r := &redaction{
		serials: make(map[string]string),
		names:   make(map[string]string),
		usb:     make(map[string]*device.USB),
	}
	for _, h := range reading.Snapshot.Hardware {
		if h.USB == nil {
			continue
		}
		r.usb[h.Path] = h.USB
		serial := strings.TrimSpace(h.USB.Serial)
		isController := serial == path.Base(path.Dir(h.Path)) // the serial of a root hub
		if !device.PlaceholderSerial(serial) && !isController {
			r.hide(serial)
		}
	}
	for _, n := range reading.Snapshot.Nodes {
		if n.Namespace != "" {
			r.hide(n.Namespace)
		}
	}
	// The words are needed to rename files.
	r.listWords()
	r.renameInDev(reading)
	for _, n := range reading.Snapshot.Nets {
		if longNumber().MatchString(n.Path) {
			r.nets = append(r.nets, word{old: n.Path, new: fmt.Sprintf("REDACTED-%d", len(r.nets)+1)})
		}
	}
	slices.SortStableFunc(r.nets, func(a, b word) int { return len(b.old) - len(a.old) })
	return r
}

// hide chooses the placeholder of a serial number.
func (r *redaction) hide(serial string) {
	if r.serials[serial] == "" {
		r.serials[serial] = fmt.Sprintf("REDACTED%d", len(r.serials)+1)
	}
}

// listWords fills in words: the serial numbers, as reported and as udev writes them in names.
func (r *redaction) listWords() {
	// A serial number may be a part of another serial number.
	longestFirst := slices.SortedFunc(maps.Keys(r.serials), func(a, b string) int {
		byLength := cmp.Compare(len(b), len(a))
		return cmp.Or(byLength, cmp.Compare(a, b))
	})
	for _, serial := range longestFirst {
		redacted := r.serials[serial]
		r.words = append(r.words, word{old: serial, new: redacted})
		inName := udevName(serial)
		if inName != serial {
			r.words = append(r.words, word{old: inName, new: redacted})
		}
	}
}

// renameInDev fills in names. Kernel names contain no serial.
func (r *redaction) renameInDev(reading *inventory.Reading) {
	paths := slices.Collect(maps.Keys(reading.Links))
	paths = append(paths, reading.Snapshot.Dirs[1:]...)
	paths = append(paths, reading.Mounts...)
	for _, n := range reading.Snapshot.Nodes {
		isKernelName := n.SysPath != "" && n.Kernel == path.Base(n.Path)
		if !isKernelName {
			paths = append(paths, n.Path)
		}
	}
	// The numbers of names are the same in each recording of a host.
	slices.Sort(paths)
	for _, p := range paths {
		name := path.Base(p)
		if identifies(p) || r.replace(name) != name {
			r.names[p] = fmt.Sprintf("REDACTED-%d", len(r.names)+1)
		}
	}
}

// longNumber matches names made of a UUID, a world wide name, a MAC address, or the
// name of a network target, and names of a redacted recording, which get new numbers. A PCI address
// and the address in the name of a platform device are shorter.
var longNumber = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`(?i)[0-9a-f]{12}|([0-9a-f]{2}[:-]){5}[0-9a-f]{2}|iscsi|\b(iqn|eui|nqn)\.|^redacted-`)
})

// identifies reports whether the name of a path below /dev identifies a single device,
// as opposed to its location or kind.
func identifies(p string) bool {
	dir := path.Base(path.Dir(p))
	isLocation := dir == "by-path" || dir == "by-diskseq"
	if strings.HasPrefix(dir, "by-") && !isLocation {
		return true
	}
	return longNumber().MatchString(path.Base(p))
}

// udevName formats a string like udev in the names of links: "_" for spaces and unsafe
// characters (udev_replace_whitespace and udev_replace_chars of systemd).
func udevName(s string) string {
	words := strings.Join(strings.Fields(s), "_")
	return strings.Map(func(c rune) rune {
		if isSafeInName(c) {
			return c
		}
		return '_'
	}, words)
}

// isSafeInName reports whether udev keeps a character: letters, digits, some marks, and all
// valid UTF-8 beyond ASCII.
func isSafeInName(c rune) bool {
	if c == utf8.RuneError {
		return false
	}
	isWord := unicode.IsLetter(c) || unicode.IsDigit(c) || strings.ContainsRune("#+-.:=@_", c)
	return isWord || c > unicode.MaxASCII
}

// text redacts a path below /dev or a text.
func (r *redaction) text(s string) string {
	switch {
	case r == nil:
		return s
	// A path is redacted element by element, because a directory may have a new name as well.
	case strings.HasPrefix(s, "/dev/"):
		return r.path(s)
	}
	return r.replace(s)
}

// replace replaces the serials in a text.
func (r *redaction) replace(s string) string { return replace(s, r.words) }

// replace replaces words in a text. The longest word comes first, so that a word within another one
// is not found in it.
func replace(s string, words []word) string {
	var b strings.Builder
	for i := 0; i < len(s); {
		found := wordAt(s, i, words)
		if found == nil {
			b.WriteByte(s[i])
			i++
			continue
		}
		b.WriteString(found.new)
		i += len(found.old)
	}
	return b.String()
}

// shortSerial is the length in bytes below which a serial may be a part of any text, so that
// it is only replaced as a word.
const shortSerial = 6

// wordAt returns the word that occurs at a position of a text, or nil.
func wordAt(s string, start int, words []word) *word {
	for i := range words {
		w := &words[i]
		if !strings.HasPrefix(s[start:], w.old) {
			continue
		}
		end := start + len(w.old)
		startsWord := start == 0 || !isOfWord(s[start-1])
		endsWord := end == len(s) || !isOfWord(s[end])
		isWhole := startsWord && endsWord
		if isWhole || len(w.old) >= shortSerial {
			return w
		}
	}
	return nil
}

// isOfWord reports whether a byte is a letter or a digit, or a part of a character beyond ASCII.
func isOfWord(c byte) bool {
	return strings.IndexByte(alnum, c) >= 0 || c >= utf8.RuneSelf
}

const alnum = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"

// path returns the redacted path of a file below /dev.
func (r *redaction) path(p string) string {
	// This also ends the recursion.
	if r == nil || len(p) <= len("/dev") {
		return p
	}
	name, ok := r.names[p]
	if !ok {
		name = path.Base(p)
	}
	return r.path(path.Dir(p)) + "/" + name
}

// file returns the redacted path of a file outside of /dev and /sys.
func (r *redaction) file(p string) string {
	if r == nil {
		return p
	}
	names := strings.Split(p, "/")
	for i, name := range names {
		names[i] = r.replace(name)
		// A number that is the serial of a device is already replaced.
		if longNumber().MatchString(names[i]) {
			r.hide(name)
			names[i] = r.serials[name]
		}
	}
	return strings.Join(names, "/")
}

// target returns the redacted target of a link. If the target must change, the result is an
// absolute path.
func (r *redaction) target(link, target string) string {
	if r == nil {
		return target
	}
	to := path.Clean(target)
	if !path.IsAbs(target) {
		to = path.Join(path.Dir(link), target)
	}
	// A target outside of /dev is not renamed. It may still contain a serial number.
	if !strings.HasPrefix(to, "/dev/") {
		return r.replace(target)
	}
	if other := r.path(to); other != to {
		return other
	}
	return target
}

// plainAttrs are the attributes that identify no single device. Attributes that are neither on a list
// nor in attr are left out: an attribute that is added to the scan must be added there before a
// redacted recording contains it.
var plainAttrs = strings.Fields(`
	bDeviceClass bInterfaceClass bInterfaceNumber class dev_id dev_port device devnum flags idProduct idVendor ifindex
	iflink index modalias numa_node port_no port_number revision sfnum speed sriov_totalvfs subsystem_device
	subsystem_vendor type vendor
` + moreAttrs)

// moreAttrs are attributes that no scan reads, but configurations do.
const moreAttrs = `
	VBNV afu_id authorized bConfigurationValue bDeviceProtocol bDeviceSubClass bInterfaceProtocol bInterfaceSubClass
	bMaxPower bNumConfigurations bNumInterfaces bcdDevice boot_vga busnum bustype capability carrier cfg_services
	compat_id current_compute_partition current_link_speed current_link_width current_memory_partition d3cold_allowed
	dev device_id driver_override enable enabled firmware_version fw_version irq local_cpulist max_link_speed
	max_link_width maxchild mode mtu online operstate power_state present range removable ro rotational runtime_status
	rx_lanes size sriov_drivers_autoprobe sriov_numvfs state status timeout timestamp tx_lanes version
`

// textAttrs describe a device in words of its manufacturer or of the administrator:
// serials in them are replaced.
var textAttrs = strings.Fields(`
	compatible description device_name device_type id interface label model name path product_name rev
`)

// The parts of files that are kept. Other lines of a uevent file may contain serials (HID_UNIQ,
// POWER_SUPPLY_SERIAL_NUMBER), and other properties of a node of AMD's compute driver identify the GPU
// (unique_id, hive_id).
var (
	nodeLines  = []string{"DEVNAME=", "DEVTYPE="}
	placeLines = []string{"location_id ", "domain ", "drm_render_minor "}
)

// attr returns the redacted content of an attribute, and false if it is left out.
func (r *redaction) attr(p, text string) (string, bool) {
	if r == nil {
		return text, true
	}
	name := path.Base(p)
	if slices.Contains(plainAttrs, name) {
		return text, true
	}
	if slices.Contains(textAttrs, name) {
		return r.replace(text), true
	}
	switch name {
	case "wwid":
		return r.wwid(text), true
	case "uevent":
		return linesWith(nodeLines, text), true
	case "properties":
		return linesWith(placeLines, text), true
	}
	// Strings of USB devices are in the directory of the device itself.
	u := r.usb[path.Dir(p)]
	if u == nil {
		return "", false
	}
	switch name {
	case "serial":
		serial := strings.TrimSpace(u.Serial)
		if r.serials[serial] == "" {
			return text, true
		}
		// Space around a serial decides whether two devices have the same.
		return strings.Replace(u.Serial, serial, r.serials[serial], 1) + "\n", true
	case "manufacturer":
		return r.string(u.Manufacturer, text), true
	case "product":
		return r.string(u.ProductName, text), true
	}
	return "", false
}

// wwid returns the text of a world wide identifier with a placeholder: the identifiers of SCSI (EUI-64,
// NAA and T10, which has the serial of a disk) identify a device like those of namespaces. The kind of
// the identifier stays.
func (r *redaction) wwid(text string) string {
	id := strings.TrimSpace(text)
	if id == "" {
		return text
	}
	if r.serials[id] != "" {
		return r.serials[id] + "\n"
	}
	value := id[strings.IndexByte(id, '.')+1:]
	r.hide(value)
	return strings.TrimSuffix(id, value) + r.serials[value] + "\n"
}

// string returns the text of an attribute, or its replacement if its value has a serial.
func (r *redaction) string(value, text string) string {
	if redacted := r.replace(value); redacted != value {
		return redacted + "\n"
	}
	return text
}

// linesWith returns the lines of a text that begin with one of the prefixes.
func linesWith(prefixes []string, text string) string {
	var kept strings.Builder
	for l := range strings.Lines(text) {
		isKept := slices.ContainsFunc(prefixes, func(prefix string) bool {
			return strings.HasPrefix(l, prefix)
		})
		if isKept {
			kept.WriteString(l)
		}
	}
	return kept.String()
}

// sysfs returns a redacted path below /sys, target of a link there, or file of /proc. An interface may
// be a part of a name: "upper_enx001122aabbcc".
func (r *redaction) sysfs(p string) string {
	if r == nil {
		return p
	}
	return replace(p, r.nets)
}
