package main

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"

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
	each, _ := parseText(eachNodeConfig) // a constant is valid
	permitted := view.With(each).Matched
	return inventoryReport{
		Devices: all.List(view.Matched, permitted),
	}
}

// Table writes two lines for each device: its names and the resource that has it, then the product and
// the nodes, which are indented. With wide, a device has one line with everything, no line is
// shortened, and no device is left out or folded: the output is for grep and awk.
func (r inventoryReport) Table(w io.Writer, wide bool) error {
	if wide {
		tab := cli.NewTable(true, "DEVICE", "KIND", "ID", "NAME", "DRIVER", "NUMA", "NODES", "RESOURCE", "DEVICE ID", "SERIAL", "CLASS", "USB.PATH", "PCI.PF")
		for _, d := range r.Devices {
			tab.Row(cells(d)...)
		}
		return tab.Write(w)
	}
	short, hidden := catalog.Fold(r.Devices)
	tab := cli.NewTable(false, "DEVICE", "KIND", "ID", "RESOURCE")
	for _, d := range short {
		name := d.Name
		if d.More > 0 {
			name += fmt.Sprintf(" +%d", d.More)
		}
		tab.Add([]string{name, d.Kind, d.ID, use(d.Device)}, contentsOf(d.Device))
	}
	err := tab.Write(w)
	if hidden > 0 && err == nil {
		_, err = fmt.Fprintf(w, "\nnot shown, because no resource may have them: %d nodes and interfaces\nwithout hardware (-o wide shows all)\n", hidden)
	}
	return err
}

// cells returns the cells of a device with -o wide.
func cells(d catalog.Device) []string {
	// A device may have several offers, each with its ID.
	var ids []string
	for _, o := range d.Offers {
		ids = append(ids, o.ID)
	}
	return []string{
		d.Name,
		d.Kind,
		d.ID,
		d.FullName(),
		d.Driver,
		cli.JoinInts(d.NUMA),
		cli.JoinNames(slices.Concat(d.Nodes, d.Interfaces)),
		use(d),
		strings.Join(ids, ","),
		d.Serial,
		d.Class,
		d.Path,
		d.PF,
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
	nodes := cli.Shorten(slices.Concat(d.Nodes, d.Interfaces), false, " ")
	isNode := nodes == d.Name // a node without hardware has the first line already
	if name == "" && isNode {
		return ""
	}
	if name != "" && nodes != "" {
		name += ": "
	}
	return device.Printable(name+nodes, "")
}
