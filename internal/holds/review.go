package holds

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/generic-dp/generic-dp/internal/host/cgroup"
	"github.com/generic-dp/generic-dp/internal/order"
)

const (
	// checkRunning is how often the pods are checked that run although the kubelet has forgotten
	// them: the end of a process causes no event with version 1 of cgroups.
	checkRunning = time.Second
	// forgottenAfter is how long a pod may run after the checkpoint has lost it: the kubelet frees the slot of
	// a static pod when its manifest is removed, and its processes may be about to end. Grant waits for them.
	forgottenAfter = time.Second
	// readRest is the time between two reads of the checkpoint that nobody waits for. A grant covers what the
	// checkpoint says in between, see grantTime.
	readRest = 20 * time.Millisecond
	// firstRefresh and lastRefresh bound the time between two refreshes while something waits for a
	// hold that only the checkpoint knows. The time doubles: a kubelet that has just started does not
	// forget pods before it has the list of the API server.
	firstRefresh = 200 * time.Millisecond
	lastRefresh  = time.Minute
	// refreshWithin limits the query of a refresh.
	refreshWithin = 5 * time.Second
	// cgroupsExpected is when a kubelet that runs has made its cgroups: missing ones deserve a
	// warning at the next look after that. No timer wakes an idle process for it.
	cgroupsExpected = 10 * time.Second
)

// Run follows the kubelet's checkpoint and the pods' cgroups until ctx is cancelled, which is not an
// error. A value in replaced says that the checkpoint was replaced.
func (b *Book) Run(ctx context.Context, replaced <-chan struct{}) error {
	var others sync.WaitGroup
	defer others.Wait()
	// The watch begins when the end of a pod first matters.
	watchCgroups := sync.OnceFunc(func() {
		others.Go(func() {
			_ = b.podCgroups.Run(ctx) // always nil
		})
	})
	// A query of the kubelet may take seconds, and a pod that the checkpoint names only in that time
	// would stay unknown. So the reads have a goroutine of their own.
	others.Go(func() {
		b.followCheckpoint(ctx, replaced)
	})
	began := time.Now()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-b.requests:
		case <-b.podCgroups.Changes():
			b.followCgroups()
		case <-timer.C:
		}
		if time.Since(began) >= cgroupsExpected {
			b.warnNoCgroups()
		}
		next := b.look(ctx)
		if len(b.watchedCgroups()) > 0 {
			watchCgroups()
		}
		b.podCgroups.Refresh()
		timer.Stop()
		if !next.IsZero() {
			timer.Reset(next.Sub(b.Now()))
		}
	}
}

// followCgroups follows a change of the pods' cgroups: a pod may have ended, or joined a claim.
func (b *Book) followCgroups() {
	b.refreshes.soon(b.Now())
	b.mu.Lock()
	followsPods := b.followsPods
	b.mu.Unlock()
	if followsPods {
		b.NewPods()
	}
}

// look reviews all holds, has the kubelet bring its checkpoint up to date if that is due, and writes the
// journal. It returns when to look again, the zero time if there is no need.
func (b *Book) look(ctx context.Context) time.Time {
	mustRefresh, next := b.review(ctx)
	if mustRefresh {
		due := b.refreshes.due(b.Now())
		if !b.Now().Before(due) {
			b.refresh(ctx)
			due = b.refreshes.done(b.Now())
		}
		next = order.Earliest(next, due)
	} else {
		b.refreshes = refreshes{}
	}
	b.Save()
	return next
}

// refreshes is when to refresh while something waits for a hold that only the checkpoint knows. Only Run
// uses it.
type refreshes struct {
	at    time.Time
	pause time.Duration
}

// due is when the next refresh is due.
func (r *refreshes) due(now time.Time) time.Time {
	if r.at.IsZero() {
		r.pause = firstRefresh
		r.at = now.Add(r.pause)
	}
	return r.at
}

// soon makes the next refresh due soon: a pod may have ended.
func (r *refreshes) soon(now time.Time) {
	r.pause = firstRefresh
	if soon := now.Add(r.pause); soon.Before(r.at) {
		r.at = soon
	}
}

// done follows a refresh, and returns when the next one is due.
func (r *refreshes) done(now time.Time) time.Time {
	r.at = now.Add(r.pause)
	r.pause = min(2*r.pause, lastRefresh)
	return r.at
}

// followCheckpoint reads a new checkpoint at once and asks Run for a look. It rests after each read, because
// the kubelet writes the file with each list: a hundred times while as many resources register.
func (b *Book) followCheckpoint(ctx context.Context, replaced <-chan struct{}) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-replaced:
		}
		b.follow(ctx)
		b.request()
		select {
		case <-ctx.Done():
		case <-time.After(readRest):
		}
	}
}

// follow reads the checkpoint, and records at once which pods it names: it may lose them again.
func (b *Book) follow(ctx context.Context) {
	b.catchUp(ctx, time.Minute)
	b.Save()
}

// review drops the holds of pods that have ended, and refuses the slots of pods that run although the
// kubelet has forgotten them. If somebody else has replaced the checkpoint while the kubelet runs, that ends
// at once: the list with such a slot makes the kubelet write its own again. mustRefresh is set if something
// waits for a hold that only the kubelet can end. next is when to review again, the zero time if there is no
// need. Before the checkpoint is read after Load, nobody knows which pods it names: the read asks for another
// look.
func (b *Book) review(ctx context.Context) (mustRefresh bool, next time.Time) {
	b.nameStaticPods(ctx)
	states := b.podStates()
	b.mu.Lock()
	if !b.reading.hasRead {
		b.mu.Unlock()
		return false, next
	}
	// Only the kubelet can replace a checkpoint that somebody else has written.
	mustRefresh = b.reading.unread != ""
	hasChanged := b.dropEnded(states)
	for _, pods := range b.pods {
		isNamed := slices.ContainsFunc(pods, func(p podHold) bool { return p.isNamed })
		for i := range pods {
			p := &pods[i]
			state, isChecked := states[p.Pod]
			isForgotten := !isNamed && !b.Now().Before(p.lostAt.Add(forgottenAfter))
			isRefused := state == cgroup.Running && (p.isRefused || isForgotten)
			if isChecked && isRefused != p.isRefused {
				p.isRefused = isRefused
				hasChanged = true
			}
			hasCgroup := podEvidence{state: state}.holds()
			mustRefresh = mustRefresh || b.isAwaited && p.isNamed && !hasCgroup
			mayBeForgotten := !isNamed && state == cgroup.Running
			if p.isRefused || mayBeForgotten || b.isAwaited && !p.isNamed {
				next = b.Now().Add(checkRunning)
			}
		}
	}
	// A claim may have ended without a word of the kubelet, see Options.Listed.
	mustRefresh = mustRefresh || b.isAwaited && len(b.claims) > 0
	hasExpired := b.expireGrants()
	for _, g := range b.grants {
		if b.isAwaited {
			next = order.Earliest(next, g.at.Add(grantTime))
		}
	}
	b.mu.Unlock()
	if hasChanged || hasExpired {
		b.Changed()
	}
	return mustRefresh, next
}

// podStates reads the cgroups of the pods that matter now: all if something waits, and otherwise those
// that the kubelet has lost. It reads files without the lock.
func (b *Book) podStates() map[string]cgroup.PodState {
	b.mu.Lock()
	states := map[string]cgroup.PodState{}
	for _, pods := range b.pods {
		for _, p := range pods {
			if b.isAwaited || p.isLost() {
				states[p.Pod] = cgroup.Unknown
			}
		}
	}
	b.mu.Unlock()
	for pod := range states {
		states[pod] = b.Cgroups.PodState(pod)
	}
	return states
}

// dropEnded drops the holds that have ended, and reports whether there were some. The caller holds
// the lock.
func (b *Book) dropEnded(states map[string]cgroup.PodState) bool {
	hasChanged := false
	for slot, pods := range b.pods {
		left := slices.DeleteFunc(slices.Clone(pods), func(p podHold) bool {
			state, isChecked := states[p.Pod]
			return isChecked && !podEvidence{isNamed: p.isNamed, state: state}.holds()
		})
		if len(left) == len(pods) {
			continue
		}
		hasChanged = true
		b.pods[slot] = left
		if len(left) == 0 {
			delete(b.pods, slot)
		}
	}
	if hasChanged {
		b.changed()
	}
	return hasChanged
}

// isLost reports whether the kubelet may have lost the pod.
func (p *podHold) isLost() bool { return !p.isNamed || p.isRefused }

// refresh has the kubelet bring its checkpoint up to date: a query of PodResources makes it forget the
// pods that have ended, if it has the list of the API server, and the list of a plugin makes it write
// the file. The new checkpoint is read by followCheckpoint.
func (b *Book) refresh(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, refreshWithin)
	defer cancel()
	_, err := b.Listed(ctx)
	b.mu.Lock()
	b.logOnce(err, "the kubelet can't be asked for held devices: what waits for their pods may wait longer")
	b.mu.Unlock()
	if err == nil {
		b.ListAgain()
		b.Log.Debug("the kubelet was asked for held devices")
	}
}

// watchedCgroups are the directories in which pods have cgroups, while new pods or the end of a pod matter.
func (b *Book) watchedCgroups() []string {
	b.mu.Lock()
	isNeeded := b.followsPods || b.isAwaited
	for _, pods := range b.pods {
		for i := range pods {
			isNeeded = isNeeded || pods[i].isLost()
		}
	}
	b.mu.Unlock()
	if !isNeeded {
		return nil
	}
	return b.Cgroups.PodParents()
}

// warnNoCgroups logs once that it is unknown whether pods run.
func (b *Book) warnNoCgroups() {
	err := b.Cgroups.Visible()
	if errors.Is(err, cgroup.ErrNone) {
		return // that is wanted
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.logOnce(err, "the host's cgroups are not visible: a device of a pod that is deleted with --force may be allocated while its containers still run",
		"hint", b.CgroupHint,
	)
}

// nameStaticPods finds the names of the static pods that hold slots. Only the UID of a pod changes when
// its manifest is edited. After an error the names stay unknown: then the next version of a static pod
// is refused its device while the former one runs, as any other pod is.
func (b *Book) nameStaticPods(ctx context.Context) {
	b.mu.Lock()
	slots := b.namelessSlots()
	b.mu.Unlock()
	if len(slots) == 0 {
		return
	}
	names, err := b.Listed(ctx)
	if err != nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for slot, p := range b.namelessSlots() {
		p.StaticName = names[slot]
		b.isOutdated = true
	}
}

// namelessSlots are the static pods whose name is not known, by slot. The caller holds the lock.
func (b *Book) namelessSlots() map[string]*podHold {
	nameless := map[string]*podHold{}
	for slot, pods := range b.pods {
		for i := range pods {
			p := &pods[i]
			lacksName := p.isNamed && p.StaticName == "" && isStatic(p.Pod)
			if lacksName && b.isOurs(p.Resource) {
				nameless[slot] = p
			}
		}
	}
	return nameless
}
