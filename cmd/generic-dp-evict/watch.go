package main

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/generic-dp/generic-dp/internal/kubelet/kubeapi"
)

const (
	// idleTimeout ends a watch without events. The API server sends a bookmark about once a minute, so
	// that a silent stream is dead.
	idleTimeout = 5 * time.Minute
	// maxReconnect is the longest delay between two watches, before the random part is added.
	maxReconnect = 30 * time.Second
	// allPods lists and watches the pods. The list arrives as events, one object at a time: a list in
	// one response has the size of all objects. The server requires resourceVersionMatch with it
	// (ValidateListOptions in k8s.io/apimachinery/pkg/apis/meta/internalversion/validation). Pods that
	// have ended hold no device.
	allPods = "/api/v1/pods?watch=1&allowWatchBookmarks=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan" +
		"&fieldSelector=status.phase%21%3DSucceeded%2Cstatus.phase%21%3DFailed"
)

// follow keeps what is known of the pods up to date until ctx is cancelled. Each watch begins with a
// list of all pods: the API server ends one about once an hour.
func (e *evicter) follow(ctx context.Context) {
	delay := e.Retry
	for ctx.Err() == nil {
		w := watch{evicter: e, listed: map[string]bool{}}
		err := e.api.Watch(ctx, allPods, idleTimeout, w.event)
		// The server works, so that the delay starts again.
		if w.listed == nil {
			delay = e.Retry
		}
		if err != nil && ctx.Err() == nil {
			e.Log.Warn("pods can't be watched", "err", err, "retry_after", delay)
			e.mu.Lock()
			e.problem = fmt.Errorf("pods can't be watched: %w", err)
			e.mu.Unlock()
		}
		select {
		case <-ctx.Done():
		// The random part spreads the clients of a restarted server.
		case <-time.After(delay + rand.N(delay)):
		}
		delay = min(2*delay, maxReconnect)
	}
}

// watch is one watch of all pods.
type watch struct {
	*evicter
	// listed has the UIDs of the pods of the list that have unhealthy devices; nil after its end. It
	// is needed to forget all others.
	listed map[string]bool
}

// event handles one event of the stream. The first one is empty: the request was accepted.
func (w *watch) event(event kubeapi.Event) error {
	if event.Type == "" {
		return nil
	}
	o := &podObject{}
	if err := json.Unmarshal(event.Object, o); err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	_, isListEnd := o.Metadata.Annotations[initialEventsEnd]
	switch {
	case event.Type == "BOOKMARK" && isListEnd:
		w.forgetOthers(w.listed)
		w.listed = nil
		w.problem = nil
		notify(w.changed)
		w.Log.Info("watching pods")
	case event.Type == "BOOKMARK":
	// "ADDED" and "MODIFIED" both have the whole object. An object that no longer matches the field
	// selector is reported as "DELETED".
	case w.judge(o, event.Type == "DELETED") && w.listed != nil:
		w.listed[o.Metadata.UID] = true
	}
	return nil
}
