package main

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/generic-dp/generic-dp/config"
	"github.com/generic-dp/generic-dp/internal/agent"
	"github.com/generic-dp/generic-dp/internal/device"
	"github.com/generic-dp/generic-dp/internal/tools/catalog"
	"github.com/generic-dp/generic-dp/matchers"
)

// explainReport is the output of explain.
type explainReport struct {
	// Device is set where a device is explained.
	Device    *catalog.Device     `json:"device,omitempty"`
	Variables []matchers.Variable `json:"variables"`
	Resources []explanation       `json:"resources"`
}

// explanation is that of matching, and why offered devices are Unhealthy.
type explanation struct {
	matchers.Explanation
	Unhealthy map[string]string `json:"unhealthy"` // reasons by ID
}

func newExplain(f *flags) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "explain DEVICE|RESOURCE",
		Short: "say why a device or a resource is offered or not, condition by condition",
		Long: `explain applies the conditions of a resource one after the other, and says how
much each of them leaves, and what comes nearest to one that fits nothing.

With a device it does so for each resource and that device, and lists the
variables that the device has values for. DEVICE is a path below /dev, a device
ID, a PCI address, a USB port such as 1-1.4, or a network interface; RESOURCE
is a name, with or without its domain.`,
		Args:              wantArgs(1, 1, "want one DEVICE or RESOURCE"),
		ValidArgsFunction: f.completeResources,
	}
	cmd.Flags().AddFlagSet(f.pick("allow", "domains", "hwdata"))
	return reports(cmd, func(cmd *cobra.Command, args []string) (reporter, error) {
		cfg, view, err := f.scanConfig(cmd, true)
		if err != nil {
			return nil, err
		}
		view.Probe(cmd.Context(), f.paths)
		report := explainReport{Variables: []matchers.Variable{}}
		for i, e := range explanations(view, cfg, nil, nil) {
			r := &cfg.Resources[i]
			if isNamed(r.Name, args[0]) || slices.ContainsFunc(view.Matched.Resources, func(m matchers.Offered) bool {
				return m.Resource == r && isNamed(m.Name, args[0]) // with its variables filled in
			}) {
				report.Resources = append(report.Resources, e)
			}
		}
		if len(report.Resources) > 0 {
			return report, nil
		}
		hardware, node, err := catalog.Find(view.Snapshot, view.Forms, args[0])
		if err != nil {
			return nil, fmt.Errorf("no resource %q, and %w", args[0], err)
		}
		report.Resources = explanations(view, cfg, hardware, node)
		report.Variables = view.Variables(hardware, node)
		report.Device = &catalog.Device{Name: args[0]} // a root hub is not among all
		for _, d := range f.inventory(view).Devices {
			if hardware != nil && d.Name == hardware.Name || node != nil && slices.Contains(slices.Concat(d.Nodes, d.Interfaces), node.Path) {
				report.Device = &d
			}
		}
		return report, nil
	}, "json", "yaml")
}

// explanations explains each resource, with regard to a device if one is given.
func explanations(view *agent.View, cfg *config.Config, h *device.Hardware, n *device.Node) []explanation {
	all := []explanation{}
	for i, e := range view.Explain(cfg, h, n) {
		unhealthy := map[string]string{}
		for _, r := range view.Matched.Resources {
			for _, o := range r.Offers {
				if r.Resource == &cfg.Resources[i] && o.Problem != "" && slices.Contains(e.Offered, o.ID) {
					unhealthy[o.ID] = o.Problem
				}
			}
		}
		all = append(all, explanation{e, unhealthy})
	}
	return all
}

// isNamed reports whether an administrator means a resource by a name, with or without
// its domain.
func isNamed(resource, name string) bool {
	return resource == name || strings.HasSuffix(resource, "/"+name)
}

func (r explainReport) table(w io.Writer, _ bool) error {
	if d := r.Device; d != nil {
		fmt.Fprintln(w, strings.Join(strings.Fields(strings.Join([]string{d.Name, d.Kind, d.ID, d.Vendor, d.Product}, " ")), " "))
		for _, v := range r.Variables {
			fmt.Fprintf(w, "  %-24s %s\n", v.Name, v.Value)
		}
	}
	for _, e := range r.Resources {
		offered := "no"
		switch n := len(e.Offered); {
		case r.Device == nil && n == 0:
			offered = "no device"
		case r.Device == nil:
			offered = "offers " + count(n, "device")
		case n > 0:
			offered = "offers it"
		}
		fmt.Fprintf(w, "%s: %s\n", e.Resource, strings.TrimSuffix(offered+": "+e.Reason, ": "))
		for _, id := range e.Offered {
			line := "  " + id
			if why := e.Unhealthy[id]; why != "" {
				line += "  Unhealthy: " + why
			}
			fmt.Fprintln(w, line)
		}
		for _, v := range e.Variables {
			if !slices.Contains(r.Variables, v) {
				fmt.Fprintf(w, "  %-24s %s\n", v.Name, v.Value)
			}
		}
		for _, m := range e.Matches {
			fmt.Fprintf(w, "  %s\n", m.Place)
			for _, c := range m.Conditions {
				fits := fmt.Sprint(c.Fits)
				if c.Fits == 0 {
					fits = strings.TrimSuffix("none: "+c.Nearest, ": ")
				}
				fmt.Fprintf(w, "    %-20s %-20s %s\n", c.Key, cmp.Or(c.Want, "any"), fits)
			}
		}
	}
	return nil
}
