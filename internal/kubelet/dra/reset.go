package dra

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/generic-dp/generic-dp/cdi"
)

// unreset returns the devices of a claim, as "RESOURCE=ID", that have to be reset before the claim is
// answered: they are not in its last preparation, or their reset did not end then. A device that was
// reset for the claim is never reset again, because containers of the claim may run: the kubelet
// repeats a prepare after its own restart. Access beside the holders of a device resets nothing.
// wasReset are devices that were reset since.
func (f *filled) unreset(last cdi.Claim, wasReset map[string]bool) []string {
	before := count(last)
	var keys []string
	for key := range count(f.claim) {
		isNew := before[key] == 0 || slices.Contains(last.Unreset, key)
		isDue := isNew && !wasReset[key]
		if f.held[key].Resets && isDue {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	return keys
}

// resetAll resets devices of a claim, whose file says so: no other claim gets them meanwhile, and if
// this program ends before they are reset, the next prepare resets them.
func (p *Plugin) resetAll(ctx context.Context, f *filled, keys []string) error {
	if p.Reset == nil {
		return errors.New("this program does not reset devices")
	}
	errs := make([]error, len(keys))
	var running sync.WaitGroup
	for i, key := range keys {
		running.Go(func() {
			defer p.recover("reset", &errs[i])
			errs[i] = p.resetDevice(ctx, f.held[key])
		})
	}
	running.Wait()
	return errors.Join(errs...)
}

// resetNew resets the devices of a claim that has just been written. If that fails, a claim that was
// not prepared before is removed again, so that another claim may get the devices.
func (p *Plugin) resetNew(ctx context.Context, f *filled, isPrepared bool) error {
	err := p.resetAll(ctx, f, f.claim.Unreset)
	if err != nil && !isPrepared {
		return errors.Join(err, p.release(f.claim.UID))
	}
	return err
}

// resetDevice resets a device of a claim, unless a pod has access to it beside its holder.
func (p *Plugin) resetDevice(ctx context.Context, d *Device) error {
	all, err := p.records.all(time.Now())
	if err != nil {
		return err
	}
	for _, h := range all {
		if !accesses(h.claim, d.ID) {
			continue
		}
		if reason := p.podsObstacle(h); !reason.none() {
			return fmt.Errorf("device %q was not reset: claim %s has adminAccess to it: %s: %w",
				d.ID, fullName(h.claim), reason, ErrNotOffered)
		}
	}
	return p.Reset(ctx, d.Resource, d.ID)
}

// accesses reports whether a claim has access to a device beside its holders.
func accesses(claim cdi.Claim, id string) bool {
	for _, r := range claim.Requests {
		isOf := func(name string) bool {
			return deviceID(name) == id
		}
		if slices.ContainsFunc(r.Admin, isOf) {
			return true
		}
	}
	return false
}
