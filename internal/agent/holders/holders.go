// Package holders remembers which pods hold which slots, so that no slot is allocated while
// the pod that had it before still runs.
//
// The kubelet frees the devices of a pod that it forgets: it forgets a pod that is deleted
// with --force at once, and the pods of a checkpoint that is lost or replaced by an older one
// at its next start. PodResources leaves such pods out. Their containers may run for as long
// as their grace period, or until somebody ends them.
//
// The checkpoint of the kubelet says which pod holds a slot, and the cgroups of the host say
// whether the pod runs. An Allocate call does not name its pod. The pod of the call never runs
// yet: the kubelet allocates all devices of a pod before it starts the first container, and
// after its own restart it skips containers that run (devicesToAllocate,
// pkg/kubelet/cm/devicemanager/manager.go). Therefore a pod that runs and had the slot is
// another pod.
package holders

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/generic-dp/generic-dp/internal/host/cgroup"
	"github.com/generic-dp/generic-dp/internal/kubelet/checkpoint"
	"github.com/generic-dp/generic-dp/internal/sys/slow"
)

const (
	// refusedInterval is how often the pods of refused slots are checked: the end of a
	// process causes no event that this program sees.
	refusedInterval = time.Second
	// unlistedInterval is how often pods are checked that run, that the checkpoint no longer
	// has, and whose slots the kubelet has not freed as far as is known.
	unlistedInterval = 10 * time.Second
	// maxHolds and maxHoldsPerSlot limit the memory: the checkpoint may name any number of
	// pods.
	maxHolds        = 20_000
	maxHoldsPerSlot = 4
)

// Options are the options of a Tracker. The functions must be safe for concurrent use.
type Options struct {
	// Checkpoint is the path of the kubelet's checkpoint.
	Checkpoint string
	// Cgroups says whether a pod runs.
	Cgroups *cgroup.Tree
	// IsOurs reports whether the kubelet gets a resource from this program.
	IsOurs func(resource string) bool
	// Held returns the slots that are held according to the kubelet, with "namespace/name"
	// of the pod. The answer is not complete if the kubelet may lack pods.
	Held func(ctx context.Context) (pods map[string]string, complete bool, err error)
	// Pods returns "namespace/name" of all pods that the kubelet has.
	Pods func(ctx context.Context) (map[string]bool, error)
	// Generation counts the starts of the kubelet.
	Generation func() uint64
	// Changed is called when Unhealthy returns something else, with a lock held: it must
	// not call the Tracker.
	Changed func()
	// CgroupHint says what to change if no cgroup is visible.
	CgroupHint string
	Log        *slog.Logger
}

// Tracker follows which pods hold the slots of this program. All methods except Run are safe
// for concurrent use, and do nothing on a nil Tracker, which serves hosts without a kubelet.
type Tracker struct {
	options Options
	// requests asks Run for another look. It has capacity 1.
	requests chan struct{}
	// reads are the reads of the checkpoint, of which one runs at a time.
	reads slow.Calls[string, bool]

	mu sync.Mutex
	// hasTriedRead is set once a read of the checkpoint has begun.
	hasTriedRead bool
	// resourceSets counts the calls of ReadAgain, so that a read that began before a call
	// is repeated.
	resourceSets int
	// version is the version of the checkpoint that was read last, the zero Version if none
	// was, or if the same version has to be read again.
	version checkpoint.Version
	// holds are the holds of each slot.
	holds map[string][]hold
	// granted are the slots of Allocate calls that the checkpoint has not shown yet.
	granted map[string]bool
	// refused has the UID of the pod that still runs, by slot.
	refused map[string]string
	logged  logged

	// unhealthy has the reason for each refused slot. The map is never changed, only
	// replaced.
	unhealthy atomic.Pointer[map[string]string]
}

// hold is a pod that holds a slot, or was the last one to hold it.
type hold struct {
	podUID   string
	resource string
	// isListed is set if the checkpoint has the hold that was read last.
	isListed bool
	// staticName is "namespace/name" of a static pod, empty if it is not known.
	staticName string
	// generation is the start of the kubelet whose checkpoint had the hold last, 0 if it is
	// not known.
	generation uint64
}

// logged is what the log already says. Each problem is logged once, until it has ended.
type logged struct {
	noCgroups bool
	tooMany   bool
	// readError is the error of the last read, empty if it succeeded.
	readError string
}

// New returns a Tracker that knows no holds. Restore adds the ones of an earlier instance.
func New(o Options) *Tracker {
	return &Tracker{
		options:  o,
		requests: make(chan struct{}, 1),
		holds:    map[string][]hold{},
		granted:  map[string]bool{},
		refused:  map[string]string{},
	}
}

// Run reads the checkpoint whenever it has changed, until ctx is cancelled, which is not an
// error. A value in changed says that the checkpoint was replaced.
func (t *Tracker) Run(ctx context.Context, changed <-chan struct{}) error {
	var reader sync.WaitGroup
	defer reader.Wait()
	reader.Go(func() { t.readChanges(ctx, changed) })
	timer := time.NewTimer(unlistedInterval)
	defer timer.Stop()
	// By then a kubelet that runs has made its cgroups: missing ones deserve a warning.
	cgroupsExpected := time.After(unlistedInterval)
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-t.requests:
		case <-timer.C:
		case <-cgroupsExpected:
			t.warnNoCgroups()
			continue
		}
		t.read(ctx)
		t.nameStaticPods(ctx)
		next := t.review(ctx)
		timer.Stop()
		if next > 0 {
			timer.Reset(next)
		}
	}
}

// readChanges reads each new checkpoint at once and asks Run for a look. It does not query the
// kubelet, which may not answer for seconds: a pod that the checkpoint names only in that time
// would stay unknown.
func (t *Tracker) readChanges(ctx context.Context, changed <-chan struct{}) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-changed:
		}
		t.read(ctx)
		t.request()
	}
}

// read reads the checkpoint unless it is the version that was read last.
func (t *Tracker) read(ctx context.Context) {
	for range maxReads {
		_, _, answered := t.reads.Do(ctx, t.options.Checkpoint, time.Minute, t.readIfChanged)
		// The read may have begun before the last change.
		if !answered || t.isCurrent() {
			return
		}
	}
}

// request asks Run for another look.
func (t *Tracker) request() {
	select {
	case t.requests <- struct{}{}:
	default: // a request is pending
	}
}

// holdsOf returns a copy of the holds of a slot.
func (t *Tracker) holdsOf(slot string) []hold {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Clone(t.holds[slot])
}

// hasListed reports whether the last checkpoint has one of these holds.
func hasListed(holds []hold) bool {
	return slices.ContainsFunc(holds, func(h hold) bool { return h.isListed })
}

// indexOfPod returns the index of the hold of a pod, or -1.
func indexOfPod(holds []hold, podUID string) int {
	return slices.IndexFunc(holds, func(h hold) bool { return h.podUID == podUID })
}

// sleep waits for d and reports whether ctx is still active.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}
