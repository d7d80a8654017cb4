package main

import (
	"fmt"
	"io"
	"slices"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/generic-dp/generic-dp/config"
	"github.com/generic-dp/generic-dp/internal/agent"
	"github.com/generic-dp/generic-dp/internal/device"
	"github.com/generic-dp/generic-dp/internal/status"
	"github.com/generic-dp/generic-dp/internal/tools/cli"
	"github.com/generic-dp/generic-dp/matchers"
)

// report is the output of `devices -o json`. The names of the JSON fields are an API.
type report struct {
	Resources []resourceReport `json:"resources"`
}

// resourceReport is a resource with its devices on this host.
type resourceReport struct {
	Name string `json:"name"`
	API  string `json:"api"`
	// Active is set if the condition when of the resource holds on this node.
	Active bool `json:"active"`
	// Reason is why there is no device, or why another resource has some of the devices. It is
	// empty if nothing is missing.
	Reason  string         `json:"reason"`
	Devices []deviceReport `json:"devices"`
}

// deviceReport is a device. Its holders are omitted, because only the kubelet knows them.
type deviceReport struct {
	status.Device
	Held []status.Holder `json:"held,omitempty"`
}

// newDevices returns the command devices. The exit status is 1 if the configuration has a mistake
// that only shows on this host; the list is printed nevertheless. A failed read is only a
// warning.
func newDevices(f *flags) *cobra.Command {
	var all bool
	cmd := &cobra.Command{
		Use:   "devices",
		Short: "list the devices that the configuration selects on this host, or all hardware",
		Long: `devices lists the devices that the configuration selects on this host. -o wide
prints one line for each device, with all its nodes.

With --all it lists all hardware instead, with the resource that has each
device. Names come from the devices, and from pci.ids and usb.ids if the host
has these files. "free": no resource selects the device. "refused": a resource
needs dangerous = true to have it. "in use": the host uses the network
interface, so it is never moved into a pod. The parts of a chipset are one line
for each model, and nodes without hardware that no resource may have are left
out: -o wide lists them. --all works without a configuration.`,
		Args: cli.NoArgs,
	}
	f.add(cmd, configFlags, hostFlags, []string{"hwdata"})
	cmd.Flags().BoolVar(&all, "all", false, "all hardware of this host, with or without a configuration")
	// Without --all, a missing configuration is an error: an empty list would be misleading.
	list := func(cmd *cobra.Command, _ []string) (cli.Reporter, error) {
		cfg, view, err := f.scanConfig(cmd, all)
		if err != nil {
			return nil, err
		}
		err = warn(cmd.ErrOrStderr(), view)
		if all {
			// The list of the hardware is complete whatever the mistakes in the configuration.
			return listAll(f.catalog(cmd.ErrOrStderr(), view), view), nil
		}
		// Without it, a device whose health check fails would be listed as Healthy, in contrast
		// to what serve tells the kubelet.
		view.Probe(cmd.Context(), f.paths)
		return newReport(cfg, view), err
	}
	return cli.Reports(cmd, list, "wide", "json")
}

// warn writes what could not be read, and the mistakes in the configuration that only show on
// this host. It returns errReported if there are such mistakes.
func warn(stderr io.Writer, view *agent.View) error {
	for _, p := range view.Problems {
		fmt.Fprintf(stderr, "warning: %s: %s\n", p.Subject, p.Reason)
	}
	var err error
	for _, n := range view.Matched.Notes {
		if isMistake(n) {
			fmt.Fprintln(stderr, n)
			err = cli.ErrReported
		}
	}
	return err
}

// isMistake reports whether a note is about a mistake of the file. What depends on the name of the node is
// none: the file may be checked on a machine that is not a node.
func isMistake(n matchers.Note) bool { return n.Error && !n.OfNode }

// newReport lists the resources in the order of the configuration. A resource with variables in
// its name is listed once for each resulting name, or as written if there is no such name.
// Resources of other hosts are listed as well, with the reason why they have no devices. No list
// in the report is nil.
func newReport(cfg *config.Config, view *agent.View) report {
	r := report{Resources: []resourceReport{}}
	why := view.Explain(cfg, nil, nil)
	for i := range cfg.Resources {
		c := &cfg.Resources[i]
		resource := resourceReport{
			Name:    c.Name,
			API:     string(c.API),
			Reason:  why[i].Reason,
			Active:  !slices.Contains(view.Matched.Inactive, c),
			Devices: []deviceReport{},
		}
		isOffered := false
		for _, m := range view.Matched.Resources {
			if m.Resource != c {
				continue
			}
			isOffered = true
			// m.Name differs from the name in the configuration if that has variables.
			resource.Name = m.Name
			// r.Resources has copies of resource, and each of them needs a list of its own.
			resource.Devices = []deviceReport{}
			for _, o := range m.Offers {
				d := status.NewDevice(o, o.Problem == "", o.Problem)
				resource.Devices = append(resource.Devices, deviceReport{Device: d})
			}
			r.Resources = append(r.Resources, resource)
		}
		if !isOffered {
			r.Resources = append(r.Resources, resource)
		}
	}
	return r
}

// Table writes a row for each device, and a row for a resource without devices. The ID, the first
// nodes and the reason are below the row. With wide, all of them are in the row: the output is for
// grep and awk.
func (r report) Table(w io.Writer, wide bool) error {
	tab := cli.NewTable(false, "RESOURCE", "HEALTH", "SLOTS", "NUMA")
	if wide {
		tab = cli.NewTable(true, "RESOURCE", "ID", "SLOTS", "HEALTH", "NUMA", "NODES", "REASON")
	}
	for _, resource := range r.Resources {
		title := status.Resource{Name: resource.Name, API: resource.API}.Title()
		for _, d := range resource.Devices {
			slots := strconv.Itoa(d.Slots)
			numa := cli.JoinInts(d.NUMA)
			if wide {
				tab.Row(title, d.ID, slots, d.Health, numa, cli.JoinNames(d.Host()), d.Reason)
				continue
			}
			contents := device.Printable(d.ID+" "+cli.Shorten(d.Host(), false, " "), "")
			tab.Add([]string{title, d.Health, slots, numa}, contents, d.Reason)
		}
		if len(resource.Devices) > 0 {
			continue
		}
		if wide {
			tab.Row(title, "", "", "", "", "", resource.Reason)
		} else {
			tab.Add([]string{title, "no device"}, resource.Reason)
		}
	}
	return tab.Write(w)
}
