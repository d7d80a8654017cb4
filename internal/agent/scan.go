package agent

import (
	"context"
	"slices"
	"time"

	"github.com/generic-dp/generic-dp/internal/device"
	"github.com/generic-dp/generic-dp/internal/host/inventory"
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

// scan scans the host, with the network interfaces if the configuration uses any. A failed scan does not
// mean a host without devices: the last snapshot stays, and the scan is repeated.
func (l *loop) scan(ctx context.Context, s scope) {
	nets := matchers.UsesNets(l.config)
	l.host.watcher.LeaveOutNets(!nets)
	l.host.scanner.LeaveOutNets(!nets)
	// The batch is taken before the scan: a later event belongs to the next batch.
	batch := l.host.watcher.Take()
	batch.All = batch.All || s == whole
	began := time.Now()
	snap, err := l.host.scanner.Update(ctx, batch)
	l.page.metrics.CountScan(len(batch.Paths), time.Since(began), err)
	l.scanErr = err
	if err != nil {
		return
	}
	l.last = hostScan{
		snapshot: snap,
		attrs:    l.host.scanner.Attributes(),
		paths:    l.host.paths,
		hasNets:  nets,
	}
	l.host.latest.Store(l.last.attrs)
	l.watch()
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

// followSpecs follows the foreign CDI specs while the configuration refers to their devices.
func (l *loop) followSpecs() {
	uses := matchers.UsesCDIDevices(l.config)
	// The watcher asks specDirs again, in its own goroutine.
	if l.host.usesSpecs.Swap(uses) != uses {
		l.host.specs.Refresh()
	}
	if uses {
		l.life.watchSpecs.Do(func() {
			l.life.passing.Go(l.host.specs.Run)
		})
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
