package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/generic-dp/generic-dp/config"
	"github.com/generic-dp/generic-dp/internal/agent"
	"github.com/generic-dp/generic-dp/internal/agent/configuration"
	"github.com/generic-dp/generic-dp/internal/device"
	"github.com/generic-dp/generic-dp/internal/kubelet/podresources"
	"github.com/generic-dp/generic-dp/internal/status"
	"github.com/generic-dp/generic-dp/internal/tools/answer"
	"github.com/generic-dp/generic-dp/internal/tools/cli"
)

// served is the value of --against for the configuration that serve on this host serves.
const served = "served"

// compareWith returns what the configuration of a view would change, compared with the one at a
// path. Both are matched with the same scan, so that a device that appears in between is no change.
func (f *flags) compareWith(ctx context.Context, path string, after *agent.View) (*answer.Comparison, error) {
	load := f.load
	if path == served {
		load = f.served
	}
	before, err := load(path)
	if err != nil {
		return nil, fmt.Errorf("--against: %w", err)
	}
	// Unknown holders are no reason to hide the changes, so the report contains the error.
	held, err := f.holders(ctx)
	report := &answer.Comparison{
		Changes:   compare(after.With(before), after, held),
		Memory:    len(after.Matched.Resources) * device.ResourceMemory,
		MaxMemory: device.MaxOffered,
	}
	if err != nil {
		report.HeldUnknown = err.Error()
	}
	for _, m := range after.Matched.Resources {
		for i := range m.Offers {
			report.Memory += m.Offers[i].Memory()
		}
	}
	return report, nil
}

// served loads the configuration that serve serves: the one at --config, or the last good one if
// that is broken. If neither is usable, the error is about --config.
func (f *flags) served(string) (*config.Config, error) {
	cfg, err := f.load(f.config)
	good := configuration.LastGood(f.paths.StateDir)
	if err == nil || good == nil {
		return cfg, err
	}
	cfg, err = config.Parse(good...)
	if err != nil {
		return nil, err
	}
	return cfg, cfg.Check(f.allow)
}

// holders returns which containers hold devices, from a running instance or else from the
// kubelet. With a recording, only sources that a flag names are asked: others belong to this
// host. An error means that the holders are unknown, which check reports without failing.
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

// writeComparison writes a line for each change, and the details of all changes below. RESOURCE and
// ID are the names that pods use now.
func writeComparison(w io.Writer, r *answer.Comparison) error {
	if len(r.Changes) == 0 {
		_, err := fmt.Fprintln(w, "no change on this host")
		return err
	}
	tab := cli.NewTable("CHANGE", "RESOURCE", "ID", "NEW", "HELD BY")
	for _, c := range r.Changes {
		listed := c.Listed()
		// A status.Device formats holders in the same way as the command status.
		held := status.Device{ID: c.Old.ID, Held: c.Held}
		tab.Row(string(c.Change), listed.Resource, listed.ID, becomes(&c), strings.Join(held.Holders(), ","))
	}
	err := tab.Write(w)
	if err != nil {
		return err
	}
	for _, c := range r.Changes {
		if len(c.Details) == 0 {
			continue
		}
		listed := c.Listed()
		fmt.Fprintf(w, "\n%s\n", strings.TrimSpace(listed.Resource+" "+listed.ID))
		for _, line := range c.Details {
			fmt.Fprintf(w, "  %s\n", line)
		}
	}
	if r.HeldUnknown == "" {
		return nil
	}
	_, err = fmt.Fprintf(w, "\nHolders are unknown: %s\n", r.HeldUnknown)
	return err
}

// becomes describes the new device in the cell NEW, as far as it differs from the old one. The
// cell is empty for a device that is added or removed, and for a change that has only details.
func becomes(c *answer.Change) string {
	switch c.Change {
	case answer.Renamed:
		return c.New.ID
	case answer.Moved:
		if c.New.ID == c.Old.ID {
			return c.New.Resource
		}
		return c.New.Resource + " " + c.New.ID
	case answer.SlotsChanged:
		return strconv.Itoa(c.Old.Slots) + " to " + strconv.Itoa(c.New.Slots)
	}
	return ""
}
