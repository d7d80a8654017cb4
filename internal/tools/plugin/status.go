package plugin

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/generic-dp/generic-dp/internal/status"
	"github.com/generic-dp/generic-dp/internal/tools/cli"
)

// newStatus returns the command status.
func newStatus(o *fleetFlags) *cobra.Command {
	var filter Filter
	var watch bool
	var interval time.Duration
	cmd := &cobra.Command{
		Use:   "status [RESOURCE]",
		Short: "show the devices of all nodes, and the pods that hold them",
		Long: `status shows one table for the cluster: each resource on each node with its
devices, free slots and the pods that hold devices, problems first. With
RESOURCE, with or without its domain, or with --node, it also lists each device.
The exit status is 1 if no node answers, and 0 otherwise: problems are part of
the report.`,
		Args: cli.WantArgs(0, 1, "want at most one RESOURCE"),
	}
	cmd.Flags().StringVar(&filter.Node, "node", "", "show only this node")
	cmd.Flags().BoolVarP(&watch, "watch", "w", false, "show the status again and again, until interrupted")
	cmd.Flags().DurationVar(&interval, "interval", 5*time.Second, "time between two queries with --watch")
	format := cli.OutputFlag(cmd, "table", "wide", "json")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		cluster, err := o.open()
		if err != nil {
			return err
		}
		if interval <= 0 {
			return cli.Usagef("--interval: want a duration such as 5s")
		}
		if len(args) > 0 {
			filter.Resource = args[0]
		}
		// show makes one query and writes its report. With --watch it is called repeatedly.
		show := func(w io.Writer) error {
			report, err := cluster.Status(cmd.Context(), filter)
			if err != nil {
				return err
			}
			err = cli.WriteReport(w, *format, report)
			if err == nil && report.Answered == 0 {
				return cli.ErrReported
			}
			return err
		}
		if watch {
			return cli.Watch(cmd.Context(), cmd.OutOrStdout(), interval, show)
		}
		return show(cmd.OutOrStdout())
	}
	return cmd
}

// Table writes the nodes with problems, the resources, and how many nodes have answered.
func (r *StatusReport) Table(w io.Writer, wide bool) error {
	t := cli.NewTable(wide, "RESOURCE", "NODE", "DEVICES", "FREE", "HELD BY")
	for _, n := range r.Nodes {
		// A node that does not answer may have any number of devices.
		unknown := "?"
		if n.Answered {
			unknown = ""
		}
		t.Add([]string{"", n.Node, unknown, unknown, ""}, n.Problems...)
	}
	for i := range r.Resources {
		row := &r.Resources[i]
		var held []status.Holder
		for _, d := range row.Devices {
			held = append(held, d.Held...)
		}
		// The report keeps its own list.
		below := slices.Clone(row.Problems)
		if r.isDetailed {
			below = append(below, healthyDevices(row)...)
		}
		t.Add([]string{row.Title(), row.Node, strconv.Itoa(len(row.Devices)), freeOf(row), podsOf(held, wide)}, below...)
	}
	if err := t.Write(w); err != nil {
		return err
	}
	return r.foot(w)
}

// freeOf is the number of free slots: "1 of 2". The number is "?" while the holders are unknown.
func freeOf(row *Row) string {
	free := "?"
	if row.Free != nil {
		free = strconv.Itoa(*row.Free)
	}
	// A resource without a device has no total.
	if row.Slots == 0 {
		return free
	}
	return free + " of " + strconv.Itoa(row.Slots)
}

// healthyDevices lists the devices that are not among the problems. Each line has the ID, the nodes
// and the holders.
func healthyDevices(row *Row) []string {
	var lines []string
	for i := range row.Devices {
		d := &row.Devices[i]
		if d.Health != status.Healthy {
			continue
		}
		line := d.ID + ": " + strings.Join(d.Host(), " ")
		if holders := d.Holders(); len(holders) > 0 {
			line += ", held by " + strings.Join(cli.Few(holders), ", ")
		}
		lines = append(lines, line)
	}
	return lines
}

// total is a resource on several nodes.
type total struct {
	nodes   int
	devices int
	healthy int
	slots   int
	free    int
	// isFreeUnknown is set if a node does not know its holders.
	isFreeUnknown bool
}

// totals sums up the rows with devices, by resource.
func (r *StatusReport) totals() map[string]total {
	totals := map[string]total{}
	for i := range r.Resources {
		row := &r.Resources[i]
		if len(row.Devices) == 0 {
			continue
		}
		t := totals[row.Title()]
		t.nodes++
		t.devices += len(row.Devices)
		t.slots += row.Slots
		for _, d := range row.Devices {
			if d.Health == status.Healthy {
				t.healthy++
			}
		}
		if row.Free != nil {
			t.free += *row.Free
		} else {
			t.isFreeUnknown = true
		}
		totals[row.Title()] = t
	}
	return totals
}

// foot has the totals of resources on several nodes, and says how many nodes have answered. It also
// names the nodes that could not be asked.
func (r *StatusReport) foot(w io.Writer) error {
	fmt.Fprintln(w)
	totals := r.totals()
	for _, name := range slices.Sorted(maps.Keys(totals)) {
		t := totals[name]
		if t.nodes == 1 {
			continue
		}
		free := strconv.Itoa(t.free)
		if t.isFreeUnknown {
			free = "?"
		}
		cli.Wrap(w, "", fmt.Sprintf("%s: %d nodes, %d of %s Healthy, %s of %s free",
			name, t.nodes, t.healthy, cli.Count(t.devices, "device"), free, cli.Count(t.slots, "slot")))
	}
	// Nodes also has nodes that have answered with problems.
	silent := 0
	for _, n := range r.Nodes {
		if !n.Answered {
			silent++
		}
	}
	text := fmt.Sprintf("%d of %s answered", r.Answered, cli.Count(r.Answered+silent, "node"))
	if len(r.WithoutPod) > 0 {
		text += "; without a pod of generic-dp: " + cli.Shorten(r.WithoutPod, false, ",")
	}
	if r.Unread != "" {
		text += "; nodes of the cluster are not known: " + r.Unread
	}
	cli.Wrap(w, "", text)
	return nil
}

// podsOf names the pods that hold devices, each once: the first one and the number of the others,
// unless wide. It is empty without a holder.
func podsOf(held []status.Holder, wide bool) string {
	var pods []string
	for _, h := range held {
		pod := h.Namespace + "/" + h.Pod
		if !slices.Contains(pods, pod) {
			pods = append(pods, pod)
		}
	}
	if !wide && len(pods) > 1 {
		return fmt.Sprintf("%s +%d", pods[0], len(pods)-1)
	}
	return strings.Join(pods, ",")
}
