package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/generic-dp/generic-dp/internal/kubelet/kubeapi"
	"github.com/generic-dp/generic-dp/internal/status"
)

// options say which pods are evicted, and when. After and PerMinute must be positive, which the
// command checks.
type options struct {
	// After is how long a device must be Unhealthy without a break.
	After time.Duration
	// PerMinute is the maximum number of successful evictions in any minute, in the whole
	// cluster. A broken driver must not evict everything at once.
	PerMinute int
	// OptIn restricts evictions to pods with the annotation "true". Without it, every pod is
	// evicted that does not have the annotation.
	OptIn bool
	// Retry is the delay before a failed eviction or watch is tried again. It doubles with each
	// failure. Zero means one second.
	Retry time.Duration
	// Listener serves probes and metrics. If it is nil, they are not served.
	Listener net.Listener
	// Log may be nil.
	Log *slog.Logger
}

// Results of evictions, in metrics.
const (
	evicted = "ok"
	blocked = "blocked"
	failed  = "error"
)

// evicter is the state of one call of evict.
type evicter struct {
	options
	api     *kubeapi.Client
	changed chan struct{} // has capacity 1; a value means that the tracker has changed
	metrics *status.Metrics

	// mu guards the fields below. It is never held during a request.
	mu      sync.Mutex
	tracker *tracker
	// problem says why the pods are not watched; nil while they are.
	problem error
}

// Alive implements status.State. It never returns an error, but it takes the lock: if a goroutine
// never releases it, the probe times out and the kubelet restarts the container.
func (e *evicter) Alive() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	return nil
}

// Ready implements status.State. It returns nil while the pods are watched. An instance without the
// necessary rights, or in a cluster without streamed lists, is never ready.
func (e *evicter) Ready() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.problem
}

// evict evicts pods until ctx is cancelled. It then waits for its goroutines and returns nil. All
// errors of the API server are logged and retried.
func evict(ctx context.Context, api *kubeapi.Client, o options) error {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	o.Retry = cmp.Or(o.Retry, time.Second)
	e := &evicter{
		options: o,
		api:     api,
		changed: make(chan struct{}, 1),
		tracker: newTracker(o.After, o.PerMinute, o.Retry),
		problem: errors.New("pods are not listed yet"),
	}
	e.metrics = status.New(e)
	// Counters start at 0, so that the first eviction is visible as an increase.
	for _, result := range []string{evicted, blocked, failed} {
		e.metrics.CountEvictions(0, result)
	}
	var running sync.WaitGroup
	defer running.Wait()
	running.Go(func() { e.follow(ctx) })
	if o.Listener != nil {
		running.Go(func() {
			if err := e.metrics.Serve(ctx, o.Listener); err != nil {
				o.Log.Error("probes and metrics have stopped", "err", err)
			}
		})
	}
	for {
		p, wake := e.next()
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

// next returns the pod that is evicted now, or when to ask again, see tracker.next. While the pods cannot be
// watched it returns neither, because their devices may have recovered. It is called again after each eviction,
// which may have changed when the next one is due.
func (e *evicter) next() (ready *pod, wake time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.problem != nil {
		return nil, time.Time{}
	}
	return e.tracker.next(time.Now())
}

// judge records which devices of a pod are Unhealthy, and wakes Run. It reports whether there are
// any. It only logs what changed: a kubelet updates the status of a pod for many other reasons. The
// caller holds mu.
func (e *evicter) judge(o *podObject, deleted bool) bool {
	var devices []device
	p := &pod{
		namespace: o.Metadata.Namespace,
		name:      o.Metadata.Name,
		uid:       o.Metadata.UID,
	}
	if !deleted && o.mayBeEvicted(e.OptIn) {
		devices, p.message = o.unhealthy()
	}
	isAffected := len(devices) > 0
	_, wasAffected := e.tracker.pods[p.uid]
	// Nearly all pods of a cluster end here.
	if !isAffected && !wasAffected {
		return false
	}
	// Without devices, set forgets the pod.
	e.tracker.set(time.Now(), p, devices)
	if isAffected && !wasAffected {
		e.Log.Info("pod has unhealthy devices",
			"namespace", p.namespace,
			"pod", p.name,
			"devices", p.names(),
			"reason", p.message,
		)
	} else if !isAffected && !deleted && o.Metadata.DeletionTimestamp == nil {
		e.Log.Info("pod no longer has unhealthy devices", "namespace", p.namespace, "pod", p.name)
	}
	notify(e.changed)
	return isAffected
}

// forgetOthers forgets the pods that are not in a list: they were deleted, or their devices became
// Healthy, while no watch was open. The caller holds mu.
func (e *evicter) forgetOthers(listed map[string]bool) {
	maps.DeleteFunc(e.tracker.pods, func(uid string, _ *pod) bool { return !listed[uid] })
}

// notify wakes the receiver of a channel of capacity 1. If the channel is full, the receiver has
// not yet seen an earlier change, and then sees both.
func notify(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// maxNamed is the number of devices that a message names.
const maxNamed = 8

// names lists the devices of the pod for people, in order.
func (p *pod) names() string {
	sorted := slices.SortedFunc(maps.Keys(p.unhealthy), compareDevices)
	var list []string
	for _, d := range sorted[:min(len(sorted), maxNamed)] {
		list = append(list, d.resource+" "+d.id)
	}
	text := strings.Join(list, ", ")
	if more := p.total - len(list); more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// object is a JSON object.
type object = map[string]any

// evict requests the eviction of a pod, and records the result. Run calls it, so that only one
// eviction is in progress. The names of p, which it reads without the lock, never change.
func (e *evicter) evict(ctx context.Context, p *pod) {
	eviction := object{
		"apiVersion": "policy/v1",
		"kind":       "Eviction",
		"metadata":   object{"namespace": p.namespace, "name": p.name},
		// A StatefulSet creates a new pod with the same name. The UID protects it.
		"deleteOptions": object{"preconditions": object{"uid": p.uid}},
	}
	err := e.request(ctx, "/api/v1/namespaces/"+p.namespace+"/pods/"+p.name+"/eviction", eviction)
	if ctx.Err() != nil {
		return
	}
	reason, why := e.record(p, err)
	if reason != "" {
		e.report(ctx, p, reason, why)
	}
}

// request creates an eviction. The API server also reports a failure, that the pod has several
// disruption budgets, as a Status with the HTTP status 201 (EvictionREST.Create in
// pkg/registry/core/pod/storage/eviction.go).
func (e *evicter) request(ctx context.Context, path string, eviction object) error {
	var answer struct {
		Status, Message string
		Code            int
	}
	err := e.api.Create(ctx, path, eviction, &answer)
	if err == nil && answer.Status == "Failure" {
		err = &kubeapi.Error{
			Method:  http.MethodPost,
			Path:    path,
			Code:    answer.Code,
			Reason:  http.StatusText(answer.Code),
			Message: answer.Message,
		}
	}
	return err
}

// isBlocked reports whether a disruption budget does not permit an eviction at present. The cause
// distinguishes this from the 429 of an API server that is overloaded (createTooManyRequestsError
// and checkAndDecrement in pkg/registry/core/pod/storage/eviction.go; DisruptionBudgetCause in
// k8s.io/api/policy/v1).
func isBlocked(err error) bool {
	var answer *kubeapi.Error
	if !errors.As(err, &answer) {
		return false
	}
	return slices.ContainsFunc(answer.Causes, func(c kubeapi.Cause) bool {
		return c.Reason == "DisruptionBudget"
	})
}

// record records the outcome of an eviction. It returns the reason and the message of the Event to
// create. The reason is empty if there is no Event.
func (e *evicter) record(p *pod, err error) (reason, message string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	now := time.Now()
	named := p.names()
	message = p.why(now, named)
	log := e.Log.With("namespace", p.namespace, "pod", p.name)
	// The pod was deleted, and the watch has not reported it yet.
	if kubeapi.Code(err) == http.StatusNotFound {
		delete(e.tracker.pods, p.uid)
		return "", ""
	}
	if isBlocked(err) {
		// All attempts have one Event.
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
