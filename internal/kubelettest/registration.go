package kubelettest

import (
	"context"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

// Request is one Register call.
type Request struct {
	Resource, Endpoint string
	At                 time.Time
	// Answered says that it has an answer, which is Err.
	Answered bool
	Err      error
}

// Register is the kubelet's side of a registration: it connects to the plugin
// and asks for its options before it answers.
func (p *process) Register(ctx context.Context, req *v1beta1.RegisterRequest) (*v1beta1.Empty, error) {
	var index int
	p.update(func() {
		index = len(p.requests)
		p.requests = append(p.requests, Request{Resource: req.GetResourceName(), Endpoint: req.GetEndpoint(), At: time.Now()})
	})
	err := p.register(ctx, req)
	p.update(func() { p.requests[index].Answered, p.requests[index].Err = true, err })
	p.log.Debug("registration", "resource", req.GetResourceName(), "endpoint", req.GetEndpoint(), "error", err)
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
	c := &client{resource: name, socket: filepath.Join(p.opts.Dir, req.GetEndpoint())}
	p.enter(c)
	if p.opts.BeforeDial != nil {
		p.opts.BeforeDial(name, req.GetEndpoint())
	}
	if err := p.connect(ctx, c); err != nil {
		c.close()
		p.update(func() {
			delete(p.open, c)
			p.leave(c)
		})
		return err
	}
	if !faults.noStreams {
		p.wg.Go(func() { p.run(c) })
	}
	return nil
}

// connect connects to a plugin and makes it the one that is asked for its
// resource. The first list comes later.
func (p *process) connect(ctx context.Context, c *client) error {
	if err := c.dial(ctx, p.opts.DialTimeout); err != nil {
		return err
	}
	options, err := c.api.GetDevicePluginOptions(ctx, &v1beta1.Empty{})
	if err != nil {
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
		if p.opts.Keying == BySocket && r.find(c.socket) != nil {
			err = fmt.Errorf("device plugin already connected: %s", c.socket)
			return
		}
		r.registrations++
		e := &endpoint{client: c, options: options}
		r.endpoint = e
		if p.opts.Keying == BySocket {
			r.connected = append(r.connected, e)
		} else {
			r.connected = []*endpoint{e}
		}
	})
	return err
}

// run receives lists until the stream ends, and then disconnects whoever is
// found under the client's key, which with ByResource may be somebody else.
func (p *process) run(c *client) {
	err := c.receive(func(resp *v1beta1.ListAndWatchResponse) {
		p.update(func() {
			if p.process == p {
				p.resources[c.resource].take(c, resp.GetDevices())
			}
		})
	})
	p.log.Debug("stream ended", "resource", c.resource, "socket", c.socket, "error", err)
	p.update(func() {
		victim := p.find(c)
		if victim == nil {
			// The kubelet never closes the connection of a client that it
			// has lost track of.
			return
		}
		p.leave(victim)
		delete(p.open, victim)
		victim.close()
		if p.process == p {
			p.resources[c.resource].disconnect(victim, p.opts.Keying)
		}
	})
}

// enter makes c known under its key, before there is a connection.
func (p *process) enter(c *client) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.open[c] = true
	if p.opts.Keying == ByResource {
		p.clients[c.resource] = []*client{c}
		return
	}
	p.clients[c.resource] = append(p.clients[c.resource], c)
}

// find returns the client under c's key; nil is none.
func (p *process) find(c *client) *client {
	for _, other := range p.clients[c.resource] {
		if p.opts.Keying == ByResource || other.socket == c.socket {
			return other
		}
	}
	return nil
}

// leave makes everyone under c's key unknown.
func (p *process) leave(c *client) {
	p.clients[c.resource] = slices.DeleteFunc(p.clients[c.resource], func(other *client) bool {
		return p.opts.Keying == ByResource || other.socket == c.socket
	})
}

var (
	domainForm = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`)
	nameForm   = regexp.MustCompile(`^[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$`)
)

// extendedResource reports whether the kubelet takes name: the quota for it,
// "requests." and name, must be a qualified name too.
func extendedResource(name string) bool {
	domain, rest, ok := strings.Cut(name, "/")
	return ok && !strings.Contains(name, "kubernetes.io/") && !strings.HasPrefix(name, "requests.") &&
		len("requests."+domain) <= 253 && domainForm.MatchString(domain) &&
		len(rest) <= 63 && nameForm.MatchString(rest)
}
