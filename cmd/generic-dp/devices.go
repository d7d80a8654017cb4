package main

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/generic-dp/generic-dp/config"
	"github.com/generic-dp/generic-dp/internal/agent"
	"github.com/generic-dp/generic-dp/internal/status"
	"github.com/generic-dp/generic-dp/internal/tools/catalog"
)

// report is the output of `devices -o json`.
type report struct {
	Resources []resourceReport `json:"resources"`
}

type resourceReport struct {
	Name    string         `json:"name"`
	API     string         `json:"api"`
	Active  bool           `json:"active"` // its condition `when` holds on this node
	Reason  string         `json:"reason"` // why there are no devices, or another resource has some of them
	Devices []deviceReport `json:"devices"`
}

// deviceReport is a device without its holders, which only the kubelet knows.
type deviceReport struct {
	status.Device
	Held []status.Holder `json:"held,omitempty"`
}

func newDevices(f *flags) *cobra.Command {
	var all bool
	cmd := &cobra.Command{
		Use:   "devices",
		Short: "list the devices that the configuration selects on this host, or all hardware",
		Long: `devices lists the devices that the configuration selects on this host. -o wide
names all nodes of each.

With --all it lists all hardware instead, with the names that the devices report
and those of pci.ids and usb.ids where the host has them, and which resource has
it: "free" is what no resource selects, "refused" what none may have without
dangerous = true. This needs no configuration.`,
		Args: noArgs,
	}
	cmd.Flags().AddFlagSet(f.pick("allow", "domains", "hwdata"))
	cmd.Flags().BoolVar(&all, "all", false, "all hardware of this host, with or without a configuration")
	return reports(cmd, func(cmd *cobra.Command, _ []string) (made reporter, err error) {
		cfg, view, err := f.scanConfig(cmd, all)
		if err != nil {
			return nil, err
		}
		for _, p := range view.Problems {
			fmt.Fprintf(cmd.ErrOrStderr(), "warning: %s: %s\n", p.Subject, p.Reason)
		}
		for _, n := range view.Matched.Notes {
			if n.Error && !n.OfNode {
				fmt.Fprintln(cmd.ErrOrStderr(), n)
				err = errReported
			}
		}
		if all {
			return f.inventory(view), err
		}
		view.Probe(cmd.Context(), f.paths)
		return newReport(cfg, view), err
	}, "wide", "json", "yaml")
}

// newReport lists the resources in the order of the configuration. One with variables
// in its name is listed once for each resulting name, or as written without any.
func newReport(cfg *config.Config, view *agent.View) report {
	r := report{Resources: []resourceReport{}}
	why := view.Explain(cfg, nil, nil)
	for i := range cfg.Resources {
		c, before := &cfg.Resources[i], len(r.Resources)
		resource := resourceReport{Name: c.Name, API: string(c.API), Reason: why[i].Reason, Active: !slices.Contains(view.Matched.Inactive, c), Devices: []deviceReport{}}
		for _, m := range view.Matched.Resources {
			if m.Resource != c {
				continue
			}
			resource.Name, resource.Devices = m.Name, []deviceReport{}
			for _, o := range m.Offers {
				resource.Devices = append(resource.Devices, deviceReport{Device: status.NewDevice(o, o.Problem == "", o.Problem)})
			}
			r.Resources = append(r.Resources, resource)
		}
		if len(r.Resources) == before {
			r.Resources = append(r.Resources, resource)
		}
	}
	return r
}

// table writes one line per device, and one for a resource without devices, with the
// reason.
func (r report) table(w io.Writer, wide bool) error {
	tab := newTable(w, "RESOURCE", "ID", "SLOTS", "HEALTH", "NUMA", "NODES", "REASON")
	for _, resource := range r.Resources {
		title := status.Resource{Name: resource.Name, API: resource.API}.Title()
		for _, d := range resource.Devices {
			tab.row(title, d.ID, strconv.Itoa(d.Slots), d.Health, joinInts(d.NUMA), shorten(d.Host(), wide), d.Reason)
		}
		if len(resource.Devices) == 0 {
			tab.row(title, "", "", "", "", "", resource.Reason)
		}
	}
	return tab.Flush()
}

// inventoryReport is the output of `devices --all`.
type inventoryReport struct {
	Devices []catalog.Device `json:"devices"`
}

// eachNode offers every node that may be offered.
const eachNode = `
domain = "example.com"
[[resource]]
name = "each"
each = "node"
match.glob = "/dev/**"`

func (f *flags) inventory(view *agent.View) inventoryReport {
	each, _ := config.Parse(config.File{Data: []byte(eachNode)}) // a constant
	return inventoryReport{catalog.List(view.Snapshot, view.Matched, view.With(each).Matched, catalog.ReadNames(view.Snapshot, f.hwdata))}
}

// table writes one line per device; with wide, also what identifies it.
func (r inventoryReport) table(w io.Writer, wide bool) error {
	shown := 8
	if wide {
		shown = 12
	}
	tab := newTable(w, []string{"DEVICE", "KIND", "ID", "NAME", "DRIVER", "NUMA", "NODES", "RESOURCE", "DEVICE ID", "SERIAL", "CLASS", "USB.PATH"}[:shown]...)
	for _, d := range r.Devices {
		var resources, ids []string
		free := "free"
		if d.Refused {
			free = "refused"
		}
		for _, o := range d.Offers {
			ids = append(ids, o.ID)
			if !slices.Contains(resources, o.Resource) {
				resources = append(resources, o.Resource)
			}
		}
		tab.row([]string{
			d.Name, d.Kind, d.ID, strings.TrimSpace(d.Vendor + " " + strings.TrimPrefix(d.Product, d.Vendor+" ")), d.Driver, joinInts(d.NUMA),
			shorten(slices.Concat(d.Nodes, d.Interfaces), wide), cmp.Or(strings.Join(resources, ","), free),
			strings.Join(ids, ","), d.Serial, d.Class, d.Path,
		}[:shown]...)
	}
	return tab.Flush()
}

// shorten joins a list of names: the first three, unless wide.
func shorten(names []string, wide bool) string {
	if few := 3; !wide && len(names) > few {
		names = append(names[:few:few], fmt.Sprintf("+%d", len(names)-few))
	}
	return strings.Join(names, ",")
}
