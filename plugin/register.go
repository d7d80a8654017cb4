package plugin

import (
	"context"
	"errors"
	"net"
	"sync/atomic"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

// ioBuffer is the size of gRPC's read and write buffers: a quarter of the memory
// of a connection with the default of 32 KiB.
const ioBuffer = 4 << 10

// dialKubelet connects to the kubelet's socket. It is done by hand, since a gRPC
// client that is refused once waits for a second before it tries again.
func dialKubelet(ctx context.Context, path string) (net.Conn, error) {
	var d net.Dialer
	return d.DialContext(ctx, "unix", path)
}

// errSpent is what a connection that ended is answered with.
var errSpent = errors.New("the connection to the kubelet has ended")

// register tells the kubelet over conn that resource is served on the socket
// endpoint, a file name in the kubelet's directory. The kubelet answers after it
// has connected to that socket.
func register(ctx context.Context, conn net.Conn, resource, endpoint string) error {
	var used atomic.Bool
	client, err := grpc.NewClient("passthrough:///kubelet",
		grpc.WithContextDialer(func(context.Context, string) (net.Conn, error) {
			if used.Swap(true) {
				return nil, errSpent
			}
			return conn, nil
		}),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithAuthority("localhost"),
		grpc.WithNoProxy(),
		grpc.WithReadBufferSize(ioBuffer),
		grpc.WithWriteBufferSize(ioBuffer),
	)
	if err != nil {
		return err
	}
	defer client.Close()
	_, err = v1beta1.NewRegistrationClient(client).Register(ctx, &v1beta1.RegisterRequest{
		Version:      v1beta1.Version,
		Endpoint:     endpoint,
		ResourceName: resource,
		Options:      pluginOptions(),
	})
	if s, ok := status.FromError(err); ok && err != nil {
		return &refusal{s}
	}
	return err
}

// refusal is a gRPC status as an administrator wants to read it.
type refusal struct{ status *status.Status }

func (r *refusal) Error() string              { return r.status.Message() }
func (r *refusal) GRPCStatus() *status.Status { return r.status }

// pluginOptions are the same for every resource. PreStartContainer would keep
// containers from restarting while this program is down.
func pluginOptions() *v1beta1.DevicePluginOptions {
	return &v1beta1.DevicePluginOptions{GetPreferredAllocationAvailable: true}
}
