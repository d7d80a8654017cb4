package agent

import (
	"fmt"
	"os"

	"github.com/generic-dp/generic-dp/cdi"
	"github.com/generic-dp/generic-dp/device"
	"github.com/generic-dp/generic-dp/ledger"
	"github.com/generic-dp/generic-dp/links"
)

// handOver brings links and CDI specs in line with what is there now: what
// leads to a device that went is removed before anything else is made. It
// returns why devices can't be handed over, by ID.
func (l *loop) handOver(v *View, out ledger.Output) map[string]error {
	if !l.writer {
		return nil // the other instance does; Allocate looks before it answers
	}
	kept := l.retained(v, out)
	failed := map[string]error{}
	var want []links.Link
	for _, r := range out.Resources {
		for _, e := range r.Devices {
			if e.Present {
				want = append(want, links.For(e.Offer)...)
			}
		}
	}
	if len(kept) > 0 {
		want = append(want, l.keptLinks(kept)...)
	}
	l.syncSpecs(out, kept, failed)
	if err := l.links.Sync(want); err != nil {
		l.sayOnce("links", err.Error(), "links can't be kept current")
		for _, link := range want {
			if target, err := os.Readlink(l.links.Path(link.ID, link.Key)); err != nil || target != link.Target {
				failed[link.ID] = fmt.Errorf("its link below --run-dir can't be made")
			}
		}
	} else {
		l.sayOnce("links", "", "")
	}
	return failed
}

// syncSpecs does the CDI half.
func (l *loop) syncSpecs(out ledger.Output, kept map[string]string, failed map[string]error) {
	var specs []*cdi.Spec
	for _, r := range out.Resources {
		s := l.byName[r.Name]
		if s == nil || !s.config.Container.CDI {
			continue
		}
		var offers []device.Offer
		for _, e := range r.Devices {
			if e.Present {
				offers = append(offers, e.Offer)
			}
		}
		if reason := l.conflict(r.Name); reason != nil {
			for _, o := range offers {
				failed[o.ID] = reason
			}
			continue
		}
		spec, err := cdi.Build(r.Name, offers, l.options.Paths.missing)
		l.sayOnce("spec of "+r.Name, text(err), "CDI spec lacks a device")
		specs = append(specs, spec)
	}
	err := l.specs.Sync(specs, func(_, id string) bool { _, ok := kept[id]; return ok })
	l.sayOnce("specs", text(err), "CDI specs can't be kept current")
	if err == nil {
		return
	}
	for _, spec := range specs {
		if spec == nil {
			continue
		}
		for _, d := range spec.Devices {
			failed[d.Name] = fmt.Errorf("its CDI spec below --cdi-dir can't be written")
		}
	}
}

// conflict is why the CDI kind of a resource can't be used.
func (l *loop) conflict(kind string) error {
	found, err := cdi.Conflicts([]string{kind}, l.options.Paths.CDIDir, cdi.StaticDir)
	if err != nil || len(found) == 0 {
		return nil
	}
	return fmt.Errorf("CDI kind %q is taken by %s", found[0].Kind, found[0].File)
}

// retained finds the devices that are no longer configured but still listed,
// since a container may hold them: what leads to them stays while they are
// where they were, so that the container can restart. Their value says where
// that is.
func (l *loop) retained(v *View, out ledger.Output) map[string]string {
	gone := map[string]bool{}
	for _, r := range out.Resources {
		for _, e := range r.Devices {
			if !e.Present && e.Reason != ledger.ReasonGone {
				gone[e.Offer.ID] = true
			}
		}
	}
	if len(gone) == 0 {
		l.places = nil
		return nil
	}
	places := map[string]string{}
	for _, h := range v.Snapshot.Hardware {
		for n := range device.NodeKeys(h) {
			for _, id := range []string{device.HardwareID(h, v.Forms[h]), device.NodeID(n, v.Forms[h])} {
				if gone[id] {
					places[id] += n.Path + " "
				}
			}
		}
	}
	for id, place := range places {
		if was, seen := l.places[id]; seen && was != place {
			places[id] = moved
		}
	}
	l.places = places
	kept := map[string]string{}
	for id, place := range places {
		if place != moved {
			kept[id] = place
		}
	}
	return kept
}

// moved marks a device that is no longer where it was: nothing leads to it
// from then on.
const moved = "moved"

// keptLinks are the links there are of devices that are to be kept.
func (l *loop) keptLinks(kept map[string]string) []links.Link {
	have, err := l.links.List()
	if err != nil {
		return nil
	}
	var keep []links.Link
	for _, link := range have {
		if _, ok := kept[link.ID]; ok {
			keep = append(keep, link)
		}
	}
	return keep
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
