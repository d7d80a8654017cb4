package kubelet

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"time"

	"google.golang.org/grpc"
	podresourcesv1 "k8s.io/kubelet/pkg/apis/podresources/v1"
)

// errNoAnswer is returned to a caller whose context ends.
var errNoAnswer = errors.New("the kubelet did not answer in time")

const (
	// timeout is the timeout of one call. The kubelet responds in milliseconds.
	timeout = 2 * time.Second
	// maxMessage is the maximum size of a response, as in the kubelet's own clients: it
	// names every device of every container on the node.
	maxMessage = 16 << 20
)

// Holder is a container that holds a device.
type Holder struct {
	Namespace, Pod, Container string
	// Claim is the name of the claim, empty for a device plugin.
	Claim string
}

// Holders has the holders by resource name and device ID; holders by claim under the names
// of DRA driver and device. Driver and resource names never coincide. The holders of one
// device are in the kubelet's order, without duplicates. An init container that is not a
// sidecar is missing: the kubelet does not list it, although it may hold devices.
type Holders map[string]map[string][]Holder

// PodResources queries the PodResources API of one kubelet for the holders of devices. It keeps the latest
// list, and no connection and no timer. It is safe for concurrent use. The kubelet limits the rate of calls (DefaultQPS
// in pkg/kubelet/apis/podresources/constants.go), so that callers share the latest list of pods.
type PodResources struct {
	path string
	now  func() time.Time
	// list is query, except in tests.
	list func(context.Context) ([]*podresourcesv1.PodResources, error)
	// turn has an element while a caller uses the fields below.
	turn  chan struct{}
	asked time.Time // start of the latest list, the zero time if there was none
	pods  []*podresourcesv1.PodResources
	err   error
}

// NewPodResources returns a client of the kubelet's PodResources socket at path,
// "/var/lib/kubelet/pod-resources/kubelet.sock". It connects for each call. now is the
// clock of its responses, nil the real one.
func NewPodResources(path string, now func() time.Time) *PodResources {
	if now == nil {
		now = time.Now
	}
	c := &PodResources{path: path, now: now, turn: make(chan struct{}, 1)}
	c.list = c.query
	return c
}

// Holders returns the holders of every device as reported by the kubelet at since or
// later. Callers share a response of the kubelet.
func (c *PodResources) Holders(ctx context.Context, since time.Time) (Holders, error) {
	pods, err := c.listSince(ctx, since)
	if err != nil {
		return nil, err
	}
	held := Holders{}
	for _, pod := range pods {
		held.addPod(pod)
	}
	return held, nil
}

// Pods returns the names of all pods that the kubelet has now, with or without devices, as
// "namespace/name".
func (c *PodResources) Pods(ctx context.Context) (map[string]bool, error) {
	pods, err := c.listSince(ctx, c.now())
	if err != nil {
		return nil, err
	}
	names := map[string]bool{}
	for _, pod := range pods {
		names[pod.GetNamespace()+"/"+pod.GetName()] = true
	}
	return names, nil
}

// listSince returns all pods that the kubelet had at since or later.
func (c *PodResources) listSince(ctx context.Context, since time.Time) ([]*podresourcesv1.PodResources, error) {
	select {
	case c.turn <- struct{}{}:
	case <-ctx.Done():
		return nil, errNoAnswer
	}
	defer func() {
		<-c.turn
	}()
	if !c.asked.IsZero() && !c.asked.Before(since) {
		return c.pods, c.err
	}
	c.asked = c.now()
	limited, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	c.pods, c.err = c.list(limited)
	if ctx.Err() != nil {
		c.asked = time.Time{} // others may wait longer than this caller
		return nil, errNoAnswer
	}
	if c.err != nil {
		c.err = unavailable(c.err)
	}
	return c.pods, c.err
}

// unavailable is the error of a call that failed.
func unavailable(err error) error {
	return fmt.Errorf("the kubelet's PodResources API is unavailable: %w", err)
}

// query returns all pods that the kubelet has.
func (c *PodResources) query(ctx context.Context) ([]*podresourcesv1.PodResources, error) {
	var resp *podresourcesv1.ListPodResourcesResponse
	err := c.call(ctx, "List", func(api podresourcesv1.PodResourcesListerClient) (err error) {
		resp, err = api.List(ctx, &podresourcesv1.ListPodResourcesRequest{})
		return err
	})
	return resp.GetPodResources(), err
}

// addPod records what the containers of a pod hold, by device plugin and by claim.
func (held Holders) addPod(pod *podresourcesv1.PodResources) {
	for _, container := range pod.GetContainers() {
		h := Holder{
			Namespace: pod.GetNamespace(),
			Pod:       pod.GetName(),
			Container: container.GetName(),
		}
		for _, d := range container.GetDevices() {
			for _, id := range d.GetDeviceIds() {
				held.add(d.GetResourceName(), id, h)
			}
		}
		for _, claim := range container.GetDynamicResources() {
			h.Claim = claim.GetClaimName()
			for _, d := range claim.GetClaimResources() {
				held.add(d.GetDriverName(), d.GetDeviceName(), h)
			}
		}
	}
}

// add records that h holds a device. The kubelet has an entry for each NUMA node of a
// device, and for each share.
func (held Holders) add(name, id string, h Holder) {
	ids := held[name]
	if ids == nil {
		ids = map[string][]Holder{}
		held[name] = ids
	}
	if !slices.Contains(ids[id], h) {
		ids[id] = append(ids[id], h)
	}
}

// Allocatable returns the IDs that the kubelet could allocate, held or not, by resource name, sorted. The
// kubelet has an entry for each NUMA node of a device, so an ID may be named several times.
func (c *PodResources) Allocatable(ctx context.Context) (map[string][]string, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	var resp *podresourcesv1.AllocatableResourcesResponse
	err := c.call(ctx, "GetAllocatableResources", func(api podresourcesv1.PodResourcesListerClient) (err error) {
		resp, err = api.GetAllocatableResources(ctx, &podresourcesv1.AllocatableResourcesRequest{})
		return err
	})
	if err != nil {
		return nil, unavailable(err)
	}
	allocatable := map[string][]string{}
	for _, d := range resp.GetDevices() {
		allocatable[d.GetResourceName()] = append(allocatable[d.GetResourceName()], d.GetDeviceIds()...)
	}
	for name, ids := range allocatable {
		slices.Sort(ids)
		allocatable[name] = slices.Compact(ids)
	}
	return allocatable, nil
}

// call connects, makes one call and disconnects.
func (c *PodResources) call(ctx context.Context, name string, f func(podresourcesv1.PodResourcesListerClient) error) error {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "unix", c.path)
	if err != nil {
		return err
	}
	defer conn.Close()
	client, err := Connect(conn, grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessage)))
	if err != nil {
		return err
	}
	defer client.Close()
	if err = f(podresourcesv1.NewPodResourcesListerClient(client)); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}
