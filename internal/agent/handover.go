package agent

import (
	"context"
	"time"

	"github.com/generic-dp/generic-dp/config"
)

const (
	// handoverWithin is how long an instance that ends answers calls for its successor. The kubelet
	// calls the successor after milliseconds, or after a second if it has to find the driver for
	// DRA, for whose sockets it looks once a second (pkg/kubelet/pluginmanager/reconciler).
	handoverWithin = 3 * time.Second
	// driverWithin is how long the registrations of resources wait for the driver for DRA, so that
	// their calls need not wait for it.
	driverWithin = 2 * time.Second
	// drainWithin is how long running calls of the kubelet may then take. Only a call that needs the API
	// server takes longer.
	drainWithin = time.Second
	// answeredWithin is how long the successor needs to answer the calls that waited for it. The end
	// of a stream makes kubelets up to 1.36 disconnect the newest client of the resource, also during
	// a call.
	answeredWithin = 50 * time.Millisecond
	// registerWithin is how long the successor needs to register a resource again, and endStreamsWithin is
	// how long it takes at most to end the streams of all resources.
	registerWithin   = 5 * time.Millisecond
	endStreamsWithin = 500 * time.Millisecond
)

// standBy returns when it is the turn of this instance, or with the error of ctx. Until then another
// instance serves, and this one registers and writes nothing. It only matches the host once, so that
// a version or a configuration that does not survive that dies before it matters.
func (a *Agent) standBy(ctx context.Context) error {
	if a.found.hasWrites {
		return nil
	}
	log := a.log.With("run_dir", a.options.Paths.RunDir)
	log.Info("another instance serves: waiting for it to end")
	began := time.Now()
	// A third instance is not Ready, so that an update ends at the second one.
	err := within(ctx, a.turn.await(waits, alone))
	if err != nil {
		return err
	}
	rehearsed := make(chan struct{})
	served := a.found.reading.Config
	go func() {
		defer close(rehearsed)
		a.rehearse(ctx, served)
	}()
	hasWrites := a.turn.await(writes, alone)
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-hasWrites:
	case <-rehearsed:
		a.page.isWaiting.Store(true)
		a.page.events.add("", "", "ready, and waits for the instance that serves to end")
		err = within(ctx, hasWrites)
	}
	if err != nil {
		return err
	}
	log.Info("this instance serves now", "waited_seconds", time.Since(began).Seconds())
	a.takeOver()
	return nil
}

// within waits until a channel is closed. It returns the error of ctx if ctx ends first.
func within(ctx context.Context, closed <-chan struct{}) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-closed:
		return nil
	}
}

// rehearse scans and matches the host once, and writes nothing.
func (a *Agent) rehearse(ctx context.Context, served *config.Config) {
	for ctx.Err() == nil {
		_, err := Scan(ctx, served, a.options)
		if err == nil {
			return
		}
		a.log.Warn("host can't be scanned", "err", err)
		sleep(ctx, retryAfter)
	}
}

// takeOver reads the configuration again: the other instance may have died of it. The loop reads the
// state, see loop.begin.
func (a *Agent) takeOver() {
	reading := a.reader.Own()
	// Without a last good configuration, the one of the start is better than none.
	if reading.Config == nil {
		reading.Config = a.found.reading.Config
	}
	a.found.reading = reading
	a.showConfig()
	a.page.isWaiting.Store(false)
}

// succeed answers the kubelet as soon as the predecessor does not any more. It lets the predecessor
// know when the kubelet has all registrations of this instance.
func (a *Agent) succeed(ctx context.Context) error {
	mayAnswer := a.turn.await(answers, alone)
	select {
	case <-ctx.Done():
		return nil
	case <-mayAnswer:
	case <-a.announced:
	case <-time.After(handoverWithin):
	}
	_, _ = a.turn.set(waits, shared) // the kubelet calls this instance
	if within(ctx, mayAnswer) != nil || within(ctx, a.holdsLoaded) != nil {
		return nil
	}
	if a.found.hasPredecessor {
		a.loadHolds(ctx, true) // the predecessor has granted devices since
	}
	a.gate.open()
	// The predecessor keeps its share until its streams have ended.
	if within(ctx, a.turn.await(waits, alone)) != nil {
		return nil
	}
	_, _ = a.turn.set(waits, none)
	if a.found.hasPredecessor {
		a.predecessorEnded.send()
	}
	return nil
}

// handOver lets the successor answer the kubelet when the kubelet has its registrations, and returns
// when the streams of this instance may end. ctx ends if this instance cannot answer any more.
func (a *Agent) handOver(ctx context.Context) {
	a.kubelet.IsRetired.Store(true)
	_, _ = a.turn.set(writes, none)
	select {
	case <-ctx.Done():
	case <-a.turn.await(waits, shared):
	case <-time.After(handoverWithin):
	}
	// A call that does not end keeps the right until the end of the process.
	if a.gate.close(drainWithin) {
		a.book.Retire()
		_, _ = a.turn.set(answers, none)
		sleep(ctx, answeredWithin)
	}
	a.endStreams(ctx)
}

// endStreams ends the streams of the resources one after the other. When a stream ends, kubelets up to 1.36
// disconnect the successor's client of the resource, which is without devices until the successor has
// registered it again. If all of them register at once, that takes twenty times as long for each.
func (a *Agent) endStreams(ctx context.Context) {
	all := a.members()
	pause := min(registerWithin, endStreamsWithin/time.Duration(max(1, len(all))))
	for _, r := range all {
		isStarted := r.ended != nil // the loop has ended, to which the field belongs
		if isStarted {
			r.stop()
			sleep(ctx, pause)
		}
	}
}

// announce lets succeed continue when the kubelet has every resource, or has refused it. Only the loop
// calls it, once all lists are published.
func (l *loop) announce() {
	var tried []<-chan struct{}
	for _, r := range l.agent.members() {
		isStarted := r.ended != nil
		if isStarted {
			tried = append(tried, r.plugin.Tried())
		}
	}
	if l.dra.isRunning.Load() {
		tried = append(tried, l.dra.plugin.Registered())
	}
	l.life.answering.Go(func(ctx context.Context) error {
		for _, t := range tried {
			if within(ctx, t) != nil {
				return nil
			}
		}
		close(l.agent.announced)
		return nil
	})
}

// afterDriver waits until the kubelet has the driver for DRA, if a predecessor answers meanwhile.
func (a *Agent) afterDriver(ctx context.Context) {
	if !a.dra.isRunning.Load() {
		return
	}
	select {
	case <-ctx.Done():
	case <-a.dra.plugin.Registered():
	case <-a.gate.opened:
	case <-time.After(driverWithin):
	}
}

// followPredecessor does what had to wait for the last call that the predecessor answered, and for the
// end of its streams.
func (l *loop) followPredecessor() {
	// The kubelet forgets all health when a stream of the driver ends. The same devices again make the
	// plugin send their health.
	if devices, _ := l.dra.list.Get(); devices != nil {
		l.dra.list.Set(devices)
	}
}
