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
	"github.com/generic-dp/generic-dp/device"
	"github.com/generic-dp/generic-dp/health"
	"github.com/generic-dp/generic-dp/inventory"
	"github.com/generic-dp/generic-dp/ledger"
	"github.com/generic-dp/generic-dp/matchers"
	"github.com/generic-dp/generic-dp/metrics"
)

// netsResync is how often everything is scanned where network interfaces are used and
// no event announces them.
const netsResync = time.Minute

// View is what a configuration matches on a scanned host.
type View struct {
	Snapshot  *device.Snapshot
	Forms     device.Forms
	Matched   matchers.Result
	Decisions ledger.Decisions
	// Problems are failed reads: of every scan, and of what the configuration uses.
	Problems []device.Problem

	unread []device.Unread

	options matchers.Options
	with    func(*config.Config) *View // see With
}

// With returns what another configuration matches on the host of a view of Scan.
func (v *View) With(cfg *config.Config) *View { return v.with(cfg) }

// Explain explains the resources of a configuration on the host of the view, see
// matchers.Explain.
func (v *View) Explain(cfg *config.Config, h *device.Hardware, n *device.Node) []matchers.Explanation {
	return matchers.Explain(cfg, v.Snapshot, v.Forms, v.options, h, n)
}

// Variables lists the variables of hardware or a node, see matchers.Variables.
func (v *View) Variables(h *device.Hardware, n *device.Node) []matchers.Variable {
	return matchers.Variables(v.Snapshot, v.Forms, v.options, h, n)
}

// scanned is a scan of a host.
type scanned struct {
	snapshot *device.Snapshot // nil before the first scan
	attrs    *inventory.Attributes
	nets     bool // network interfaces were scanned, too
}

// matchersHost provides host data for matching in addition to the snapshot.
type matchersHost struct {
	*inventory.Attributes
	Paths
}

// view matches a scan, for every command.
func view(cfg *config.Config, s scanned, specs *cdi.HostSpecs, prev ledger.Decisions, o Options) *View {
	forms, decisions := ledger.Identify(s.snapshot, prev)
	options := matchers.Options{
		NodeName: o.NodeName, Allow: o.Allow, CDI: o.Paths.WritesCDI(),
		Host: matchersHost{s.attrs, o.Paths},
	}
	problems := s.snapshot.Problems
	if matchers.UsesCDIDevices(cfg) {
		found, errs := specs.Devices()
		options.CDIDevices = found
		for _, err := range errs {
			problems = append(slices.Clip(problems), device.Problem{Subject: "CDI specs", Reason: err.Error()})
		}
	}
	matched := matchers.Match(cfg, s.snapshot, forms, options)
	return &View{
		Snapshot: s.snapshot, Forms: forms, Matched: matched, Decisions: decisions,
		Problems: append(slices.Clip(problems), s.attrs.Problems()...),
		unread:   append(s.attrs.Unread(), s.snapshot.Unread...),
		options:  options,
	}
}

// hasHardware reports whether there is hardware at a path of sysfs.
func (v *View) hasHardware(path string) bool {
	return slices.Contains(v.unread, device.Unread{Path: path}) || v.hardware(path) != nil
}

// hardware returns the hardware with a sysfs path, nil for none.
func (v *View) hardware(path string) *device.Hardware {
	all := v.Snapshot.Hardware
	if i, found := sort.Find(len(all), func(i int) int { return strings.Compare(path, all[i].Path) }); found {
		return all[i]
	}
	return nil
}

// node returns the node at a path of the host; nil is none.
func (v *View) node(path string) *device.Node {
	all := v.Snapshot.Nodes
	if i, found := sort.Find(len(all), func(i int) int { return strings.Compare(path, all[i].Path) }); found {
		return all[i]
	}
	return nil
}

// checks are the health checks of all devices, by ID.
func (v *View) checks() map[string]health.Check {
	all := map[string]health.Check{}
	for _, m := range v.Matched.Resources {
		maps.Copy(all, m.Checks)
	}
	return all
}

// probeFor is how long a command waits for health checks.
const probeFor = 2 * time.Second

// Probe runs every health check once, for probeFor at most, and makes failures problems
// of their offers.
func (v *View) Probe(ctx context.Context, paths Paths) {
	reasons := health.Once(ctx, paths.local, v.checks(), probeFor)
	for _, m := range v.Matched.Resources {
		for i := range m.Offers {
			if o := &m.Offers[i]; o.Problem == "" {
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

// Scan scans the host once and matches it, with the identity decisions of a serving
// instance if readable, so that both show the same IDs.
func Scan(ctx context.Context, cfg *config.Config, o Options) (*View, error) {
	scanner := inventory.New(o.Paths.Inventory())
	persisted, err := ledger.Load(o.Paths.StateDir)
	if err != nil {
		persisted = ledger.Persisted{}
	}
	specs := o.Paths.HostSpecs()
	for deadline := time.Now().Add(scanFor); ; {
		snap, err := scanner.Scan(ctx)
		if err != nil {
			return nil, err
		}
		with := func(cfg *config.Config) *View {
			return view(cfg, scanned{snap, scanner.Attributes(), true}, specs, persisted.Decisions, o)
		}
		v := with(cfg)
		v.with = with
		if len(v.unread) == 0 || !time.Now().Before(deadline) || !sleep(ctx, scanEvery) {
			return v, nil
		}
	}
}

// Record returns the reads of a configuration, for package machine to record in
// addition to the scan.
func Record(cfg *config.Config, o Options) func(*device.Snapshot, *inventory.Attributes) {
	return func(snap *device.Snapshot, attrs *inventory.Attributes) {
		view(cfg, scanned{snap, attrs, true}, o.Paths.HostSpecs(), ledger.Decisions{}, o)
	}
}

// firstScan is the first scan of the host, and the state that an earlier instance saved.
type firstScan struct {
	saved   ledger.Persisted
	loadErr error
	outcome
}

// scanFirst reads the saved state and then, once the watches are in place, the host. It
// runs while the configuration is read.
func (a *Agent) scanFirst(ctx context.Context) {
	first := firstScan{}
	first.saved, first.loadErr = ledger.Load(a.options.Paths.StateDir)
	if boot := bootID(); boot != "" && boot == first.saved.Boot {
		a.scanner.RestoreUSB(first.saved.USB)
	}
	select {
	case <-ctx.Done():
		return
	case <-a.watcher.Changes():
	}
	first.outcome = a.scanHost(ctx, false)
	a.first <- first
}

// outcome is that of one scan.
type outcome struct {
	host  scanned
	batch inventory.Batch
	took  time.Duration
	err   error
}

// scanHost scans what has changed, with or without network interfaces.
func (a *Agent) scanHost(ctx context.Context, nets bool) outcome {
	o := outcome{batch: a.watcher.Take()}
	a.scanner.LeaveOutNets(!nets)
	began := time.Now()
	snap, err := a.scanner.Update(ctx, o.batch)
	o.host, o.took, o.err = scanned{snap, a.scanner.Attributes(), nets}, time.Since(began), err
	return o
}

// scanned makes a scan the last one. A failed scan does not mean a host without
// devices: the last snapshot stays, and the scan is repeated.
func (l *loop) scanned(o outcome, reason metrics.ScanReason) {
	l.metrics.CountScan(reasonOf(o.batch, reason), len(o.batch.Paths), o.took, o.err)
	if l.scanErr = o.err; o.err == nil {
		l.host = o.host
		l.watch()
	}
}

// reasonOf returns the reason of a scan, which the batch determines if events did.
func reasonOf(b inventory.Batch, reason metrics.ScanReason) metrics.ScanReason {
	switch {
	case reason != byEvents:
		return reason
	case b.All:
		return metrics.ScanFull
	case len(b.Paths) > 0:
		return metrics.ScanUevent
	default:
		return metrics.ScanNames
	}
}

// watched are the directories to watch for a configuration on a host, which take
// milliseconds to compute from many patterns.
type watched struct {
	config *config.Config
	below  []string // the directories below /dev
	dirs   []string
}

// watch follows the directories that the configuration refers to.
func (l *loop) watch() {
	snap := l.host.snapshot
	if snap == nil {
		return
	}
	if w := l.watched; w.config != l.config || !slices.Equal(w.below, snap.Dirs) {
		l.watched = watched{l.config, snap.Dirs, matchers.Dirs(l.config, snap.Dirs)}
	}
	// Even if unchanged: a path may lead to another directory by now.
	l.watcher.SetDirs(l.watched.dirs)
	resync := time.Duration(0)
	if l.host.nets && inventory.ForeignNets(snap) {
		resync = netsResync
	}
	l.watcher.SetResync(resync)
}

// followSpecs follows the CDI specs of others while they decide about a device: one
// that the configuration refers to, or one whose kind they have taken.
func (l *loop) followSpecs() {
	uses := matchers.UsesCDIDevices(l.config) || l.injector.taken
	if l.usesSpecs.Swap(uses) != uses {
		l.specFiles.Refresh()
	}
	if uses {
		l.watchSpecs()
	}
}

// specDirs are the directories of CDI specs to watch: specs are written in place too,
// which the watch of /dev does not cover.
func (a *Agent) specDirs() []string {
	if !a.usesSpecs.Load() {
		return nil
	}
	return a.options.Paths.specDirs()
}
