package dra

import (
	"context"
	"fmt"
	"slices"

	claims "k8s.io/kubelet/pkg/apis/dra/v1"

	"github.com/generic-dp/generic-dp/cdi"
	"github.com/generic-dp/generic-dp/internal/device"
	"github.com/generic-dp/generic-dp/internal/holds"
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
	f := &filled{
		claim: claim,
		held:  map[string]*Device{},
	}
	for _, group := range groups {
		response, found, err := p.injectGroup(ctx, group)
		if err != nil {
			return nil, err
		}
		names := reportedNames{}
		for i := range group {
			err := p.addDevice(f, &group[i], &found[i], response, names)
			if err != nil {
				return nil, err
			}
		}
	}
	p.keepShares(f.claim)
	return f, nil
}

// injectGroup returns what a container gets for the devices of a group, and the devices in the order
// of the group.
func (p *Plugin) injectGroup(ctx context.Context, group []allocated) (device.Response, []Device, error) {
	names := make([]string, len(group))
	for i := range group {
		names[i] = group[i].Device
	}
	amounts, err := amountsOf(group)
	if err != nil {
		return device.Response{}, nil, err
	}
	// All devices of a group are injected together, because they may conflict in one container.
	return p.Inject(ctx, names, amounts)
}

// reportedNames are the CDI names that the devices of a group have reported, by request.
type reportedNames map[string][]string

// addDevice adds a device of a group to the claim, and its request if it is the first device of the
// request. response is what the group gets. Each device reports only the CDI names that no earlier
// device of its request has reported, and addDevice adds them to names.
func (p *Plugin) addDevice(f *filled, a *allocated, d *Device, response device.Response, names reportedNames) error {
	reported := names[a.Request]
	before := len(reported)
	// Devices share CDI names of the host, and slots share all of them.
	for _, id := range d.CDI {
		if !slices.Contains(reported, id) {
			reported = append(reported, id)
		}
	}
	at := f.request(a.Request)
	if at < 0 {
		request := p.newRequest(f.claim, a, response)
		at = len(f.claim.Requests)
		f.claim.Requests = append(f.claim.Requests, request)
		reported = append(reported, f.claim.CDIName(request))
	}
	names[a.Request] = reported
	f.held[d.key()] = d
	err := a.addTo(&f.claim.Requests[at], d)
	if err != nil {
		return err
	}
	f.devices = append(f.devices, &claims.Device{
		// Containers refer to the request, not to the subrequest that the scheduler chose.
		RequestNames: []string{baseRequest(a.Request)},
		PoolName:     a.Pool,
		DeviceName:   a.Device,
		ShareId:      a.ShareID,
		CdiDeviceIds: slices.Clone(reported[before:]),
	})
	return nil
}

// checkAmounts returns why a device has less than the claim needs of it alone.
func (f *filled) checkAmounts() error {
	for name, n := range count(f.claim) {
		if slots := f.held[name].Slots; n > slots {
			return fmt.Errorf("device %q: the claim needs %d of its slots, but it has %d", name, n, slots)
		}
	}
	if over := overcommitted(f.claim); over != "" {
		return fmt.Errorf("the claim needs %s", over)
	}
	return nil
}

// wanted are the devices of the claim for the book, once for each slot.
func (f *filled) wanted() []holds.Wanted {
	var all []holds.Wanted
	for _, name := range f.claim.Devices() {
		w := wanted(name)
		w.Device = f.held[name].Uses
		w.Slots = f.held[name].Slots
		all = append(all, w)
	}
	return all
}

// request is the index of a request in the claim, -1 if it is missing. A group adds its requests
// one by one, while several devices may share a request.
func (f *filled) request(name string) int {
	return slices.IndexFunc(f.claim.Requests, func(r cdi.Request) bool {
		return r.Name == name
	})
}

// newRequest returns the request of an allocated device, without devices, with everything that the
// response has besides them.
func (p *Plugin) newRequest(claim cdi.Claim, a *allocated, response device.Response) cdi.Request {
	// Each request of the group has its own metadata file, but shares the other mounts.
	mounts := slices.Clone(response.Mounts)
	return cdi.Request{
		Name:   a.Request,
		Env:    response.Env,
		Mounts: append(mounts, p.metadataMount(claim, a.Request)),
	}
}
