package dra

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	drapb "k8s.io/kubelet/pkg/apis/dra/v1"

	"github.com/generic-dp/generic-dp/cdi"
	"github.com/generic-dp/generic-dp/internal/device"
	"github.com/generic-dp/generic-dp/internal/holds"
)

// maxPoll is the maximum time between attempts of a call that waits.
const maxPoll = 2 * time.Second

// ErrNotOffered means that a device is not offered by DRA now, or not healthy, but may be a
// moment later, such as after a start of the program. Inject wraps it.
var ErrNotOffered = errors.New("not offered now")

// errChanged means that claims or devices changed during an attempt, which may be repeated at
// once.
var errChanged = errors.New("claims or devices changed meanwhile")

// errGivenUp means that nothing was done, since the kubelet no longer waits for the answer.
var errGivenUp = errors.New("the kubelet has given up the call")

// claims prepares and releases the claims of the node. The files of the claims are the state that
// survives a restart: load reads them once. The book knows which devices they hold, and changes
// together with byUID.
type claims struct {
	*Plugin
	// newPods has a value when the host may have new pods, and released when a released claim waits for the
	// end of its pods. listed has an answer of the kubelet. They have capacity 1.
	newPods  chan struct{}
	released chan struct{}
	listed   chan func(cdi.Claim) bool

	mu    sync.Mutex
	byUID map[string]*prepared
	ended chan struct{} // closed when a claim has ended; nil if nobody waits
}

// prepared is a prepared claim. Each preparation makes another one, so that a caller with an old one
// notices that the claim was prepared again. Claim and written never change, and the other fields
// belong to claims.mu.
type prepared struct {
	// Claim is the content of the file.
	cdi.Claim
	// written is the time of the last preparation.
	written time.Time
	// ran is set once a process of one of the claim's pods was seen after the preparation.
	ran bool
	// runs is set if such a process existed when the state of the pods was last known. It outlives a
	// preparation, as processes do.
	runs bool
	// released is set once the kubelet called NodeUnprepareResources.
	released bool
}

// load reads the claims that earlier instances have prepared.
func (c *claims) load() {
	stored, err := c.Claims.Claims()
	if err != nil {
		c.Log.Warn("prepared claims can't be read", "cdi_dir", c.Claims.Dir, "err", err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	c.byUID = map[string]*prepared{}
	wanted := map[string][]holds.Wanted{}
	for _, claim := range stored {
		written := now
		info, err := os.Lstat(c.Claims.ClaimPath(claim.UID))
		// A time in the future would delay the end of the claim.
		isEarlier := err == nil && info.ModTime().Before(now)
		if isEarlier {
			written = info.ModTime()
		}
		c.byUID[claim.UID] = &prepared{Claim: claim, written: written}
		wanted[claim.UID] = wantedBy(claim)
	}
	c.Book.SetClaims(wanted, err)
}

// wantedBy are the devices of a claim for the book, once for each slot. What they use is not in the files of
// claims.
func wantedBy(claim cdi.Claim) []holds.Wanted {
	var all []holds.Wanted
	for _, ref := range claim.Devices() {
		all = append(all, holds.Wanted{ID: ref.ID, Resource: device.ResourceKey(ref.Resource, true)})
	}
	return all
}

// all returns the prepared claims in random order.
func (c *claims) all() []*prepared {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Collect(maps.Values(c.byUID))
}

// nextEnd returns a channel that is closed when the next claim ends.
func (c *claims) nextEnd() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended == nil {
		c.ended = make(chan struct{})
	}
	return c.ended
}

// prepare prepares a claim as soon as that is possible. A claim that can't be prepared now is tried
// until ctx ends, shortly before the kubelet gives up. After an error the kubelet only tries again with
// the next periodic sync of the pod, 60 to 90 s later (SyncPod in
// pkg/kubelet/kuberuntime/kuberuntime_manager.go returns without a failed result).
func (c *claims) prepare(ctx context.Context, claim cdi.Claim) ([]*drapb.Device, error) {
	var groups [][]allocated
	var waitedFor error
	delay := c.timing.poll
	for {
		// The channels come first, so that no change is missed during the attempt.
		_, offered := c.Devices.Get()
		ended := c.nextEnd()
		var devices []*drapb.Device
		var err error
		// The allocation does not change while the claim is reserved for a pod, so it is read once.
		if groups == nil {
			groups, err = c.allocation(ctx, &claim)
		}
		mayRepeat := mayAnswer(err)
		if err == nil {
			devices, err = c.attempt(ctx, claim, groups)
			mayRepeat = mayPass(err)
		}
		if err == nil {
			return devices, nil
		}
		if waitedFor != nil && ctx.Err() != nil {
			return nil, waitedFor // an attempt that is cut off says less
		}
		if !mayRepeat {
			return nil, err
		}
		waitedFor = err
		select {
		case <-ctx.Done():
			return nil, err
		case <-offered:
		case <-ended:
		case <-time.After(delay):
			delay = nextDelay(delay)
		}
	}
}

// nextDelay returns the time until the next attempt of a call that waits.
func nextDelay(last time.Duration) time.Duration {
	return min(last*3/2, maxPoll)
}

// mayPass reports whether an attempt that failed may succeed while the kubelet waits. After other
// errors the call ends at once, and the kubelet repeats it later.
func mayPass(err error) bool {
	var held *heldError
	if errors.As(err, &held) {
		return !held.isFinal
	}
	return errors.Is(err, ErrNotOffered) || errors.Is(err, errChanged)
}

// attempt prepares a claim unless another claim holds one of its devices. It returns a heldError, or an
// error that wraps ErrNotOffered or errChanged, if a later attempt may succeed.
func (c *claims) attempt(ctx context.Context, claim cdi.Claim, groups [][]allocated) ([]*drapb.Device, error) {
	leave, err := c.Enter(ctx)
	if err != nil {
		return nil, err
	}
	defer leave()
	filled, err := c.fill(ctx, claim, groups)
	if err != nil {
		return nil, err
	}
	err = c.commit(ctx, filled)
	var held *heldError
	if errors.As(err, &held) {
		err = c.clear(ctx, held)
	}
	if err != nil {
		return nil, err
	}
	return filled.devices, nil
}

// commit records a claim and writes its files. The check for other holders and the record are one step,
// so that of two concurrent calls only one gets a device. If other claims hold a device, it does
// nothing, and returns a heldError.
func (c *claims) commit(ctx context.Context, f *filled) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if ctx.Err() != nil {
		return errGivenUp
	}
	next := &prepared{written: time.Now()}
	last := c.byUID[f.claim.UID]
	if last != nil {
		next.runs = last.runs
		// The API server removes a pod from status.reservedFor when it is deleted, with --force
		// before its containers end (pkg/controller/resourceclaim/controller.go).
		f.claim.Pods = merged(f.claim.Pods, c.notEnded(last.Pods))
	}
	if last != nil && needsNoMore(f.claim, last.Claim) {
		c.Book.Record(f.claim.UID, f.wanted()) // its containers may run already
	} else if err := c.reserve(f, last); err != nil {
		return err
	}
	next.Claim = f.claim
	if err := c.Claims.WriteClaim(f.claim); err != nil {
		if last == nil {
			c.Book.Release(f.claim.UID)
		} else {
			c.Book.Record(f.claim.UID, wantedBy(last.Claim))
		}
		return err
	}
	c.byUID[f.claim.UID] = next
	return c.writeMetadata(f)
}

// merged returns the UIDs of both lists, sorted.
func merged(pods, more []string) []string {
	all := slices.Concat(pods, more)
	slices.Sort(all)
	return slices.Compact(all)
}

// reserve records the devices of a claim in the book, unless other claims exclude one of them: that is a
// heldError. last is the last preparation of the claim, nil if there is none. An error that wraps
// ErrNotOffered says that a container of the device plugin has the hardware. The caller holds c.mu.
func (c *claims) reserve(f *filled, last *prepared) error {
	if err := holds.CheckWithin(f.wanted()); err != nil {
		return err
	}
	if err := c.checkLost(last, f.claim); err != nil {
		return err
	}
	if err := c.checkAmounts(f); err != nil {
		return err
	}
	others, err := c.Book.Reserve(f.claim.UID, f.wanted())
	if err != nil {
		return fmt.Errorf("%w: %w", err, ErrNotOffered)
	}
	if len(others) == 0 {
		return nil
	}
	resource, _ := device.SplitResourceKey(others[0].Resource)
	held := &heldError{device: device.Ref{Resource: resource, ID: others[0].ID}}
	for _, h := range others {
		own := c.byUID[h.Claim]
		if own == nil {
			return fmt.Errorf("device %q is held by a container through %s: %w", h.ID, h.Resource, ErrNotOffered)
		}
		// The holders of other devices follow when this one is free.
		isSame := h.ID == others[0].ID && h.Resource == others[0].Resource
		if isSame && !slices.Contains(held.holders, own) {
			held.holders = append(held.holders, own)
		}
	}
	return held
}

// checkLost returns why a device is still held that a claim had at its last preparation, and has no more.
// Once no pod has a reservation, the claim is deallocated, and the scheduler may allocate other devices
// to it for its next pod. Containers of the former pods may still have the former devices, which the
// record of the claim would no longer hold.
func (c *claims) checkLost(last *prepared, next cdi.Claim) error {
	if last == nil {
		return nil
	}
	kept := next.Devices()
	for _, ref := range last.Devices() {
		i := slices.IndexFunc(kept, func(d device.Ref) bool { return d.ID == ref.ID })
		if i >= 0 {
			kept = slices.Delete(kept, i, i+1)
			continue
		}
		// The API server has the claim, but not with this device.
		e := c.evidence(last)
		e.IsAbsent = true
		reason := e.Hold()
		if reason == nil {
			return nil
		}
		held := &heldError{device: ref}
		held.add(last, reason)
		return held
	}
	return nil
}

// release removes the files of a claim and its record, and wakes the calls that wait for a device. The
// file of the claim itself is the last one, so that the kubelet repeats its call if the program crashes
// before that. Metadata that can't be removed cannot block the end of a pod. The caller holds c.mu.
func (c *claims) release(uid string) error {
	files, _ := os.ReadDir(c.Metadata)
	for _, f := range files {
		if strings.HasPrefix(f.Name(), uid+".") {
			_ = os.Remove(filepath.Join(c.Metadata, f.Name()))
		}
	}
	if err := c.Claims.RemoveClaim(uid); err != nil {
		return err
	}
	if c.byUID[uid] == nil {
		return nil
	}
	delete(c.byUID, uid)
	c.Book.Release(uid)
	if c.ended != nil {
		close(c.ended)
		c.ended = nil
	}
	return nil
}
