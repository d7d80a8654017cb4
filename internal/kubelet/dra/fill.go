package dra

import (
	"context"
	"slices"

	drapb "k8s.io/kubelet/pkg/apis/dra/v1"

	"github.com/generic-dp/generic-dp/cdi"
	"github.com/generic-dp/generic-dp/internal/device"
	"github.com/generic-dp/generic-dp/internal/holds"
)

// filled is a claim with everything that its containers get.
type filled struct {
	claim   cdi.Claim
	held    map[string]*Device // by ID
	devices []*drapb.Device    // for the kubelet
	// reported are the CDI names of the devices, by request.
	reported map[string][]string
}

// fill adds the devices to a claim. One container gets a whole group: each of its requests
// brings the devices' own CDI names, and a CDI name of the claim for the environment and the
// mounts of all devices of the group. It writes nothing. The error of Inject is returned as it is,
// so that it may wrap ErrNotOffered.
func (c *claims) fill(ctx context.Context, claim cdi.Claim, groups [][]allocated) (*filled, error) {
	f := &filled{
		claim:    claim,
		held:     map[string]*Device{},
		reported: map[string][]string{},
	}
	for _, group := range groups {
		names := make([]string, len(group))
		for i := range group {
			names[i] = group[i].Device
		}
		amounts, err := amountsOf(group)
		if err != nil {
			return nil, err
		}
		// All devices of a group are injected together, because they may conflict in one container.
		response, devices, err := c.Inject(ctx, names, amounts)
		if err != nil {
			return nil, err
		}
		for i := range group {
			c.addDevice(f, &group[i], &devices[i], response)
		}
	}
	return f, nil
}

// addDevice adds a device to the claim, and its request if it is the first device of the request.
// response is what the group of the device gets. Each device reports only the CDI names that no earlier
// device of its request has reported: devices share CDI names of the host, and slots share all of them.
func (c *claims) addDevice(f *filled, a *allocated, d *Device, response device.Response) {
	reported := f.reported[a.Request]
	before := len(reported)
	for _, id := range d.CDI {
		if !slices.Contains(reported, id) {
			reported = append(reported, id)
		}
	}
	at := slices.IndexFunc(f.claim.Requests, func(r cdi.Request) bool {
		return r.Name == a.Request
	})
	if at < 0 {
		// Each request of the group has its own metadata file, but shares the other mounts.
		mounts := slices.Clone(response.Mounts)
		request := cdi.Request{
			Name:   a.Request,
			Env:    response.Env,
			Mounts: append(mounts, c.metadataMount(f.claim, a.Request)),
		}
		at = len(f.claim.Requests)
		f.claim.Requests = append(f.claim.Requests, request)
		reported = append(reported, f.claim.CDIName(request))
	}
	f.reported[a.Request] = reported
	f.held[d.ID] = d
	// A device is in the list once for each of its slots that the request has.
	request := &f.claim.Requests[at]
	request.Devices = append(request.Devices, d.ref())
	request.Shares = append(request.Shares, d.shares(a)...)
	f.devices = append(f.devices, &drapb.Device{
		// Containers refer to the request, not to the subrequest that the scheduler chose.
		RequestNames: []string{baseRequest(a.Request)},
		PoolName:     a.Pool,
		DeviceName:   a.Device,
		ShareId:      a.ShareID,
		CdiDeviceIds: slices.Clone(reported[before:]),
	})
}

// wanted are the devices of the claim for the book, once for each slot.
func (f *filled) wanted() []holds.Wanted {
	all := wantedBy(f.claim)
	for i, ref := range f.claim.Devices() {
		all[i].Device = f.held[ref.ID].Uses
		all[i].Slots = f.held[ref.ID].Slots
	}
	return all
}
