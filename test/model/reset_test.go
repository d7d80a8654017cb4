package model

import (
	"context"
	"fmt"
	"slices"

	"github.com/generic-dp/generic-dp/internal/testing/kubelettest"
)

// startContainer does what the kubelet does before it starts the container of the oldest pod with a
// card: the plugin resets the card, if the configuration says so. If it is contested, a pod runs
// beside it that the kubelet gives the same card. The error is a violated rule: a card is reset exactly
// for its own pod, and never while another pod has it.
func (w *world) startContainer(contested bool) error {
	i := slices.IndexFunc(w.claims, func(c claim) bool { return things[c.thing].resource == "card" })
	if i < 0 || w.program == nil || !w.kubeletUp {
		return nil
	}
	c := w.claims[i]
	hasMoved := w.hw.moves[c.thing] != c.moves
	if hasMoved || w.hw.at[c.thing].dir == "" {
		return nil // it would be awaited for 20 s
	}
	if before := w.hw.reset(); len(before) > 0 {
		return fmt.Errorf("%v were reset before a container starts", before)
	}
	uid := w.kubelet.UID(c.Namespace, c.Pod)
	w.cgroups.Start(uid)
	defer w.cgroups.End(uid)
	if contested {
		other := kubelettest.Request{Namespace: "ns", Pod: "contestant", Container: "c", Resource: c.Resource}
		w.kubelet.Hold(other, c.id)
		rival := w.kubelet.UID(other.Namespace, other.Pod)
		w.cgroups.Start(rival)
		defer w.kubelet.Remove(other.Namespace, other.Pod)
		defer w.cgroups.End(rival)
	}
	mustPreStart := w.kubelet.MustPreStart(c.Resource)
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	err := w.kubelet.StartContainer(ctx, c.Request)
	return w.checkReset(c, contested, mustPreStart, err)
}

// checkReset checks which cards were reset for the start of a container, which ended with err.
func (w *world) checkReset(c claim, contested, mustPreStart bool, err error) error {
	cards := w.hw.reset()
	own := []string{c.thing}
	isOwn := slices.Equal(cards, own)
	switch {
	case contested && len(cards) > 0:
		return fmt.Errorf("%v were reset although two pods with %s run", cards, c.id)
	case len(cards) > 0 && !isOwn:
		return fmt.Errorf("%v were reset for the container of %s with %s", cards, c.Pod, c.id)
	}
	// Until the program has noticed the last lines, it may serve another configuration.
	isSure := !w.truth.unsettled && !w.configUncertain() && len(w.faulty) == 0
	name := w.config.fullName("card")
	if !isSure || c.Resource != name || w.config.of["card"].removed {
		return nil
	}
	resets := w.config.resets("card") && mustPreStart
	switch {
	case !resets && len(cards) > 0:
		return fmt.Errorf("%v were reset without container.reset", cards)
	case resets && !contested && err != nil:
		return fmt.Errorf("the container of %s can't start: %w", c.Pod, err)
	case resets && !contested && !isOwn:
		return fmt.Errorf("%s was not reset for the container of %s", c.thing, c.Pod)
	case resets && contested && err == nil:
		return fmt.Errorf("the container of %s may start although two pods with %s run", c.Pod, c.id)
	}
	return nil
}

// checkOptions checks that the kubelet announces the starts of containers with cards exactly if cards
// are reset.
func (w *world) checkOptions() error {
	name := w.config.fullName("card")
	isServed := !w.configUncertain() && !w.config.of["card"].removed
	if !isServed || len(w.kubelet.Connected(name)) == 0 {
		return nil
	}
	if must := w.kubelet.MustPreStart(name); must != w.config.resets("card") {
		return fmt.Errorf("%s: PreStartRequired is %t", name, must)
	}
	return nil
}
