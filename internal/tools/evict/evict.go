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
	// forgot is the node of the last pod that was forgotten for lack of room, and when
	// that was logged.
	forgot struct {
		node string
		at   time.Time
	}
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
		Options: o,
		api:     api,
		changed: make(chan struct{}, 1),
		tracker: newTracker(o.After, o.PerMinute),
		problem: errors.New("pods are not listed yet"),
	}
	e.metrics = status.New(e)
	for _, result := range []string{evicted, blocked, failed} {
		e.metrics.CountEvictions(0, result)
	}
	var running sync.WaitGroup
	defer running.Wait()
	running.Go(func() {
		e.watch(ctx)
	})
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
	version := ""
	delay := time.Second
	for ctx.Err() == nil {
		w := &watch{evicter: e, version: version}
		if version == "" {
			w.listed = map[string]bool{}
		}
		err := e.api.Stream(ctx, w.path(), idleTimeout, w.event)
		if w.version != version {
			version = w.version
			delay = time.Second
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
	query := url.Values{
		"watch":               {"1"},
		"allowWatchBookmarks": {"true"},
		"fieldSelector":       {"status.phase!=Succeeded,status.phase!=Failed"},
	}
	if w.version == "" {
		query.Set("sendInitialEvents", "true")
		query.Set("resourceVersionMatch", "NotOlderThan")
	} else {
		query.Set("resourceVersion", w.version)
	}
	return "/api/v1/pods?" + query.Encode()
}

// event handles one event.
func (w *watch) event(kind string, object *kubeapi.Decoder) error {
	var o podObject
	if object != nil {
		if err := o.read(object); err != nil {
			return err
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	switch kind {
	case "": // the watch began
	case "BOOKMARK":
		if w.listed != nil && o.isListEnd {
			w.endList()
		}
	default:
		w.update(&o, kind == "DELETED")
	}
	if w.listed == nil { // the versions of the list are in no order
		w.problem = nil
		w.version = cmp.Or(o.version, w.version)
	}
	return nil
}

// endList forgets the pods that are not in the list.
func (w *watch) endList() {
	for uid := range w.tracker.pods {
		if !w.listed[uid] {
			w.tracker.forget(uid)
		}
	}
	w.listed = nil
	w.Log.Info("watching pods")
}

// update records the state of a pod.
func (w *watch) update(o *podObject, deleted bool) {
	isAffected := o.total > 0 && !deleted && o.mayBeEvicted(w.OptIn)
	if isAffected && w.listed != nil {
		w.listed[o.uid] = true
	}
	known := w.tracker.pods[o.uid]
	if !isAffected && known == nil {
		return
	}
	p := &pod{
		namespace: o.namespace,
		name:      o.name,
		uid:       o.uid,
		node:      o.node,
		message:   o.message,
		total:     o.total,
	}
	var devices []device
	if isAffected {
		devices = o.unhealthy
	}
	forgotten := w.tracker.set(time.Now(), p, devices)
	if isAffected && known == nil && forgotten != p {
		w.Log.Info("pod has unhealthy devices",
			"namespace", o.namespace,
			"pod", o.name,
			"devices", names(devices, o.total),
			"reason", o.message,
		)
	} else if !isAffected && !deleted && !o.isTerminating {
		w.Log.Info("pod no longer has unhealthy devices", "namespace", o.namespace, "pod", o.name)
	}
	w.warnForgotten(forgotten)
	select {
	case w.changed <- struct{}{}:
	default:
	}
}

// warnForgotten logs that a pod was forgotten for lack of room, once per node and minute.
func (e *evicter) warnForgotten(p *pod) {
	if p == nil {
		return
	}
	now := time.Now()
	isLogged := e.forgot.node == p.node && now.Sub(e.forgot.at) < time.Minute
	if isLogged {
		return
	}
	e.forgot.node = p.node
	e.forgot.at = now
	e.Log.Warn("too many unhealthy devices: pods of the node that has the most are not evicted",
		"node", p.node,
		"pod", p.name,
		"limit", maxRemembered,
	)
}

// maxNamed is the number of devices that a message names.
const maxNamed = 8

// names lists the devices of a pod that are remembered, for people; total is the number of
// all.
func names(devices []device, total int) string {
	sorted := slices.SortedFunc(slices.Values(devices), compareDevices)
	var list []string
	for _, d := range sorted[:min(len(sorted), maxNamed)] {
		list = append(list, d.resource+" "+d.id)
	}
	text := strings.Join(list, ", ")
	if more := total - len(list); more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

type object = map[string]any

// evict evicts a pod or sets the time of a retry.
func (e *evicter) evict(ctx context.Context, p *pod) {
	eviction := object{
		"apiVersion": "policy/v1",
		"kind":       "Eviction",
		"metadata":   object{"namespace": p.namespace, "name": p.name},
		// Not a later pod of that name.
		"deleteOptions": object{"preconditions": object{"uid": p.uid}},
	}
	err := e.api.Create(ctx, "/api/v1/namespaces/"+p.namespace+"/pods/"+p.name+"/eviction", eviction, nil)
	if ctx.Err() != nil {
		return
	}
	reason, why := e.record(p, err)
	if reason != "" {
		e.report(ctx, p, reason, why)
	}
}

// record records the outcome of an eviction. It returns the reason and the message of the
// Event to create, empty for none.
func (e *evicter) record(p *pod, err error) (reason, message string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	now := time.Now()
	devices := slices.Collect(maps.Keys(p.unhealthy))
	named := names(devices, p.total)
	message = p.why(now, named)
	// The watch may have replaced the pod meanwhile.
	if current := e.tracker.pods[p.uid]; current != nil {
		p = current
	}
	log := e.Log.With("namespace", p.namespace, "pod", p.name)
	switch kubeapi.Code(err) {
	case http.StatusNotFound:
		e.tracker.forget(p.uid)
		return "", ""
	case http.StatusTooManyRequests:
		if !p.blocked {
			p.blocked = true
			reason = "EvictionBlocked"
			message += "; its eviction is blocked: " + err.Error()
		}
		e.tracker.failed(now, p)
		e.metrics.CountEvictions(1, blocked)
		log.Info("eviction is blocked", "err", err, "retry_at", p.retryAt)
		return reason, message
	}
	if err != nil {
		e.tracker.failed(now, p)
		e.metrics.CountEvictions(1, failed)
		log.Warn("eviction failed", "err", err, "retry_at", p.retryAt)
		return "", ""
	}
	e.tracker.succeeded(now, p)
	e.metrics.CountEvictions(1, evicted)
	log.Info("evicted", "devices", named, "reason", p.message)
	return "Evicted", message
}

// why returns for how long the named devices have been Unhealthy.
func (p *pod) why(now time.Time, named string) string {
	since := now
	for _, at := range p.unhealthy {
		if at.Before(since) {
			since = at
		}
	}
	text := fmt.Sprintf("%s has been Unhealthy for %s", named, now.Sub(since).Round(time.Second))
	if p.message != "" {
		text += " (" + p.message + ")"
	}
	return text
}

// report creates an Event on a pod. If that fails, the eviction still stands.
func (e *evicter) report(ctx context.Context, p *pod, reason, message string) {
	// The API takes 1024 bytes, and 253 with the suffix.
	const maxMessage, maxName = 1000, 200
	if len(message) > maxMessage {
		message = strings.ToValidUTF8(message[:maxMessage], "")
	}
	now := time.Now().UTC().Truncate(time.Second)
	prefix := strings.TrimRight(p.name[:min(len(p.name), maxName)], "-.")
	event := object{
		"apiVersion": "v1",
		"kind":       "Event",
		"metadata": object{
			"namespace": p.namespace,
			"name":      fmt.Sprintf("%s.%x", prefix, time.Now().UnixNano()),
		},
		"involvedObject": object{
			"apiVersion": "v1",
			"kind":       "Pod",
			"namespace":  p.namespace,
			"name":       p.name,
			"uid":        p.uid,
		},
		"type":           "Warning",
		"reason":         reason,
		"message":        message,
		"source":         object{"component": "generic-dp-evict"},
		"firstTimestamp": now,
		"lastTimestamp":  now,
		"count":          1,
	}
	err := e.api.Create(ctx, "/api/v1/namespaces/"+p.namespace+"/events", event, nil)
	if err != nil && ctx.Err() == nil {
		e.Log.Warn("event can't be created", "namespace", p.namespace, "pod", p.name, "err", err)
	}
}
