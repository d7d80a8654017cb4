package dra

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	claims "k8s.io/kubelet/pkg/apis/dra/v1"
)

// NodeUnprepareResources removes claims. A claim that is not prepared is no error.
//
// A claim stays recorded while a process of its pods runs. The answer is a success even then,
// since after an error the kubelet could not end the pod.
func (s *service) NodeUnprepareResources(ctx context.Context, req *claims.NodeUnprepareResourcesRequest) (*claims.NodeUnprepareResourcesResponse, error) {
	resp := &claims.NodeUnprepareResourcesResponse{Claims: map[string]*claims.NodeUnprepareResourceResponse{}}
	for _, c := range req.GetClaims() {
		answer := &claims.NodeUnprepareResourceResponse{}
		// One call after the other: a release does not wait for a device.
		err := s.inTime(ctx, func(ctx context.Context) error {
			return s.unprepare(ctx, c.GetUid())
		})
		if err != nil {
			name := c.GetNamespace() + "/" + c.GetName()
			answer.Error = fmt.Sprintf("claim %s: %v", name, err)
			s.Log.Warn("claim not released", "claim", name, "err", err)
		}
		resp.Claims[c.GetUid()] = answer
	}
	return resp, nil
}

// unprepare removes a claim that the kubelet releases, once no process of its pods runs. It returns
// nil if the claim stays recorded because of its processes.
func (p *Plugin) unprepare(ctx context.Context, uid string) error {
	leave, err := p.Enter(ctx)
	if err != nil {
		return err
	}
	defer leave()
	unlock, err := p.locks.lock(ctx, uid)
	if err != nil {
		return err
	}
	defer unlock()
	if ctx.Err() != nil {
		return errGivenUp
	}
	h, prepared := p.records.get(uid)
	if !prepared {
		return p.release(uid)
	}
	reason := p.heldAfterRelease(h)
	if reason.none() {
		return p.release(uid)
	}
	if p.records.markReleased(h.record) {
		return nil // a repeated call: follow runs already
	}
	p.Log.Warn("the kubelet releases a claim whose pod still has processes: its devices stay held until these have ended",
		"claim", fullName(h.claim),
		"reason", reason.text,
	)
	go p.follow(h)
	return nil
}

// heldAfterRelease is obstacle for a claim that the kubelet releases now, or has released.
func (p *Plugin) heldAfterRelease(h holder) obstacle {
	e, pod := p.evidence(h)
	e.IsReleased = true
	return p.textOf(e.Hold(), h, pod)
}

// follow removes a released claim when the processes of its pods have ended, which causes no
// event.
func (p *Plugin) follow(h holder) {
	delay := p.timing.poll
	for {
		select {
		case <-p.stopped:
			return
		case <-time.After(delay):
		}
		delay = nextDelay(delay)
		if p.endReleased(h) {
			return
		}
	}
}

// endReleased removes a released claim unless its pods still run. It returns true if there is
// nothing left to do.
func (p *Plugin) endReleased(h holder) bool {
	ctx, cancel := context.WithTimeout(context.Background(), p.timing.answer)
	defer cancel()
	leave, err := p.Enter(ctx)
	if err != nil {
		return false
	}
	defer leave()
	unlock, err := p.locks.lock(ctx, h.claim.UID)
	if err != nil {
		return false
	}
	defer unlock()
	now, prepared := p.records.get(h.claim.UID)
	if !prepared || now.record != h.record {
		return true // another call removed it, or prepared it again
	}
	if !p.heldAfterRelease(h).none() {
		return false
	}
	return p.release(h.claim.UID) == nil
}

// release removes the files of a claim. The file of the claim itself is the last one, so that the
// kubelet repeats its call if the program crashes before that. Metadata that can't be removed
// cannot block the end of a pod. The caller holds the lock of the claim.
func (p *Plugin) release(uid string) error {
	files, _ := os.ReadDir(p.Metadata)
	for _, f := range files {
		if strings.HasPrefix(f.Name(), uid+".") {
			_ = os.Remove(filepath.Join(p.Metadata, f.Name()))
		}
	}
	return p.records.remove(uid)
}
