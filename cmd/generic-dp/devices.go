package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/generic-dp/generic-dp/agent"
	"github.com/generic-dp/generic-dp/config"
	"github.com/generic-dp/generic-dp/device"
)

// report is what `devices -o json` prints.
type report struct {
	Resources []resourceReport `json:"resources"`
}

type resourceReport struct {
	Name    string         `json:"name"`
	Devices []deviceReport `json:"devices"`
}

type deviceReport struct {
	ID     string   `json:"id"`
	Health string   `json:"health"`
	Reason string   `json:"reason"`
	Nodes  []string `json:"nodes"`
	NUMA   []int    `json:"numa"`
	Slots  int      `json:"slots"`
}

const (
	healthy   = "Healthy"
	unhealthy = "Unhealthy"
)

func newDevices(f *flags) *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use:   "devices",
		Short: "list the devices that the configuration finds on this host",
		Args:  noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if output != "table" && output != "json" {
				return usageError{fmt.Errorf("-o: %q is not understood: want table or json", output), "devices "}
			}
			cfg, err := config.Load(f.config)
			if err != nil {
				return err
			}
			view, err := look(cmd.Context(), f, cfg)
			if err != nil {
				return err
			}
			view.Probe(cmd.Context(), f.paths)
			for _, p := range view.Snapshot.Problems {
				fmt.Fprintf(cmd.ErrOrStderr(), "warning: %s: %s\n", p.Subject, p.Reason)
			}
			r := newReport(view)
			if output == "json" {
				enc := json.NewEncoder(cmd.OutOrStdout())
				enc.SetIndent("", "  ")
				return enc.Encode(r)
			}
			return r.table(cmd.OutOrStdout())
		},
	}
	cmd.Flags().StringVarP(&output, "output", "o", "table", "table or json")
	return cmd
}

// look reads this host once, with the identity decisions of a serving
// instance where they can be read, so that both show the same IDs.
func look(ctx context.Context, f *flags, cfg *config.Config) (*agent.View, error) {
	log, err := f.logger(io.Discard)
	if err != nil {
		return nil, usageError{err, ""}
	}
	return agent.Look(ctx, cfg, f.options(log))
}

func newReport(view *agent.View) report {
	r := report{Resources: []resourceReport{}}
	for _, m := range view.Matched.Resources {
		resource := resourceReport{Name: m.Name, Devices: []deviceReport{}}
		for _, o := range m.Offers {
			resource.Devices = append(resource.Devices, newDeviceReport(o))
		}
		r.Resources = append(r.Resources, resource)
	}
	return r
}

func newDeviceReport(o device.Offer) deviceReport {
	d := deviceReport{ID: o.ID, Health: healthy, Reason: o.Problem, Nodes: []string{}, NUMA: []int{}, Slots: o.Slots}
	if o.Problem != "" {
		d.Health = unhealthy
	}
	for _, n := range o.Nodes {
		d.Nodes = append(d.Nodes, n.HostPath)
	}
	d.NUMA = append(d.NUMA, o.NUMA...)
	return d
}

// table writes a line a device; a resource without devices has one line too,
// since its absence is what an administrator looks for.
func (r report) table(w io.Writer) error {
	tab := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tab, "RESOURCE\tID\tSLOTS\tHEALTH\tNUMA\tNODES\tREASON")
	for _, resource := range r.Resources {
		for _, d := range resource.Devices {
			numa := make([]string, len(d.NUMA))
			for i, n := range d.NUMA {
				numa[i] = strconv.Itoa(n)
			}
			fmt.Fprintf(tab, "%s\t%s\t%d\t%s\t%s\t%s\t%s\n", resource.Name, d.ID, d.Slots, d.Health,
				orDash(strings.Join(numa, ",")), orDash(strings.Join(d.Nodes, ",")), orDash(d.Reason))
		}
		if len(resource.Devices) == 0 {
			fmt.Fprintf(tab, "%s\t-\t-\t-\t-\t-\tno device matches on this host\n", resource.Name)
		}
	}
	return tab.Flush()
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}
