package main

import (
	"context"
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

// report is what `devices -o json` prints.
type report struct {
	Resources []resourceReport `json:"resources"`
}

type resourceReport struct {
	Name    string         `json:"name"`
	Active  bool           `json:"active"` // its when holds on this node
	Devices []deviceReport `json:"devices"`

	broken bool // what it selects can't be what was meant
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
		Short: "list the devices that the configuration finds on this host",
		Args:  noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if output != "table" && output != "json" {
				return usageError{fmt.Errorf("-o: %q is not understood: want table or json", output), "devices "}
			}
			cfg, err := f.load(f.config)
			if err != nil {
				return err
			}
			view, err := look(cmd.Context(), f, cfg)
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
			return leftOut(cmd.ErrOrStderr(), view)
		},
	}
	f.registerAllow(cmd.Flags())
	cmd.Flags().StringVarP(&output, "output", "o", "table", "table or json")
	return cmd
}

// leftOut prints why devices are not listed that the configuration speaks of, as
// check does; its error says that there are any.
func leftOut(w io.Writer, view *agent.View) error {
	var err error
	for _, n := range view.Matched.Notes {
		if n.Error {
			printNote(w, "", n)
			err = errReported
		}
	}
	return err
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

// newReport lists the resources in the order of the configuration; one whose name
// has variables is as many as it has names here, and itself where that is none.
func newReport(cfg *config.Config, view *agent.View) report {
	r := report{Resources: []resourceReport{}}
	for i := range cfg.Resources {
		c, named := &cfg.Resources[i], false
		broken := slices.ContainsFunc(view.Matched.Notes, func(n matchers.Note) bool { return n.Error && strings.HasPrefix(n.Place, c.Place) })
		for _, m := range view.Matched.Resources {
			if m.Resource != c {
				continue
			}
			named = true
			resource := resourceReport{Name: m.Name, Active: true, Devices: []deviceReport{}, broken: broken}
			for _, o := range m.Offers {
				resource.Devices = append(resource.Devices, deviceReport{Device: metrics.NewDevice(o, o.Problem == "", o.Problem)})
			}
			r.Resources = append(r.Resources, resource)
		}
		if !named {
			active := !slices.Contains(view.Matched.Inactive, c)
			r.Resources = append(r.Resources, resourceReport{Name: c.Name, Active: active, Devices: []deviceReport{}, broken: broken})
		}
	}
	return r
}

func (r report) json(w io.Writer) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(r)
}

// table writes a line a device; a resource without devices has one line too,
// since its absence is what an administrator looks for.
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
				reason = "left out: check says why"
			case !resource.Active:
				reason = "not active on this node: its when does not hold"
			}
			row(tab, resource.Name, "", "", "", "", "", reason)
		}
	}
	return tab.Flush()
}
