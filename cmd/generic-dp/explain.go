package main

import (
	"cmp"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/generic-dp/generic-dp/config"
	"github.com/generic-dp/generic-dp/internal/agent"
	"github.com/generic-dp/generic-dp/internal/device"
	"github.com/generic-dp/generic-dp/internal/status"
	"github.com/generic-dp/generic-dp/internal/tools/catalog"
	"github.com/generic-dp/generic-dp/internal/tools/cli"
	"github.com/generic-dp/generic-dp/matchers"
)

// explainReport is the output of explain. The names of the JSON fields are an API.
type explainReport struct {
	// Device is set if a device is explained. It is nil if a resource is explained.
	Device *catalog.Device `json:"device,omitempty"`
	// Variables are the variables that have a value for the device. They are empty without one.
	Variables []matchers.Variable `json:"variables"`
	Resources []explanation       `json:"resources"`
}

// explanation says why a resource has its devices, and why some of them are Unhealthy.
type explanation struct {
	matchers.Explanation
	// Unhealthy contains the reasons by device ID. It is empty if all devices are usable.
	Unhealthy map[string]string `json:"unhealthy"`
}

// newExplain returns the command explain. An argument that names a resource and a device means
// the resource. It works without a configuration, and then lists the variables of a device.
func newExplain(f *flags) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "explain DEVICE|RESOURCE",
		Short: "say why a device or a resource is offered or not, condition by condition",
		Long: `explain applies the conditions of a resource one after the other. It says how
much is left after each condition, and what comes nearest to a condition that
fits nothing.

With a device, it applies the conditions of each resource to that device, and
lists the variables that have a value for it. DEVICE is a path below /dev, a
device ID, a PCI address, a USB port such as 1-1.4, or a network interface;
RESOURCE is a name, with or without its domain.`,
		Args:              cli.WantArgs(1, 1, "want one DEVICE or RESOURCE"),
		ValidArgsFunction: complete(f.resourceNames, f.hardwareNames),
	}
	f.add(cmd, configFlags, hostFlags, []string{"hwdata"})
	explain := func(cmd *cobra.Command, args []string) (cli.Reporter, error) {
		cfg, view, err := f.scanConfig(cmd, true)
		if err != nil {
			return nil, err
		}
		// A failed health check is a reason for Unhealthy, so the checks run before the
		// explanation.
		view.Probe(cmd.Context(), f.paths)
		report, err := f.explainName(cmd.ErrOrStderr(), view, cfg, args[0])
		if name := nameOfID(view, args[0]); err != nil && name != "" {
			return f.explainName(cmd.ErrOrStderr(), view, cfg, name)
		}
		return report, err
	}
	return cli.Reports(cmd, explain, "json")
}

// explainName explains the resources with a name, or else the device with the name.
func (f *flags) explainName(stderr io.Writer, view *agent.View, cfg *config.Config, name string) (cli.Reporter, error) {
	resources := explainResource(view, cfg, name)
	if len(resources) > 0 {
		return explainReport{
			Variables: []matchers.Variable{},
			Resources: resources,
		}, nil
	}
	return f.explainDevice(stderr, view, cfg, name)
}

// nameOfID returns what to explain for the ID of an offered device or of one of its slots: the hardware or the
// node of the device, or its resource if the device has several or none. It is empty if no resource offers the ID.
func nameOfID(view *agent.View, id string) string {
	id, _ = device.SplitSlot(id)
	for _, m := range view.Matched.Resources {
		for _, o := range m.Offers {
			isSingle := len(o.Members) == 0 && !o.Pool
			switch {
			case o.ID != id:
			case isSingle && o.Hardware != "":
				return path.Base(o.Hardware)
			// The node of a device that cannot be injected is missing here.
			case isSingle && len(o.Nodes) > 0 && !o.Nodes[0].Companion:
				return o.Nodes[0].HostPath
			default:
				return m.Name
			}
		}
	}
	return ""
}

// explainResource explains the resources with a name. Several domains may have the same name, so
// there may be several. The result is empty if there is no such resource.
func explainResource(view *agent.View, cfg *config.Config, name string) []explanation {
	var found []explanation
	for i, e := range explanations(view, cfg, catalog.Found{}) {
		r := &cfg.Resources[i]
		if isOfferedAs(view, r, name) {
			found = append(found, e)
		}
	}
	return found
}

// isOfferedAs reports whether a name means a resource. The name may have the resource's variables
// as written, or their values on this host.
func isOfferedAs(view *agent.View, r *config.Resource, name string) bool {
	if status.IsNamed(r.Name, name) {
		return true
	}
	return slices.ContainsFunc(view.Matched.Resources, func(m matchers.Offered) bool {
		return m.Resource == r && status.IsNamed(m.Name, name)
	})
}

// explainDevice explains all resources with regard to a device. name is any name of a device that
// catalog.Catalog.Find accepts. The error says that nothing has the name, or which devices have
// it if it is ambiguous.
func (f *flags) explainDevice(stderr io.Writer, view *agent.View, cfg *config.Config, name string) (cli.Reporter, error) {
	all := f.catalog(stderr, view)
	found, err := all.Find(view.Forms, name)
	if err != nil {
		err = fmt.Errorf("%q is neither a resource nor a device: %w", name, err)
		// The default configuration is optional, so name may be a resource of another one.
		if len(cfg.Resources) == 0 {
			err = fmt.Errorf("%w\n  hint: %s has no resources: --config names another configuration", err, f.config)
		} else if !strings.HasPrefix(name, "/") {
			var resources []string
			for i := range cfg.Resources {
				resources = append(resources, cfg.Resources[i].Name)
			}
			err = fmt.Errorf("%w\n  hint: the resources of %s are %s", err, f.config, strings.Join(cli.Few(resources), ", "))
		}
		return nil, err
	}
	if isGroupNode(found.Node) {
		found.Node = nil
	}
	return explainReport{
		Device:    listed(listAll(all, view), found, name),
		Variables: view.Variables(found.Hardware, found.Node),
		Resources: explanations(view, cfg, found),
	}, nil
}

// listed returns a device as devices --all lists it. A root hub is not listed there, so it only
// has its name. The result is never nil.
func listed(all inventoryReport, found catalog.Found, name string) *catalog.Device {
	for i := range all.Devices {
		d := &all.Devices[i]
		if found.Hardware != nil && d.Name == found.Hardware.Name {
			return d
		}
		nodes := slices.Concat(d.Nodes, d.Interfaces)
		if found.Node != nil && slices.Contains(nodes, found.Node.Path) {
			return d
		}
	}
	return &catalog.Device{Name: name}
}

// explanations explains each resource, with regard to a device if one is given. The zero Found
// means no device. The result has the order of cfg.Resources.
func explanations(view *agent.View, cfg *config.Config, found catalog.Found) []explanation {
	all := []explanation{}
	for i, e := range view.Explain(cfg, found.Hardware, found.Node) {
		next := explanation{
			Explanation: e,
			Unhealthy:   map[string]string{},
		}
		// A resource with variables in its name has several results.
		for _, m := range view.Matched.Resources {
			if m.Resource != &cfg.Resources[i] {
				continue
			}
			for _, o := range m.Offers {
				next.addGroup(view.Snapshot, &o, found)
				if o.Problem != "" && slices.Contains(next.Offered, o.ID) {
					next.Unhealthy[o.ID] = o.Problem
				}
			}
		}
		all = append(all, next)
	}
	return all
}

// Table writes the device with its variables, then each resource.
func (r explainReport) Table(w io.Writer, _ bool) error {
	if d := r.Device; d != nil {
		title := []string{d.Name, d.Kind, d.ID, d.Vendor, d.Product}
		// Fields drops the space around empty words.
		words := strings.Fields(strings.Join(title, " "))
		fmt.Fprintln(w, strings.Join(words, " "))
		writeVariables(w, r.Variables)
	}
	for _, e := range r.Resources {
		r.write(w, e)
	}
	return nil
}

// write writes a resource: a heading with the result, its devices, its variables, and the
// conditions of each match with the number of nodes or devices that are left.
func (r explainReport) write(w io.Writer, e explanation) {
	heading := e.Resource + ": " + r.verdict(e)
	if e.Reason != "" {
		heading += ": " + e.Reason
	}
	cli.Wrap(w, "", heading)
	for _, id := range e.Offered {
		line := id
		if why := e.Unhealthy[id]; why != "" {
			line += " Unhealthy: " + why
		}
		cli.Wrap(w, "  ", line)
	}
	// The variables of the device were written above all resources.
	own := slices.DeleteFunc(slices.Clone(e.Variables), func(v matchers.Variable) bool {
		return slices.Contains(r.Variables, v)
	})
	writeVariables(w, own)
	for _, m := range e.Matches {
		fmt.Fprintf(w, "  %s\n", m.Place)
		for _, c := range m.Conditions {
			row := fmt.Sprintf("    %-20s %-20s ", c.Key, cmp.Or(c.Want, "any"))
			cli.Hang(w, row, fits(c))
		}
	}
}

// verdict says whether a resource offers the explained device, or how many devices it offers.
func (r explainReport) verdict(e explanation) string {
	offered := len(e.Offered)
	switch {
	case r.Device != nil && offered > 0:
		return "offers it"
	case r.Device != nil:
		return "no"
	case offered > 0:
		return "offers " + cli.Count(offered, "device")
	}
	return "no device"
}

// fits says how many nodes or devices fit a condition, or what comes nearest to it. The nearest
// value often shows a spelling mistake.
func fits(c matchers.Condition) string {
	switch {
	case c.Fits > 0:
		return fmt.Sprintf("%d left", c.Fits)
	case c.Nearest != "":
		return "none: " + c.Nearest
	}
	return "none"
}

// writeVariables writes a line for each variable: its name as in the configuration, and its
// value.
func writeVariables(w io.Writer, variables []matchers.Variable) {
	for _, v := range variables {
		fmt.Fprintf(w, "  %-24s %s\n", v.Name, v.Value)
	}
}
