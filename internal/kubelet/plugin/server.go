package plugin

import (
	"context"
	"net"
	"slices"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/generic-dp/generic-dp/internal/device"
	"github.com/generic-dp/generic-dp/internal/kubelet"
)

const (
	// maxRequest is the size of the largest request. The kubelet names every free device in
	// GetPreferredAllocation, and devices that it has already chosen twice. If the call
	// fails, the kubelet fails the pod.
	maxRequest = 16 << 20
	// readBuffer is the buffer that every connection keeps. Longer messages bypass it.
	readBuffer = 1 << 10
	// writeBuffer is a buffer that exists only while a connection writes.
	writeBuffer = 4 << 10
	// flowWindow is HTTP/2's flow control window. A dynamic one is measured by pings,
	// which cost two wake-ups in each Allocate call.
	flowWindow = 1 << 20
	// workers are goroutines whose stacks have already grown. A stream occupies one.
	workers = 2
)

// server is the gRPC server of one registration: one socket, never used again.
type server struct {
	v1beta1.UnimplementedDevicePluginServer
	*Plugin
	grpc  *grpc.Server
	conns *connListener

	// quit is closed to end the streams.
	quit chan struct{}
	// stopped is closed when the server accepts no more connections, because of err.
	stopped chan struct{}
	err     error

	// optionsSent is set once the kubelet has asked for the options.
	optionsSent atomic.Bool
	// streaming is set once the kubelet has called ListAndWatch.
	streaming atomic.Bool

	// listed happens after the first list, and streamEnded at the end of the first stream.
	listed, streamEnded *event
}

func newServer(p *Plugin) *server {
	return &server{
		Plugin:      p,
		quit:        make(chan struct{}),
		stopped:     make(chan struct{}),
		listed:      newEvent(),
		streamEnded: newEvent(),
	}
}

// serve serves the kubelet on a socket until stop.
func (p *Plugin) serve(listener net.Listener) *server {
	s := newServer(p)
	s.conns = newConnListener(listener)
	s.grpc = grpc.NewServer(
		grpc.ReadBufferSize(readBuffer),
		grpc.WriteBufferSize(writeBuffer),
		grpc.StaticStreamWindowSize(flowWindow),
		grpc.StaticConnWindowSize(flowWindow),
		grpc.MaxRecvMsgSize(maxRequest),
		grpc.NumStreamWorkers(workers),
	)
	v1beta1.RegisterDevicePluginServer(s.grpc, s)
	go func() {
		defer close(s.stopped)
		s.err = s.grpc.Serve(s.conns)
	}()
	return s
}

// stop ends the streams, waits for running calls until stopWithin, and returns when the server
// has ended. GracefulStop alone would wait for streams for ever.
//
// At the end of a stream the kubelet closes the connection and forgets the client. If a plugin
// of the same resource registers before that, kubelets up to 1.36 silently drop it. So they
// get time to disconnect.
func (s *server) stop() {
	close(s.quit)
	select {
	case <-s.conns.unused():
	case <-time.After(hangUpWithin):
	}
	timer := time.AfterFunc(stopWithin, s.grpc.Stop)
	defer timer.Stop()
	s.grpc.GracefulStop()
	<-s.stopped
}

// GetDevicePluginOptions never fails, because the registration would fail with it.
func (s *server) GetDevicePluginOptions(context.Context, *v1beta1.Empty) (*v1beta1.DevicePluginOptions, error) {
	s.optionsSent.Store(true)
	return pluginOptions(), nil
}

// listStream is a stream of lists to the kubelet.
type listStream = grpc.ServerStreamingServer[v1beta1.ListAndWatchResponse]

// ListAndWatch sends the whole list at once and after every change. The kubelet never opens a
// second stream, so the end of the stream ends the server.
func (s *server) ListAndWatch(_ *v1beta1.Empty, stream listStream) (err error) {
	defer s.streamEnded.set()
	defer kubelet.Recovered(s.Log, "ListAndWatch", &err)
	s.streaming.Store(true)
	return s.stream(stream)
}

// stream sends lists until the kubelet or the server ends it. A change is sent at once. Later
// changes within the window are sent together at its end. A list that is equal for the kubelet
// is only sent on request, see ListAgain.
func (s *server) stream(stream listStream) error {
	var (
		sent    []device.Listed
		isFirst = true
		window  <-chan time.Time // changes wait until it fires
		isAgain bool             // an equal list is sent as well
	)
	for {
		list, changed := s.Source.Devices()
		isNew := isFirst || isAgain || !device.SameList(sent, list)
		if isNew && window == nil {
			if err := stream.Send(listResponse(list)); err != nil {
				return err
			}
			s.listed.set()
			if !isFirst {
				window = time.After(s.timing.window)
			}
			isFirst = false
			isAgain = false
			sent = list
		}
		if window != nil {
			changed = nil
		}
		select {
		case <-changed:
		case <-s.again:
			isAgain = true
		case <-window:
			window = nil
		case <-stream.Context().Done():
			return stream.Context().Err()
		case <-s.quit:
			return nil
		}
	}
}

// Allocate responds for every container of the request, or fails with the device and the
// reason. It keeps no state: the kubelet calls again for the devices of an init container, and
// no call frees a device.
func (s *server) Allocate(ctx context.Context, req *v1beta1.AllocateRequest) (*v1beta1.AllocateResponse, error) {
	began := time.Now()
	resp := &v1beta1.AllocateResponse{}
	var err error
	for _, c := range req.GetContainerRequests() {
		var r device.Response
		r, err = s.allocate(ctx, c.GetDevicesIds())
		if err != nil {
			resp = nil
			break
		}
		resp.ContainerResponses = append(resp.ContainerResponses, ContainerResponse(r))
	}
	took := time.Since(began)
	s.Hooks.Allocated(took, err)
	if err != nil {
		reason := status.Convert(err).Message()
		s.Log.Warn("allocation refused", "err", reason, "duration_seconds", took.Seconds())
	}
	return resp, err
}

// allocate responds for one container.
func (p *Plugin) allocate(ctx context.Context, ids []string) (device.Response, error) {
	if len(ids) == 0 {
		return device.Response{}, nil
	}
	// The kubelet sends them in random order.
	ids = slices.Compact(slices.Sorted(slices.Values(ids)))
	var r device.Response
	err := kubelet.Answer(ctx, p.Log, "Allocate", answerWithin, 0, func(ctx context.Context) (err error) {
		r, err = p.Source.Allocate(ctx, ids)
		return err
	})
	if err != nil {
		return device.Response{}, status.Errorf(codes.FailedPrecondition, "resource %q: %v", p.Resource, err)
	}
	return r, nil
}

// GetPreferredAllocation never fails, because that would fail the pod. Without a preference the
// response is empty and the kubelet chooses. The kubelet ignores unavailable devices, and adds
// devices if there are too few.
func (s *server) GetPreferredAllocation(
	ctx context.Context,
	req *v1beta1.PreferredAllocationRequest,
) (*v1beta1.PreferredAllocationResponse, error) {
	resp := &v1beta1.PreferredAllocationResponse{}
	for _, c := range req.GetContainerRequests() {
		var ids []string
		err := kubelet.Answer(ctx, s.Log, "GetPreferredAllocation", answerWithin, 0, func(context.Context) error {
			ids = s.Source.Prefer(c.GetAvailableDeviceIDs(), c.GetMustIncludeDeviceIDs(), int(c.GetAllocationSize()))
			return nil
		})
		if err != nil {
			s.Log.Error("preferred allocation is ignored", "err", err)
			resp.ContainerResponses = append(resp.ContainerResponses, &v1beta1.ContainerPreferredAllocationResponse{})
			continue
		}
		preferred := &v1beta1.ContainerPreferredAllocationResponse{DeviceIDs: ids}
		resp.ContainerResponses = append(resp.ContainerResponses, preferred)
	}
	return resp, nil
}
