package agent

import (
	"sync"
	"time"

	"github.com/generic-dp/generic-dp/metrics"
)

// maxEvents is how many events the status page shows: a hub with ten devices that
// is pulled and plugged in again makes some sixty.
const maxEvents = 100

// events are the latest things that happened.
type events struct {
	mu   sync.Mutex
	list []metrics.Event // oldest first
}

// add takes down an event, and forgets the oldest where there are too many.
func (e *events) add(event metrics.Event) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.list) == maxEvents {
		e.list = append(e.list[:0], e.list[1:]...)
	}
	e.list = append(e.list, event)
}

// latest are the events, oldest first.
func (e *events) latest() []metrics.Event {
	e.mu.Lock()
	defer e.mu.Unlock()
	return append([]metrics.Event{}, e.list...)
}

// happened takes down an event; resource and id may be empty.
func (a *Agent) happened(resource, id, what string) {
	a.events.add(metrics.Event{Time: time.Now(), Resource: resource, ID: id, What: what})
}
