package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/generic-dp/generic-dp/internal/status"
	"github.com/generic-dp/generic-dp/internal/tools/fleet"
)

// newFleetStatus returns the command fleet status.
func newFleetStatus(o *fleetFlags) *cobra.Command {
	var filter fleet.Filter
	var watch bool
	var interval time.Duration
	cmd := &cobra.Command{
		Use:   "status [RESOURCE]",
		Short: "show the devices of all nodes, and the pods that hold them",
		Long: `status shows one table for the cluster: each resource on each node with its
devices, free slots and the pods that hold devices, problems first. With
RESOURCE, with or without its domain, or with --node, it also lists each device.
The exit status is 1 if no node answers.`,
		Args: wantArgs(0, 1, "want at most one RESOURCE"),
	}
	cmd.Flags().StringVar(&filter.Node, "node", "", "show only this node")
	cmd.Flags().BoolVarP(&watch, "watch", "w", false, "show the status again and again, until interrupted")
	cmd.Flags().DurationVar(&interval, "interval", 5*time.Second, "time between two queries with --watch")
	format := outputFlag(cmd, "table", "wide", "json", "yaml")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		cluster, err := o.open(cmd)
		if err != nil {
			return err
		}
		if interval <= 0 {
			return usageError{errors.New("--interval: want a duration such as 5s")}
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
			// A filter leaves few rows, which have room for their devices.
			isDetailed := filter != fleet.Filter{}
			err = writeReport(w, *format, fleetStatus{report, isDetailed})
			if err == nil && report.Answered == 0 {
				return errReported
			}
			return err
		}
		if watch {
			return repeat(cmd.Context(), cmd.OutOrStdout(), interval, show)
		}
		return show(cmd.OutOrStdout())
	}
	return cmd
}

// repeat shows a report again and again until ctx ends. On a terminal it replaces the last one;
// otherwise it only writes reports that differ from the last one. An error of one query, such as an
// API server that restarts, does not end it. It returns nil at the end of ctx, or an error of w.
func repeat(ctx context.Context, w io.Writer, interval time.Duration, show func(io.Writer) error) error {
	terminal := terminalOf(w)
	last := ""
	for {
		// The whole report is written at once, so that the screen does not flicker during the
		// query.
		var text strings.Builder
		err := show(&text)
		if err != nil && !errors.Is(err, errReported) && ctx.Err() == nil {
			fmt.Fprintf(&text, "error: %v\n", err)
		}
		if ctx.Err() != nil {
			return nil
		}
		if terminal != nil {
			// The cursor goes to the top left, and the screen is cleared.
			fmt.Fprint(terminal, "\x1b[H\x1b[2J")
		}
		// In a file or a pipe, an equal report has no news.
		if terminal != nil || text.String() != last {
			if _, err := io.WriteString(w, text.String()); err != nil {
				return err
			}
		}
		last = text.String()
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(interval):
		}
	}
}

// fleetStatus is the output of fleet status.
type fleetStatus struct {
	*fleet.StatusReport
	// isDetailed is set if each device is listed.
	isDetailed bool
}

// table writes the nodes with problems, the resources, and how many nodes have answered.
func (r fleetStatus) table(w io.Writer, wide bool) error {
	t := newFleetTable(wide, "RESOURCE", "NODE", "DEVICES", "FREE", "HELD BY")
	for _, n := range r.Nodes {
		// A node that does not answer may have any number of devices.
		unknown := "?"
		if n.Answered {
			unknown = ""
		}
		t.add([]string{"", n.Node, unknown, unknown, ""}, n.Problems...)
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
		t.add([]string{row.Title(), row.Node, strconv.Itoa(len(row.Devices)), freeOf(row), podsOf(held, wide)}, below...)
	}
	if err := t.write(w); err != nil {
		return err
	}
	return r.foot(w)
}

// freeOf is the number of free slots: "1 of 2". The number is "?" while the holders are unknown.
func freeOf(row *fleet.Row) string {
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
func healthyDevices(row *fleet.Row) []string {
	var lines []string
	for i := range row.Devices {
		d := &row.Devices[i]
		if d.Health != status.Healthy {
			continue
		}
		line := d.ID + ": " + strings.Join(d.Host(), " ")
		if holders := d.Holders(); len(holders) > 0 {
			line += ", held by " + strings.Join(holders, ", ")
		}
		lines = append(lines, line)
	}
	return lines
}

// foot says how many nodes have answered. It also names the nodes that could not be asked.
func (r fleetStatus) foot(w io.Writer) error {
	// Nodes also has nodes that have answered with problems.
	silent := 0
	for _, n := range r.Nodes {
		if !n.Answered {
			silent++
		}
	}
	text := fmt.Sprintf("%d of %s answered", r.Answered, count(r.Answered+silent, "node"))
	if len(r.WithoutPod) > 0 {
		text += "; without a pod of generic-dp: " + shorten(r.WithoutPod, false)
	}
	if r.Unread != "" {
		text += "; nodes of the cluster are not known: " + r.Unread
	}
	fmt.Fprintln(w)
	wrap(w, "", text)
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
