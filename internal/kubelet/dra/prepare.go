package dra

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	claims "k8s.io/kubelet/pkg/apis/dra/v1"

	"github.com/generic-dp/generic-dp/cdi"
	"github.com/generic-dp/generic-dp/internal/holds"
)

// maxPoll is the maximum time between attempts of a call that waits.
const maxPoll = 2 * time.Second

// ErrNotOffered means that a device is not offered by DRA now, or not healthy, but may be a
// moment later, such as after a start of the program. Inject wraps it.
var ErrNotOffered = errors.New("not offered now")

// NodePrepareResources prepares each claim on its own. The files of the claims are the only
// state: the kubelet calls again for a claim after its own restart, and for each sandbox.
//
// A claim that can't be prepared now is tried until shortly before the kubelet gives up. After
// an error the kubelet only tries again with the next periodic sync of the pod, 60 to 90 s later
// (SyncPod in pkg/kubelet/kuberuntime/kuberuntime_manager.go returns without a failed result).
func (s *service) NodePrepareResources(ctx context.Context, req *claims.NodePrepareResourcesRequest) (*claims.NodePrepareResourcesResponse, error) {
	type answer struct {
		uid      string
		response *claims.NodePrepareResourceResponse
	}
	// Claims are prepared at the same time: one that waits for its device does not use up the time
	// of the others.
	answers := make(chan answer)
	for _, c := range req.GetClaims() {
		go func() {
			answers <- answer{uid: c.GetUid(), response: s.answer(ctx, c)}
		}()
	}
	resp := &claims.NodePrepareResourcesResponse{Claims: map[string]*claims.NodePrepareResourceResponse{}}
	for range req.GetClaims() {
		a := <-answers
		resp.Claims[a.uid] = a.response
	}
	return resp, nil
}

// answer prepares one claim. An error is part of the response for this claim, and is logged.
func (p *Plugin) answer(ctx context.Context, c *claims.Claim) *claims.NodePrepareResourceResponse {
	began := time.Now()
	name := c.GetNamespace() + "/" + c.GetName()
	claim := cdi.Claim{
		Namespace: c.GetNamespace(),
		Name:      c.GetName(),
		UID:       c.GetUid(),
	}
	var devices []*claims.Device // not read before the call has ended
	err := p.inTime(ctx, func(ctx context.Context) error {
		var err error
		devices, err = p.prepare(ctx, claim)
		return err
	})
	took := time.Since(began)
	p.Prepared(took, err)
	if err != nil {
		p.Log.Warn("claim not prepared", "claim", name, "err", err, "duration_seconds", took.Seconds())
		return &claims.NodePrepareResourceResponse{Error: fmt.Sprintf("claim %s: %v", name, err)}
	}
	return &claims.NodePrepareResourceResponse{Devices: devices}
}

// inTime runs f until shortly before the kubelet gives up the call, and returns in time even if
// f hangs.
func (p *Plugin) inTime(ctx context.Context, f func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, p.timing.answer)
	defer cancel()
	if ctx.Err() != nil {
		// The kubelet may have asked for the opposite since.
		return errGivenUp
	}
	// Capacity 1: a call that hangs can end after inTime has returned.
	done := make(chan error, 1)
	go func() {
		var err error
		defer func() {
			done <- err
		}()
		defer p.recover("claim", &err)
		err = f(ctx)
	}()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
	}
	// A call that waits ends now, with an error that says what it waits for.
	select {
	case err := <-done:
		return err
	case <-time.After(p.timing.hang):
		return fmt.Errorf("no answer within %s", p.timing.answer)
	}
}

// errGivenUp means that nothing was done, since the kubelet no longer waits for the answer.
var errGivenUp = errors.New("the kubelet has given up the call")

// prepare prepares a claim as soon as that is possible.
func (p *Plugin) prepare(ctx context.Context, claim cdi.Claim) ([]*claims.Device, error) {
	// The allocation does not change while the claim is reserved for a pod, so it is read once.
	groups, err := p.allocation(ctx, &claim)
	if err != nil {
		return nil, err
	}
	delay := p.timing.poll
	var waitedFor error
	for {
		// The channels come first, so that no change is missed during the attempt.
		_, offered := p.Devices.Get()
		removed := p.records.removed()
		devices, err := p.attempt(ctx, claim, groups)
		if err == nil {
			return devices, nil
		}
		if waitedFor != nil && ctx.Err() != nil {
			return nil, waitedFor // an attempt that is cut off says less
		}
		if !mayPassSoon(err) {
			return nil, err
		}
		waitedFor = err
		select {
		case <-ctx.Done():
			return nil, err
		case <-offered:
		case <-removed:
		case <-time.After(delay):
			delay = nextDelay(delay)
		}
	}
}

// nextDelay returns the time until the next attempt of a call that waits.
func nextDelay(last time.Duration) time.Duration {
	return min(last*3/2, maxPoll)
}

// mayPassSoon reports whether an attempt that failed may succeed while the kubelet waits. After
// other errors the call ends at once, and the kubelet repeats it later.
func mayPassSoon(err error) bool {
	var held *heldError
	if errors.As(err, &held) {
		return !held.final()
	}
	return errors.Is(err, ErrNotOffered) || errors.Is(err, errChanged)
}

// errChanged means that claims or devices changed during an attempt, which may be repeated at
// once.
var errChanged = errors.New("claims or devices changed meanwhile")

// attempt writes the files of a claim, unless another claim holds one of its devices. It returns a
// heldError, or an error that wraps ErrNotOffered or errChanged, if a later attempt may succeed.
func (p *Plugin) attempt(ctx context.Context, claim cdi.Claim, groups [][]allocated) ([]*claims.Device, error) {
	leave, err := p.Enter(ctx)
	if err != nil {
		return nil, err
	}
	defer leave()
	unlock, err := p.locks.lock(ctx, claim.UID)
	if err != nil {
		return nil, err
	}
	defer unlock()
	last, isPrepared := p.records.get(claim.UID)
	if isPrepared {
		claim.Pods = merged(claim.Pods, p.notEnded(last.claim.Pods))
	}
	for {
		filled, err := p.fill(ctx, claim, groups)
		if err != nil {
			return nil, err
		}
		err = filled.checkAmounts()
		if err == nil {
			err = holds.CheckWithin(filled.wanted())
		}
		if err != nil {
			return nil, err
		}
		if isPrepared {
			if err := p.checkLast(last, filled.claim); err != nil {
				return nil, err
			}
		}
		if ctx.Err() != nil {
			return nil, errGivenUp
		}
		// The reservation and the check for other holders are one step, so that of two concurrent
		// calls only one gets the device.
		reserved, err := p.records.reserve(filled, time.Now())
		if err != nil {
			return nil, err
		}
		if len(reserved.conflicts) == 0 {
			if err := p.commit(filled, reserved.renewed); err != nil {
				return nil, err
			}
			return filled.devices, nil
		}
		// This takes requests to the API server, during which a device may stop being offered:
		// the claim is filled again afterwards.
		if err := p.clear(ctx, reserved.conflicts); err != nil {
			return nil, err
		}
	}
}

// merged returns the UIDs of both lists, sorted. A claim keeps the pods of its last preparation
// that may still run: the API server removes a pod from status.reservedFor when it is deleted, with
// --force before its containers end (pkg/controller/resourceclaim/controller.go).
func merged(pods, more []string) []string {
	all := slices.Concat(pods, more)
	slices.Sort(all)
	return slices.Compact(all)
}

// checkLast returns why the devices of a claim's last preparation are still held, if the claim has
// other devices now. Once no pod has a reservation, the claim is deallocated, and the scheduler may
// allocate other devices to it for its next pod. The record of the claim then no longer holds the
// former devices, which containers of the former pods may still have.
func (p *Plugin) checkLast(last holder, next cdi.Claim) error {
	lost := lostDevice(last.claim, next)
	if lost == "" {
		return nil
	}
	// The API server has the claim, but not with these devices.
	e, pod := p.evidence(last)
	e.IsAbsent = true
	reason := p.textOf(e.Hold(), last, pod)
	if reason.none() {
		return nil
	}
	return &heldError{
		device:  lost,
		holders: []holder{last},
		reasons: []obstacle{reason},
	}
}

// lostDevice returns a device of which a claim has fewer slots than at its last preparation, empty
// if there is none.
func lostDevice(last, next cdi.Claim) string {
	slots := map[string]int{}
	for name, n := range count(next) {
		slots[deviceID(name)] += n
	}
	before := count(last)
	for _, name := range slices.Sorted(maps.Keys(before)) {
		if slots[deviceID(name)] < before[name] {
			return name
		}
	}
	return ""
}

// commit writes the files of a claim that is reserved. last is the record of the last preparation, nil
// if there was none.
func (p *Plugin) commit(filled *filled, last *record) error {
	if err := p.Claims.WriteClaim(filled.claim); err != nil {
		p.records.restore(filled.claim.UID, last)
		return err
	}
	return p.writeMetadata(filled.claim, filled.held)
}
