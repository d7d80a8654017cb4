package dra

import (
	"cmp"
	"log/slog"
	"maps"
	"sync"
)

// Status is the state of the registration with the kubelet.
type Status struct {
	// Registered means that the kubelet accepted the driver and is connected.
	Registered bool
	// Reason says why the driver is not registered, for an administrator.
	Reason string
}

// status is what the server knows about the kubelet, and the publisher about the API server.
type status struct {
	// changed is called when Status or Problem has changed.
	changed func()
	log     *slog.Logger
	// registered is closed when the kubelet first accepted the driver.
	registered chan struct{}
	once       sync.Once

	mu    sync.Mutex
	state state
}

// state is the part of a status that changes.
type state struct {
	accepted    bool              // by the kubelet, which may have ended since
	connections int               // of the kubelet
	unserved    string            // why the kubelet can't use the driver; empty if it can, or will
	unpublished string            // why the API server lacks devices; empty if nobody has to change anything
	refused     map[string]string // why the API server refuses single devices, by ID; read-only
}

// registration returns the state for Status. It names one reason, the one to remove first.
func (s state) registration() Status {
	switch {
	case s.unserved != "":
		return Status{Reason: s.unserved}
	case !s.accepted:
		return Status{Reason: "the kubelet has not registered the driver yet"}
	case s.connections == 0:
		return Status{Reason: "the kubelet has disconnected"}
	}
	return Status{Registered: true}
}

// problem is why a device can't be offered, empty if nobody has to change anything. The kubelet comes
// before the API server.
func (s state) problem(id string) string {
	reason := cmp.Or(s.unserved, s.unpublished)
	if reason == "" && s.refused[id] != "" {
		reason = "the API server refuses the device: " + s.refused[id]
	}
	return reason
}

// get returns the state.
func (s *status) get() state {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.state
}

// update changes the state by f. f must not block, and must replace refused instead of changing it.
// Logging and changed follow without the lock.
func (s *status) update(f func(now *state)) {
	s.mu.Lock()
	before := s.state
	f(&s.state)
	now := s.state
	if now.accepted {
		s.once.Do(func() {
			close(s.registered)
		})
	}
	s.mu.Unlock()
	otherStatus := now.registration() != before.registration()
	if otherStatus && now.registration().Registered {
		s.log.Info("registered", "driver", Driver)
	} else if otherStatus {
		s.log.Info("not registered", "driver", Driver, "reason", now.registration().Reason)
	}
	otherProblem := now.problem("") != before.problem("") || !maps.Equal(now.refused, before.refused)
	if otherStatus || otherProblem {
		s.changed()
	}
}
