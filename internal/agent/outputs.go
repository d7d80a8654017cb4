package agent

import (
	"errors"
	"maps"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/generic-dp/generic-dp/cdi"
	"github.com/generic-dp/generic-dp/internal/device"
	"github.com/generic-dp/generic-dp/internal/holds"
	"github.com/generic-dp/generic-dp/internal/host/health"
	"github.com/generic-dp/generic-dp/internal/ledger"
	"github.com/generic-dp/generic-dp/internal/output"
)

const (
	// linksName is the directory of links in the run directory.
	linksName = "links"
	// healthName is the directory of health directories in the run directory.
	healthName = "health"
)

// outputs keeps the files by which containers and other programs find devices in line with
// the listed devices.
type outputs struct {
	options  Options
	problems *problems

	// links are below the run directory. Their targets are the current nodes of the devices.
	links output.Links
	// specs writes our CDI specs and the files of claims, and foreign reads all other specs.
	specs   *cdi.Writer
	foreign *cdi.ForeignSpecs
	// infos are files for Multus.
	infos output.DeviceInfos
	// health are the directories that show containers the health of their devices.
	health *output.Health
	// names are the names in the CDI specs, nil before the first pass.
	names atomic.Pointer[cdiNames]

	// injected are the targets of links and CDI entries, for retention after a change of
	// the configuration or a restart.
	injected ledger.Injected
	// retains is set if links or entries are kept although they are not configured.
	retains bool
}

// cdiNames are the qualified names in the CDI specs, in the order of resources and devices. err
// says why names may be missing.
type cdiNames struct {
	names []string
	err   error
}

// healthHold is how long the health directory of a container shows a loss. It is longer than a probe
// with the kubelet's own periods takes to fail, which is 31 s.
const healthHold = 40 * time.Second

// newOutputs returns outputs that have written nothing. wake is sent a value when a slow read has ended.
func newOutputs(o Options, p *problems, wake signal) *outputs {
	paths := o.Paths
	out := &outputs{
		options:  o,
		problems: p,
		links:    output.Links{Dir: filepath.Join(paths.RunDir, linksName)},
		specs:    paths.SpecWriter(),
		foreign:  paths.ForeignSpecs(),
		infos:    paths.deviceInfos(),
		health: &output.Health{
			Dir:   filepath.Join(paths.RunDir, healthName),
			Local: paths.local,
			Now:   o.Now,
			Hold:  healthHold,
		},
	}
	// The next pass uses the late result.
	out.foreign.Late = wake.send
	return out
}

// update brings links, specs and device information in line with the present devices. Everything that is
// stale is removed, of every output, before anything is made. Whatever is not configured stays while a
// container may need it.
//
// failed says why devices cannot be injected, by ID. The error joins everything that could not be
// written, which no event announces to be possible again.
func (o *outputs) update(v *View, out ledger.Output, held *holds.View) (failed map[string]error, err error) {
	devices := devicesOf(v, out)
	kept := newRetention(v, out, o.injected, held)
	var wantedLinks []output.Link
	for _, d := range devices {
		if d.Present {
			wantedLinks = append(wantedLinks, output.LinksOf(*d.Offer)...)
		}
	}
	wantedSpecs, failed := o.wantedSpecs(out)
	// The plan of what could be read is carried out despite an error.
	specs, specsErr := o.specs.Plan(wantedSpecs, kept.keepEntry)
	links, linksErr := o.links.Plan(wantedLinks, kept.keepLink)
	infos, infosErr := o.infos.Plan(devices)
	// This follows the plans, which compare with the targets of the last pass.
	o.injected = kept.record(out)
	o.retains = kept.any

	specsErr = errors.Join(specsErr, specs.Remove())
	linksErr = errors.Join(linksErr, links.Remove())
	infosErr = errors.Join(infosErr, infos.Remove())

	specsErr = errors.Join(specsErr, specs.Make())
	linksErr = errors.Join(linksErr, links.Make())
	infosErr = errors.Join(infosErr, infos.Make())

	// Only after an error may an entry or a link be missing, so they are not read otherwise.
	if specsErr != nil {
		o.failMissingEntries(wantedSpecs, failed)
	}
	o.nameSpecs(wantedSpecs, specsErr)
	dropCDINames(out, failed)
	if linksErr != nil {
		o.failMissingLinks(wantedLinks, failed)
	}
	o.problems.warn("specs", specsErr, "CDI specs are out of date", "hint", hints["cdi-dir"])
	o.problems.warn("links", linksErr, "links are out of date")
	o.problems.warn("device-info", infosErr, "device information for Multus can't be written",
		"hint", hints["device-info-dir"],
	)
	return failed, errors.Join(specsErr, linksErr, infosErr)
}

// wantedSpecs are the CDI specs of the present devices. Devices without an entry are in failed, unless
// their links are enough.
func (o *outputs) wantedSpecs(out ledger.Output) (specs []*cdi.Spec, failed map[string]error) {
	failed = map[string]error{}
	for _, r := range out.Resources {
		var offers []device.Offer
		for _, e := range r.Devices {
			isInSpec := e.Offer.CDI || e.Offer.AlsoCDI
			if e.Present && isInSpec {
				// An absent device has no node that an entry could name.
				offers = append(offers, e.Offer)
			}
		}
		if len(offers) == 0 {
			continue
		}
		name, _ := device.SplitResourceKey(r.Name)
		resource := o.resource(name)
		spec, without := resource.Build(offers)
		if err := without[cdi.AllDevices]; err != nil && o.options.CDIOnly {
			// This is normal for devices with the same path in the container.
			o.options.Log.Debug("CDI spec has no entry for all devices together", "resource", name, "err", err)
			delete(without, cdi.AllDevices)
		}
		maps.Copy(failed, without)
		if spec != nil {
			specs = append(specs, spec)
		}
	}
	return specs, failed
}

// failMissingLinks fails the devices whose links do not exist or point elsewhere. An error about
// another link does not affect them.
func (o *outputs) failMissingLinks(wanted []output.Link, failed map[string]error) {
	for _, link := range wanted {
		if !o.links.IsRight(link) {
			failed[link.ID] = errors.New("its link below --run-dir can't be made")
		}
	}
}

// failMissingEntries fails the devices whose entries are not in the spec files.
func (o *outputs) failMissingEntries(wanted []*cdi.Spec, failed map[string]error) {
	for _, spec := range wanted {
		for _, id := range o.specs.Missing(spec) {
			failed[id] = errors.New("its CDI spec below --cdi-dir can't be written")
		}
	}
}

// nameSpecs publishes the qualified names in the specs, for Once. Once reads them in another
// goroutine.
func (o *outputs) nameSpecs(specs []*cdi.Spec, err error) {
	names := &cdiNames{err: err}
	for _, spec := range specs {
		for _, d := range spec.Devices {
			names.names = append(names.names, spec.Kind+"="+d.Name)
		}
	}
	o.names.Store(names)
}

// dropCDINames removes the CDI name from failed devices that also have links, and clears their
// failures: their links are enough for a container.
func dropCDINames(out ledger.Output, failed map[string]error) {
	for _, r := range out.Resources {
		for i := range r.Devices {
			o := &r.Devices[i].Offer
			if o.AlsoCDI && failed[o.ID] != nil {
				o.AlsoCDI = false
				delete(failed, o.ID)
			}
		}
	}
}

// resource returns the injection of the devices of a resource. Its functions are called in
// goroutines of Allocate.
func (o *outputs) resource(name string) cdi.Resource {
	r := cdi.Resource{
		Name:    name,
		Link:    o.links.Path,
		Host:    hostCheck{o.options.Paths, o.foreign},
		CDIOnly: o.options.CDIOnly,
	}
	if !o.health.Off {
		r.HealthDir = o.health.Path
	}
	return r
}

// devicesOf are the listed devices in the order of the resources. It must be called again after the
// health of an entry has changed, which it copies.
func devicesOf(v *View, out ledger.Output) []output.Device {
	var devices []output.Device
	for _, r := range out.Resources {
		name, byDRA := device.SplitResourceKey(r.Name)
		for i := range r.Devices {
			e := &r.Devices[i]
			devices = append(devices, output.Device{
				Resource: name,
				ByDRA:    byDRA,
				Offer:    &e.Offer,
				Hardware: v.hardware(e.Offer.Hardware),
				Present:  e.Present,
				Healthy:  e.Healthy,
				Works:    e.Healthy || e.Withheld,
				Pending:  e.Reason == health.ReasonPending,
			})
		}
	}
	return devices
}
