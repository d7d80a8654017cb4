package matchers

import (
	_ "embed" // for verdictsPage
	"strings"
	"sync"

	"github.com/generic-dp/generic-dp/internal/device"
)

// verdict is a row of VERDICTS.md. A dangerous node grants access to the host: with such a node, root in a
// container without any capability can read or change the software or firmware of the host, read its secrets, or
// stop it.
type verdict struct {
	// device is the entry of sysfs for the number of such a node: "SUBSYSTEM NAME". NAME may be a
	// pattern. The kernel's driver chooses both. It is empty if the drivers make no device.
	device string
	// driver is the driver of the major number in /proc/devices and the minor number, as a
	// pattern, or empty.
	driver string
	// effect is what a container can do with the node: the end of a sentence that starts with "it". It is
	// empty if the node is harmless.
	effect string
	// judge is nil if all such nodes have the same verdict. Otherwise it returns the part of a node that
	// makes it dangerous, for the reason. It is empty if the node is harmless.
	judge func(m *run, n *device.Node) string
}

//go:embed VERDICTS.md
var verdictsPage string

// judges are the functions that the page names.
var judges = map[string]func(m *run, n *device.Node) string{
	"hostInput":      (*run).hostInput,
	"hostInputOfHID": (*run).hostInputOfHID,
	"boardBus":       (*run).boardBus,
	"usbHub":         ofBusNode((*run).usbHub),
	"usbDisk":        ofBusNode((*run).usbDisk),
	"usbNet":         ofBusNode((*run).usbNet),
	"usbInput":       ofBusNode((*run).usbInput),
}

// verdicts lists the verdicts in the order of the page.
var verdicts = sync.OnceValue(func() []verdict {
	var all []verdict
	for line := range strings.Lines(verdictsPage) {
		cells := strings.Split(line, " | ")
		kind, condition, _ := strings.Cut(strings.TrimPrefix(cells[0], "| "), " if ")
		isVerdict := kind == "dangerous" || kind == "harmless"
		// Anything but a verdict is text, or a heading.
		if !isVerdict || len(cells) != 5 {
			continue
		}
		v := verdict{
			device: strings.Trim(cells[2], "`-"),
			driver: strings.Trim(cells[3], "`-"),
			judge:  judges[condition],
		}
		if kind == "dangerous" {
			v.effect = cells[1]
		}
		all = append(all, v)
	}
	return all
})

// verdictIndex has the verdicts by subsystem, because every node of a device is judged for every event.
var verdictIndex = sync.OnceValue(func() map[string][]verdict {
	index := make(map[string][]verdict)
	for _, v := range verdicts() {
		subsystem, _, hasDevice := strings.Cut(v.device, " ")
		// A verdict without a name in sysfs is only compared by unknownDanger.
		if hasDevice {
			index[subsystem] = append(index[subsystem], v)
		}
	}
	return index
})

// unreviewed is the effect of misc devices without a verdict, see isUnreviewed.
const unreviewed = "is a misc device without hardware that is not known to be harmless"
