package kubelettest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc"
	health "k8s.io/kubelet/pkg/apis/dra-health/v1"
	claims "k8s.io/kubelet/pkg/apis/dra/v1"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
	podresourcesv1 "k8s.io/kubelet/pkg/apis/podresources/v1"
)

// registryPoll is the interval at which the registry is read. A kubelet watches it, and acts
// once a second.
const registryPoll = 2 * time.Millisecond

// ResourceClaim is a claim that a pod's container holds.
type ResourceClaim struct {
	Namespace, Name, UID string
	Pod, Container       string
}

// preparedClaim is a claim in the kubelet's checkpoint.
type preparedClaim struct {
	ResourceClaim
	driver  string
	devices []*claims.Device
	// forgotten is set if the pod was deleted with --force. The kubelet keeps the claim until it
	// is unprepared (reconcileLoop, pkg/kubelet/cm/dra/manager.go), and lists it no more.
	forgotten bool
}

// driver is one registered instance of a DRA driver.
type driver struct {
	name   string
	client *client
	health map[string]*health.DeviceHealth // the latest, by device
}

// formerHealth makes a client call the former service for health, which has the same messages.
var formerHealth = grpc.WithStreamInterceptor(func(ctx context.Context, desc *grpc.StreamDesc, conn *grpc.ClientConn, method string, open grpc.Streamer, o ...grpc.CallOption) (grpc.ClientStream, error) {
	return open(ctx, desc, conn, strings.Replace(method, "/v1.", "/v1alpha1.", 1), o...)
})

// registerDriver connects to a socket in the registry.
func (p *process) registerDriver(ctx context.Context, socket string) (d *driver, err error) {
	var options []grpc.DialOption
	if p.opts.FormerHealth {
		options = append(options, formerHealth)
	}
	c, err := newClient("", socket, options...)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			c.close()
		}
	}()
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	api := registration.NewRegistrationClient(c.conn)
	info, err := api.GetInfo(ctx, &registration.InfoRequest{}, grpc.WaitForReady(true))
	if err != nil {
		return nil, err
	}
	refusal := p.opts.OnRegister(ctx, info.GetName(), socket)
	if info.GetType() != "DRAPlugin" || info.GetEndpoint() != "" || !slices.Contains(info.GetSupportedVersions(), "v1.DRAPlugin") {
		refusal = fmt.Errorf("%v is not supported", info)
	}
	status := &registration.RegistrationStatus{PluginRegistered: refusal == nil}
	if refusal != nil {
		status.Error = refusal.Error()
	}
	_, err = api.NotifyRegistrationStatus(ctx, status)
	return &driver{name: info.GetName(), client: c}, errors.Join(err, refusal)
}

// followRegistry registers the drivers whose sockets are in the registry, and drops those
// whose sockets were removed.
func (p *process) followRegistry(ctx context.Context) {
	seen := map[string]*driver{} // by path; nil: rejected
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
			if err != nil {
				seen[path] = nil
				continue
			}
			seen[path] = d
			p.update(func() {
				p.drivers = append(p.drivers, d)
			})
			p.wg.Go(func() {
				p.followHealth(d)
			})
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
	stream, err := health.NewDRAResourceHealthClient(d.client.conn).NodeWatchResources(d.client.stream, &health.NodeWatchResourcesRequest{})
	for err == nil {
		var resp *health.NodeWatchResourcesResponse
		if resp, err = stream.Recv(); err == nil {
			p.update(func() {
				d.health = map[string]*health.DeviceHealth{}
				for _, h := range resp.GetDevices() {
					d.health[h.GetDevice().GetPoolName()+"/"+h.GetDevice().GetDeviceName()] = h
				}
			})
		}
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

// DeviceHealth is the health of a device, "pool/name", as the newest instance of a driver
// reports it; nil if it does not.
func (k *Kubelet) DeviceHealth(name, device string) *health.DeviceHealth {
	k.mu.Lock()
	defer k.mu.Unlock()
	if d := k.newestDriver(name); d != nil {
		return d.health[device]
	}
	return nil
}

// newestDriver is the newest registered instance of a driver; nil is none.
func (k *Kubelet) newestDriver(name string) *driver {
	for _, d := range slices.Backward(k.drivers) {
		if d.name == name {
			return d
		}
	}
	return nil
}

// PrepareClaim has a driver prepare a claim, and returns its devices. The checkpoint and
// PodResources have prepared claims.
func (k *Kubelet) PrepareClaim(ctx context.Context, name string, c ResourceClaim) ([]*claims.Device, error) {
	d, err := k.connectedDriver(name)
	if err != nil {
		return nil, err
	}
	req := &claims.NodePrepareResourcesRequest{Claims: []*claims.Claim{{Namespace: c.Namespace, Name: c.Name, Uid: c.UID}}}
	// Like the kubelet, record the intent first.
	k.update(func() {
		if k.claims[c.UID] == nil {
			k.claims[c.UID] = &preparedClaim{ResourceClaim: c, driver: name}
		}
	})
	resp, err := claims.NewDRAPluginClient(d.client.conn).NodePrepareResources(ctx, req)
	if err != nil {
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

// UnprepareClaim has the driver of a claim release it. Without a driver it fails, and the
// claim stays.
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
	resp, err := claims.NewDRAPluginClient(d.client.conn).NodeUnprepareResources(ctx, req)
	if err != nil {
		return err
	}
	if answer := resp.GetClaims()[uid]; answer == nil || answer.GetError() != "" {
		return fmt.Errorf("claim %s: %s", uid, answer.GetError())
	}
	k.update(func() {
		delete(k.claims, uid)
	})
	return nil
}

func (k *Kubelet) connectedDriver(name string) (*driver, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if d := k.newestDriver(name); d != nil {
		return d, nil
	}
	return nil, fmt.Errorf("DRA driver %s is not registered", name)
}

// dynamicResources are the prepared claims as PodResources lists them.
func (k *Kubelet) dynamicResources() []*podresourcesv1.PodResources {
	var pods []*podresourcesv1.PodResources
	for _, c := range k.claims {
		if c.forgotten {
			continue
		}
		dynamic := &podresourcesv1.DynamicResource{ClaimNamespace: c.Namespace, ClaimName: c.Name}
		for _, d := range c.devices {
			dynamic.ClaimResources = append(dynamic.ClaimResources, &podresourcesv1.ClaimResource{
				DriverName: c.driver,
				PoolName:   d.GetPoolName(),
				DeviceName: d.GetDeviceName(),
				ShareId:    d.ShareId,
			})
		}
		container := &podresourcesv1.ContainerResources{Name: c.Container, DynamicResources: []*podresourcesv1.DynamicResource{dynamic}}
		pods = append(pods, podOf(c.Namespace, c.Pod, container))
	}
	return pods
}
