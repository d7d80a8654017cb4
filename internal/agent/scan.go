package agent

import (
	"context"
	"slices"
	"time"

	"github.com/generic-dp/generic-dp/internal/device"
	"github.com/generic-dp/generic-dp/internal/host/inventory"
	"github.com/generic-dp/generic-dp/internal/ledger"
	"github.com/generic-dp/generic-dp/internal/status"
	"github.com/generic-dp/generic-dp/matchers"
)

// netsResync is how often everything is scanned where network interfaces are used and
// no event announces them.
const netsResync = time.Minute

// hostScan is what a scan found.
type hostScan struct {
	snapshot *device.Snapshot // nil before the first scan
	// attrs reads further attributes of the devices in the snapshot when matching needs them.
	attrs *inventory.Attributes
	paths *hostPaths
	// hasNets is set if network interfaces were scanned.
	hasNets bool
}

// firstScan is the first scan of the host, and the state that an earlier instance saved.
type firstScan struct {
	boot    string // see bootID
	saved   ledger.Persisted
	loadErr error
	scanOutcome
}

// loadState reads the saved state, and gives the scanner what it needs of it. No scan may run.
func (h *hostWatch) loadState(dir string) firstScan {
	first := firstScan{boot: bootID()}
	first.saved, first.loadErr = ledger.Load(dir)
	isSameBoot := first.boot != "" && first.boot == first.saved.Boot
	h.scanner.RestoreNets(first.saved.Nets, isSameBoot)
	// A reboot may have given a sysfs path to another device.
	if isSameBoot {
		h.scanner.RestoreUSB(first.saved.USB)
	}
	return first
}

// scanFirst reads the saved state and then the host, once the watches are in place: a device that
// appears during the scan causes an event. It runs while the configuration is read.
func (h *hostWatch) scanFirst(ctx context.Context, stateDir string) {
	first := h.loadState(stateDir)
	select {
	case <-ctx.Done():
		return
	// The first batch says that the watches are in place.
	case <-h.watcher.Changes():
	}
	// Whether network interfaces are needed is not known before the configuration is read.
	first.scanOutcome = h.scan(ctx, false, byEvents)
	h.first <- first
}

// scanOutcome is a scan that succeeded or failed.
type scanOutcome struct {
	// host is the zero value after an error.
	host  hostScan
	batch inventory.Batch
	// took is the duration of the scan.
	took time.Duration
	err  error
}

// scan scans the host, with or without network interfaces. Only one goroutine at a time may call
// it: the first scan, then the loop.
func (h *hostWatch) scan(ctx context.Context, nets bool, reason status.ScanReason) scanOutcome {
	h.watcher.LeaveOutNets(!nets)
	h.scanner.LeaveOutNets(!nets)
	// The batch is taken before the scan: a later event belongs to the next batch.
	o := scanOutcome{batch: h.watcher.Take()}
	// Another reason concerns any device, whatever the kernel has announced.
	o.batch.All = o.batch.All || reason != byEvents
	began := time.Now()
	snap, err := h.scanner.Update(ctx, o.batch)
	o.took = time.Since(began)
	o.err = err
	if err == nil {
		o.host = hostScan{
			snapshot: snap,
			attrs:    h.scanner.Attributes(),
			paths:    h.paths,
			hasNets:  nets,
		}
	}
	return o
}

// adopt makes a scan the last one. A failed scan does not mean a host without
// devices: the last snapshot stays, and the scan is repeated.
func (l *loop) adopt(o scanOutcome, reason status.ScanReason) {
	l.page.metrics.CountScan(reasonOf(o.batch, reason), len(o.batch.Paths), o.took, o.err)
	l.last.err = o.err
	if o.err == nil {
		l.last.hostScan = o.host
		l.host.latest.Store(o.host.attrs)
		l.watch()
	}
}

// reasonOf returns the reason of a scan. If events caused the scan, it depends on the batch.
func reasonOf(b inventory.Batch, reason status.ScanReason) status.ScanReason {
	switch {
	case reason != byEvents:
		return reason
	case b.All:
		return status.ScanFull
	case len(b.Paths) > 0:
		return status.ScanUevent
	default:
		return status.ScanNames
	}
}

const (
	// maxCrossed is the maximum number of crossed directories of a condition, each of which takes a watch.
	maxCrossed = 1000
	// crossedFor is how long the search for them may take.
	crossedFor = 50 * time.Millisecond
)

// crossedDirs lists the directories outside of /dev that globs cross.
func (l *loop) crossedDirs() []string {
	var dirs []string
	for _, condition := range matchers.Crossed(l.config) {
		found, _ := l.host.paths.Glob(condition, time.Now().Add(crossedFor))
		dirs = append(dirs, found[:min(len(found), maxCrossed)]...)
	}
	return dirs
}

// watch follows the directories that the configuration refers to. It is called after each scan and
// for each new configuration, and does nothing before the first scan.
func (l *loop) watch() {
	snap := l.last.snapshot
	if snap == nil {
		return
	}
	dirs := matchers.Dirs(l.config, snap.Dirs)
	l.host.watcher.SetDirs(slices.Concat(dirs, l.crossedDirs()))
	resync := time.Duration(0)
	// No uevent arrives for interfaces in other network namespaces.
	if l.last.hasNets && inventory.ForeignNets(snap) {
		resync = netsResync
	}
	l.host.watcher.SetResync(resync)
}

// followSpecs follows the foreign CDI specs while they decide about a device: because the
// configuration refers to their devices, or because one of them has a kind that this program wants
// to write.
func (l *loop) followSpecs() {
	uses := matchers.UsesCDIDevices(l.config) || l.outputs.kindTaken
	// The watcher asks specDirs again, in its own goroutine.
	if l.host.usesSpecs.Swap(uses) != uses {
		l.host.specs.Refresh()
	}
	if uses {
		l.host.watchSpecs()
	}
}

// specDirs are the directories of CDI specs to watch, while the specs matter. Other programs also
// write specs in place, so files are watched and not only names.
func (a *Agent) specDirs() []string {
	if !a.host.usesSpecs.Load() {
		return nil
	}
	return a.options.Paths.specDirs()
}
