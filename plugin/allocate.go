package plugin

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
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
func (s *session) Allocate(ctx context.Context, req *v1beta1.AllocateRequest) (resp *v1beta1.AllocateResponse, err error) {
	began := time.Now()
	resp = &v1beta1.AllocateResponse{}
	for _, c := range req.GetContainerRequests() {
		r, failed := s.allocate(ctx, c.GetDevicesIds())
		if failed != nil {
			resp, err = nil, failed
			break
		}
		resp.ContainerResponses = append(resp.ContainerResponses, containerResponse(r))
	}
	took := time.Since(began)
	if s.hooks.Allocated != nil {
		s.hooks.Allocated(took, err)
	}
	if err != nil {
		s.log.Warn("allocation refused", "reason", status.Convert(err).Message(), "duration_seconds", took.Seconds())
	}
	return resp, err
}

// allocate answers one container. The kubelet names devices in random order.
func (p *Plugin) allocate(ctx context.Context, ids []string) (device.Response, error) {
	if len(ids) == 0 {
		return device.Response{}, nil
	}
	ids = slices.Clone(ids)
	slices.Sort(ids)
	ids = slices.Compact(ids)
	ask := func(ctx context.Context) (r device.Response, err error) {
		defer p.recover("Allocate", &err)
		if r, err = p.source.Allocate(ctx, ids); err != nil {
			err = status.Errorf(codes.FailedPrecondition, "resource %q: %v", p.resource, err)
		}
		return r, err
	}
	if p.source.Blocks(ids) {
		return bounded(ctx, p, ask)
	}
	return ask(ctx)
}

// GetPreferredAllocation never fails, since that would fail the pod: where there
// is no preference the answer is empty and the kubelet chooses.
func (s *session) GetPreferredAllocation(ctx context.Context, req *v1beta1.PreferredAllocationRequest) (*v1beta1.PreferredAllocationResponse, error) {
	resp := &v1beta1.PreferredAllocationResponse{}
	for _, c := range req.GetContainerRequests() {
		ids, err := bounded(ctx, s.Plugin, func(context.Context) ([]string, error) {
			return s.prefer(c.GetAvailableDeviceIDs(), c.GetMustIncludeDeviceIDs(), int(c.GetAllocationSize()))
		})
		if err != nil {
			s.log.Error("preferred allocation not used", "reason", err)
		}
		resp.ContainerResponses = append(resp.ContainerResponses, &v1beta1.ContainerPreferredAllocationResponse{DeviceIDs: ids})
	}
	return resp, nil
}

// prefer asks the source and takes only an answer that the kubelet could use.
func (p *Plugin) prefer(available, must []string, size int) (ids []string, err error) {
	defer p.recover("GetPreferredAllocation", &err)
	ids = p.source.Prefer(available, must, size)
	if len(ids) == 0 {
		return nil, nil
	}
	chosen := make(map[string]bool, len(ids))
	for _, id := range ids {
		chosen[id] = true
	}
	switch {
	case len(chosen) != len(ids):
		return nil, errors.New("a device is in it twice")
	case len(ids) > size:
		return nil, fmt.Errorf("it has %d devices where %d are wanted", len(ids), size)
	case slices.ContainsFunc(must, func(id string) bool { return !chosen[id] }):
		return nil, errors.New("a device that must be in it is not")
	}
	for _, id := range slices.Concat(available, must) {
		delete(chosen, id)
	}
	if len(chosen) > 0 {
		return nil, errors.New("it has a device that is not available")
	}
	return ids, nil
}

// bounded runs f below a call of the kubelet and answers in time whatever f
// does: the kubelet waits for Allocate and GetPreferredAllocation for ever, and
// admits no other pod meanwhile.
func bounded[T any](ctx context.Context, p *Plugin, f func(context.Context) (T, error)) (value T, err error) {
	ctx, cancel := context.WithTimeout(ctx, p.timing.answer)
	defer cancel()
	done := make(chan func() (T, error), 1)
	go func() {
		value, err := f(ctx)
		done <- func() (T, error) { return value, err }
	}()
	select {
	case answer := <-done:
		return answer()
	case <-ctx.Done():
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			return value, status.Errorf(codes.DeadlineExceeded, "resource %q: no answer within %s", p.resource, p.timing.answer)
		}
		return value, status.FromContextError(ctx.Err()).Err()
	}
}

// recover makes an error of a panic below a call of the kubelet, and logs it.
func (p *Plugin) recover(call string, err *error) {
	if v := recover(); v != nil {
		p.log.Error("panic", "call", call, "reason", fmt.Sprint(v), "stack", string(debug.Stack()))
		*err = status.Errorf(codes.Internal, "resource %q: internal error: panic: %v", p.resource, v)
	}
}
