package agent_test

import (
	"fmt"

	"github.com/generic-dp/generic-dp/internal/testing/sysfstest"
)

// dockedSticks are the two sticks of the dock in tests with random events. Each plug uses another port
// of the dock.
type dockedSticks struct {
	bus *sysfstest.Host
	// portOf is the port of each stick, empty if it is unplugged.
	portOf [2]string
	// ports counts the used ports.
	ports int
}

func (d *dockedSticks) serial(i int) string { return []string{"AAAA1111", "BBBB2222"}[i] }

// plug plugs a stick into the dock, or pulls it.
func (d *dockedSticks) plug(i int) {
	if d.portOf[i] != "" {
		d.bus.RemoveUSB(d.portOf[i])
		d.portOf[i] = ""
		return
	}
	d.ports++
	d.portOf[i] = fmt.Sprintf("1-4.%d", d.ports)
	d.bus.AddUSB(stick(d.portOf[i], d.serial(i), fmt.Sprintf("ttyUSB%d", i)))
}
