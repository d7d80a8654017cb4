package kubelettest

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

// dialTimeout bounds the connection to a registering plugin.
const dialTimeout = 10 * time.Second

// errDown is the error of a stopping kubelet.
var errDown = errors.New("the kubelet is down")

// Register implements Registration: it connects to the plugin and reads its options before
// it responds.
func (p *process) Register(ctx context.Context, req *v1beta1.RegisterRequest) (*v1beta1.Empty, error) {
	name := req.GetResourceName()
	endpoint := req.GetEndpoint()
	c, err := newClient(name, filepath.Join(p.opts.Dir, endpoint))
	if err != nil {
		return nil, err
	}
	withhold := false
	p.update(func() {
		p.registerCalls[name] = append(p.registerCalls[name], endpoint)
		p.clients[p.key(c)] = c // before the connection
		p.open = append(p.open, c)
		withhold = p.withholdStreams
	})
	if err = p.opts.OnRegister(ctx, name, endpoint); err == nil {
		err = p.connect(ctx, c)
	}
	// The kubelet only uses the options that it asks for, but nothing says that it always will.
	if err == nil && req.GetOptions().GetPreStartRequired() != c.options.GetPreStartRequired() {
		err = fmt.Errorf("%q: PreStartRequired is %t in the request and %t in the options", name,
			req.GetOptions().GetPreStartRequired(), c.options.GetPreStartRequired())
	}
	if err != nil {
		p.update(func() {
			p.drop(c)
		})
		return nil, err
	}
	if !withhold {
		p.wg.Go(func() {
			p.follow(c)
		})
	}
	return &v1beta1.Empty{}, nil
}

// connect connects to a plugin, which becomes the resource's.
func (p *process) connect(ctx context.Context, c *client) (err error) {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	if c.options, err = c.api.GetDevicePluginOptions(ctx, &v1beta1.Empty{}, grpc.WaitForReady(true)); err != nil {
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
		r.plugin = c
		r.connected = append(r.connected, c)
	})
	return err
}

// follow receives lists until the stream ends, and then disconnects the plugin with the
// client's key: with ByResource, possibly another instance.
func (p *process) follow(c *client) {
	stream, err := c.api.ListAndWatch(c.stream, &v1beta1.Empty{})
	for err == nil {
		var resp *v1beta1.ListAndWatchResponse
		if resp, err = stream.Recv(); err == nil {
			p.update(func() {
				if p.process == p {
					p.resources[c.resource].receive(resp.GetDevices())
					p.writeCheckpoint()
				}
			})
		}
	}
	c.cut()
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

// key returns the key of c in clients.
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

func newClient(resource, socket string, options ...grpc.DialOption) (*client, error) {
	conn, err := grpc.NewClient("unix:"+socket, append(options, grpc.WithTransportCredentials(insecure.NewCredentials()))...)
	if err != nil {
		return nil, fmt.Errorf("connect to the plugin: %w", err)
	}
	c := &client{
		resource: resource,
		socket:   socket,
		conn:     conn,
		api:      v1beta1.NewDevicePluginClient(conn),
	}
	c.stream, c.cut = context.WithCancel(context.Background())
	return c, nil
}

// close breaks the connection.
func (c *client) close() {
	c.cut()
	_ = c.conn.Close()
}

// maxHistory is how many lists per resource are kept, and maxDevices how many devices all
// but the latest have.
const (
	maxHistory = 1024
	maxDevices = 1 << 20
)

// resource is the kubelet's state of one resource.
type resource struct {
	plugin        *client   // in use; nil is none
	connected     []*client // all plugins of the resource
	registrations int
	devices       []*v1beta1.Device // the latest list
	stale         bool              // all devices count as unhealthy
	lists         []List
	received      int
}

// forget keeps only the name, like a checkpoint.
func (r *resource) forget() {
	r.plugin = nil
	r.connected = nil
	r.devices = nil
}

// find returns the client connected at the path socket; nil is none.
func (r *resource) find(socket string) *client {
	if i := slices.IndexFunc(r.connected, func(c *client) bool { return c.socket == socket }); i >= 0 {
		return r.connected[i]
	}
	return nil
}

// receive records the list of any plugin: the last writer wins.
func (r *resource) receive(devices []*v1beta1.Device) {
	r.devices = devices
	r.stale = false
	r.received++
	r.lists = append(r.lists, List{At: time.Now(), Devices: devices})
	if len(r.lists) > maxHistory {
		r.lists = slices.Delete(r.lists, 0, len(r.lists)-maxHistory)
	}
	kept := 0
	for i, list := range slices.Backward(r.lists[:len(r.lists)-1]) {
		kept += len(list.Devices)
		if kept > maxDevices {
			r.lists = slices.Delete(r.lists, 0, i+1)
			break
		}
	}
}

// disconnect records that c is lost.
func (r *resource) disconnect(c *client, keying Keying) {
	if keying == ByResource {
		r.connected = nil
	} else if c = r.find(c.socket); c != nil {
		r.connected = slices.DeleteFunc(r.connected, func(other *client) bool { return other == c })
	} else {
		return
	}
	if len(r.connected) == 0 {
		r.plugin = nil
		r.stale = true
		return
	}
	r.plugin = r.connected[0]
}

// healthy returns the IDs of the allocatable devices.
func (r *resource) healthy() map[string]bool {
	ids := map[string]bool{}
	for _, d := range r.devices {
		if !r.stale && d.GetHealth() == v1beta1.Healthy {
			ids[d.GetID()] = true
		}
	}
	return ids
}
