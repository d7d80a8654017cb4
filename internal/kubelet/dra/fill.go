package dra

import (
	"context"
	"fmt"
	"slices"

	claims "k8s.io/kubelet/pkg/apis/dra/v1"

	"github.com/generic-dp/generic-dp/cdi"
	"github.com/generic-dp/generic-dp/internal/device"
)

// filled is a claim with everything that its containers get.
type filled struct {
	claim   cdi.Claim
	held    map[string]*Device // by name in the claim
	devices []*claims.Device   // for the kubelet
}

// fill adds the devices to a claim. One container gets a whole group: each of its requests
// brings the devices' own CDI names, and a CDI name of the claim for the environment and the
// mounts of all devices of the group. It writes nothing. The error of Inject is returned as it is,
// so that it may wrap ErrNotOffered.
func (p *Plugin) fill(ctx context.Context, claim cdi.Claim, groups [][]allocated) (*filled, error) {
	f := &filled{claim: claim, held: map[string]*Device{}}
	for _, group := range groups {
		names := make([]string, len(group))
		for i := range group {
			names[i] = group[i].Device
		}
		amounts, err := amountsOf(group)
		if err != nil {
			return nil, err
		}
		places, err := placementsOf(group)
		if err != nil {
			return nil, err
		}
		// All devices of a group are injected together, because they may conflict in one container.
		response, found, err := p.Inject(ctx, names, amounts, places)
		if err != nil {
			return nil, err
		}
		response.Env, err = renamed(response.Env, group)
		if err != nil {
			return nil, err
		}
		injected := map[string][]string{} // CDI names, by request
		for i, a := range group {
			// Each device reports only the names that no earlier device of its request has
			// reported.
			before := len(injected[a.Request])
			// Devices share CDI names of the host, and slots share all of them.
			for _, id := range found[i].CDI {
				if !slices.Contains(injected[a.Request], id) {
					injected[a.Request] = append(injected[a.Request], id)
				}
			}
			at := f.request(a.Request)
			if at < 0 {
				request := p.newRequest(claim, a.Request, response)
				request.Placement = a.parameters.Placement
				f.claim.Requests = append(f.claim.Requests, request)
				at = len(f.claim.Requests) - 1
				injected[a.Request] = append(injected[a.Request], claim.CDIName(request))
			}
			request := &f.claim.Requests[at]
			key := found[i].key()
			f.held[key] = &found[i]
			if err := a.addTo(request, &found[i]); err != nil {
				return nil, err
			}
			f.devices = append(f.devices, &claims.Device{
				// Containers refer to the request, not to the subrequest that the scheduler chose.
				RequestNames: []string{baseRequest(a.Request)},
				PoolName:     a.Pool,
				DeviceName:   a.Device,
				ShareId:      a.ShareID,
				CdiDeviceIds: slices.Clone(injected[a.Request][before:]),
			})
		}
	}
	p.keepShares(f.claim)
	return f, nil
}

// slots returns the number of slots of each device of the claim. It is an error if the claim needs
// more slots than a device has. The keys are "RESOURCE=ID".
func (f *filled) slots() (map[string]int, error) {
	slots := map[string]int{}
	for name, d := range f.held {
		slots[name] = d.Slots
	}
	for name, n := range count(f.claim) {
		if n > slots[name] {
			return nil, fmt.Errorf("device %q: the claim needs %d of its slots, but it has %d", name, n, slots[name])
		}
	}
	if over := overcommitted(f.claim); over != "" {
		return nil, fmt.Errorf("the claim needs %s", over)
	}
	return slots, nil
}

// request is the index of a request in the claim, -1 if it is missing. A group adds its requests
// one by one, while several devices may share a request.
func (f *filled) request(name string) int {
	return slices.IndexFunc(f.claim.Requests, func(r cdi.Request) bool { return r.Name == name })
}

// newRequest returns a request without devices, with everything that the response has besides them.
func (p *Plugin) newRequest(claim cdi.Claim, name string, response device.Response) cdi.Request {
	// Each request of the group has its own metadata file, but shares the other mounts.
	mounts := slices.Clone(response.Mounts)
	return cdi.Request{
		Name:   name,
		Env:    response.Env,
		Mounts: append(mounts, p.metadataMount(claim, name)),
	}
}
