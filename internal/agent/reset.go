package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/generic-dp/generic-dp/cdi"
	"github.com/generic-dp/generic-dp/internal/device"
	"github.com/generic-dp/generic-dp/internal/host/reset"
	"github.com/generic-dp/generic-dp/internal/ledger"
	"github.com/generic-dp/generic-dp/internal/output/healthdir"
	"github.com/generic-dp/generic-dp/internal/sys/slow"
)

const (
	// resetWithin is how long a reset may take, until the device is healthy again. It is shorter
	// than the kubelet waits for PreStartContainer.
	resetWithin = 20 * time.Second
	// resetPoll is how often the wait for a device looks at what is published: a new link does not
	// change the list, and causes no signal.
	resetPoll = 100 * time.Millisecond
)

// resetter resets devices before containers with them start. It is safe for concurrent use.
type resetter struct {
	// reset resets the hardware with a sysfs path.
	reset func(way, path string) error
	// recheck repeats the health check of a device.
	recheck func(id string)
	rescans rescanRequests
	health  *healthdir.Dirs
	// claims returns the prepared claims.
	claims func() ([]cdi.Claim, error)
	// count counts a reset.
	count func(resource string, took time.Duration, err error)
	// hint says how to give this program access to devices.
	hint string
	log  *slog.Logger
	// within limits the time of a reset, see resetWithin.
	within time.Duration

	// calls are the resets that run, by sysfs path. A reset that hangs in the kernel stays among
	// them, and a later start of a container waits for it instead of beginning another one.
	calls slow.Calls[string, error]

	mu sync.Mutex
	// busy has a channel for each device that is being reset, by ID. It is closed afterwards.
	busy map[string]chan struct{}
}

// newResetter returns the resetter of an agent, whose loop has yet to set recheck.
func newResetter(a *Agent) *resetter {
	host := reset.Host{Sysfs: a.options.Paths.Sysfs, Dev: a.options.Paths.Dev}
	return &resetter{
		reset:   host.Reset,
		rescans: a.rescans,
		health:  a.outputs.health,
		claims:  a.outputs.specs.Claims,
		count: func(resource string, took time.Duration, err error) {
			a.page.metrics.CountReset(resource, took, err)
		},
		hint: a.options.hint("reset"),
		log:  a.log,
		busy: map[string]chan struct{}{},

		within: resetWithin,
	}
}

// MustPreStart reports whether the kubelet has to announce each start of a container.
func (r *resource) MustPreStart() bool { return r.now.Load().mustPreStart }

// PreStart resets the devices of a container before it starts, and returns when they are healthy.
// ids are slots. The error names the device and the reason.
func (r *resource) PreStart(ctx context.Context, ids []string) error {
	// The configuration may have changed since the kubelet learned that it has to call.
	if r.resetter == nil || r.holders == nil || r.now.Load().config.Container.Reset == "" {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, r.resetter.within)
	defer cancel()
	// The devices are independent of each other, and the time limit is for all of them.
	var running sync.WaitGroup
	errs := make([]error, len(ids))
	for i, slot := range ids {
		running.Go(func() {
			errs[i] = r.resetSlot(ctx, slot)
		})
	}
	running.Wait()
	var reasons []string
	for _, err := range errs {
		if err != nil {
			reasons = append(reasons, err.Error())
		}
	}
	if len(reasons) == 0 {
		return nil
	}
	// It becomes the message of an event, which is one line.
	return errors.New(strings.Join(reasons, "; "))
}

// resetSlot resets the device of a slot before its container starts. A device with a reset has one
// slot.
func (r *resource) resetSlot(ctx context.Context, slot string) error {
	id, _ := device.SplitSlot(slot)
	pod, err := r.holders.StartingPod(ctx, slot)
	mayReset := func(ctx context.Context) error {
		if err != nil {
			return err
		}
		// The call may have waited. The device must not have gone to another pod since.
		now, err := r.holders.StartingPod(ctx, slot)
		if err == nil && now != pod {
			err = fmt.Errorf("the pod with UID %s has it now, and no longer the one with UID %s", now, pod)
		}
		if err == nil {
			err = r.resetter.checkAdmins(id)
		}
		return err
	}
	return r.resetter.run(ctx, r, id, mayReset)
}

// checkAdmins returns an error if a claim has access to a device beside its holder. Such a claim does
// not keep the device from a change of its API, so its containers may run beside a pod of the device
// plugin.
func (t *resetter) checkAdmins(id string) error {
	claims, err := t.claims()
	if err != nil {
		return fmt.Errorf("it is not known whether a claim has adminAccess to it: %w", err)
	}
	for _, c := range claims {
		for _, request := range c.Requests {
			for _, name := range request.Admin {
				_, accessed, _ := strings.Cut(name, "=")
				if accessed == id {
					return fmt.Errorf("claim %s/%s has adminAccess to it", c.Namespace, c.Name)
				}
			}
		}
	}
	return nil
}

// run resets a device of a resource. mayReset is called immediately before, and returns why the
// device must not be reset. ctx limits the time.
func (t *resetter) run(ctx context.Context, r *resource, id string, mayReset func(context.Context) error) error {
	began := time.Now()
	unlock, err := t.lock(ctx, id)
	if err == nil {
		defer unlock()
		err = t.runLocked(ctx, r, id, mayReset)
	}
	took := time.Since(began)
	t.count(r.Name, took, err)
	if err != nil {
		err = fmt.Errorf("device %q was not reset: %w", id, err)
		t.log.Warn("device was not reset", "resource", r.Name, "id", id, "err", err, "duration_seconds", took.Seconds())
		return err
	}
	t.log.Info("device was reset", "resource", r.Name, "id", id, "duration_seconds", took.Seconds())
	return nil
}

// lock waits until no other reset of a device runs.
func (t *resetter) lock(ctx context.Context, id string) (unlock func(), err error) {
	for {
		t.mu.Lock()
		other := t.busy[id]
		if other == nil {
			own := make(chan struct{})
			t.busy[id] = own
			t.mu.Unlock()
			return func() {
				t.mu.Lock()
				defer t.mu.Unlock()
				delete(t.busy, id)
				close(own)
			}, nil
		}
		t.mu.Unlock()
		select {
		case <-other:
		case <-ctx.Done():
			return nil, errors.New("another reset of it has not ended yet")
		}
	}
}

// runLocked is run while no other reset of the device runs.
func (t *resetter) runLocked(ctx context.Context, r *resource, id string, mayReset func(context.Context) error) error {
	// The host may have begun to use the device without an event, such as a network interface.
	if err := t.rescans.scan(ctx); err != nil {
		return errNoScan
	}
	// A device that was just plugged in is about to be complete.
	found, err := t.await(ctx, r, id, isComplete)
	if err != nil {
		return err
	}
	offer := found.Offer
	if offer.Problem != "" {
		return errors.New(offer.Problem)
	}
	if offer.NoReset != "" {
		return errors.New(offer.NoReset)
	}
	if offer.Reset == "" {
		return errors.New("its configuration has just changed")
	}
	if err := mayReset(ctx); err != nil {
		return err
	}
	// Nobody waits for the reset any more.
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err := t.resetHardware(ctx, offer.Reset, offer.Hardware); err != nil {
		return err
	}
	// The result of an earlier check says nothing about the device now.
	t.recheck(id)
	if err := t.rescans.scan(ctx); err != nil {
		return errNoScan
	}
	isReady := func(e *ledger.Entry, d *cdi.Injection) error {
		return r.readyToStart(e, d)
	}
	if _, err := t.await(ctx, r, id, isReady); err != nil {
		return fmt.Errorf("it did not become healthy after the reset: %w", err)
	}
	return t.renewHealth(ctx, id, offer.HealthDir)
}

// errNoScan means that the program is too busy, or that the host cannot be scanned.
var errNoScan = errors.New("the host was not scanned in time")

// resetHardware resets hardware, and returns an error if that takes longer than ctx.
func (t *resetter) resetHardware(ctx context.Context, way, path string) error {
	deadline, _ := ctx.Deadline()
	err, running, ok := t.calls.Do(ctx, path, time.Until(deadline), func() error {
		return t.reset(way, path)
	})
	if !ok {
		return fmt.Errorf("%s does not answer: its reset has been running for %s", path, running.Round(time.Second))
	}
	if errors.Is(err, reset.ErrDenied) {
		return fmt.Errorf("%s: %w: %s", path, err, t.hint)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

// await waits until a device meets a condition, and returns its offer. At the end of ctx it returns
// why the device does not meet it.
func (t *resetter) await(
	ctx context.Context,
	r *resource,
	id string,
	condition func(*ledger.Entry, *cdi.Injection) error,
) (*cdi.Injection, error) {
	for {
		p := r.now.Load()
		i, isListed := p.indexOf(id)
		if !isListed {
			return nil, errors.New("it is not known: it was removed, or has another ID now")
		}
		err := condition(&p.entries[i], &p.injections[i])
		if err == nil {
			return &p.injections[i], nil
		}
		select {
		case <-ctx.Done():
			return nil, err
		case <-p.changed:
		case <-time.After(resetPoll):
		}
	}
}

// isComplete returns why a device cannot be reset yet. A device that is Unhealthy for another reason
// may need the reset to become healthy.
func isComplete(e *ledger.Entry, _ *cdi.Injection) error {
	isMoving := e.Reason == ledger.ReasonSettling || e.Reason == ledger.ReasonUnread
	if e.Present && !isMoving {
		return nil
	}
	return errors.New(e.Reason)
}

// readyToStart returns why a container with a device that was reset cannot start yet.
func (r *resource) readyToStart(e *ledger.Entry, d *cdi.Injection) error {
	// A device that waits to move to another resource works.
	works := e.Healthy || e.Withheld
	if !works {
		return errors.New(e.Reason)
	}
	// It checks that links and nodes exist.
	_, err := r.Respond([]*cdi.Injection{d})
	return err
}

// renewHealth makes the health directory of a device that was reset say that it is healthy: the
// container that is about to start gets the nodes that the device has now. Otherwise the directory
// would show the reset as a loss, and the liveness probe would restart the container.
func (t *resetter) renewHealth(ctx context.Context, id, dir string) error {
	if dir == "" {
		return nil
	}
	t.health.Renew(id)
	// The pass makes the file.
	if err := t.rescans.scan(ctx); err != nil {
		return errNoScan
	}
	return nil
}
