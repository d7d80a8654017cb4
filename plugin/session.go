package plugin

import (
	"context"
	"sync"
	"time"

	"google.golang.org/grpc"
	"k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

// maxRequest is what the server takes: the kubelet names every free device in
// GetPreferredAllocation, those chosen already twice, and fails the pod when it
// can't.
const maxRequest = 4 * MaxMessage

// session is the server of one registration: one socket, never used again.
type session struct {
	v1beta1.UnimplementedDevicePluginServer
	*Plugin
	server *grpc.Server
	conns  *connCounter

	quit   chan struct{} // closed: streams end
	served chan struct{} // closed: the server accepts no more, for err
	err    error

	opened, listed, ended             chan struct{} // closed by the first stream
	openedOnce, listedOnce, endedOnce sync.Once
}

// serve answers the kubelet on socket until stop.
func (p *Plugin) serve(socket *ownSocket) *session {
	s := &session{
		Plugin: p,
		server: grpc.NewServer(
			grpc.ReadBufferSize(ioBuffer),
			grpc.WriteBufferSize(ioBuffer),
			grpc.MaxRecvMsgSize(maxRequest),
		),
		quit:   make(chan struct{}),
		served: make(chan struct{}),
		opened: make(chan struct{}),
		listed: make(chan struct{}),
		ended:  make(chan struct{}),
	}
	s.conns = &connCounter{Listener: socket.listener, none: make(chan struct{}, 1)}
	v1beta1.RegisterDevicePluginServer(s.server, s)
	go func() {
		defer close(s.served)
		s.err = s.server.Serve(s.conns)
	}()
	return s
}

// stop ends the streams, lets calls under way finish for a while, and returns
// when nothing is served any more. Streams go by their own signal: a graceful
// stop waits for them for ever.
//
// The kubelet answers a stream's end by closing the connection, and by then it is
// about done with the client. One that registers before that is taken for the one
// whose stream ended, by kubelets up to 1.36, and is dropped without a word: so
// the kubelet is given time to hang up by itself.
func (s *session) stop() {
	close(s.quit)
	s.conns.wait(s.timing.hangUp)
	timer := time.AfterFunc(s.timing.stop, s.server.Stop)
	defer timer.Stop()
	s.server.GracefulStop()
	<-s.served
}

// GetDevicePluginOptions never fails: the registration would.
func (s *session) GetDevicePluginOptions(context.Context, *v1beta1.Empty) (*v1beta1.DevicePluginOptions, error) {
	return pluginOptions(), nil
}

// PreStartContainer is not asked for; it is answered all the same.
func (s *session) PreStartContainer(context.Context, *v1beta1.PreStartContainerRequest) (*v1beta1.PreStartContainerResponse, error) {
	return &v1beta1.PreStartContainerResponse{}, nil
}

// ListAndWatch sends the whole list at once and whenever it changes. The kubelet
// never opens a second stream after this one ends, so its end ends the session.
func (s *session) ListAndWatch(_ *v1beta1.Empty, stream grpc.ServerStreamingServer[v1beta1.ListAndWatchResponse]) (err error) {
	s.openedOnce.Do(func() { close(s.opened) })
	defer s.endedOnce.Do(func() { close(s.ended) })
	defer s.recover("ListAndWatch", &err)
	return s.stream(stream)
}
