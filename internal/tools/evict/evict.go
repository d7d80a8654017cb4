// Package evict evicts pods whose devices are Unhealthy, so that their controllers
// replace them on healthy ones. It reads allocatedResourcesStatus of pods, which kubelets
// since 1.36 fill in from the health that any device plugin or DRA driver reports.
//
// One instance is enough, and of two the second evicts pods that are terminating, which
// changes nothing: there is no leader election.
package evict

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/generic-dp/generic-dp/internal/kubelet/kubeapi"
	"github.com/generic-dp/generic-dp/internal/status"
)

// Options say which pods are evicted, and when.
type Options struct {
	// After is how long a device must be Unhealthy without a break.
	After time.Duration
	// PerMinute limits the evictions.
	PerMinute int
	// OptIn: only pods with the Annotation "true".
	OptIn bool
	// Listener is for probes and metrics; nil is none.
	Listener net.Listener
	Log      *slog.Logger
}

// idleTimeout ends a watch without events: servers send a bookmark each minute.
const idleTimeout = 5 * time.Minute

// Results of evictions, in metrics.
const (
	evicted = "ok"
	blocked = "blocked"
	failed  = "error"
)

// maxReconnect is the longest time between two watches.
const maxReconnect = 30 * time.Second

// evicter is one run.
type evicter struct {
	Options
	api     *kubeapi.Client
	changed chan struct{} // capacity 1: a pod changed
	metrics *status.Metrics

	mu      sync.Mutex
	tracker *tracker
	problem error // why pods are not watched
}

// Alive implements status.State.
func (e *evicter) Alive() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	return nil
}

// Ready implements status.State: an instance without rights, or on a cluster that is too
// old, never is.
func (e *evicter) Ready() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.problem
}

// Run evicts pods until ctx is cancelled.
func Run(ctx context.Context, api *kubeapi.Client, o Options) error {
	e := &evicter{
		Options: o, api: api, changed: make(chan struct{}, 1), tracker: newTracker(o.After, o.PerMinute),
		problem: errors.New("pods are not listed yet"),
	}
	e.metrics = status.New(e)
	for _, result := range []string{evicted, blocked, failed} {
		e.metrics.CountEvictions(0, result)
	}
	var running sync.WaitGroup
	defer running.Wait()
	running.Go(func() { e.watch(ctx) })
	if o.Listener != nil {
		running.Go(func() {
			if err := e.metrics.Serve(ctx, o.Listener); err != nil {
				o.Log.Error("probes and metrics have stopped", "err", err)
			}
		})
	}
	for {
		e.mu.Lock()
		p, wake := e.tracker.next(time.Now())
		e.mu.Unlock()
		if p != nil {
			e.evict(ctx, p)
			if ctx.Err() == nil {
				continue
			}
		}
		var due <-chan time.Time
		if !wake.IsZero() {
			due = time.After(time.Until(wake))
		}
		select {
		case <-ctx.Done():
			return nil
		case <-e.changed:
		case <-due:
		}
	}
}

// watch keeps the tracker up to date.
func (e *evicter) watch(ctx context.Context) {
	version, delay := "", time.Second
	for ctx.Err() == nil {
		w := &watch{evicter: e, version: version}
		if version == "" {
			w.listed = map[string]bool{}
		}
		err := e.api.Watch(ctx, w.path(), idleTimeout, w.event)
		if w.version != version {
			version, delay = w.version, time.Second
		}
		if kubeapi.Code(err) == http.StatusGone {
			version = "" // list all pods again
		}
		if err != nil && ctx.Err() == nil {
			e.Log.Warn("pods can't be watched", "err", err, "retry_after", delay)
			e.mu.Lock()
			e.problem = fmt.Errorf("pods can't be watched: %w", err)
			e.mu.Unlock()
		}
		select {
		case <-ctx.Done():
		case <-time.After(delay + rand.N(delay)):
		}
		delay = min(2*delay, maxReconnect)
	}
}

// watch is one stream of changes.
type watch struct {
	*evicter
	version string          // resourceVersion to resume from; empty lists all pods first
	listed  map[string]bool // UIDs of the list with Unhealthy devices; nil after its end
}

// path is the request that lists and watches pods, or resumes at version. Pods that have
// ended hold no device.
func (w *watch) path() string {
	query := url.Values{"watch": {"1"}, "allowWatchBookmarks": {"true"}, "fieldSelector": {"status.phase!=Succeeded,status.phase!=Failed"}}
	if w.version == "" {
		query.Set("sendInitialEvents", "true")
		query.Set("resourceVersionMatch", "NotOlderThan")
	} else {
		query.Set("resourceVersion", w.version)
	}
	return "/api/v1/pods?" + query.Encode()
}

// event handles one event.
func (w *watch) event(event kubeapi.Event) error {
	var o podObject
	if event.Type != "" {
		if err := json.Unmarshal(event.Object, &o); err != nil {
			return err
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	switch event.Type {
	case "": // the watch began
	case "BOOKMARK":
		if w.listed != nil && o.Metadata.Annotations["k8s.io/initial-events-end"] == "true" {
			maps.DeleteFunc(w.tracker.pods, func(uid string, _ *pod) bool { return !w.listed[uid] })
			w.listed = nil
			w.Log.Info("watching pods")
		}
	default:
		w.update(&o, event.Type == "DELETED")
	}
	if w.listed == nil { // the versions of the list are in no order
		w.problem = nil
		w.version = cmp.Or(o.Metadata.ResourceVersion, w.version)
	}
	return nil
}

// update records the state of a pod.
func (w *watch) update(o *podObject, deleted bool) {
	m := &o.Metadata
	devices, message := o.unhealthy(w.OptIn)
	if deleted {
		devices = nil
	}
	if len(devices) > 0 && w.listed != nil {
		w.listed[m.UID] = true
	}
	known := w.tracker.pods[m.UID]
	if len(devices) == 0 && known == nil {
		return
	}
	w.tracker.set(time.Now(), &pod{namespace: m.Namespace, name: m.Name, uid: m.UID, message: message}, devices)
	switch {
	case known == nil:
		w.Log.Info("pod has unhealthy devices", "namespace", m.Namespace, "pod", m.Name, "devices", names(devices), "reason", message)
	case len(devices) == 0 && !deleted && m.DeletionTimestamp == "":
		w.Log.Info("pod no longer has unhealthy devices", "namespace", m.Namespace, "pod", m.Name)
	}
	select {
	case w.changed <- struct{}{}:
	default:
	}
}

// names lists devices for people.
func names(devices []device) string {
	var list []string
	for _, d := range devices {
		list = append(list, d.resource+" "+d.id)
	}
	slices.Sort(list)
	return strings.Join(list, ", ")
}

type object = map[string]any

// evict evicts a pod or sets the time of a retry.
func (e *evicter) evict(ctx context.Context, p *pod) {
	err := e.api.Create(ctx, "/api/v1/namespaces/"+p.namespace+"/pods/"+p.name+"/eviction", object{
		"apiVersion": "policy/v1", "kind": "Eviction", "metadata": object{"namespace": p.namespace, "name": p.name},
		// Not a later pod of that name.
		"deleteOptions": object{"preconditions": object{"uid": p.uid}},
	}, nil)
	if ctx.Err() != nil {
		return
	}
	e.mu.Lock()
	now, report := time.Now(), ""
	var devices []device
	since := now
	for d, at := range p.unhealthy {
		devices = append(devices, d)
		if at.Before(since) {
			since = at
		}
	}
	why := fmt.Sprintf("%s has been Unhealthy for %s", names(devices), now.Sub(since).Round(time.Second))
	if p.message != "" {
		why += " (" + p.message + ")"
	}
	// The watch may have replaced the pod meanwhile.
	if current := e.tracker.pods[p.uid]; current != nil {
		p = current
	}
	log := e.Log.With("namespace", p.namespace, "pod", p.name)
	switch code := kubeapi.Code(err); {
	case err == nil:
		e.tracker.succeeded(now, p)
		e.metrics.CountEvictions(1, evicted)
		log.Info("evicted", "devices", names(devices), "reason", p.message)
		report = "Evicted"
	case code == http.StatusNotFound:
		delete(e.tracker.pods, p.uid)
	case code == http.StatusTooManyRequests:
		if !p.blocked {
			p.blocked = true
			report, why = "EvictionBlocked", why+"; its eviction is blocked: "+err.Error()
		}
		e.tracker.failed(now, p)
		e.metrics.CountEvictions(1, blocked)
		log.Info("eviction is blocked", "err", err, "retry_at", p.retryAt)
	default:
		e.tracker.failed(now, p)
		e.metrics.CountEvictions(1, failed)
		log.Warn("eviction failed", "err", err, "retry_at", p.retryAt)
	}
	e.mu.Unlock()
	if report != "" {
		e.report(ctx, p, report, why)
	}
}

// report creates an Event on a pod. If that fails, the eviction still stands.
func (e *evicter) report(ctx context.Context, p *pod, reason, message string) {
	const maxMessage, maxName = 1000, 200 // the API takes 1024 bytes, and 253 with the suffix
	now := time.Now().UTC().Truncate(time.Second)
	name := strings.TrimRight(p.name[:min(len(p.name), maxName)], "-.") + fmt.Sprintf(".%x", time.Now().UnixNano())
	err := e.api.Create(ctx, "/api/v1/namespaces/"+p.namespace+"/events", object{
		"apiVersion": "v1", "kind": "Event", "metadata": object{"namespace": p.namespace, "name": name},
		"involvedObject": object{"apiVersion": "v1", "kind": "Pod", "namespace": p.namespace, "name": p.name, "uid": p.uid},
		"type":           "Warning", "reason": reason, "message": message[:min(len(message), maxMessage)],
		"source": object{"component": "generic-dp-evict"}, "firstTimestamp": now, "lastTimestamp": now, "count": 1,
	}, nil)
	if err != nil && ctx.Err() == nil {
		e.Log.Warn("event can't be created", "namespace", p.namespace, "pod", p.name, "err", err)
	}
}
