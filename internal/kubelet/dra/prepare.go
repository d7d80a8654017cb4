package dra

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	claims "k8s.io/kubelet/pkg/apis/dra/v1"

	"github.com/generic-dp/generic-dp/cdi"
	"github.com/generic-dp/generic-dp/internal/device"
)

// maxPoll is the maximum time between attempts of a call that waits.
const maxPoll = 2 * time.Second

// ErrNotOffered means that a device is not offered by DRA now, or not healthy, but may be a
// moment later, such as after a start of the program. Inject wraps it.
var ErrNotOffered = errors.New("not offered now")

// NodePrepareResources prepares each claim on its own. The files of the claims are the only
// state: the kubelet calls again for a claim after its own restart, and for each sandbox.
//
// A claim that can't be prepared now is tried until shortly before the kubelet gives up. After
// an error the kubelet only tries again with the next periodic sync of the pod, 60 to 90 s later
// (SyncPod in pkg/kubelet/kuberuntime/kuberuntime_manager.go returns without a failed result).
func (s *service) NodePrepareResources(ctx context.Context, req *claims.NodePrepareResourcesRequest) (*claims.NodePrepareResourcesResponse, error) {
	type answer struct {
		uid      string
		response *claims.NodePrepareResourceResponse
	}
	answers := make(chan answer)
	for _, c := range req.GetClaims() {
		go func() { answers <- answer{uid: c.GetUid(), response: s.answer(ctx, c)} }()
	}
	resp := &claims.NodePrepareResourcesResponse{Claims: map[string]*claims.NodePrepareResourceResponse{}}
	for range req.GetClaims() {
		a := <-answers
		resp.Claims[a.uid] = a.response
	}
	return resp, nil
}

// answer prepares one claim.
func (p *Plugin) answer(ctx context.Context, c *claims.Claim) *claims.NodePrepareResourceResponse {
	began := time.Now()
	name := c.GetNamespace() + "/" + c.GetName()
	claim := cdi.Claim{
		Namespace: c.GetNamespace(),
		Name:      c.GetName(),
		UID:       c.GetUid(),
	}
	var devices []*claims.Device // not read before the call has ended
	err := p.inTime(ctx, func(ctx context.Context) error {
		var err error
		devices, err = p.prepare(ctx, claim)
		return err
	})
	took := time.Since(began)
	p.Prepared(took, err)
	if err != nil {
		p.Log.Warn("claim not prepared", "claim", name, "err", err, "duration_seconds", took.Seconds())
		return &claims.NodePrepareResourceResponse{Error: fmt.Sprintf("claim %s: %v", name, err)}
	}
	return &claims.NodePrepareResourceResponse{Devices: devices}
}

// NodeUnprepareResources removes claims. A claim that is not prepared is no error.
//
// A claim stays recorded while a process of its pods runs. The answer is a success even then:
// else the kubelet could not end the pod.
func (s *service) NodeUnprepareResources(ctx context.Context, req *claims.NodeUnprepareResourcesRequest) (*claims.NodeUnprepareResourcesResponse, error) {
	resp := &claims.NodeUnprepareResourcesResponse{Claims: map[string]*claims.NodeUnprepareResourceResponse{}}
	for _, c := range req.GetClaims() {
		answer := &claims.NodeUnprepareResourceResponse{}
		err := s.inTime(ctx, func(ctx context.Context) error { return s.unprepare(ctx, c.GetUid()) })
		if err != nil {
			name := c.GetNamespace() + "/" + c.GetName()
			answer.Error = fmt.Sprintf("claim %s: %v", name, err)
			s.Log.Warn("claim not released", "claim", name, "err", err)
		}
		resp.Claims[c.GetUid()] = answer
	}
	return resp, nil
}

// inTime runs f until shortly before the kubelet gives up the call, and returns in time even if
// f hangs.
func (p *Plugin) inTime(ctx context.Context, f func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, p.timing.answer)
	defer cancel()
	if ctx.Err() != nil {
		return errGivenUp // the kubelet may have asked for the opposite since
	}
	done := make(chan error, 1)
	go func() {
		var err error
		defer func() { done <- err }()
		defer p.recover("claim", &err)
		err = f(ctx)
	}()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
	}
	// A call that waits says for what.
	select {
	case err := <-done:
		return err
	case <-time.After(p.timing.hang):
		return fmt.Errorf("no answer within %s", p.timing.answer)
	}
}

var errGivenUp = errors.New("the kubelet has given up the call")

// prepare prepares a claim as soon as that is possible.
func (p *Plugin) prepare(ctx context.Context, claim cdi.Claim) ([]*claims.Device, error) {
	groups, err := p.allocation(ctx, &claim)
	if err != nil {
		return nil, err
	}
	delay := p.timing.poll
	var last error // what the call waited for
	for {
		_, offered := p.Devices.Get()
		removed := p.records.removed()
		devices, err := p.attempt(ctx, claim, groups)
		if last != nil && errors.Is(err, errGivenUp) {
			return nil, last
		}
		if err == nil || !waits(err) {
			return devices, err
		}
		last = err
		select {
		case <-ctx.Done():
			return nil, err
		case <-offered:
		case <-removed:
		case <-time.After(delay):
			delay = min(delay*3/2, maxPoll)
		}
	}
}

// waits reports whether an attempt that failed may succeed later.
func waits(err error) bool {
	var held *heldError
	if errors.As(err, &held) {
		return !held.final()
	}
	return errors.Is(err, ErrNotOffered)
}

// attempt writes the files of a claim, unless another claim holds one of its devices.
func (p *Plugin) attempt(ctx context.Context, claim cdi.Claim, groups [][]allocated) ([]*claims.Device, error) {
	unlock, err := p.locks.lock(ctx, claim.UID)
	if err != nil {
		return nil, err
	}
	defer unlock()
	filled, err := p.fill(ctx, claim, groups)
	if err != nil {
		return nil, err
	}
	slots := map[string]int{}
	for name, d := range filled.held {
		slots[name] = d.Slots
	}
	for name, n := range count(filled.claim) {
		if n > slots[name] {
			return nil, fmt.Errorf("device %q: the claim needs %d of its slots, but it has %d", name, n, slots[name])
		}
	}
	for {
		if ctx.Err() != nil {
			return nil, errGivenUp
		}
		conflicts, err := p.records.reserve(filled.claim, slots, time.Now())
		if err != nil {
			return nil, err
		}
		if len(conflicts) == 0 {
			break
		}
		if err := p.clear(ctx, conflicts); err != nil {
			return nil, err
		}
	}
	if err := p.commit(filled, slots); err != nil {
		return nil, err
	}
	return filled.devices, nil
}

// commit writes the files of a claim that is reserved.
func (p *Plugin) commit(filled *filled, slots map[string]int) error {
	err := p.Claims.WriteClaim(filled.claim)
	p.records.settle(filled.claim.UID, err == nil)
	if err != nil {
		return err
	}
	contested, err := p.records.contested(filled.claim, slots, time.Now())
	if err == nil && len(contested) > 0 {
		err = fmt.Errorf("another instance prepared a claim with the same device: %w", ErrNotOffered)
	}
	if err != nil {
		return errors.Join(err, p.release(filled.claim.UID))
	}
	return p.writeMetadata(filled.claim, filled.held)
}

// filled is a claim with everything that its containers get.
type filled struct {
	claim   cdi.Claim
	held    map[string]*Device // by name in the claim
	devices []*claims.Device   // for the kubelet
}

// fill adds the devices to a claim. One container gets a whole group: each of its requests
// brings the devices' own CDI names, and a CDI name of the claim for the environment and the
// mounts of all devices of the group.
func (p *Plugin) fill(ctx context.Context, claim cdi.Claim, groups [][]allocated) (*filled, error) {
	f := &filled{claim: claim, held: map[string]*Device{}}
	for _, group := range groups {
		names := make([]string, len(group))
		for i := range group {
			names[i] = group[i].Device
		}
		response, found, err := p.Inject(ctx, names)
		if err != nil {
			return nil, err
		}
		injected := map[string][]string{} // CDI names, by request
		for i, a := range group {
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
				f.claim.Requests = append(f.claim.Requests, request)
				at = len(f.claim.Requests) - 1
				injected[a.Request] = append(injected[a.Request], claim.CDIName(request))
			}
			request := &f.claim.Requests[at]
			key := found[i].key()
			f.held[key] = &found[i]
			request.Devices = append(request.Devices, key)
			slices.Sort(request.Devices)
			f.devices = append(f.devices, &claims.Device{
				RequestNames: []string{baseRequest(a.Request)},
				PoolName:     a.Pool,
				DeviceName:   a.Device,
				ShareId:      a.ShareID,
				CdiDeviceIds: slices.Clone(injected[a.Request][before:]),
			})
		}
	}
	return f, nil
}

// request is the index of a request in the claim, -1 if it is missing.
func (f *filled) request(name string) int {
	return slices.IndexFunc(f.claim.Requests, func(r cdi.Request) bool { return r.Name == name })
}

func (p *Plugin) newRequest(claim cdi.Claim, name string, response device.Response) cdi.Request {
	mounts := slices.Clone(response.Mounts)
	return cdi.Request{
		Name:   name,
		Env:    response.Env,
		Mounts: append(mounts, p.metadataMount(claim, name)),
	}
}

// unprepare removes a claim that the kubelet releases, once no process of its pods runs.
func (p *Plugin) unprepare(ctx context.Context, uid string) error {
	unlock, err := p.locks.lock(ctx, uid)
	if err != nil {
		return err
	}
	defer unlock()
	if ctx.Err() != nil {
		return errGivenUp
	}
	h, prepared := p.records.get(uid, time.Now())
	if !prepared {
		return p.release(uid)
	}
	state, pod := p.podsState(h.claim)
	if state != PodRunning {
		return p.release(uid)
	}
	again := p.records.view(h.record).released
	p.records.mark(h.record, func(r *record) {
		r.released = true
		r.ran = true
	})
	if again {
		return nil
	}
	p.Log.Warn("the kubelet releases a claim whose pod still has processes: its devices stay held until these have ended",
		"claim", h.claim.Namespace+"/"+h.claim.Name, "pod_uid", pod)
	p.follow(h)
	return nil
}

// follow removes a released claim when the processes of its pods have ended, which causes no
// event.
func (p *Plugin) follow(h holder) {
	go func() {
		delay := p.timing.poll
		for {
			select {
			case <-p.stopped:
				return
			case <-time.After(delay):
			}
			delay = min(delay*3/2, maxPoll)
			if p.endReleased(h) {
				return
			}
		}
	}()
}

// endReleased removes a released claim unless it still runs. It returns true if there is nothing
// left to do.
func (p *Plugin) endReleased(h holder) bool {
	ctx, cancel := context.WithTimeout(context.Background(), p.timing.answer)
	defer cancel()
	unlock, err := p.locks.lock(ctx, h.claim.UID)
	if err != nil {
		return false
	}
	defer unlock()
	now, prepared := p.records.get(h.claim.UID, time.Now())
	if !prepared || now.record != h.record {
		return true // another call removed it, or prepared it again
	}
	if state, _ := p.podsState(h.claim); state == PodRunning {
		return false
	}
	return p.release(h.claim.UID) == nil
}
