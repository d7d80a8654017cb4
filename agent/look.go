package agent

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/generic-dp/generic-dp/cdi"
	"github.com/generic-dp/generic-dp/config"
	"github.com/generic-dp/generic-dp/device"
	"github.com/generic-dp/generic-dp/inventory"
	"github.com/generic-dp/generic-dp/ledger"
	"github.com/generic-dp/generic-dp/matchers"
)

// View is what a configuration finds on a host at one moment.
type View struct {
	Snapshot  *device.Snapshot
	Forms     device.Forms
	Matched   matchers.Result
	Decisions ledger.Decisions
	// Problems are what could not be read, that the configuration speaks of or
	// that every scan reads.
	Problems []device.Problem

	again bool // something did not answer in time: look again soon
}

// host is what of a host a View is made of.
type host struct {
	snapshot *device.Snapshot
	attrs    *inventory.Attributes // of the same moment
	specs    *cdi.HostSpecs
}

// view matches a snapshot: the one way in which every command does it.
func view(cfg *config.Config, h host, prev ledger.Decisions, o Options) *View {
	forms, decisions := ledger.Identify(h.snapshot, prev)
	options := matchers.Options{
		NodeName: o.NodeName, Allow: o.Allow,
		Exists: o.Paths.exists, Glob: o.Paths.glob,
		Attr: h.attrs.Attr, Driver: h.attrs.Driver, InUse: h.attrs.InUse, CharDriver: h.attrs.CharDriver,
	}
	problems := h.snapshot.Problems
	if matchers.UsesCDIDevices(cfg) {
		found, errs := h.specs.Devices()
		options.CDIDevices = found
		for _, err := range errs {
			problems = append(slices.Clip(problems), device.Problem{Subject: "CDI specs", Reason: err.Error()})
		}
	}
	matched := matchers.Match(cfg, h.snapshot, forms, options)
	return &View{
		Snapshot: h.snapshot, Forms: forms, Matched: matched, Decisions: decisions,
		Problems: append(slices.Clip(problems), h.attrs.Problems()...),
		again:    h.attrs.Again(),
	}
}

// hasHardware reports whether there is hardware at a path of sysfs.
func (v *View) hasHardware(path string) bool {
	_, found := slices.BinarySearchFunc(v.Snapshot.Hardware, path, func(h *device.Hardware, path string) int {
		return strings.Compare(h.Path, path)
	})
	return found
}

// lookAgain is how long Look waits for devices that are being set up, and again
// how often it looks.
const (
	lookAgain = 2 * time.Second
	again     = 250 * time.Millisecond
)

// Look reads the host once. The identity decisions of a serving instance are
// heeded where they can be read, so that both show the same IDs.
func Look(ctx context.Context, cfg *config.Config, o Options) (*View, error) {
	scanner := inventory.New(o.Paths.Inventory(o.Log))
	persisted, err := ledger.Load(o.Paths.StateDir)
	if err != nil {
		persisted = ledger.Persisted{}
	}
	specs := o.Paths.hostSpecs()
	for patience := time.Now().Add(lookAgain); ; {
		snap, err := scanner.Scan(ctx)
		if err != nil {
			return nil, err
		}
		v := view(cfg, host{snap, scanner.Attributes(), specs}, persisted.Decisions, o)
		if !snap.Again && !v.again || !time.Now().Before(patience) || !sleep(ctx, again) {
			return v, nil
		}
	}
}

// Record returns what to pass to package machine for a recording that has what
// a configuration reads of a host, besides what every scan does.
func Record(cfg *config.Config, o Options) func(*device.Snapshot, *inventory.Attributes) {
	return func(snap *device.Snapshot, attrs *inventory.Attributes) {
		view(cfg, host{snap, attrs, o.Paths.hostSpecs()}, ledger.Decisions{}, o)
	}
}
