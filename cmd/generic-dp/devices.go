package main

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/generic-dp/generic-dp/agent"
	"github.com/generic-dp/generic-dp/config"
	"github.com/generic-dp/generic-dp/matchers"
	"github.com/generic-dp/generic-dp/metrics"
)

// report is the output of `devices -o json`.
type report struct {
	Resources []resourceReport `json:"resources"`
}

type resourceReport struct {
	Name    string         `json:"name"`
	Active  bool           `json:"active"` // when holds on this node
	Devices []deviceReport `json:"devices"`

	broken bool // left out because of an error
}

// deviceReport is a device without its holders, which only the kubelet knows.
type deviceReport struct {
	metrics.Device
	Held []metrics.Holder `json:"held,omitempty"`
}

func newDevices(f *flags) *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use:   "devices",
		Short: "list the devices that the configuration selects on this host",
		Args:  noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if output != "table" && output != "json" {
				return usageError{fmt.Errorf("-o: unknown format %q: want table or json", output)}
			}
			cfg, err := f.load(f.config)
			if err != nil {
				return err
			}
			view, err := f.view(cmd.Context(), cfg)
			if err != nil {
				return err
			}
			view.Probe(cmd.Context(), f.paths)
			for _, p := range view.Problems {
				fmt.Fprintf(cmd.ErrOrStderr(), "warning: %s: %s\n", p.Subject, p.Reason)
			}
			write := report.table
			if output == "json" {
				write = report.json
			}
			if err := write(newReport(cfg, view), cmd.OutOrStdout()); err != nil {
				return err
			}
			for _, n := range view.Matched.Notes {
				if n.Error {
					printNote(cmd.ErrOrStderr(), "", n)
					err = errReported
				}
			}
			return err
		},
	}
	cmd.Flags().AddFlagSet(f.pick("allow", "domains"))
	cmd.Flags().StringVarP(&output, "output", "o", "table", "table or json")
	return cmd
}

// newReport lists the resources in the order of the configuration. One with variables
// in its name is listed once for each resulting name, or as written without any.
func newReport(cfg *config.Config, view *agent.View) report {
	r := report{Resources: []resourceReport{}}
	for i := range cfg.Resources {
		c, before := &cfg.Resources[i], len(r.Resources)
		resource := resourceReport{Name: c.Name, Active: !slices.Contains(view.Matched.Inactive, c), Devices: []deviceReport{}}
		resource.broken = slices.ContainsFunc(view.Matched.Notes, func(n matchers.Note) bool { return n.Error && strings.HasPrefix(n.Place, c.Place) })
		for _, m := range view.Matched.Resources {
			if m.Resource != c {
				continue
			}
			resource.Name, resource.Devices = m.Name, []deviceReport{}
			for _, o := range m.Offers {
				resource.Devices = append(resource.Devices, deviceReport{Device: metrics.NewDevice(o, o.Problem == "", o.Problem)})
			}
			r.Resources = append(r.Resources, resource)
		}
		if len(r.Resources) == before {
			r.Resources = append(r.Resources, resource)
		}
	}
	return r
}

func (r report) json(w io.Writer) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(r)
}

// table writes one line per device, and one for a resource without devices, with the
// reason.
func (r report) table(w io.Writer) error {
	tab := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tab, "RESOURCE\tID\tSLOTS\tHEALTH\tNUMA\tNODES\tREASON")
	for _, resource := range r.Resources {
		for _, d := range resource.Devices {
			row(tab, resource.Name, d.ID, strconv.Itoa(d.Slots), d.Health, joinInts(d.NUMA), strings.Join(d.Host(), ","), d.Reason)
		}
		if len(resource.Devices) == 0 {
			reason := "no device matches on this host"
			switch {
			case resource.broken:
				reason = "left out: see generic-dp check"
			case !resource.Active:
				reason = "inactive on this node: when does not hold"
			}
			row(tab, resource.Name, "", "", "", "", "", reason)
		}
	}
	return tab.Flush()
}
