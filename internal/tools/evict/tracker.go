package evict

import "time"

const (
	// cooldown is the shortest time between two evictions because of one device. Without it, a
	// device that alternates slowly between Healthy and Unhealthy would evict one pod after the
	// other.
	cooldown = 10 * time.Minute
	// maxRetry is the longest delay between two attempts to evict a pod.
	maxRetry = 5 * time.Minute
	// maxDevices is the number of Unhealthy devices of a pod that are remembered. The status of a
	// pod has room for 22,000.
	maxDevices = 32
	// maxRemembered is the number of Unhealthy devices of all pods that are remembered. They take
	// about 4 MB, or 12 MB if all their names are as long as possible.
	maxRemembered = 16 << 10
)

// device is a device as the kubelet reports it. Each slot counts as one device. It is a key of
// maps: two nodes may have devices with the same resource and ID.
type device struct{ node, resource, id string }

// pod is a pod with Unhealthy devices. The tracker replaces it at each change of the pod, and keeps
// its history. The fields above unhealthy never change.
type pod struct {
	namespace, name, uid, node string
	// unhealthy has the start time of each device that is remembered, at most
	// maxDevices; total is the number of all its Unhealthy devices.
	unhealthy map[device]time.Time
	total     int
	message   string    // of the kubelet, about one device
	tries     int       // failed evictions
	retryAt   time.Time // zero if none failed
	evicted   bool      // the eviction was accepted, so that the pod is terminating
	blocked   bool      // an Event already reports that a disruption budget blocks the eviction
}

// tracker decides which pod should be evicted, and when. It has no clock and no lock: callers pass
// the time and hold evicter.mu.
type tracker struct {
	after     time.Duration
	perMinute int
	retry     time.Duration        // delay after the first failed eviction of a pod
	pods      map[string]*pod      // pods with Unhealthy devices, by UID
	devices   int                  // number of remembered devices of all pods
	evicted   map[device]time.Time // time of the last eviction, kept during the cooldown
	recent    []time.Time          // times of the evictions in the last minute, oldest first
}

func newTracker(after time.Duration, perMinute int, retry time.Duration) *tracker {
	return &tracker{
		after:     after,
		perMinute: perMinute,
		retry:     retry,
		pods:      map[string]*pod{},
		evicted:   map[device]time.Time{},
	}
}

// set records the Unhealthy devices of a pod, and forgets a pod without any. A device that was
// already Unhealthy keeps its start time. If there are too many devices, set forgets and returns a
// pod of the node that has the most, which may be p itself.
func (t *tracker) set(now time.Time, p *pod, unhealthy []device) (forgotten *pod) {
	before := t.pods[p.uid]
	t.forget(p.uid)
	if len(unhealthy) == 0 {
		return nil
	}
	// The number of attempts survives, so that a change of the status does not reset the delay.
	if before != nil {
		p.tries = before.tries
		p.retryAt = before.retryAt
		p.evicted = before.evicted
		p.blocked = before.blocked
	}
	p.unhealthy = map[device]time.Time{}
	for _, d := range unhealthy {
		p.unhealthy[d] = now
		if before != nil && !before.unhealthy[d].IsZero() {
			p.unhealthy[d] = before.unhealthy[d]
		}
	}
	t.pods[p.uid] = p
	t.devices += len(p.unhealthy)
	if t.devices <= maxRemembered {
		return nil
	}
	forgotten = t.excess()
	t.forget(forgotten.uid)
	return forgotten
}

// forget forgets a pod, if it is known.
func (t *tracker) forget(uid string) {
	if p := t.pods[uid]; p != nil {
		t.devices -= len(p.unhealthy)
		delete(t.pods, uid)
	}
}

// excess returns a pod of the node that has the most Unhealthy devices, because one node must not
// displace the pods of other nodes. Of its pods it returns the last one by UID, so that the same
// pods stay.
func (t *tracker) excess() *pod {
	byNode := map[string]int{}
	for _, p := range t.pods {
		byNode[p.node] += len(p.unhealthy)
	}
	var last *pod
	for _, p := range t.pods {
		isSameNode := last != nil && p.node == last.node
		if last == nil || byNode[p.node] > byNode[last.node] {
			last = p
		} else if isSameNode && p.uid > last.uid {
			last = p
		}
	}
	return last
}

// next returns a pod to evict now. If there is none, it returns the time of the next call, or the
// zero time if no pod waits: then the next call follows a change.
func (t *tracker) next(now time.Time) (ready *pod, wake time.Time) {
	// An expired entry no longer delays an eviction, and would only take memory.
	for d, at := range t.evicted {
		if now.Sub(at) >= cooldown {
			delete(t.evicted, d)
		}
	}
	for len(t.recent) > 0 && now.Sub(t.recent[0]) >= time.Minute {
		t.recent = t.recent[1:]
	}
	var first *pod
	var due time.Time // of first
	for _, p := range t.pods {
		// It is terminating, and the watch will report its end.
		if p.evicted {
			continue
		}
		if at := t.due(p); first == nil || at.Before(due) {
			first = p
			due = at
		}
	}
	if first == nil || now.Before(due) {
		return nil, due
		// The oldest eviction is the first one to leave the minute.
	} else if len(t.recent) >= t.perMinute {
		return nil, t.recent[0].Add(time.Minute)
	}
	return first, time.Time{}
}

// due returns when a pod should be evicted if nothing changes: at the earliest time of its devices,
// but not before the next retry.
func (t *tracker) due(p *pod) (due time.Time) {
	for d, since := range p.unhealthy {
		at := since.Add(t.after)
		if last, ok := t.evicted[d]; ok && at.Before(last.Add(cooldown)) {
			at = last.Add(cooldown)
		}
		if due.IsZero() || at.Before(due) {
			due = at
		}
	}
	if due.Before(p.retryAt) {
		due = p.retryAt
	}
	return due
}

// succeeded records the eviction of a pod, which is then terminating.
func (t *tracker) succeeded(now time.Time, p *pod) {
	p.evicted = true
	t.recent = append(t.recent, now)
	for d := range p.unhealthy {
		t.evicted[d] = now
	}
}

// failed records an eviction that should be tried again. Each delay is twice as long as the one
// before. The shift is limited, because it would overflow after 30 attempts.
func (t *tracker) failed(now time.Time, p *pod) {
	p.retryAt = now.Add(min(t.retry<<min(p.tries, 10), maxRetry))
	p.tries++
}
