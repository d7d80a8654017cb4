package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"reflect"
	"sort"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/generic-dp/generic-dp/internal/agent"
	"github.com/generic-dp/generic-dp/internal/device"
	"github.com/generic-dp/generic-dp/internal/kubelet/podresources"
	"github.com/generic-dp/generic-dp/internal/status"
)

// change is one effect of an edit. A new device has no old resource, and one that is gone
// no new one.
type change struct {
	Change string          `json:"change"` // added, removed, moved, renamed, slots or contents
	Old    entry           `json:"old"`
	New    entry           `json:"new"`
	Held   []status.Holder `json:"held"` // by these containers, which can't restart with it
}

// entry is a device of a resource, as it is listed.
type entry struct {
	Resource string `json:"resource"`
	ID       string `json:"id"`
	Slots    int    `json:"slots"`
}

// changesReport is the output of diff.
type changesReport struct {
	Changes     []change `json:"changes"`
	HeldUnknown string   `json:"held_unknown"` // why holders are unknown; empty where they are known
}

func newDiff(f *flags) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "diff OLD NEW",
		Short: "show what another configuration would change on this host, and for which pods",
		Long: `diff compares what two configurations offer on this host, or on a recorded one:
devices that come, go or move to another resource, IDs that change, and what a
container would get. Containers that hold a device come from the instance at
--listen, or else from the kubelet: they keep it while they run.`,
		Args: wantArgs(2, 2, "want two configurations, OLD and NEW"),
	}
	cmd.Flags().AddFlagSet(f.pick("allow", "domains", "listen", "pod-resources"))
	return reports(cmd, func(cmd *cobra.Command, args []string) (reporter, error) {
		before, err := f.load(args[0])
		if err != nil {
			return nil, err
		}
		after, err := f.load(args[1])
		if err != nil {
			return nil, err
		}
		view, err := f.scan(cmd.Context(), before)
		if err != nil {
			return nil, err
		}
		held, err := f.holders(cmd.Context())
		report := changesReport{Changes: compare(view, view.With(after), held)}
		if err != nil {
			report.HeldUnknown = err.Error()
		}
		return report, nil
	}, "json", "yaml")
}

// name names a device of a resource.
type name struct{ resource, id string }

func (e entry) name() name { return name{e.Resource, e.ID} }

// holders are the containers that hold devices.
type holders map[name][]status.Holder

// offered is a device of a resource, and the path of its hardware, or else its ID.
type offered struct {
	entry
	hardware string
	offer    device.Offer
}

func offers(v *agent.View) (all []offered) {
	for _, m := range v.Matched.Resources {
		for _, o := range m.Offers {
			all = append(all, offered{entry{m.Name, o.ID, o.Slots}, cmp.Or(o.Hardware, o.ID), o})
		}
	}
	return all
}

// compare lists the changes between two views of one host, those that affect pods first.
func compare(before, after *agent.View, held holders) []change {
	list := []change{}
	add := func(what string, old, next entry) {
		c := change{Change: what, Old: old, New: next, Held: []status.Holder{}}
		for _, h := range held[old.name()] {
			if _, slot := device.SplitSlot(h.ID); what != "contents" && (what != "slots" || slot >= next.Slots) {
				c.Held = append(c.Held, h)
			}
		}
		list = append(list, c)
	}
	// A device with the same resource and ID in both has not moved: its nodes may differ.
	added, gone := map[name]offered{}, map[string][]offered{}
	for _, o := range offers(after) {
		added[o.name()] = o
	}
	for _, o := range offers(before) {
		next, kept := added[o.name()]
		delete(added, o.name())
		switch {
		case !kept:
			gone[o.hardware] = append(gone[o.hardware], o)
		case next.Slots != o.Slots:
			add("slots", o.entry, next.entry)
		case !reflect.DeepEqual(next.offer, o.offer):
			add("contents", o.entry, o.entry)
		}
	}
	for _, o := range offers(after) {
		if _, isNew := added[o.name()]; !isNew {
			continue
		}
		switch left := gone[o.hardware]; {
		case len(left) == 0:
			add("added", entry{}, o.entry)
			continue
		case left[0].Resource == o.Resource:
			add("renamed", left[0].entry, o.entry)
		default:
			add("moved", left[0].entry, o.entry)
		}
		gone[o.hardware] = gone[o.hardware][1:]
	}
	for _, list := range gone {
		for _, o := range list {
			add("removed", o.entry, entry{})
		}
	}
	sort.Slice(list, func(i, j int) bool {
		a, b := cmp.Or(list[i].Old, list[i].New), cmp.Or(list[j].Old, list[j].New)
		return cmp.Or(len(list[j].Held)-len(list[i].Held), cmp.Compare(a.Resource, b.Resource), device.CompareNatural(a.ID, b.ID)) < 0
	})
	return list
}

// holders asks a running instance, or else the kubelet. A recording is of another host: only
// what a flag names is asked.
func (f *flags) holders(ctx context.Context) (holders, error) {
	asked := func(flag string) bool { return f.unpacked == "" || f.all.Changed(flag) }
	all := holders{}
	err := errors.New("a recording has no pods")
	if asked("listen") {
		var s *statusReport
		if s, err = f.status(ctx); err == nil && s.HeldUnknown == "" {
			for _, r := range s.Resources {
				for _, d := range r.Devices {
					all[name{r.Name, d.ID}] = d.Held
				}
			}
			return all, nil
		}
	}
	if !asked("pod-resources") {
		return all, err
	}
	ctx, cancel := context.WithTimeout(ctx, statusLimit)
	defer cancel()
	held, _, err := podresources.New(f.paths.PodResources, nil).Holders(ctx, time.Time{})
	for resource, slots := range held {
		for slot, by := range slots {
			id, _ := device.SplitSlot(slot)
			for _, h := range by {
				n := name{resource, id}
				all[n] = append(all[n], status.Holder{ID: slot, Namespace: h.Namespace, Pod: h.Pod, Container: h.Container})
			}
		}
	}
	return all, err
}

func (r changesReport) table(w io.Writer, _ bool) error {
	if len(r.Changes) == 0 {
		_, err := fmt.Fprintln(w, "no change on this host")
		return err
	}
	tab := newTable(w, "CHANGE", "RESOURCE", "ID", "NEW", "HELD BY")
	for _, c := range r.Changes {
		becomes := ""
		switch c.Change {
		case "added":
			c.Old = c.New
		case "moved":
			becomes = c.New.Resource
			if c.New.ID != c.Old.ID {
				becomes += " " + c.New.ID
			}
		case "renamed":
			becomes = c.New.ID
		case "slots":
			becomes = strconv.Itoa(c.Old.Slots) + " to " + strconv.Itoa(c.New.Slots)
		}
		held := status.Device{ID: c.Old.ID, Held: c.Held}
		tab.row(c.Change, c.Old.Resource, c.Old.ID, becomes, strings.Join(held.Holders(), ","))
	}
	if err := tab.Flush(); err != nil || r.HeldUnknown == "" {
		return err
	}
	_, err := fmt.Fprintf(w, "Holders are unknown: %s\n", r.HeldUnknown)
	return err
}
