package kubelettest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	health "k8s.io/kubelet/pkg/apis/dra-health/v1"
	healthformer "k8s.io/kubelet/pkg/apis/dra-health/v1alpha1"
	claims "k8s.io/kubelet/pkg/apis/dra/v1"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
	podresourcesv1 "k8s.io/kubelet/pkg/apis/podresources/v1"
)

// registryPoll is how often the registry is read. A kubelet watches it, and acts once a
// second.
const registryPoll = 2 * time.Millisecond

// ResourceClaim is the claim of a pod's container.
type ResourceClaim struct {
	Namespace, Name, UID string
	Pod, Container       string
}

// preparedClaim is a claim in the kubelet's checkpoint.
type preparedClaim struct {
	ResourceClaim
	driver  string
	devices []*claims.Device
}

// driver is a registered DRA driver's instance.
type driver struct {
	name   string
	former bool // speaks the former versions with it
	client *client
	health map[string]*health.DeviceHealth // the latest, by device
}

// registerDriver connects to a socket in the registry.
func (p *process) registerDriver(ctx context.Context, socket string) (*driver, error) {
	c, err := newClient("", socket)
	if err != nil {
		return nil, err
	}
	d := &driver{client: c, former: p.opts.FormerDRA}
	if err := c.dial(ctx, p.opts.DialTimeout); err != nil {
		c.close()
		return nil, err
	}
	api := registration.NewRegistrationClient(c.conn)
	info, err := api.GetInfo(ctx, &registration.InfoRequest{})
	if err != nil {
		c.close()
		return nil, err
	}
	d.name = info.GetName()
	service := "v1.DRAPlugin"
	if d.former {
		service = "v1beta1.DRAPlugin"
	}
	status := &registration.RegistrationStatus{PluginRegistered: true}
	p.mu.Lock()
	switch {
	case p.faults.refuse != nil:
		status = &registration.RegistrationStatus{Error: p.faults.refuse.Error()}
	case info.GetType() != "DRAPlugin" || info.GetEndpoint() != "" || !slices.Contains(info.GetSupportedVersions(), service):
		status = &registration.RegistrationStatus{Error: fmt.Sprintf("%v is not supported", info)}
	}
	p.mu.Unlock()
	if _, err = api.NotifyRegistrationStatus(ctx, status); err != nil || !status.PluginRegistered {
		c.close()
		return nil, errors.Join(err, errors.New("refused"))
	}
	return d, nil
}

// followRegistry registers the drivers whose sockets are in the registry, and drops those
// whose sockets are gone.
func (p *process) followRegistry(ctx context.Context) {
	seen := map[string]*driver{} // by path; nil was refused
	for ctx.Err() == nil {
		entries, _ := os.ReadDir(p.opts.Registry)
		present := map[string]bool{}
		for _, e := range entries {
			path := filepath.Join(p.opts.Registry, e.Name())
			present[path] = true
			if _, known := seen[path]; known || e.Type() != os.ModeSocket {
				continue
			}
			d, err := p.registerDriver(ctx, path)
			seen[path] = d
			if err != nil {
				continue
			}
			p.update(func() { p.drivers = append(p.drivers, d) })
			p.wg.Go(func() { p.followHealth(d) })
		}
		for path, d := range seen {
			if present[path] {
				continue
			}
			delete(seen, path)
			if d != nil {
				p.update(func() {
					p.drivers = slices.DeleteFunc(p.drivers, func(other *driver) bool { return other == d })
				})
				d.client.close()
			}
		}
		select {
		case <-ctx.Done():
		case <-time.After(registryPoll):
		}
	}
	for _, d := range seen {
		if d != nil {
			d.client.close()
		}
	}
}

// followHealth receives the health of a driver's devices.
func (p *process) followHealth(d *driver) {
	var next func() ([]*health.DeviceHealth, error)
	if d.former {
		stream, err := healthformer.NewDRAResourceHealthClient(d.client.conn).NodeWatchResources(d.client.stream, &healthformer.NodeWatchResourcesRequest{})
		next = func() (list []*health.DeviceHealth, _ error) {
			if err != nil {
				return nil, err
			}
			resp, err := stream.Recv()
			for _, h := range resp.GetDevices() {
				list = append(list, &health.DeviceHealth{
					Device: &health.DeviceIdentifier{PoolName: h.GetDevice().GetPoolName(), DeviceName: h.GetDevice().GetDeviceName()},
					Health: health.HealthStatus(h.GetHealth()), Message: h.GetMessage(), HealthCheckTimeoutSeconds: h.GetHealthCheckTimeoutSeconds(),
				})
			}
			return list, err
		}
	} else {
		stream, err := health.NewDRAResourceHealthClient(d.client.conn).NodeWatchResources(d.client.stream, &health.NodeWatchResourcesRequest{})
		next = func() ([]*health.DeviceHealth, error) {
			if err != nil {
				return nil, err
			}
			resp, err := stream.Recv()
			return resp.GetDevices(), err
		}
	}
	for {
		list, err := next()
		if err != nil {
			return
		}
		p.update(func() {
			d.health = map[string]*health.DeviceHealth{}
			for _, h := range list {
				d.health[h.GetDevice().GetPoolName()+"/"+h.GetDevice().GetDeviceName()] = h
			}
		})
	}
}

// Drivers is the number of registered instances of a DRA driver.
func (k *Kubelet) Drivers(name string) int {
	k.mu.Lock()
	defer k.mu.Unlock()
	n := 0
	for _, d := range k.drivers {
		if d.name == name {
			n++
		}
	}
	return n
}

// DeviceHealth is the health of a device, "pool/name", that the newest instance of a
// driver told; nil is none.
func (k *Kubelet) DeviceHealth(name, device string) *health.DeviceHealth {
	k.mu.Lock()
	defer k.mu.Unlock()
	if d := k.driver(name); d != nil {
		return d.health[device]
	}
	return nil
}

// driver is the newest instance of a driver.
func (k *Kubelet) driver(name string) *driver {
	for _, d := range slices.Backward(k.drivers) {
		if d.name == name {
			return d
		}
	}
	return nil
}

// PrepareClaim has a driver prepare a claim, and returns its devices. A prepared one is in
// the checkpoint, and listed by PodResources.
func (k *Kubelet) PrepareClaim(ctx context.Context, name string, c ResourceClaim) ([]*claims.Device, error) {
	d, err := k.connectedDriver(name)
	if err != nil {
		return nil, err
	}
	req := &claims.NodePrepareResourcesRequest{Claims: []*claims.Claim{{Namespace: c.Namespace, Name: c.Name, Uid: c.UID}}}
	// Like the kubelet, which records that it is about to.
	k.update(func() {
		if k.claims[c.UID] == nil {
			k.claims[c.UID] = &preparedClaim{ResourceClaim: c, driver: name}
		}
	})
	resp := &claims.NodePrepareResourcesResponse{}
	if err := d.call(ctx, "NodePrepareResources", req, resp); err != nil {
		return nil, err
	}
	answer := resp.GetClaims()[c.UID]
	if answer == nil {
		return nil, fmt.Errorf("no answer for claim %s", c.UID)
	}
	if text := answer.GetError(); text != "" {
		return nil, errors.New(text)
	}
	k.update(func() {
		if prepared := k.claims[c.UID]; prepared != nil {
			prepared.devices = answer.GetDevices()
		}
	})
	return answer.GetDevices(), nil
}

// call calls a method of the claims' service. The messages of v1beta1 are those of v1; its
// package needs k8s.io/apimachinery.
func (d *driver) call(ctx context.Context, method string, req, resp any) error {
	version := "v1"
	if d.former {
		version = "v1beta1"
	}
	return d.client.conn.Invoke(ctx, "/k8s.io.kubelet.pkg.apis.dra."+version+".DRAPlugin/"+method, req, resp)
}

// UnprepareClaim has the driver of a claim release it. A claim without one stays.
func (k *Kubelet) UnprepareClaim(ctx context.Context, uid string) error {
	k.mu.Lock()
	c := k.claims[uid]
	k.mu.Unlock()
	if c == nil {
		return nil
	}
	d, err := k.connectedDriver(c.driver)
	if err != nil {
		return err
	}
	req := &claims.NodeUnprepareResourcesRequest{Claims: []*claims.Claim{{Namespace: c.Namespace, Name: c.Name, Uid: uid}}}
	resp := &claims.NodeUnprepareResourcesResponse{}
	if err := d.call(ctx, "NodeUnprepareResources", req, resp); err != nil {
		return err
	}
	if answer := resp.GetClaims()[uid]; answer == nil || answer.GetError() != "" {
		return fmt.Errorf("claim %s: %s", uid, answer.GetError())
	}
	k.update(func() { delete(k.claims, uid) })
	return nil
}

// ForgetClaim ends a claim without a call: the kubelet lost its checkpoint.
func (k *Kubelet) ForgetClaim(uid string) { k.update(func() { delete(k.claims, uid) }) }

func (k *Kubelet) connectedDriver(name string) (*driver, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if d := k.driver(name); d != nil {
		return d, nil
	}
	return nil, fmt.Errorf("DRA driver %s is not registered", name)
}

// dynamicResources are the prepared claims as PodResources lists them.
func (k *Kubelet) dynamicResources() []*podresourcesv1.PodResources {
	var pods []*podresourcesv1.PodResources
	for _, c := range k.claims {
		dynamic := &podresourcesv1.DynamicResource{ClaimNamespace: c.Namespace, ClaimName: c.Name}
		for _, d := range c.devices {
			dynamic.ClaimResources = append(dynamic.ClaimResources, &podresourcesv1.ClaimResource{
				DriverName: c.driver, PoolName: d.GetPoolName(), DeviceName: d.GetDeviceName(), ShareId: d.ShareId,
			})
		}
		pods = append(pods, &podresourcesv1.PodResources{Namespace: c.Namespace, Name: c.Pod, Containers: []*podresourcesv1.ContainerResources{
			{Name: c.Container, DynamicResources: []*podresourcesv1.DynamicResource{dynamic}},
		}})
	}
	return pods
}
