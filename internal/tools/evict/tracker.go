package evict

import (
	"cmp"
	"time"
)

const (
	// cooldown is the shortest time between two evictions for a device: one that flaps more
	// slowly than Options.After would have its next pod evicted, too.
	cooldown = 10 * time.Minute
	// A failed eviction is retried after firstRetry; each further delay is twice as long, up
	// to maxRetry.
	firstRetry = 5 * time.Second
	maxRetry   = 5 * time.Minute
)

// device is a device as the kubelet reports it; each slot counts as one.
type device struct{ node, resource, id string }

// pod is a pod with Unhealthy devices.
type pod struct {
	namespace, name, uid string
	// unhealthy has the start time of each device; message is the kubelet's about one.
	unhealthy map[device]time.Time
	message   string
	tries     int       // failed evictions
	retryAt   time.Time // zero if none failed
	evicted   bool
	blocked   bool // an Event reports it
}

// tracker decides which pod is to be evicted, and when.
type tracker struct {
	after     time.Duration
	perMinute int
	pods      map[string]*pod      // with Unhealthy devices, by UID
	evicted   map[device]time.Time // last eviction, during the cooldown
	recent    []time.Time          // evictions of the last minute
}

func newTracker(after time.Duration, perMinute int) *tracker {
	return &tracker{after: after, perMinute: perMinute, pods: map[string]*pod{}, evicted: map[device]time.Time{}}
}

// set records the Unhealthy devices of a pod, and forgets a pod without any.
func (t *tracker) set(now time.Time, p *pod, unhealthy []device) {
	before := t.pods[p.uid]
	if len(unhealthy) == 0 {
		delete(t.pods, p.uid)
		return
	}
	if before != nil {
		p.tries, p.retryAt, p.evicted, p.blocked = before.tries, before.retryAt, before.evicted, before.blocked
	}
	p.unhealthy = map[device]time.Time{}
	for _, d := range unhealthy {
		p.unhealthy[d] = now
		if before != nil && !before.unhealthy[d].IsZero() {
			p.unhealthy[d] = before.unhealthy[d]
		}
	}
	t.pods[p.uid] = p
}

// next returns a pod to evict now, or the time of the next call; zero means at the next
// change.
func (t *tracker) next(now time.Time) (ready *pod, wake time.Time) {
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
		if p.evicted {
			continue
		}
		if at := t.due(p); first == nil || at.Before(due) {
			first, due = p, at
		}
	}
	switch {
	case first == nil || now.Before(due):
		return nil, due
	case len(t.recent) >= t.perMinute:
		return nil, t.recent[0].Add(time.Minute)
	}
	return first, time.Time{}
}

// due is when a pod is to be evicted, if nothing changes.
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

// failed records an eviction that is to be tried again.
func (t *tracker) failed(now time.Time, p *pod) {
	p.retryAt = now.Add(min(firstRetry<<min(p.tries, 10), maxRetry))
	p.tries++
}

// Annotation is "true" or "false" on a pod that is, or is not, to be evicted.
const Annotation = "generic-dp.github.io/evict"

// mirrorAnnotation is on the API server's image of a static pod, which can't be evicted.
const mirrorAnnotation = "kubernetes.io/config.mirror"

// podObject has the fields of a pod that are read.
type podObject struct {
	Metadata struct {
		Namespace, Name, UID, ResourceVersion string
		DeletionTimestamp                     string
		Annotations                           map[string]string
	}
	Spec   struct{ NodeName string }
	Status struct{ ContainerStatuses, InitContainerStatuses []containerStatus }
}

type containerStatus struct {
	AllocatedResourcesStatus []struct {
		Name      string
		Resources []struct{ ResourceID, Health, Message string }
	}
}

// unhealthy lists the Unhealthy devices of a pod that may be evicted, and the kubelet's
// message about one of them.
func (o *podObject) unhealthy(optIn bool) (devices []device, message string) {
	m := &o.Metadata
	if _, static := m.Annotations[mirrorAnnotation]; static || m.DeletionTimestamp != "" {
		return nil, ""
	}
	// Any other value keeps the pod, too.
	if want, annotated := m.Annotations[Annotation]; want != "true" && (optIn || annotated) {
		return nil, ""
	}
	for _, list := range [][]containerStatus{o.Status.ContainerStatuses, o.Status.InitContainerStatuses} {
		for _, c := range list {
			for _, r := range c.AllocatedResourcesStatus {
				for _, d := range r.Resources {
					if d.Health == "Unhealthy" {
						devices = append(devices, device{o.Spec.NodeName, r.Name, d.ResourceID})
						message = cmp.Or(message, d.Message)
					}
				}
			}
		}
	}
	return devices, message
}
