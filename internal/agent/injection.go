package agent

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/generic-dp/generic-dp/cdi"
	"github.com/generic-dp/generic-dp/internal/device"
	"github.com/generic-dp/generic-dp/internal/ledger"
	"github.com/generic-dp/generic-dp/internal/output/links"
)

// linksName is the directory of links in the run directory.
const linksName = "links"

// injector keeps links and CDI specs, by which containers find their devices, in line
// with the host.
type injector struct {
	options  Options
	problems *problems

	links   *links.Tree
	specs   *cdi.Writer
	foreign *cdi.ForeignSpecs
	infos   deviceInfos
	names   atomic.Pointer[cdiNames] // nil before the first sync
	// health is healthDirs.want; nil without health directories.
	health func(ids []string) string

	// injected are the targets of links and CDI entries, for retention after a change of
	// the configuration or a restart.
	injected ledger.Injected
	retains  bool // some are retained
	taken    bool // a kind to write is in a foreign spec
}

func newInjector(o Options, p *problems, health func(ids []string) string, wake signal) *injector {
	foreign := o.Paths.ForeignSpecs()
	foreign.Late = wake.send
	return &injector{
		options: o, problems: p,
		links: &links.Tree{Dir: filepath.Join(o.Paths.RunDir, linksName)},
		specs: o.Paths.SpecWriter(), foreign: foreign,
		infos: deviceInfos{paths: o.Paths}, health: health,
	}
}

// cdiNames are the qualified names in the CDI specs, by resource and device, and why
// some may be missing.
type cdiNames struct {
	names []string
	err   error
}

// sync makes links and CDI specs for the present devices. Stale ones are removed
// before new ones are made; one that is not configured is kept while mayBeHeld says that
// a container may need it. failed is why devices can't be injected, by ID; err is
// what can't be written, which may end without an event.
func (i *injector) sync(v *View, out ledger.Output, mayBeHeld func(id string) bool) (failed map[string]error, err error) {
	r := newRetention(v, out, i.injected, mayBeHeld)
	keepLink, keepEntry := r.keepLink, r.keepEntry
	if i.options.CDIOnly { // an entry goes when its device does
		keepLink, keepEntry = nil, nil
	}
	failed, specsErr := i.syncSpecs(v, out, keepEntry)
	dropCDINames(out, failed)
	linksErr := i.syncLinks(out, keepLink, failed)
	infosErr := i.infos.sync(v, out)
	i.problems.warn("device-info", infosErr, "device information for Multus can't be written", "hint", i.options.hint("device-info-dir"))
	i.injected, i.retains = r.record(out), r.any
	return failed, errors.Join(specsErr, linksErr, infosErr)
}

// syncLinks does the links, and adds the devices without one to failed.
func (i *injector) syncLinks(out ledger.Output, keep func(links.Link) bool, failed map[string]error) error {
	var want []links.Link
	for _, res := range out.Resources {
		for _, e := range res.Devices {
			if e.Present {
				want = append(want, links.For(e.Offer)...)
			}
		}
	}
	err := i.links.Sync(want, keep)
	if err == nil {
		return nil
	}
	i.problems.warn("links", err, "links are out of date")
	for _, link := range want {
		if target, err := os.Readlink(i.links.Path(link.ID, link.Key)); err != nil || target != link.Target {
			failed[link.ID] = errors.New("its link below --run-dir can't be made")
		}
	}
	return err
}

// successors maps the ID of an offer to the former IDs of its nodes that are no longer
// offered: an edit of identity, each or group_by may have changed them.
func (i *injector) successors(v *View) map[string][]string {
	if i.options.CDIOnly { // there are no holders
		return nil
	}
	offered := map[string]bool{}
	for _, m := range v.Matched.Resources {
		for _, o := range m.Offers {
			offered[o.ID] = true
		}
	}
	before := map[string][]string{} // by node
	for _, id := range slices.Sorted(maps.Keys(i.injected)) {
		if !offered[id] {
			for path, node := range i.injected[id] {
				before[node] = append(before[node], id)
				if now := nodeID(v, path); now != node && device.SameNode(now, node) {
					before[now] = append(before[now], id)
				}
			}
		}
	}
	if len(before) == 0 {
		return nil
	}
	found := map[string][]string{}
	for _, m := range v.Matched.Resources {
		for _, o := range m.Offers {
			for _, n := range o.Nodes {
				if ids := before[nodeID(v, n.HostPath)]; len(ids) > 0 && !n.Companion {
					found[o.ID] = append(found[o.ID], ids...)
				}
			}
		}
	}
	return found
}

// dropCDINames takes the CDI name from devices that also have links where there may be no
// entry: from the failed ones, whose failures it clears, or from all if failed is nil.
func dropCDINames(out ledger.Output, failed map[string]error) {
	for _, r := range out.Resources {
		for i := range r.Devices {
			if o := &r.Devices[i].Offer; o.AlsoCDI && (failed == nil || failed[o.ID] != nil) {
				o.AlsoCDI = false
				delete(failed, o.ID)
			}
		}
	}
}

// syncSpecs does the CDI specs.
func (i *injector) syncSpecs(v *View, out ledger.Output, keep func(kind, id string, hostPaths []string) bool) (failed map[string]error, err error) {
	failed, i.taken = map[string]error{}, false
	var specs []*cdi.Spec
	for _, r := range out.Resources {
		var offers []device.Offer
		for _, e := range r.Devices {
			if e.Present && (e.Offer.CDI || e.Offer.AlsoCDI) {
				offers = append(offers, e.Offer)
			}
		}
		if len(offers) == 0 {
			continue
		}
		name, _ := nameOf(r.Name)
		if err := i.checkKind(name, v.foreign()); err != nil {
			for _, o := range offers {
				failed[o.ID] = err
			}
			continue
		}
		resource := i.resource(name)
		spec, without := resource.Build(offers)
		if err := without[cdi.AllDevices]; i.options.CDIOnly && err != nil { // normal for sticks at one path
			i.options.Log.Debug("CDI spec has no entry for all devices together", "resource", name, "err", err)
			delete(without, cdi.AllDevices)
		}
		maps.Copy(failed, without)
		if spec != nil {
			specs = append(specs, spec)
		}
	}
	err = i.specs.Sync(specs, keep)
	i.problems.warn("specs", err, "CDI specs are out of date", "hint", i.options.hint("cdi-dir"))
	names := &cdiNames{err: err}
	for _, spec := range specs {
		for _, d := range spec.Devices {
			names.names = append(names.names, spec.Kind+"="+d.Name)
		}
		if err == nil {
			continue
		}
		for _, id := range i.specs.Missing(spec) {
			failed[id] = errors.New("its CDI spec below --cdi-dir can't be written")
		}
	}
	i.names.Store(names)
	return failed, err
}

// checkKind returns why a kind must not be written. While nothing is known of foreign
// specs, a kind that is written already is no new risk, and containers use it.
func (i *injector) checkKind(name string, foreign *cdi.Foreign) error {
	if file, taken := foreign.Kinds[name]; taken {
		i.taken = true
		return fmt.Errorf("CDI kind %q is taken by %s", name, file)
	}
	if foreign.Unread != nil && !present(filepath.Join(i.specs.Dir, i.specs.FileName(name))) {
		return fmt.Errorf("CDI kind %q may be taken: %w", name, foreign.Unread)
	}
	return nil
}

// resource injects the devices of the resource name.
func (i *injector) resource(name string) cdi.Resource {
	return cdi.Resource{Name: name, Link: i.links.Path, Host: hostCheck{i.options.Paths, i.foreign}, CDIOnly: i.options.CDIOnly, HealthDir: i.health}
}

// retention decides which links and CDI entries stay although they are not configured:
// a restarting container finds its device only by the injection of its admission. They
// stay while a container may hold the device and every target is still the injected
// node.
type retention struct {
	view *View
	// mayBeHeld has the listed devices; held asks about any. inPod has the CDI entries of devices whose
	// interfaces are in a container, where they can't be seen: the kind by ID.
	mayBeHeld map[string]bool
	held      func(id string) bool
	inPod     map[string]string
	injected  ledger.Injected // so far
	any       bool            // something stays
}

func newRetention(v *View, out ledger.Output, injected ledger.Injected, mayBeHeld func(id string) bool) *retention {
	r := &retention{view: v, mayBeHeld: map[string]bool{}, held: mayBeHeld, inPod: map[string]string{}, injected: injected}
	for _, res := range out.Resources {
		kind, _ := nameOf(res.Name)
		for _, e := range res.Devices {
			if id := e.Offer.ID; e.Offer.Moved || e.Unseen {
				r.inPod[id] = kind
			} else {
				r.mayBeHeld[id] = mayBeHeld(id)
			}
		}
	}
	return r
}

func (r *retention) keepLink(l links.Link) bool { return r.keep(l.ID, l.Target) }

func (r *retention) keepEntry(kind, id string, hostPaths []string) bool {
	return r.inPod[id] == kind || r.keep(id, hostPaths...)
}

func (r *retention) keep(id string, hostPaths ...string) bool {
	if !r.mayBeHeld[id] {
		return false
	}
	for _, path := range hostPaths {
		if !r.unchanged(id, path) {
			return false
		}
	}
	r.any = true
	return true
}

// record returns the new targets: of the listed devices, and earlier ones that are
// unchanged. Targets of a held device that is not listed are kept too: the lists may have no
// room for it, and its hardware must not be offered by another ID.
func (r *retention) record(out ledger.Output) ledger.Injected {
	next := ledger.Injected{}
	keep := func(id string) {
		for path := range r.injected[id] {
			if r.unchanged(id, path) {
				next.Add(id, path, nodeID(r.view, path))
			}
		}
	}
	for id := range r.injected {
		if r.held(id) {
			keep(id)
		}
	}
	for _, res := range out.Resources {
		for _, e := range res.Devices {
			id := e.Offer.ID
			keep(id)
			for _, n := range e.Offer.Nodes {
				if e.Present {
					next.Add(id, n.HostPath, nodeID(r.view, n.HostPath))
				}
			}
		}
	}
	return next
}

// unchanged reports whether the node at a path is the one that was injected for a
// device. A node without hardware is identified by its path.
func (r *retention) unchanged(id, path string) bool {
	n := r.view.node(path)
	switch {
	case n == nil || n.Hardware == nil:
		return n != nil
	case strings.HasPrefix(id, "usb:") && strings.Contains(id, ":port:") &&
		id != device.HardwareID(n.Hardware, device.PortForm) && id != device.NodeID(n, device.PortForm):
		return false // moved to another port, and listed with the ID of that port
	}
	return device.SameNode(nodeID(r.view, path), r.injected[id][path])
}

// nodeID returns the ID of the node at a path, for any kernel name; empty without
// hardware.
func nodeID(v *View, path string) string {
	n := v.node(path)
	if n == nil || n.Hardware == nil {
		return ""
	}
	return device.NodeID(n, v.Forms[n.Hardware])
}
