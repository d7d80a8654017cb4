package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/generic-dp/generic-dp/config"
	"github.com/generic-dp/generic-dp/internal/agent"
	"github.com/generic-dp/generic-dp/internal/agent/configuration"
	"github.com/generic-dp/generic-dp/internal/status"
	"github.com/generic-dp/generic-dp/internal/tools/answer"
	"github.com/generic-dp/generic-dp/internal/tools/cli"
)

// served is the value of --against for the configuration that serve on this host serves.
const served = "served"

// compareWith returns what the configuration of a view would change, compared with the one at a
// path. Both are matched with the same scan, so that a device that appears in between is no change.
func (f *flags) compareWith(ctx context.Context, path string, after *agent.View) (*answer.Comparison, error) {
	var before *config.Config
	var err error
	if path == served {
		before, err = f.served()
	} else {
		before, err = f.load(path)
	}
	if err != nil {
		return nil, fmt.Errorf("--against: %w", err)
	}
	// Unknown holders are no reason to hide the changes, so the report contains the error.
	held, err := f.holders(ctx)
	report := &answer.Comparison{Changes: compare(after.With(before), after, held)}
	if err != nil {
		report.HeldUnknown = err.Error()
	}
	return report, nil
}

// served loads the configuration that serve serves: the one at --config, or the last good one if
// that is broken. If neither is usable, the error is about --config.
func (f *flags) served() (*config.Config, error) {
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

// holders returns which containers hold devices, from a running instance. With a recording, it is
// only asked if a flag names it: the instance of this host has other devices. An error means that the
// holders are unknown, which check reports without failing.
func (f *flags) holders(ctx context.Context) (holders, error) {
	if f.unpacked != "" && !f.all.Changed("listen") {
		return nil, errors.New("a recording has no pods")
	}
	s, err := f.status(ctx)
	if err != nil {
		return nil, err
	}
	if s.HeldUnknown != "" {
		return nil, errors.New(s.HeldUnknown)
	}
	return holdersOf(s.Resources), nil
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

// writeComparison writes a row for each change, with the device and the details below it. RESOURCE and
// ID are the names that pods use now.
func writeComparison(w io.Writer, r *answer.Comparison) error {
	if len(r.Changes) == 0 {
		_, err := fmt.Fprintln(w, "no change on this host")
		return err
	}
	tab := cli.NewTable(true, "CHANGE", "RESOURCE", "HELD BY")
	for _, c := range r.Changes {
		listed := c.Listed()
		// A status.Device formats holders in the same way as the command status.
		held := status.Device{ID: c.Old.ID, Held: c.Held}
		cells := []string{string(c.Change), listed.Resource, strings.Join(held.Holders(), ",")}
		tab.Add(cells, append([]string{listed.ID + c.Becomes()}, c.Details...)...)
	}
	err := tab.Write(w)
	if err == nil && r.HeldUnknown != "" {
		_, err = fmt.Fprintf(w, "\nHolders are unknown: %s\n", r.HeldUnknown)
	}
	return err
}
