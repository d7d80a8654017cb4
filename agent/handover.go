package agent

import (
	"fmt"
	"maps"
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
	failed := map[string]error{}
	if l.options.CDIOnly {
		l.syncSpecs(out, retained{}, failed)
		l.sayOnce("links", text(l.links.Sync(nil)), "links of an earlier instance can't be removed")
		return failed
	}
	var want []links.Link
	for _, r := range out.Resources {
		for _, e := range r.Devices {
			if e.Present {
				want = append(want, links.For(e.Offer)...)
			}
		}
	}
	kept := l.retain(v, out, want)
	want = append(want, kept.links...)
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
func (l *loop) syncSpecs(out ledger.Output, kept retained, failed map[string]error) {
	var specs []*cdi.Spec
	var kinds map[string]string // of others
	l.unfit = 0
	for _, r := range out.Resources {
		var offers []device.Offer
		for _, e := range r.Devices {
			if e.Present && e.Offer.CDI {
				offers = append(offers, e.Offer)
			}
		}
		if len(offers) == 0 {
			continue
		}
		if kinds == nil {
			kinds = l.others.Kinds()
		}
		if file, taken := kinds[r.Name]; taken {
			for _, o := range offers {
				failed[o.ID] = fmt.Errorf("CDI kind %q is taken by %s", r.Name, file)
			}
			continue
		}
		specs = append(specs, l.spec(r.Name, offers, failed))
	}
	err := l.specs.Sync(specs, func(kind, id string) bool { return kept.entries[entry{kind, id}] })
	l.sayOnce("specs", text(err), "CDI specs can't be kept current")
	l.handed.Store(newHanded(specs, err))
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

// spec is the CDI spec of a resource.
func (l *loop) spec(name string, offers []device.Offer, failed map[string]error) *cdi.Spec {
	if !l.options.CDIOnly {
		spec, err := cdi.Build(name, offers, l.options.Paths.missing)
		l.sayInStep("spec of "+name, text(err), "CDI spec lacks a device")
		return spec
	}
	spec, left := cdi.BuildAlone(name, offers, l.options.Paths.missing)
	if err := left[cdi.AllDevices]; err != nil { // as it should be for sticks at one path
		l.log.Debug("CDI spec has no entry for all devices together", "resource", name, "reason", err)
	}
	delete(left, cdi.AllDevices)
	maps.Copy(failed, left)
	l.unfit += len(left)
	return spec
}

// handed is what is on offer by CDI names.
type handed struct {
	names []string // qualified, those of one resource by device
	err   error    // why not all of them may be there
}

func newHanded(specs []*cdi.Spec, err error) *handed {
	h := &handed{err: err}
	for _, spec := range specs {
		if spec == nil {
			continue
		}
		for _, d := range spec.Devices {
			h.names = append(h.names, spec.Kind+"="+d.Name)
		}
	}
	return h
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
