package kubelettest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials/insecure"
	"k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

// errDown is what a kubelet says that is being stopped.
var errDown = errors.New("the kubelet is down")

// client is the kubelet's connection to one plugin.
type client struct {
	resource, socket string

	mu     sync.Mutex
	conn   *grpc.ClientConn
	cancel context.CancelFunc // of the stream
	closed bool
	api    v1beta1.DevicePluginClient
}

// dial connects, and keeps trying for d.
func (c *client) dial(ctx context.Context, d time.Duration) error {
	conn, err := grpc.NewClient("passthrough:///"+c.socket,
		grpc.WithContextDialer(func(ctx context.Context, path string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, "unix", path)
		}),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithAuthority("localhost"),
		grpc.WithNoProxy(),
	)
	if err != nil {
		return fmt.Errorf("connect to the plugin: %w", err)
	}
	c.mu.Lock()
	c.conn, c.api = conn, v1beta1.NewDevicePluginClient(conn)
	closed := c.closed
	c.mu.Unlock()
	if closed {
		_ = conn.Close()
		return errDown
	}
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	for {
		conn.Connect()
		state := conn.GetState()
		if state == connectivity.Ready {
			return nil
		}
		if !conn.WaitForStateChange(ctx, state) {
			return fmt.Errorf("connect to the plugin: %w", ctx.Err())
		}
	}
}

// receive opens the one stream of a client and takes lists until it ends, which
// is never without an error.
func (c *client) receive(take func(*v1beta1.ListAndWatchResponse)) error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	c.mu.Lock()
	c.cancel = cancel
	closed := c.closed
	c.mu.Unlock()
	if closed {
		return errDown
	}
	stream, err := c.api.ListAndWatch(ctx, &v1beta1.Empty{})
	if err != nil {
		return err
	}
	for {
		resp, err := stream.Recv()
		if err != nil {
			return err
		}
		take(resp)
	}
}

// cut ends the stream alone.
func (c *client) cut() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cancel != nil {
		c.cancel()
	}
}

// close breaks the connection, if there is one, and keeps another from coming.
func (c *client) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	if c.conn != nil {
		_ = c.conn.Close()
	}
	if c.cancel != nil {
		c.cancel()
	}
}
