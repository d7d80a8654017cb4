package agent

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/generic-dp/generic-dp/podresources"
)

const (
	// holdersFor is how long an answer of the kubelet is good for who wants to
	// see it: it answers 100 calls a second of all its clients together.
	holdersFor = 3 * time.Second
	// holdersWait is how long whoever asks waits for one: a scrape must not hang
	// with the kubelet.
	holdersWait = 500 * time.Millisecond
)

var errNoAnswer = errors.New("the kubelet did not answer in time")

// holders asks the kubelet who holds what, for people and Prometheus. What the
// loop decides by it asks for itself.
type holders struct {
	client *podresources.Client
	log    *slog.Logger

	mu     sync.Mutex
	answer *holding
	at     time.Time     // of the answer
	asking chan struct{} // closed when there is another; nil while nobody asks
	said   string        // why there was no answer, that was logged last
}

// holding is an answer of the kubelet. It is not changed any more.
type holding struct {
	held podresources.Held
	// allocatable IDs by resource; nil where the kubelet does not say.
	allocatable map[string][]string
	err         error
}

// ask returns who holds what, as it was some seconds ago at most.
func (h *holders) ask(ctx context.Context) *holding {
	h.mu.Lock()
	if h.answer != nil && time.Since(h.at) < holdersFor {
		defer h.mu.Unlock()
		return h.answer
	}
	asking := h.asking
	if asking == nil {
		asking = make(chan struct{})
		h.asking = asking
		go h.call(asking)
	}
	h.mu.Unlock()

	patience := time.NewTimer(holdersWait)
	defer patience.Stop()
	select {
	case <-asking:
		h.mu.Lock()
		defer h.mu.Unlock()
		return h.answer
	case <-patience.C:
	case <-ctx.Done():
	}
	return &holding{err: errNoAnswer}
}

// call asks the kubelet, whose client has a limit of its own, and closes asking.
func (h *holders) call(asking chan struct{}) {
	ctx := context.Background() // others wait for the answer, too
	var next holding
	next.held, next.err = h.client.List(ctx)
	if next.err == nil {
		// Older kubelets may have this switched off.
		next.allocatable, _ = h.client.Allocatable(ctx)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.answer, h.at, h.asking = &next, time.Now(), nil
	if why := text(next.err); why != h.said {
		h.said = why
		if why != "" {
			h.log.Info("who holds what is not known: metrics and status go without", "reason", why)
		}
	}
	close(asking)
}
