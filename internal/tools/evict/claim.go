package evict

import (
	"context"
	"net/http"
	"time"

	"github.com/generic-dp/generic-dp/internal/kubelet/kubeapi"
)

// A pod that requests an extended resource may get a DRA device. The scheduler then creates a
// ResourceClaim for the pod, and names it in the pod's status. The kubelet does not report the
// health of such devices (UpdateAllocatedResourcesStatus in pkg/kubelet/cm/dra/manager.go skips
// containers without resources.claims), and the controller that deletes pods because of NoExecute
// taints only follows spec.resourceClaims (https://github.com/kubernetes/kubernetes/issues/141290).
// Therefore this package compares the allocation of the claim with the taints itself. Pods with a
// claim of their own are left to that controller.

// resourceAPI is the path of the API of DRA.
const resourceAPI = "/apis/resource.k8s.io/v1"

// claim is the claim for the extended resources of a pod. Its zero value is no claim.
type claim struct {
	name string
	// resources has the extended resource of each request of the claim. It is nil after the
	// claim has been read.
	resources map[string]string
	// isRead is set when devices is complete. A claim is read when its node has a tainted device
	// for the first time. The allocation of a bound pod never changes.
	isRead  bool
	devices []allocated
}

// allocated is a device that a claim has, and the extended resource for which it was requested.
type allocated struct {
	driver, pool, device string
	resource             string
}

// readStatus reads extendedResourceClaimStatus of a pod (PodExtendedResourceClaimStatus in
// k8s.io/api/core/v1). null is valid JSON for a pod without a claim.
func (c *claim) readStatus(d *kubeapi.Decoder) error {
	return d.Fields(func(name string) error {
		switch name {
		case "resourceClaimName":
			return d.Value(&c.name)
		case "requestMappings":
			c.resources = map[string]string{}
			return d.Elements(func() error {
				var mapping struct{ ResourceName, RequestName string }
				err := d.Value(&mapping)
				c.resources[mapping.RequestName] = mapping.ResourceName
				return err
			})
		}
		return d.Skip()
	})
}

// result is one device of an allocation (DeviceRequestAllocationResult in
// k8s.io/api/resource/v1).
type result struct{ Request, Driver, Pool, Device string }

// readClaims reads the claims of pods on nodes with tainted devices, one after the other, until ctx
// is cancelled. It runs in its own goroutine.
func (e *evicter) readClaims(ctx context.Context) {
	delay := firstRetry
	for ctx.Err() == nil {
		e.mu.Lock()
		o := e.unreadClaim()
		e.mu.Unlock()
		if o == nil {
			select {
			case <-ctx.Done():
			case <-e.unread:
			}
			continue
		}
		results, err := e.results(ctx, o)
		if err == nil {
			delay = firstRetry
			e.mu.Lock()
			e.setResults(o, results)
			e.mu.Unlock()
			continue
		}
		if ctx.Err() == nil {
			e.Log.Warn("claim can't be read", "namespace", o.namespace, "pod", o.name, "claim", o.claim.name, "err", err, "retry_after", delay)
		}
		select {
		case <-ctx.Done():
		case <-time.After(delay):
		}
		delay = min(2*delay, maxRetry)
	}
}

// results reads the allocation of a pod's claim. Without the claim, or without an allocation, the
// pod has no devices: it is about to end.
func (e *evicter) results(ctx context.Context, o *podObject) ([]result, error) {
	var object struct {
		Status struct {
			Allocation struct {
				Devices struct{ Results []result }
			}
		}
	}
	err := e.api.Get(ctx, resourceAPI+"/namespaces/"+o.namespace+"/resourceclaims/"+o.claim.name, &object)
	if kubeapi.Code(err) == http.StatusNotFound {
		return nil, nil
	}
	return object.Status.Allocation.Devices.Results, err
}

// unreadClaim returns a pod whose claim must be read, or nil. The caller holds mu.
func (e *evicter) unreadClaim() *podObject {
	for _, o := range e.claimed {
		if !o.claim.isRead && len(e.slices.byNode[o.node]) > 0 {
			return o
		}
	}
	return nil
}

// setResults records the devices of a pod's claim. The watch may have replaced or forgotten the pod
// meanwhile. The caller holds mu.
func (e *evicter) setResults(read *podObject, results []result) {
	o := e.claimed[read.uid]
	if o == nil || o.claim.name != read.claim.name {
		return
	}
	for _, r := range results {
		o.claim.devices = append(o.claim.devices, allocated{
			driver:   r.Driver,
			pool:     r.Pool,
			device:   r.Device,
			resource: o.claim.resources[r.Request],
		})
	}
	o.claim.isRead = true
	o.claim.resources = nil
	e.judge(o, false)
}

// maxClaimed is the number of pods with a claim that are remembered. They take about 8 MB.
const maxClaimed = 16 << 10

// remember remembers a pod with a claim, or forgets a pod without one, and reports whether it is
// remembered. The caller holds mu.
func (e *evicter) remember(o *podObject) bool {
	before := e.claimed[o.uid]
	delete(e.claimed, o.uid)
	// A pod without a node has not got its devices yet.
	hasDevices := e.DRA && o.claim.name != "" && o.node != ""
	if !hasDevices {
		return false
	}
	if len(e.claimed) >= maxClaimed {
		e.warnForgotten(o.node, o.name, "too many pods with extended resources through DRA: some are not evicted", maxClaimed)
		return false
	}
	if before != nil && before.claim.name == o.claim.name {
		o.claim = before.claim
	}
	e.claimed[o.uid] = o
	if !o.claim.isRead {
		notify(e.unread)
	}
	return true
}
