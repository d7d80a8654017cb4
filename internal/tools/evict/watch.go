package evict

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/url"
	"time"

	"github.com/generic-dp/generic-dp/internal/kubelet/kubeapi"
)

// idleTimeout ends a watch without events. The API server sends a bookmark about once a minute, so
// that a silent stream is dead. It may then have missed events: Stream reports StatusGone, and all
// objects are listed again.
const idleTimeout = 5 * time.Minute

// maxReconnect is the longest delay between two watches, before the random part is added.
const maxReconnect = 30 * time.Second

// watch follows the objects of one collection. It belongs to the goroutine that calls follow.
type watch struct {
	*evicter
	collection string     // for messages: "pods"
	path       string     // of the collection
	query      url.Values // restricts its objects; may be nil
	// newObject returns an empty object of the collection.
	newObject func() watched
	// forgetOthers forgets the objects whose keys are not in listed. The caller holds mu.
	forgetOthers func(listed map[string]bool)

	version string // resourceVersion to resume from; empty lists all objects first
	// listed has the keys of the objects of a list that are remembered; nil after its end. It is
	// needed to forget all others.
	listed map[string]bool
}

// watched is an object of a watch. A bookmark is also read as one: it only has metadata.
type watched interface {
	// read reads the object from a stream. Nobody holds mu, because reading waits for the network.
	read(d *kubeapi.Decoder) error
	// head returns the metadata of the object.
	head() *metadata
	// update records the object, or forgets it if it was deleted. It returns the key of an object
	// that is remembered, and otherwise an empty key. The caller holds mu.
	update(e *evicter, deleted bool) (key string)
}

// watchPods returns a watch of all pods. Pods that have ended hold no device.
func (e *evicter) watchPods() *watch {
	return &watch{
		evicter:    e,
		collection: podsCollection,
		path:       "/api/v1/pods",
		query:      url.Values{"fieldSelector": {"status.phase!=Succeeded,status.phase!=Failed"}},
		newObject: func() watched {
			return &podObject{}
		},
		forgetOthers: e.forgetPods,
	}
}

// watchSlices returns a watch of the ResourceSlices of all drivers.
func (e *evicter) watchSlices() *watch {
	return &watch{
		evicter:    e,
		collection: slicesCollection,
		path:       resourceAPI + "/resourceslices",
		newObject: func() watched {
			return &sliceObject{}
		},
		forgetOthers: e.forgetSlices,
	}
}

// follow keeps what is known of the objects up to date until ctx is cancelled. After an error it
// resumes at the last version, so that an interruption does not cost a list of all objects.
func (w *watch) follow(ctx context.Context) {
	delay := time.Second
	for ctx.Err() == nil {
		if w.version == "" {
			w.listed = map[string]bool{}
		}
		before := w.version
		err := w.api.Stream(ctx, w.request(), idleTimeout, w.event)
		// The watch made progress, so that the server works and the delay starts again.
		if w.version != before {
			delay = time.Second
		}
		if kubeapi.Code(err) == http.StatusGone {
			w.version = "" // list all objects again
		}
		if err != nil && ctx.Err() == nil {
			w.Log.Warn(w.collection+" can't be watched", "err", err, "retry_after", delay)
			w.mu.Lock()
			w.problems[w.collection] = fmt.Errorf("%s can't be watched: %w", w.collection, err)
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

// request is the request that lists and watches the objects, or resumes at version.
func (w *watch) request() string {
	query := url.Values{
		"watch":               {"1"},
		"allowWatchBookmarks": {"true"},
	}
	maps.Copy(query, w.query)
	if w.version == "" {
		// The list arrives as events, one object at a time. A list in one response has the size of
		// all objects. The server requires resourceVersionMatch with it (ValidateListOptions in
		// k8s.io/apimachinery/pkg/apis/meta/internalversion/validation).
		query.Set("sendInitialEvents", "true")
		query.Set("resourceVersionMatch", "NotOlderThan")
	} else {
		query.Set("resourceVersion", w.version)
	}
	return w.path + "?" + query.Encode()
}

// event handles one event of the stream. object is nil for the first call, when the request was
// accepted.
func (w *watch) event(kind string, object *kubeapi.Decoder) error {
	o := w.newObject()
	if object != nil {
		if err := o.read(object); err != nil {
			return err
		}
	}
	head := o.head()
	w.mu.Lock()
	defer w.mu.Unlock()
	switch kind {
	case "": // the watch began
	case "BOOKMARK":
		if w.listed != nil && head.isListEnd {
			w.forgetOthers(w.listed)
			w.listed = nil
			w.Log.Info("watching " + w.collection)
		}
	// "ADDED" and "MODIFIED" both have the whole object. An object that no longer matches the field
	// selector is reported as "DELETED".
	default:
		key := o.update(w.evicter, kind == "DELETED")
		if key != "" && w.listed != nil {
			w.listed[key] = true
		}
	}
	if w.listed == nil { // the objects of a list are not in the order of their versions
		delete(w.problems, w.collection)
		w.version = cmp.Or(head.version, w.version)
	}
	return nil
}
