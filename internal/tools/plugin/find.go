package plugin

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/generic-dp/generic-dp/internal/order"
	"github.com/generic-dp/generic-dp/internal/status"
	"github.com/generic-dp/generic-dp/internal/tools/catalog"
	"github.com/generic-dp/generic-dp/internal/tools/cli"
)

// newFind returns the command find.
func newFind(o *fleetFlags) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "find TEXT",
		Short: "find a device by serial number, USB or PCI ID, name, device ID or path",
		Long: `find lists the devices of all nodes whose serial number, USB or PCI ID, name,
device ID, node or network interface contains TEXT, whatever the letter case:
devices of resources with their holders, and hardware that no resource has.
The exit status is 1 if nothing is found.`,
		Args: cli.WantArgs(1, 1, "want one TEXT"),
	}
	return cli.Reports(cmd, func(cmd *cobra.Command, args []string) (cli.Reporter, error) {
		cluster, err := o.open()
		if err != nil {
			return nil, err
		}
		found, err := cluster.Find(cmd.Context(), args[0])
		if err != nil {
			return nil, err
		}
		// The report is printed all the same.
		if len(found.Found) == 0 {
			err = cli.ErrReported
		}
		return found, err
	}, "wide", "json")
}

// Table writes the nodes that have not answered first: the device may be on one of them.
func (r *FindReport) Table(w io.Writer, wide bool) error {
	t := cli.NewTable(wide, "NODE", "RESOURCE", "HEALTH", "HELD BY")
	for _, n := range r.Nodes {
		t.Add([]string{n.Node, "?"}, n.Problems...)
	}
	for _, d := range r.Found {
		cells := []string{d.Node, cmp.Or(d.Resource, "no resource has it"), d.Health, podsOf(d.Held, wide)}
		t.Add(cells, d.ID, d.Reason, describeHardware(d))
	}
	if err := t.Write(w); err != nil {
		return err
	}
	if len(r.Found) > 0 {
		return nil
	}
	_, err := fmt.Fprintf(w, "no device with %q on the nodes that answered\n", r.Text)
	return err
}

// describeHardware is the hardware of a device in a line. It is empty for a device that the configuration
// no longer selects on this host: the reason says whether it is absent.
func describeHardware(d Found) string {
	h := d.Device
	if h == nil {
		return ""
	}
	words := []string{h.Kind, h.ID, h.FullName()}
	// The name of a node without hardware is the path of the node.
	if !slices.Contains(h.Nodes, h.Name) {
		words = slices.Insert(words, 0, h.Name)
	}
	if h.Serial != "" {
		words = append(words, "serial "+h.Serial)
	}
	words = append(words, h.Nodes...)
	words = append(words, h.Interfaces...)
	return strings.Join(words, " ")
}

// FindReport is the result of a search for a device.
type FindReport struct {
	Text string `json:"text"`
	// Found are the devices, by node.
	Found []Found `json:"found"`
	// Nodes are the nodes that have not answered.
	Nodes []NodeState `json:"nodes"`
}

// Found is a device on a node, or a part of its hardware that no resource has.
type Found struct {
	Node string `json:"node"`
	// Resource and ID are empty if no resource has the device.
	Resource string `json:"resource"`
	ID       string `json:"id"`
	// Health and Reason are empty if no resource has the device, or the instance does not list it.
	Health string          `json:"health"`
	Reason string          `json:"reason"`
	Held   []status.Holder `json:"held"`
	// Device is the hardware. It is nil for a device that is absent, or that the configuration no longer
	// selects.
	Device *catalog.Device `json:"device"`
}

// Find searches all nodes for a device whose serial number, USB or PCI ID, name, device ID, node or
// network interface contains a text, whatever the letter case. The error means that no node could
// be asked.
func (f *Fleet) Find(ctx context.Context, text string) (*FindReport, error) {
	members, err := f.Members(ctx)
	if err != nil {
		return nil, err
	}
	report := &FindReport{
		Text:  text,
		Found: []Found{},
		Nodes: []NodeState{},
	}
	answers, err := each(ctx, f, members.List, func(ctx context.Context, m *Member) ([]Found, error) {
		return f.findOn(ctx, m, text)
	})
	if err != nil {
		return nil, err
	}
	for _, a := range answers {
		// A node that has not answered has none.
		report.Found = append(report.Found, a.answer...)
		if a.err != nil {
			report.Nodes = append(report.Nodes, a.state())
		}
	}
	order.Stable(report.Found, func(a, b Found) int {
		return cmp.Or(cmp.Compare(a.Node, b.Node), cmp.Compare(a.Resource, b.Resource), cmp.Compare(a.ID, b.ID))
	})
	return report, nil
}

// findOn searches one node: its hardware, and its resources, which also have absent devices. It
// makes two calls, which share the timeout of the node.
func (f *Fleet) findOn(ctx context.Context, m *Member, text string) ([]Found, error) {
	var all struct{ Devices []catalog.Device }
	if err := f.ask(ctx, m, &all, "devices", "--all"); err != nil {
		return nil, err
	}
	var s status.Status
	if err := f.ask(ctx, m, &s, "status"); err != nil {
		return nil, err
	}
	return search(m.Node, all.Devices, &s, text), nil
}

// search finds devices in the answers of a node. A device of several resources is found once for
// each of them.
func search(node string, hardware []catalog.Device, s *status.Status, text string) []Found {
	text = strings.ToLower(text)
	var found []Found
	listed := map[string]bool{}
	for i := range hardware {
		h := &hardware[i]
		if !isMeant(h, text) {
			continue
		}
		// This is the answer for hardware that should be configured but is not.
		if len(h.Offers) == 0 {
			found = append(found, Found{Node: node, Device: h, Held: []status.Holder{}})
		}
		for _, o := range h.Offers {
			listed[o.Resource+" "+o.ID] = true
			found = append(found, served(node, s, o.Resource, o.ID, h))
		}
	}
	for _, r := range s.Resources {
		for _, d := range r.Devices {
			// The rest are devices that are absent or retiring, which only the running instance
			// remembers.
			isKnown := listed[r.Name+" "+d.ID]
			if !isKnown && (contains(text, d.ID, d.Product) || contains(text, d.Host()...)) {
				found = append(found, served(node, s, r.Name, d.ID, nil))
			}
		}
	}
	return found
}

// isMeant reports whether one of the names of hardware contains a text. text is in lower case.
func isMeant(h *catalog.Device, text string) bool {
	names := []string{h.Name, h.ID, h.Vendor, h.Product, h.FullName(), h.Serial, h.Path}
	names = append(names, h.Nodes...)
	names = append(names, h.Interfaces...)
	for _, o := range h.Offers {
		names = append(names, o.ID)
	}
	return contains(text, names...)
}

// contains reports whether one of some texts contains a text in lower case.
func contains(text string, all ...string) bool {
	return slices.ContainsFunc(all, func(s string) bool {
		return strings.Contains(strings.ToLower(s), text)
	})
}

// served is a device with the health and the holders that the running instance reports. h is nil if
// the configuration selects no hardware for it.
func served(node string, s *status.Status, resource, id string, h *catalog.Device) Found {
	found := Found{
		Node:     node,
		Resource: resource,
		ID:       id,
		Held:     []status.Holder{},
		Device:   h,
	}
	for _, r := range s.Resources {
		// The configuration has the plain name, also for a resource of DRA.
		if r.Title() != resource && r.Name != resource {
			continue
		}
		for _, d := range r.Devices {
			if d.ID == id {
				found.Health = d.Health
				found.Reason = d.Reason
				found.Held = append(found.Held, d.Held...)
			}
		}
	}
	return found
}
