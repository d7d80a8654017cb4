package dra

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	claims "k8s.io/kubelet/pkg/apis/dra/v1"

	"github.com/generic-dp/generic-dp/cdi"
	"github.com/generic-dp/generic-dp/internal/kubelet/kubeapi"
)

// answerWithin bounds the preparation of a claim, once the API server has answered.
const answerWithin = 900 * time.Millisecond

// resourceClaim is a ResourceClaim of resource.k8s.io/v1, as far as it is used.
type resourceClaim struct {
	Metadata metadata `json:"metadata"`
	Status   struct {
		Allocation *struct {
			Devices struct {
				Results []allocated `json:"results"`
				Config  []struct {
					Opaque *struct {
						Driver string `json:"driver"`
					} `json:"opaque"`
				} `json:"config"`
			} `json:"devices"`
		} `json:"allocation"`
	} `json:"status"`
}

// allocated is one device of a claim, or a share of one.
type allocated struct {
	Request string  `json:"request"`
	Driver  string  `json:"driver"`
	Pool    string  `json:"pool"`
	Device  string  `json:"device"`
	ShareID *string `json:"shareID"`
	// AdminAccess is to a device that others may hold.
	AdminAccess bool `json:"adminAccess"`
}

// NodePrepareResources prepares claims, each by itself. It keeps no state but the files of
// claims: the kubelet calls again for a claim after its own restart, and for each sandbox.
func (s *service) NodePrepareResources(ctx context.Context, req *claims.NodePrepareResourcesRequest) (*claims.NodePrepareResourcesResponse, error) {
	resp := &claims.NodePrepareResourcesResponse{Claims: map[string]*claims.NodePrepareResourceResponse{}}
	for _, c := range req.GetClaims() {
		began := time.Now()
		answer := &claims.NodePrepareResourceResponse{}
		claim := cdi.Claim{Namespace: c.GetNamespace(), Name: c.GetName(), UID: c.GetUid()}
		groups, err := s.allocation(ctx, &claim)
		if err == nil {
			var devices []*claims.Device // not read before s.prepare has ended
			err = s.bounded(ctx, func(ctx context.Context) (err error) {
				devices, err = s.prepare(ctx, claim, groups)
				return err
			})
			if err == nil {
				answer.Devices = devices
			}
		}
		took := time.Since(began)
		if err != nil {
			answer.Error = fmt.Sprintf("claim %s/%s: %v", c.GetNamespace(), c.GetName(), err)
			s.Log.Warn("claim not prepared", "claim", c.GetNamespace()+"/"+c.GetName(), "err", err, "duration_seconds", took.Seconds())
		}
		s.Prepared(took, err)
		resp.Claims[c.GetUid()] = answer
	}
	return resp, nil
}

// NodeUnprepareResources forgets claims. A claim that is not prepared is no error.
func (s *service) NodeUnprepareResources(ctx context.Context, req *claims.NodeUnprepareResourcesRequest) (*claims.NodeUnprepareResourcesResponse, error) {
	resp := &claims.NodeUnprepareResourcesResponse{Claims: map[string]*claims.NodeUnprepareResourceResponse{}}
	for _, c := range req.GetClaims() {
		answer := &claims.NodeUnprepareResourceResponse{}
		if err := s.bounded(ctx, func(context.Context) error { return s.release(c.GetUid()) }); err != nil {
			answer.Error = fmt.Sprintf("claim %s/%s: %v", c.GetNamespace(), c.GetName(), err)
			s.Log.Warn("claim not released", "claim", c.GetNamespace()+"/"+c.GetName(), "err", err)
		}
		resp.Claims[c.GetUid()] = answer
	}
	return resp, nil
}

// bounded runs f, one at a time, and returns in time even if it hangs: then the next ones
// fail until it ends.
func (p *Plugin) bounded(ctx context.Context, f func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	done := make(chan error, 1)
	select {
	case p.preparing <- struct{}{}:
		go func() {
			err := ctx.Err() // the kubelet has given up, and may have asked for the opposite
			defer func() { <-p.preparing; done <- err }()
			defer p.recover("claim", &err)
			if err == nil {
				err = f(ctx)
			}
		}()
	case <-ctx.Done():
	}
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return fmt.Errorf("no answer within %s", answerWithin)
	}
}

// prepare writes the files of a claim. A group is what one container gets: each of its
// requests brings the devices' own CDI names, and one of the claim for what devices give
// together.
func (p *Plugin) prepare(ctx context.Context, claim cdi.Claim, groups [][]allocated) ([]*claims.Device, error) {
	var devices []*claims.Device
	held := map[string]*Device{} // by key
	for _, group := range groups {
		names := make([]string, len(group))
		for i := range group {
			names[i] = group[i].Device
		}
		r, found, err := p.Inject(ctx, names)
		if err != nil {
			return nil, err
		}
		given := map[string][]string{} // CDI names, by request
		for i, a := range group {
			before := len(given[a.Request])
			for _, id := range found[i].CDI { // devices share names of the host, and slots all
				if !slices.Contains(given[a.Request], id) {
					given[a.Request] = append(given[a.Request], id)
				}
			}
			at := slices.IndexFunc(claim.Requests, func(r cdi.Request) bool { return r.Name == a.Request })
			if at < 0 {
				at = len(claim.Requests)
				request := cdi.Request{Name: a.Request, Env: r.Env, Mounts: append(slices.Clip(r.Mounts), p.metadataMount(claim, a.Request))}
				claim.Requests = append(claim.Requests, request)
				given[a.Request] = append(given[a.Request], claim.CDIName(request))
			}
			key := found[i].key()
			held[key] = &found[i]
			claim.Requests[at].Devices = append(claim.Requests[at].Devices, key)
			slices.Sort(claim.Requests[at].Devices)
			devices = append(devices, &claims.Device{
				RequestNames: []string{baseRequest(a.Request)}, PoolName: a.Pool, DeviceName: a.Device, ShareId: a.ShareID,
				CdiDeviceIds: slices.Clone(given[a.Request][before:]),
			})
		}
	}
	if err := p.free(ctx, claim, held); err != nil {
		return nil, err
	}
	if err := p.Claims.WriteClaim(claim); err != nil {
		return nil, err
	}
	return devices, p.writeMetadata(claim, held)
}

// allocation returns the devices of a claim that are this driver's, in groups that have to
// fit into one container, and fills in what the pod calls it. Any container may use a whole
// claim; but that of a pod's extended resources, which the scheduler makes, has a request for
// each container and resource.
func (p *Plugin) allocation(ctx context.Context, c *cdi.Claim) (groups [][]allocated, err error) {
	object, err := p.get(ctx, c.Namespace, c.Name)
	switch {
	case err != nil:
		return nil, err
	case object.Metadata.UID != c.UID:
		return nil, fmt.Errorf("is another one now: its UID is %s, not %s", object.Metadata.UID, c.UID)
	case object.Status.Allocation == nil:
		return nil, errors.New("is not allocated")
	}
	// Anybody may annotate a claim: what is no name of one, a DNS label, is none.
	if name := object.Metadata.Annotations["resource.kubernetes.io/pod-claim-name"]; len(name) <= maxLabel && strings.Trim(name, lower+"-") == "" {
		c.PodClaim = name
	}
	found := object.Status.Allocation.Devices
	for _, config := range found.Config {
		if config.Opaque != nil && config.Opaque.Driver == Driver {
			return nil, fmt.Errorf("has parameters for %s, which knows none: remove config.opaque from the claim or its DeviceClass", Driver)
		}
	}
	ours := slices.DeleteFunc(found.Results, func(r allocated) bool { return r.Driver != Driver })
	for _, r := range ours {
		if r.Pool != p.Node {
			return nil, fmt.Errorf("device %q is of node %s, not of this one (%s)", r.Device, r.Pool, p.Node)
		}
		if r.AdminAccess {
			return nil, fmt.Errorf("request %s: adminAccess to device %q, of which this driver has none: it has its holders alone", r.Request, r.Device)
		}
	}
	if len(ours) == 0 {
		return nil, fmt.Errorf("has no device of %s", Driver)
	}
	extended := object.Metadata.Annotations["resource.kubernetes.io/extended-resource-claim"] == "true"
	for _, r := range ours {
		i := slices.IndexFunc(groups, func(g []allocated) bool { return !extended || g[0].Request == r.Request })
		if i < 0 {
			i, groups = len(groups), append(groups, nil)
		}
		groups[i] = append(groups[i], r)
	}
	return groups, nil
}

func (p *Plugin) get(ctx context.Context, namespace, name string) (*resourceClaim, error) {
	object := new(resourceClaim)
	path := "/apis/resource.k8s.io/v1/namespaces/" + url.PathEscape(namespace) + "/resourceclaims/" + url.PathEscape(name)
	if err := p.API.Get(ctx, path, object); err != nil {
		return nil, fmt.Errorf("can't be read: %w", err)
	}
	return object, nil
}

// free is an error if other claims hold a device of the claim, beyond its slots: the
// scheduler gives no device away twice, but for a fault.
func (p *Plugin) free(ctx context.Context, claim cdi.Claim, devices map[string]*Device) error {
	others, err := p.Claims.Claims()
	if err != nil {
		return err
	}
	for _, id := range slices.Sorted(maps.Keys(devices)) {
		held, slots := holds(claim, id), devices[id].Slots
		var holders []string
		for _, other := range others {
			if n := holds(other, id); n > 0 && other.UID != claim.UID {
				if p.ended(ctx, other) {
					continue
				}
				held += n
				holders = append(holders, other.Namespace+"/"+other.Name)
			}
		}
		if held > slots {
			if len(holders) == 0 {
				return fmt.Errorf("device %q: %d of its slots, it has %d", id, held, slots)
			}
			return fmt.Errorf("device %q: held by claim %s", id, strings.Join(holders, ", "))
		}
	}
	return nil
}

// holds is the number of slots of a device that a claim holds.
func holds(c cdi.Claim, device string) int {
	return len(slices.DeleteFunc(c.Devices(), func(d string) bool { return d != device }))
}

// Sweep removes the files of claims that no longer exist, unless the
// kubelet knows them. It reports whether there were any.
func (p *Plugin) Sweep(ctx context.Context, known func(cdi.Claim) bool) bool {
	ctx, cancel := context.WithTimeout(ctx, p.timing.sweep)
	defer cancel()
	all, _ := p.Claims.Claims() // unreadable ones stay
	swept := false
	for _, c := range all {
		if !known(c) && p.ended(ctx, c) {
			swept = true
		}
	}
	return swept
}

// ended reports whether a claim no longer exists or is not allocated, and then
// removes its file: a kubelet that lost its own state does not release it.
func (p *Plugin) ended(ctx context.Context, c cdi.Claim) bool {
	object, err := p.get(ctx, c.Namespace, c.Name)
	switch {
	case kubeapi.Code(err) == http.StatusNotFound:
	case err == nil && (object.Metadata.UID != c.UID || object.Status.Allocation == nil):
	default:
		return false
	}
	p.Log.Info("claim no longer exists: its CDI spec is removed", "claim", c.Namespace+"/"+c.Name, "uid", c.UID)
	return p.release(c.UID) == nil
}
