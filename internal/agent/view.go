package agent

import (
	"context"
	"maps"
	"slices"
	"sort"
	"strings"
	"time"

	"github.com/generic-dp/generic-dp/cdi"
	"github.com/generic-dp/generic-dp/config"
	"github.com/generic-dp/generic-dp/internal/device"
	"github.com/generic-dp/generic-dp/internal/host/health"
	"github.com/generic-dp/generic-dp/internal/host/inventory"
	"github.com/generic-dp/generic-dp/internal/ledger"
	"github.com/generic-dp/generic-dp/matchers"
)

// View is what a configuration matches on a scanned host.
type View struct {
	// Snapshot is the scanned host. It is sorted, and is not changed any more.
	Snapshot *device.Snapshot
	// Forms says for each hardware whether its ID has its serial number or its port.
	Forms device.Forms
	// Matched has the offers of each resource, before the ledger decides what is listed.
	Matched matchers.Result
	// Decisions are the decisions behind Forms, for the next match.
	Decisions ledger.Decisions
	// Problems are failed reads: of every scan, and of what the configuration uses.
	Problems []device.Problem

	// unread is the hardware, or its attributes, that could not be read.
	unread  []device.UnreadHardware
	options matchers.Options
	// with implements With, nil if the view is not one of Scan.
	with func(*config.Config) *View
}

// With returns what another configuration matches on the host of a view of Scan. It does not scan
// again.
func (v *View) With(cfg *config.Config) *View { return v.with(cfg) }

// Explain explains the resources of a configuration on the host of the view, see
// matchers.Explain. If h or n is not nil, it explains what the resources do with that hardware or
// node.
func (v *View) Explain(cfg *config.Config, h *device.Hardware, n *device.Node) []matchers.Explanation {
	return matchers.Explain(cfg, v.Snapshot, v.Forms, v.options, h, n)
}

// Host returns the data of the host that is not part of the snapshot.
func (v *View) Host() matchers.Host { return v.options.Host }

// Variables lists the variables of hardware or a node, see matchers.Variables.
func (v *View) Variables(h *device.Hardware, n *device.Node) []matchers.Variable {
	return matchers.Variables(v.Snapshot, v.Forms, v.options, h, n)
}

// matchersHost provides host data for matching in addition to the snapshot.
type matchersHost struct {
	*inventory.Attributes
	*hostPaths
}

// view matches a scan, for every command. prev has the decisions of the last match. foreign is only
// called if the configuration uses CDI devices.
func view(cfg *config.Config, s hostScan, foreign func() *cdi.Foreign, prev ledger.Decisions, o Options) *View {
	forms, decisions := ledger.Identify(s.snapshot, prev)
	s.paths.searches.Next()
	options := matchers.Options{
		NodeName: o.NodeName,
		Allow:    o.Allow,
		CDI:      o.Paths.WritesCDI(),
		Host:     matchersHost{s.attrs, s.paths},
	}
	var problems []device.Problem
	if matchers.UsesCDIDevices(cfg) {
		found := foreign()
		options.CDIDevices = found.Devices
		options.CDIUnread = found.Unread
		for _, err := range found.Problems {
			problems = append(problems, device.Problem{Subject: "CDI specs", Reason: err.Error()})
		}
	}
	matched := matchers.Match(cfg, s.snapshot, forms, options)
	return &View{
		Snapshot:  s.snapshot,
		Forms:     forms,
		Matched:   matched,
		Decisions: decisions,
		// Matching reads attributes, so the problems with them are only complete now.
		Problems: slices.Concat(s.snapshot.Problems, problems, s.attrs.Problems()),
		unread:   append(s.attrs.UnreadHardware(), s.snapshot.UnreadHardware...),
		options:  options,
	}
}

// hardware returns the hardware with a sysfs path, nil if there is none.
func (v *View) hardware(path string) *device.Hardware {
	return atPath(v.Snapshot.Hardware, path, func(h *device.Hardware) string {
		return h.Path
	})
}

// node returns the node at a path of the host, nil if there is none.
func (v *View) node(path string) *device.Node {
	return atPath(v.Snapshot.Nodes, path, func(n *device.Node) string {
		return n.Path
	})
}

// atPath returns the element with a path, nil if there is none. A snapshot is sorted by path.
func atPath[T any](all []*T, path string, pathOf func(*T) string) *T {
	i, found := sort.Find(len(all), func(i int) int {
		return strings.Compare(path, pathOf(all[i]))
	})
	if !found {
		return nil
	}
	return all[i]
}

// checks are the health checks of all devices, by ID. Devices without a configured check are left
// out.
func (v *View) checks() map[string]device.Check {
	all := map[string]device.Check{}
	for _, m := range v.Matched.Resources {
		maps.Copy(all, m.Checks)
	}
	return all
}

// probeFor is how long a command waits for health checks.
const probeFor = 2 * time.Second

// Probe runs every health check once, for at most probeFor, and adds failures to their offers as
// problems.
func (v *View) Probe(ctx context.Context, paths Paths) {
	reasons := health.Once(ctx, paths.local, v.checks(), probeFor)
	for _, m := range v.Matched.Resources {
		for i := range m.Offers {
			o := &m.Offers[i]
			// A device that cannot be injected keeps that reason.
			if o.Problem == "" {
				o.Problem = reasons[o.ID]
			}
		}
	}
}

// Scan waits scanFor for unread devices, and scans every scanEvery.
const (
	scanFor   = 2 * time.Second
	scanEvery = 250 * time.Millisecond
)

// Scan scans the host once and matches it. It uses the identity decisions of a serving instance, so
// that both show the same IDs. If they are not readable, that is one of the problems, which devices and
// doctor show. It writes nothing, and needs no running instance. An error means that the host could not
// be scanned.
func Scan(ctx context.Context, cfg *config.Config, o Options) (*View, error) {
	scanner := inventory.New(o.Paths.Inventory())
	persisted, err := ledger.Load(o.Paths.StateDir)
	var unread []device.Problem
	if err != nil {
		// The state is only readable for root. Without it, IDs may have another form than in the
		// instance.
		unread = []device.Problem{{
			Subject: "--state-dir",
			Reason:  err.Error() + ": IDs may differ from the IDs of the instance",
		}}
	}
	boot := bootID()
	scanner.RestoreNets(persisted.Nets, boot != "" && boot == persisted.Boot)
	specs := o.Paths.ForeignSpecs()
	paths := newHostPaths(o.Paths, newSignal())
	for deadline := time.Now().Add(scanFor); ; {
		snap, err := scanner.Scan(ctx)
		if err != nil {
			return nil, err
		}
		with := func(cfg *config.Config) *View {
			scan := hostScan{
				snapshot: snap,
				attrs:    scanner.Attributes(),
				paths:    paths,
				hasNets:  true,
			}
			v := view(cfg, scan, specs.Read, persisted.Decisions, o)
			v.Problems = append(v.Problems, unread...)
			return v
		}
		v := with(cfg)
		v.with = with
		isComplete := len(v.unread) == 0
		isLate := !time.Now().Before(deadline)
		// After scanFor, the view has what could be read.
		if isComplete || isLate || !sleep(ctx, scanEvery) {
			return v, nil
		}
	}
}

// Record returns a function that does the reads of a configuration, which package recording records
// in addition to the scan. It matches for the sake of the reads, and drops the result. It returns the files
// that it has found, see recording.Options.
func Record(cfg *config.Config, o Options) func(*device.Snapshot, *inventory.Attributes) (files []string) {
	return func(snap *device.Snapshot, attrs *inventory.Attributes) []string {
		paths := newHostPaths(o.Paths, newSignal())
		paths.recorded = make(map[string]bool)
		scan := hostScan{
			snapshot: snap,
			attrs:    attrs,
			paths:    paths,
			hasNets:  true,
		}
		view(cfg, scan, o.Paths.ForeignSpecs().Read, ledger.Decisions{}, o)
		return paths.files()
	}
}
