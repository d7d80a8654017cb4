package plugin

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/generic-dp/generic-dp/device"
)

// Allocate answers every container of the request, or fails the request with
// the device and the reason. It keeps nothing: the kubelet asks again for an
// init container's devices, and never says when one is free.
func (s *session) Allocate(ctx context.Context, req *v1beta1.AllocateRequest) (*v1beta1.AllocateResponse, error) {
	began := time.Now()
	resp, err := bounded(ctx, s.Plugin, "Allocate", func(ctx context.Context) (*v1beta1.AllocateResponse, error) {
		resp := &v1beta1.AllocateResponse{}
		for _, c := range req.GetContainerRequests() {
			answer, err := s.allocate(ctx, c.GetDevicesIds())
			if err != nil {
				return nil, err
			}
			resp.ContainerResponses = append(resp.ContainerResponses, containerResponse(answer))
		}
		return resp, nil
	})
	took := time.Since(began)
	if s.hooks.Allocated != nil {
		s.hooks.Allocated(took, err)
	}
	if err != nil {
		s.log.Warn("allocation refused", "reason", status.Convert(err).Message(), "duration_seconds", took.Seconds())
		return nil, err
	}
	return resp, nil
}

// allocate answers one container. The kubelet names devices in random order.
func (p *Plugin) allocate(ctx context.Context, ids []string) (device.Answer, error) {
	if len(ids) == 0 {
		return device.Answer{}, nil
	}
	ids = slices.Clone(ids)
	slices.Sort(ids)
	ids = slices.Compact(ids)
	if err := p.usable(ids); err != nil {
		return device.Answer{}, err
	}
	answer, err := p.source.Allocate(ctx, ids)
	if err != nil {
		return device.Answer{}, status.Errorf(codes.FailedPrecondition, "resource %q: %v", p.resource, err)
	}
	return answer, nil
}

// usable reports the first of ids that is not listed or not healthy.
func (p *Plugin) usable(ids []string) error {
	list, _ := p.source.Devices()
	listed := make(map[string]*device.Listed, len(ids))
	for i := range list {
		if _, ok := slices.BinarySearch(ids, list[i].ID); ok {
			listed[list[i].ID] = &list[i]
		}
	}
	for _, id := range ids {
		d := listed[id]
		if d == nil {
			return status.Errorf(codes.NotFound, "resource %q: device %q is not known: it was removed, or has another ID now", p.resource, id)
		}
		if !d.Healthy {
			reason := d.Reason
			if reason == "" {
				reason = "no reason is known"
			}
			return status.Errorf(codes.FailedPrecondition, "resource %q: device %q is unhealthy: %s", p.resource, id, reason)
		}
	}
	return nil
}

// GetPreferredAllocation never fails, since that would fail the pod: where there
// is no preference the answer is empty and the kubelet chooses.
func (s *session) GetPreferredAllocation(ctx context.Context, req *v1beta1.PreferredAllocationRequest) (*v1beta1.PreferredAllocationResponse, error) {
	containers := req.GetContainerRequests()
	resp, err := bounded(ctx, s.Plugin, "GetPreferredAllocation", func(context.Context) (*v1beta1.PreferredAllocationResponse, error) {
		resp := &v1beta1.PreferredAllocationResponse{}
		for _, c := range containers {
			ids := s.prefer(c.GetAvailableDeviceIDs(), c.GetMustIncludeDeviceIDs(), int(c.GetAllocationSize()))
			resp.ContainerResponses = append(resp.ContainerResponses, &v1beta1.ContainerPreferredAllocationResponse{DeviceIDs: ids})
		}
		return resp, nil
	})
	if err == nil {
		return resp, nil
	}
	s.log.Warn("no preferred allocation", "reason", status.Convert(err).Message())
	resp = &v1beta1.PreferredAllocationResponse{}
	for range containers {
		resp.ContainerResponses = append(resp.ContainerResponses, &v1beta1.ContainerPreferredAllocationResponse{})
	}
	return resp, nil
}

// prefer asks the source and takes only an answer that the kubelet could use.
func (p *Plugin) prefer(available, must []string, size int) []string {
	ids := p.source.Prefer(available, must, size)
	if len(ids) == 0 {
		return nil
	}
	why := ""
	chosen := make(map[string]bool, len(ids))
	for _, id := range ids {
		chosen[id] = true
	}
	missing := func(id string) bool { return !chosen[id] }
	switch {
	case len(chosen) != len(ids):
		why = "a device is in it twice"
	case len(ids) > size:
		why = fmt.Sprintf("it has %d devices where %d are wanted", len(ids), size)
	case slices.ContainsFunc(must, missing):
		why = "a device that must be in it is not"
	default:
		for _, id := range slices.Concat(available, must) {
			delete(chosen, id)
		}
		if len(chosen) > 0 {
			why = "it has a device that is not available"
		}
	}
	if why != "" {
		p.log.Error("preferred allocation not used", "reason", why)
		return nil
	}
	return ids
}

// bounded runs f below a call of the kubelet and answers in time whatever f
// does: the kubelet waits for Allocate and GetPreferredAllocation for ever, and
// admits no other pod meanwhile.
func bounded[T any](ctx context.Context, p *Plugin, call string, f func(context.Context) (T, error)) (T, error) {
	ctx, cancel := context.WithTimeout(ctx, p.timing.answer)
	defer cancel()
	type result struct {
		value T
		err   error
	}
	done := make(chan result, 1)
	go func() {
		var r result
		defer func() {
			if v := recover(); v != nil {
				r.err = p.panicked(call, v)
			}
			done <- r
		}()
		r.value, r.err = f(ctx)
	}()
	var none T
	select {
	case r := <-done:
		if r.err != nil {
			return none, r.err
		}
		return r.value, nil
	case <-ctx.Done():
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			return none, status.Errorf(codes.DeadlineExceeded, "resource %q: no answer within %s", p.resource, p.timing.answer)
		}
		return none, status.FromContextError(ctx.Err()).Err()
	}
}
