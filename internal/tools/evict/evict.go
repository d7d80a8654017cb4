// Package evict evicts pods whose devices are Unhealthy, so that their controllers
// replace them on healthy ones. It reads allocatedResourcesStatus of pods, which kubelets
// since 1.36 fill in from the health that any device plugin or DRA driver reports.
//
// Two goroutines share a tracker: one follows a watch of all pods and records their
// devices, and the other one sleeps until the tracker says that an eviction is due.
//
// One instance is enough, so that there is no leader election. A second instance would
// evict pods that are already terminating, which changes nothing.
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
	"github.com/generic-dp/generic-dp/internal/order"
	"github.com/generic-dp/generic-dp/internal/status"
)

// Options say which pods are evicted, and when. After and PerMinute must be positive, which the
// command checks.
type Options struct {
	// After is how long a device must be Unhealthy without a break.
	After time.Duration
	// PerMinute is the maximum number of successful evictions in any minute, in the whole
	// cluster. A broken driver must not evict everything at once.
	PerMinute int
	// OptIn restricts evictions to pods with the Annotation "true". Without it, every pod is
	// evicted that does not have the Annotation.
	OptIn bool
	// Listener serves probes and metrics. If it is nil, they are not served.
	Listener net.Listener
	// Log must not be nil.
	Log *slog.Logger
}

// idleTimeout ends a watch without events. The API server sends a bookmark about once a minute, so
// that a silent stream is dead. It may then have missed events: Stream reports StatusGone, and all
// pods are listed again.
const idleTimeout = 5 * time.Minute

// Results of evictions, in metrics.
const (
	evicted = "ok"
	blocked = "blocked"
	failed  = "error"
)

// maxReconnect is the longest delay between two watches, before the random part is added.
const maxReconnect = 30 * time.Second

// evicter is the state of one call of Run.
type evicter struct {
	Options
	api     *kubeapi.Client
	changed chan struct{} // has capacity 1; a value means that the tracker has changed
	metrics *status.Metrics

	// mu guards the fields below. It is never held during a request.
	mu      sync.Mutex
	tracker *tracker
	problem error // why pods are not watched, or nil while they are
	// forgot is the node of the last pod that was forgotten for lack of room, and when
	// that was logged.
	forgot struct {
		node string
		at   time.Time
	}
}

// Alive implements status.State. It never returns an error, but it takes the lock: if a goroutine
// never releases it, the probe times out and the kubelet restarts the container.
func (e *evicter) Alive() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	return nil
}

// Ready implements status.State. It returns nil while pods are watched. An instance without the
// necessary rights, or in a cluster without streamed lists, is never ready.
func (e *evicter) Ready() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.problem
}

// Run evicts pods until ctx is cancelled. It then waits for its goroutines and returns nil. All
// errors of the API server are logged and retried.
func Run(ctx context.Context, api *kubeapi.Client, o Options) error {
	e := &evicter{
		Options: o,
		api:     api,
		changed: make(chan struct{}, 1),
		tracker: newTracker(o.After, o.PerMinute),
		problem: errors.New("pods are not listed yet"),
	}
	e.metrics = status.New(e)
	// Counters start at 0, so that the first eviction is visible as an increase.
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
		// next is called again after each eviction, which may have changed the next due time.
		p, wake := e.tracker.next(time.Now())
		e.mu.Unlock()
		if p != nil {
			e.evict(ctx, p)
			if ctx.Err() == nil {
				continue
			}
		}
		// If due is nil, no pod waits, and only a change ends the select.
		var due <-chan time.Time
		if !wake.IsZero() {
			due = time.After(time.Until(wake))
		}
		select {
		case <-ctx.Done():
			return nil
		// The due time is computed again: a device may be Healthy now, or another one due earlier.
		case <-e.changed:
		case <-due:
		}
	}
}

// watch keeps the tracker up to date until ctx is cancelled. It runs in its own goroutine. After an
// error it resumes at the last version, so that an interruption does not cost a list of all pods.
func (e *evicter) watch(ctx context.Context) {
	version := ""
	delay := time.Second
	for ctx.Err() == nil {
		w := &watch{evicter: e, version: version}
		// listed collects the UIDs of the list, so that endList can forget all others.
		if version == "" {
			w.listed = map[string]bool{}
		}
		err := e.api.Stream(ctx, w.path(), idleTimeout, w.event)
		// The watch made progress, so that the server works and the delay starts again.
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
		// A stream that the server ended normally is also resumed only after a delay. The random
		// part spreads the clients of a restarted server.
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
		// The list arrives as events, one pod at a time. A list in one response has the size of all
		// pods. The server requires resourceVersionMatch with it (ValidateListOptions in
		// k8s.io/apimachinery/pkg/apis/meta/internalversion/validation).
		query.Set("sendInitialEvents", "true")
		query.Set("resourceVersionMatch", "NotOlderThan")
	} else {
		query.Set("resourceVersion", w.version)
	}
	return "/api/v1/pods?" + query.Encode()
}

// event handles one event of the stream, in the goroutine of evicter.watch. object is nil for the
// first call, when the request was accepted.
func (w *watch) event(kind string, object *kubeapi.Decoder) error {
	// The pod is read before the lock is taken, because reading waits for the network.
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
	// "ADDED" and "MODIFIED" both have the whole pod. A pod that no longer matches the field
	// selector is reported as "DELETED".
	default:
		w.update(&o, kind == "DELETED")
	}
	if w.listed == nil { // the pods of a list are not in the order of their versions
		w.problem = nil
		w.version = cmp.Or(o.version, w.version)
	}
	return nil
}

// endList forgets the pods that are not in the list: they were deleted, or their devices became
// Healthy, while no watch was open. The caller holds mu.
func (w *watch) endList() {
	for uid := range w.tracker.pods {
		if !w.listed[uid] {
			w.tracker.forget(uid)
		}
	}
	w.listed = nil
	w.Log.Info("watching pods")
}

// update records the state of a pod, and wakes Run. The caller holds mu. It only logs what changed:
// a kubelet updates the status of a pod for many other reasons.
func (w *watch) update(o *podObject, deleted bool) {
	isAffected := o.total > 0 && !deleted && o.mayBeEvicted(w.OptIn)
	if isAffected && w.listed != nil {
		w.listed[o.uid] = true
	}
	// Nearly all pods of a cluster end here.
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
	// Without devices, set forgets the pod.
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
	// The channel is full if Run has not yet seen an earlier change. It then sees both.
	case w.changed <- struct{}{}:
	default:
	}
}

// warnForgotten logs that a pod was forgotten for lack of room, once per node and minute. p is nil
// if no pod was forgotten. The caller holds mu.
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

// names lists devices for people, in order. devices are the ones that are remembered, and total is
// the number of all.
func names(devices []device, total int) string {
	sorted := slices.Clone(devices)
	order.Sort(sorted, compareDevices)
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

// object is a JSON object.
type object = map[string]any

// evict requests the eviction of a pod, and records the result. Run calls it, so that only one
// eviction is in progress. The fields of p that it reads without the lock never change.
func (e *evicter) evict(ctx context.Context, p *pod) {
	eviction := object{
		"apiVersion": "policy/v1",
		"kind":       "Eviction",
		"metadata":   object{"namespace": p.namespace, "name": p.name},
		// A StatefulSet creates a new pod with the same name. The UID protects it.
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

// record records the outcome of an eviction. It returns the reason and the message of the Event to
// create. The reason is empty if there is no Event.
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
	// The pod was deleted, and the watch has not reported it yet.
	case http.StatusNotFound:
		e.tracker.forget(p.uid)
		return "", ""
	// A PodDisruptionBudget does not permit the eviction at present
	// (https://kubernetes.io/docs/concepts/scheduling-eviction/api-eviction/). All
	// attempts have one Event.
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

// why returns for how long the named devices have been Unhealthy, counted from the first of them.
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

// report creates an Event on a pod. If that fails, it logs the error, and the eviction still
// stands.
func (e *evicter) report(ctx context.Context, p *pod, reason, message string) {
	// The limits of the API are 1024 bytes for a message, and 253 for a name with its suffix.
	const maxMessage, maxName = 1000, 200
	if len(message) > maxMessage {
		message = strings.ToValidUTF8(message[:maxMessage], "")
	}
	now := time.Now().UTC().Truncate(time.Second)
	// After a cut, the name could end with a character that is invalid before the dot of the
	// suffix.
	prefix := strings.TrimRight(p.name[:min(len(p.name), maxName)], "-.")
	event := object{
		"apiVersion": "v1",
		"kind":       "Event",
		"metadata": object{
			"namespace": p.namespace,
			// The time makes the name unique, as in the Events of client-go.
			"name": fmt.Sprintf("%s.%x", prefix, time.Now().UnixNano()),
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
