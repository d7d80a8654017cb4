package main

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/generic-dp/generic-dp/config"
	"github.com/generic-dp/generic-dp/internal/agent"
	"github.com/generic-dp/generic-dp/internal/device"
	"github.com/generic-dp/generic-dp/internal/tools/catalog"
	"github.com/generic-dp/generic-dp/internal/tools/cli"
)

// inventoryReport is the output of `devices --all`: hardware by bus and name, then nodes without
// hardware.
type inventoryReport struct {
	Devices []catalog.Device `json:"devices"`
}

// eachNodeConfig offers every node that a resource may have without dangerous = true. Matching it
// answers which nodes are refused, by the same rules as for any other configuration.
const eachNodeConfig = `
domain = "example.com"
[[resource]]
name = "each"
each = "node"
match.glob = "/dev/**"`

// catalog describes the hardware of a view. If the names of hardware cannot be read, it warns and
// describes the hardware without them. Missing files are no problem, because few images contain
// them.
func (f *flags) catalog(stderr io.Writer, view *agent.View) *catalog.Catalog {
	names, err := catalog.ReadNames(view.Snapshot, f.hwdata)
	if err != nil {
		fmt.Fprintf(stderr, "warning: %v\n", err)
	}
	return catalog.New(view.Snapshot, view.Host(), names)
}

// listAll lists all hardware, and which resources of the view have it. view must be a result of
// scan, which can match a second configuration.
func listAll(all *catalog.Catalog, view *agent.View) inventoryReport {
	each, _ := config.Parse(config.File{Data: []byte(eachNodeConfig)}) // a constant is valid
	permitted := view.With(each).Matched
	return inventoryReport{
		Devices: all.List(view.Matched, permitted),
	}
}

// The columns of devices --all. The columns after the first narrowColumns are only written with -o
// wide.
var (
	inventoryHead = []string{
		"DEVICE", "KIND", "ID", "NAME", "DRIVER", "NUMA", "NODES", "RESOURCE",
		"DEVICE ID", "SERIAL", "CLASS", "USB.PATH",
	}
	narrowColumns = 8
)

// Table writes a line for each device. With wide, no device is left out or folded, and no line is
// shortened: the output is for grep and awk. Otherwise, a device has two lines if a line would be
// longer than the terminal.
func (r inventoryReport) Table(w io.Writer, wide bool) error {
	if wide {
		tab := cli.NewTable(inventoryHead...)
		for _, d := range r.Devices {
			tab.Row(cells(d, 0, true)...)
		}
		return tab.Write(w)
	}
	short, hidden := catalog.Fold(r.Devices)
	tab := cli.NewTable(inventoryHead[:narrowColumns]...)
	for _, d := range short {
		tab.Row(cells(d.Device, d.More, false)[:narrowColumns]...)
	}
	if width := cli.WidthOf(w); tab.Width() > width {
		tab = narrowTable(short, width)
	}
	err := tab.Write(w)
	if hidden > 0 && err == nil {
		_, err = fmt.Fprintf(w, "\nnot shown, because no resource may have them: %d nodes and interfaces\nwithout hardware (-o wide shows all)\n", hidden)
	}
	return err
}

// narrowTable has two lines for each device. The first has its names and the resource that has it,
// and the second, which is indented, has the product and the nodes. The driver and the NUMA nodes
// are left to -o wide. width is the number of columns of the terminal.
func narrowTable(devices []catalog.Folded, width int) *cli.Table {
	tab := cli.NewLimitedTable(width, "DEVICE", "KIND", "ID", "RESOURCE")
	for _, d := range devices {
		// The first cells are DEVICE, KIND and ID.
		c := cells(d.Device, d.More, false)
		tab.Add([]string{c[0], c[1], c[2], use(d.Device)}, contentsOf(d.Device))
	}
	return tab
}

// cells returns the cells of a device in the order of inventoryHead. more is the number of
// devices of its model that the line also stands for. wide lists all nodes.
func cells(d catalog.Device, more int, wide bool) []string {
	name := d.Name
	if more > 0 {
		name += fmt.Sprintf(" +%d", more)
	}
	// A device may have several offers, each with its ID.
	var ids []string
	for _, o := range d.Offers {
		ids = append(ids, o.ID)
	}
	return []string{
		name,
		d.Kind,
		d.ID,
		d.FullName(),
		d.Driver,
		cli.JoinInts(d.NUMA),
		cli.Shorten(slices.Concat(d.Nodes, d.Interfaces), wide),
		use(d),
		strings.Join(ids, ","),
		d.Serial,
		d.Class,
		d.Path,
	}
}

// use names the resources that have a device, or says why no resource has it: "free", "refused"
// or "in use". The help of devices explains these words.
func use(d catalog.Device) string {
	var resources []string
	for _, o := range d.Offers {
		if !slices.Contains(resources, o.Resource) {
			resources = append(resources, o.Resource)
		}
	}
	reason := "free"
	if d.Refused {
		reason = "refused"
	}
	// An interface in use is refused with dangerous = true as well, so this is the stronger
	// reason.
	if d.InUse != "" {
		reason = "in use"
	}
	return cmp.Or(strings.Join(resources, ","), reason)
}

// contentsOf describes the name of a device and its nodes: "FTDI FT232R: /dev/ttyUSB0". The
// result is printable, since devices choose their names. It is empty if the first line of the
// device already says everything.
func contentsOf(d catalog.Device) string {
	name := d.FullName()
	nodes := strings.ReplaceAll(cli.Shorten(slices.Concat(d.Nodes, d.Interfaces), false), ",", " ")
	isNode := nodes == d.Name // a node without hardware has the first line already
	if name == "" && isNode {
		return ""
	}
	if name != "" && nodes != "" {
		name += ": "
	}
	return device.Printable(name+nodes, "")
}
