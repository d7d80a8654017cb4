package evict

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"time"

	"github.com/generic-dp/generic-dp/internal/kubelet/kubeapi"
)

// idleTimeout ends a watch without events. The API server sends a bookmark about once a minute, so
// that a silent stream is dead. It may then have missed events: Watch reports StatusGone, and all
// objects are listed again.
const idleTimeout = 5 * time.Minute

// maxReconnect is the longest delay between two watches, before the random part is added.
const maxReconnect = 30 * time.Second

// watch follows all pods. It belongs to the goroutine that calls follow.
type watch struct {
	*evicter
	version string // resourceVersion to resume from; empty lists all pods first
	// listed has the UIDs of the pods of a list that are remembered; nil after its end. It is needed
	// to forget all others.
	listed map[string]bool
}

// follow keeps what is known of the pods up to date until ctx is cancelled. After an error it
// resumes at the last version, so that an interruption does not cost a list of all pods.
func (w *watch) follow(ctx context.Context) {
	delay := w.Retry
	for ctx.Err() == nil {
		if w.version == "" {
			w.listed = map[string]bool{}
		}
		before := w.version
		err := w.api.Watch(ctx, w.request(), idleTimeout, w.event)
		// The watch made progress, so that the server works and the delay starts again.
		if w.version != before {
			delay = w.Retry
		}
		if kubeapi.Code(err) == http.StatusGone {
			w.version = "" // list all pods again
		}
		if err != nil && ctx.Err() == nil {
			w.Log.Warn("pods can't be watched", "err", err, "retry_after", delay)
			w.mu.Lock()
			w.problem = fmt.Errorf("pods can't be watched: %w", err)
			w.mu.Unlock()
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

// request is the request that lists and watches the pods, or resumes at version. Pods that have
// ended hold no device.
func (w *watch) request() string {
	query := url.Values{
		"watch":               {"1"},
		"allowWatchBookmarks": {"true"},
		"fieldSelector":       {"status.phase!=Succeeded,status.phase!=Failed"},
	}
	if w.version == "" {
		// The list arrives as events, one object at a time. A list in one response has the size of
		// all objects. The server requires resourceVersionMatch with it (ValidateListOptions in
		// k8s.io/apimachinery/pkg/apis/meta/internalversion/validation).
		query.Set("sendInitialEvents", "true")
		query.Set("resourceVersionMatch", "NotOlderThan")
	} else {
		query.Set("resourceVersion", w.version)
	}
	return "/api/v1/pods?" + query.Encode()
}

// event handles one event of the stream. The first one is empty: the request was accepted.
func (w *watch) event(e kubeapi.Event) error {
	o := &podObject{}
	if e.Type != "" {
		if err := json.Unmarshal(e.Object, o); err != nil {
			return err
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	switch e.Type {
	case "": // the watch began
	case "BOOKMARK":
		_, isListEnd := o.Metadata.Annotations[initialEventsEnd]
		if w.listed != nil && isListEnd {
			w.forgetOthers(w.listed)
			w.listed = nil
			w.Log.Info("watching pods")
		}
	// "ADDED" and "MODIFIED" both have the whole object. An object that no longer matches the field
	// selector is reported as "DELETED".
	default:
		isAffected := w.judge(o, e.Type == "DELETED")
		if isAffected && w.listed != nil {
			w.listed[o.Metadata.UID] = true
		}
	}
	if w.listed == nil { // the objects of a list are not in the order of their versions
		w.problem = nil
		w.version = cmp.Or(o.Metadata.ResourceVersion, w.version)
	}
	return nil
}
