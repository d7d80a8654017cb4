package main

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
)

// device is a device as the kubelet reports it. Each slot counts as one device. It is a key of
// maps: two nodes may have devices with the same resource and ID.
type device struct{ node, resource, id string }

// pod is a pod with Unhealthy devices. Its names never change.
type pod struct {
	namespace, name, uid string
	// unhealthy has the start time of each device that is remembered, at most maxDevices; total is
	// the number of all its Unhealthy devices.
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

// set records the Unhealthy devices of a pod, sorted, and forgets a pod without any. It keeps what
// is known of the pod: a device that was already Unhealthy has its start time, and a change of the
// status does not reset the delay of an eviction.
func (t *tracker) set(now time.Time, p *pod, unhealthy []device) {
	if len(unhealthy) == 0 {
		delete(t.pods, p.uid)
		return
	}
	known := t.pods[p.uid]
	if known == nil {
		known = p
		t.pods[p.uid] = p
	}
	before := known.unhealthy
	known.message = p.message
	known.total = len(unhealthy)
	known.unhealthy = map[device]time.Time{}
	for _, d := range unhealthy[:min(len(unhealthy), maxDevices)] {
		known.unhealthy[d] = now
		if since, isKnown := before[d]; isKnown {
			known.unhealthy[d] = since
		}
	}
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
