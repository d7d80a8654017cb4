package kubelettest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials/insecure"
	"k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

// errDown is the error of a stopping kubelet.
var errDown = errors.New("the kubelet is down")

// Request is one Register call.
type Request struct {
	Resource, Endpoint string
	Answered           bool
}

// Register is the kubelet's side of a registration: it connects to the plugin and gets
// its options before it responds.
func (p *process) Register(ctx context.Context, req *v1beta1.RegisterRequest) (*v1beta1.Empty, error) {
	var index int
	p.update(func() {
		index = len(p.requests)
		p.requests = append(p.requests, Request{Resource: req.GetResourceName(), Endpoint: req.GetEndpoint()})
	})
	err := p.register(ctx, req)
	p.update(func() { p.requests[index].Answered = true })
	if err != nil {
		return nil, err
	}
	return &v1beta1.Empty{}, nil
}

func (p *process) register(ctx context.Context, req *v1beta1.RegisterRequest) error {
	p.mu.Lock()
	faults := p.faults
	p.mu.Unlock()
	if faults.hang != nil {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-faults.hang:
		}
	}
	if faults.refuse != nil {
		return faults.refuse
	}
	if v := req.GetVersion(); v != v1beta1.Version {
		return fmt.Errorf("API version %q is not supported: want %q", v, v1beta1.Version)
	}
	name := req.GetResourceName()
	if !extendedResource(name) {
		return fmt.Errorf("resource name %q is not valid", name)
	}
	c, err := newClient(name, filepath.Join(p.opts.Dir, req.GetEndpoint()))
	if err != nil {
		return err
	}
	p.mu.Lock()
	p.clients[p.key(c)] = c // before the connection
	p.open = append(p.open, c)
	p.mu.Unlock()
	if p.opts.BeforeDial != nil {
		p.opts.BeforeDial(name, req.GetEndpoint())
	}
	if err := p.connect(ctx, c); err != nil {
		p.update(func() { p.drop(c) })
		return err
	}
	if !faults.noStreams {
		p.wg.Go(func() { p.follow(c) })
	}
	return nil
}

// connect connects to a plugin and makes it that of its resource. The first list comes
// later.
func (p *process) connect(ctx context.Context, c *client) (err error) {
	if err := c.dial(ctx, p.opts.DialTimeout); err != nil {
		return err
	}
	if c.options, err = c.api.GetDevicePluginOptions(ctx, &v1beta1.Empty{}); err != nil {
		return fmt.Errorf("GetDevicePluginOptions: %w", err)
	}
	p.update(func() {
		if p.process != p {
			err = errDown
			return
		}
		r := p.resources[c.resource]
		if r == nil {
			r = &resource{}
			p.resources[c.resource] = r
		}
		if p.opts.Keying == ByResource {
			r.connected = nil
		} else if r.find(c.socket) != nil {
			err = fmt.Errorf("device plugin already connected: %s", c.socket)
			return
		}
		r.registrations++
		r.plugin, r.stopped = c, time.Time{}
		r.connected = append(r.connected, c)
	})
	return err
}

// follow receives lists until the stream ends, and then disconnects the plugin with the
// client's key, which with ByResource may be another one.
func (p *process) follow(c *client) {
	c.receive(func(resp *v1beta1.ListAndWatchResponse) {
		p.update(func() {
			if p.process == p {
				p.resources[c.resource].take(c, resp.GetDevices())
			}
		})
	})
	p.update(func() {
		victim := p.clients[p.key(c)]
		if victim == nil {
			// The kubelet never closes the connection of a dropped client.
			return
		}
		p.drop(victim)
		if p.process == p {
			p.resources[c.resource].disconnect(victim, p.opts.Keying)
		}
	})
}

// key is the key of c.
func (p *process) key(c *client) string {
	if p.opts.Keying == ByResource {
		return c.resource
	}
	return c.socket
}

// drop closes c and removes the client with its key.
func (p *process) drop(c *client) {
	delete(p.clients, p.key(c))
	p.open = slices.DeleteFunc(p.open, func(other *client) bool { return other == c })
	c.close()
}

// client is the kubelet's connection to one plugin.
type client struct {
	resource, socket string
	conn             *grpc.ClientConn
	api              v1beta1.DevicePluginClient
	options          *v1beta1.DevicePluginOptions
	stream           context.Context
	cut              context.CancelFunc // ends only the stream
}

func newClient(resource, socket string) (*client, error) {
	conn, err := grpc.NewClient("passthrough:///"+socket,
		grpc.WithContextDialer(func(ctx context.Context, path string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, "unix", path)
		}),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithAuthority("localhost"),
		grpc.WithNoProxy(),
	)
	if err != nil {
		return nil, fmt.Errorf("connect to the plugin: %w", err)
	}
	c := &client{resource: resource, socket: socket, conn: conn, api: v1beta1.NewDevicePluginClient(conn)}
	c.stream, c.cut = context.WithCancel(context.Background())
	return c, nil
}

// dial connects, and retries for d.
func (c *client) dial(ctx context.Context, d time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	for {
		c.conn.Connect()
		state := c.conn.GetState()
		if state == connectivity.Ready {
			return nil
		}
		if state == connectivity.Shutdown {
			return errDown
		}
		if !c.conn.WaitForStateChange(ctx, state) {
			return fmt.Errorf("connect to the plugin: %w", ctx.Err())
		}
	}
}

// receive opens the stream of a client and receives lists until it ends.
func (c *client) receive(take func(*v1beta1.ListAndWatchResponse)) {
	stream, err := c.api.ListAndWatch(c.stream, &v1beta1.Empty{})
	for err == nil {
		var resp *v1beta1.ListAndWatchResponse
		if resp, err = stream.Recv(); err == nil {
			take(resp)
		}
	}
	c.cut()
}

// close breaks the connection.
func (c *client) close() {
	c.cut()
	_ = c.conn.Close()
}

var (
	domainForm = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`)
	nameForm   = regexp.MustCompile(`^[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$`)
)

// extendedResource reports whether the kubelet accepts name: the quota for it,
// "requests." and name, must be a qualified name too.
func extendedResource(name string) bool {
	domain, rest, ok := strings.Cut(name, "/")
	return ok && !strings.Contains(name, "kubernetes.io/") && !strings.HasPrefix(name, "requests.") &&
		len("requests."+domain) <= 253 && domainForm.MatchString(domain) &&
		len(rest) <= 63 && nameForm.MatchString(rest)
}
