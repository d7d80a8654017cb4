package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/generic-dp/generic-dp/internal/device"
	"github.com/generic-dp/generic-dp/internal/kubelet/podresources"
	"github.com/generic-dp/generic-dp/internal/status"
)

// changesReport is the output of diff. Changes is never nil.
type changesReport struct {
	Changes []change `json:"changes"`
	// HeldUnknown is why the holders are unknown. It is empty if they are known. Changes have no
	// holders then, which does not mean that no pod is affected.
	HeldUnknown string `json:"held_unknown"`
}

// newDiff returns the command diff. The exit status is 0 whether or not there is a change. Both
// configurations are matched with the same scan, so that a device that appears in between is no
// change.
func newDiff(f *flags) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "diff OLD NEW",
		Short: "show what another configuration would change on this host, and for which pods",
		Long: `diff compares what two configurations offer on this host, or on a recorded one:
devices that are added, removed or moved to another resource, IDs that change,
and what a container would get. It asks the instance at --listen, or else the
kubelet, which containers hold devices: they keep them while they run.`,
		Args: wantArgs(2, 2, "want two configurations, OLD and NEW"),
	}
	// There is no --config: both configurations are arguments.
	f.add(cmd, hostFlags, []string{"node-name", "allow", "domains", "listen", "pod-resources"})
	diff := func(cmd *cobra.Command, args []string) (reporter, error) {
		before, err := f.load(args[0])
		if err != nil {
			return nil, err
		}
		after, err := f.load(args[1])
		if err != nil {
			return nil, err
		}
		// Both configurations are loaded before the scan, so that their mistakes are reported
		// first.
		view, err := f.scan(cmd.Context(), before)
		if err != nil {
			return nil, err
		}
		// Unknown holders are no reason to hide the changes, so the report contains the error.
		held, err := f.holders(cmd.Context())
		report := changesReport{Changes: compare(view, view.With(after), held)}
		if err != nil {
			report.HeldUnknown = err.Error()
		}
		return report, nil
	}
	return reports(cmd, diff, "json", "yaml")
}

// holders returns which containers hold devices, from a running instance or else from the
// kubelet. With a recording, only sources that a flag names are asked: others belong to this
// host. An error means that the holders are unknown, which diff reports without failing.
func (f *flags) holders(ctx context.Context) (holders, error) {
	mayAsk := func(flag string) bool {
		return f.unpacked == "" || f.all.Changed(flag)
	}
	err := errors.New("a recording has no pods")
	// The instance comes first: its address needs no privileges, in contrast to the socket of the
	// kubelet.
	if mayAsk("listen") {
		var s *statusReport
		s, err = f.status(ctx)
		// An instance that does not know the holders is as good as none: the kubelet is asked
		// then.
		if err == nil && s.HeldUnknown == "" {
			return holdersOf(s.Resources), nil
		}
		if err == nil {
			err = errors.New(s.HeldUnknown)
		}
	}
	if mayAsk("pod-resources") {
		return f.holdersOfKubelet(ctx)
	}
	return nil, err
}

// holdersOf returns the holders that an instance knows. The caller must check HeldUnknown before:
// an instance that does not know the holders sends devices without holders. While devices move
// between the APIs of the kubelet, two resources have one name, and one of them has the holders.
func holdersOf(resources []status.Resource) holders {
	all := holders{}
	for _, r := range resources {
		for _, d := range r.Devices {
			key := name{r.Name, d.ID}
			all[key] = append(all[key], d.Held...)
		}
	}
	return all
}

// holdersOfKubelet returns the holders that the kubelet knows. It waits at most statusLimit. The
// kubelet reports slots, and the result has the devices to which they belong.
func (f *flags) holdersOfKubelet(ctx context.Context) (holders, error) {
	ctx, cancel := context.WithTimeout(ctx, statusLimit)
	defer cancel()
	kubelet := podresources.New(f.paths.PodResources, nil)
	// A new client has no earlier response, so the zero time still requires a request.
	held, _, err := kubelet.Holders(ctx, time.Time{})
	all := holders{}
	for resource, slots := range held {
		for slot, by := range slots {
			id, _ := device.SplitSlot(slot)
			n := name{resource, id}
			for _, h := range by {
				all[n] = append(all[n], status.Holder{
					ID:        slot,
					Namespace: h.Namespace,
					Pod:       h.Pod,
					Container: h.Container,
				})
			}
		}
	}
	return all, err
}

// table writes a line for each change, and the details of all changes below. RESOURCE and ID are
// the names that pods use now.
func (r changesReport) table(w io.Writer, _ bool) error {
	if len(r.Changes) == 0 {
		_, err := fmt.Fprintln(w, "no change on this host")
		return err
	}
	tab := newTable(w, "CHANGE", "RESOURCE", "ID", "NEW", "HELD BY")
	for _, c := range r.Changes {
		listed := c.listed()
		// A status.Device formats holders in the same way as the command status.
		held := status.Device{ID: c.Old.ID, Held: c.Held}
		tab.row(string(c.Change), listed.Resource, listed.ID, c.becomes(), strings.Join(held.Holders(), ","))
	}
	err := tab.Flush()
	if err != nil {
		return err
	}
	r.writeDetails(w)
	if r.HeldUnknown == "" {
		return nil
	}
	_, err = fmt.Fprintf(w, "\nHolders are unknown: %s\n", r.HeldUnknown)
	return err
}

// writeDetails writes what changes in each device and resource, below the table.
func (r changesReport) writeDetails(w io.Writer) {
	for _, c := range r.Changes {
		if len(c.Details) == 0 {
			continue
		}
		listed := c.listed()
		fmt.Fprintf(w, "\n%s\n", strings.TrimSpace(listed.Resource+" "+listed.ID))
		for _, line := range c.Details {
			fmt.Fprintf(w, "  %s\n", line)
		}
	}
}

// becomes describes the new device in the cell NEW, as far as it differs from the old one. The
// cell is empty for a device that is added or removed, and for a change that has only details.
func (c change) becomes() string {
	switch c.Change {
	case renamed:
		return c.New.ID
	case moved:
		if c.New.ID == c.Old.ID {
			return c.New.Resource
		}
		return c.New.Resource + " " + c.New.ID
	case slotsChanged:
		return strconv.Itoa(c.Old.Slots) + " to " + strconv.Itoa(c.New.Slots)
	}
	return ""
}
