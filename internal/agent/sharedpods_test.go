package agent_test

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/generic-dp/generic-dp/internal/device"
	"github.com/generic-dp/generic-dp/internal/kubelet/dra"
	"github.com/generic-dp/generic-dp/internal/testing/kubeapitest"
	"github.com/generic-dp/generic-dp/internal/testing/kubelettest"
)

// starts begins the processes of a pod that got a device. No other pod that runs may use the same
// hardware.
func (s *sharing) starts(p *sharer) {
	s.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	bandwidth := p.bandwidth
	slots := 1
	for _, other := range s.pods {
		if !other.runs {
			continue
		}
		both := p.has & other.has
		if both&^network != 0 {
			s.Fatalf("pod %+v runs beside %+v", *p, *other)
		}
		if both == network {
			bandwidth += other.bandwidth
			slots++
		}
	}
	if bandwidth > networkBandwidth || slots > networkSlots {
		s.Fatalf("pod %+v makes %d pods with a bandwidth of %d in %+v", *p, slots, bandwidth, s.pods)
	}
	p.runs = true
	s.pods = append(s.pods, p)
	s.cgroups.Start(p.uid)
}

// admit runs a pod that gets a device by a device plugin.
func (s *sharing) admit() {
	s.Helper()
	var offered []string
	for _, name := range []string{zigbeeName, serialName, dockName, radioName} {
		if !s.inClaims[name] {
			offered = append(offered, name)
		}
	}
	if len(offered) == 0 {
		return
	}
	s.admitted++
	resource := offered[s.random.IntN(len(offered))]
	name := fmt.Sprint("p", s.admitted)
	a, err := s.kubelet.Admit(s.Context(), request(name, resource), 1)
	if err != nil {
		s.counts["refused by device plugins"]++
		return
	}
	p := &sharer{
		name:     name,
		uid:      s.kubelet.UID("default", name),
		has:      s.hardwareOf(a.IDs[0]),
		resource: resource,
	}
	s.eventually("hold of "+p.name, func() bool { return s.agent.Remembers(p.uid) })
	s.counts[resource]++
	s.starts(p)
}

// offer is a published device.
type offer struct {
	name, resource string
	has            hardware
}

// offers returns the published devices without taints, sorted by name.
func (s *sharing) offers() []offer {
	virtual := device.VirtualID(networkName, "x")
	known := []offer{
		{dra.DeviceName(dockID), dockName, wholeDock},
		{dra.DeviceName(radioID), radioName, radio},
		{dra.DeviceName(virtual), networkName, network},
	}
	for i, has := range []hardware{firstStick, secondStick} {
		id := "usb:10c4:ea60:" + s.serial(i)
		known = append(known,
			offer{dra.DeviceName(device.SharedID(zigbeeName, id)), zigbeeName, has},
			offer{dra.DeviceName(device.SharedID(serialName, id+":if00:ttyUSB")), serialName, has},
		)
	}
	var all []offer
	for name, taints := range published(s.api) {
		i := slices.IndexFunc(known, func(o offer) bool { return o.name == name })
		if i < 0 {
			s.Fatalf("unknown device %q", name)
		}
		if taints == "" {
			all = append(all, known[i])
		}
	}
	slices.SortFunc(all, func(a, b offer) int { return strings.Compare(a.name, b.name) })
	return all
}

// isAllocated reports whether the API server has a claim with hardware that a new claim would get.
func (s *sharing) isAllocated(o offer, bandwidth int) bool {
	slots := 1
	for _, p := range s.pods {
		if p.claim == nil || p.isForced {
			continue
		}
		both := p.has & o.has
		if both&^network != 0 {
			return true
		}
		if both == network {
			bandwidth += p.bandwidth
			slots++
		}
	}
	return bandwidth > networkBandwidth || slots > networkSlots
}

// claims runs a pod that gets a device by a claim.
func (s *sharing) claims() {
	s.Helper()
	all := s.offers()
	if len(all) == 0 {
		return
	}
	o := all[s.random.IntN(len(all))]
	s.admitted++
	name := fmt.Sprint("p", s.admitted)
	p := &sharer{name: name, uid: "uid-of-" + name, has: o.has}
	if o.has == network {
		p.bandwidth = 1 + s.random.IntN(5)
	}
	isMistaken := s.random.IntN(4) == 0
	if !isMistaken && s.isAllocated(o, p.bandwidth) {
		return
	}
	p.claim = s.allocate(p, o)
	if s.prepares(p) {
		s.starts(p)
	}
}

// prepares has the kubelet prepare the claim of a new pod. If that fails, the pod never runs.
func (s *sharing) prepares(p *sharer) bool {
	s.Helper()
	ctx, cancel := context.WithTimeout(s.Context(), limit)
	defer cancel()
	devices, err := s.kubelet.PrepareClaim(ctx, dra.Driver, *p.claim)
	if err != nil {
		s.counts["refused by DRA"]++
		_ = s.release(p)
		return false
	}
	s.counts["claims"]++
	if p.has == network {
		ids := devices[0].GetCdiDeviceIds()
		want := fmt.Sprint("BANDWIDTH=", p.bandwidth)
		if env := s.edits(ids[len(ids)-1]).Env; !slices.Contains(env, want) {
			s.Fatalf("pod %s has the environment %q, want %s", p.name, env, want)
		}
	}
	return true
}

// allocate makes the claim of a pod.
func (s *sharing) allocate(p *sharer, o offer) *kubelettest.ResourceClaim {
	c := &kubelettest.ResourceClaim{Namespace: "lab", Name: p.name, UID: "uid-" + p.name, Pod: p.name, Container: "main"}
	result := kubeapitest.Object{"request": "r", "driver": dra.Driver, "pool": "n1/generic-dp", "device": o.name}
	if o.has == network {
		result["shareID"] = "share-" + p.name
		result["consumedCapacity"] = kubeapitest.Object{"bandwidth": fmt.Sprint(p.bandwidth), "slots": "1"}
	}
	s.api.Put(claimObject(c.Name), kubeapitest.Object{
		"metadata": kubeapitest.Object{"name": c.Name, "uid": c.UID},
		"status": kubeapitest.Object{
			"allocation":  kubeapitest.Object{"devices": kubeapitest.Object{"results": []any{result}}},
			"reservedFor": []any{kubeapitest.Object{"resource": "pods", "name": p.name, "uid": p.uid}},
		},
	})
	return c
}

// release ends a pod without processes: the kubelet frees its device. It is an error if the driver is
// not running.
func (s *sharing) release(p *sharer) error {
	if p.claim == nil {
		s.kubelet.Remove("default", p.name)
		return nil
	}
	ctx, cancel := context.WithTimeout(s.Context(), limit)
	defer cancel()
	if err := s.kubelet.UnprepareClaim(ctx, p.claim.UID); err != nil {
		return err
	}
	s.api.Delete(claimObject(p.claim.Name))
	return nil
}

// end ends the processes of a pod, and then the pod.
func (s *sharing) end(p *sharer) {
	s.mu.Lock()
	p.runs = false
	s.mu.Unlock()
	s.cgroups.End(p.uid)
	if p.isForced || s.release(p) == nil {
		s.mu.Lock()
		s.pods = slices.DeleteFunc(s.pods, func(other *sharer) bool { return other == p })
		s.mu.Unlock()
	}
}

// force deletes a pod from the API server and the kubelet while its processes run.
func (s *sharing) force(p *sharer) {
	s.counts["pods deleted with --force"]++
	p.isForced = true
	if p.claim == nil {
		s.kubelet.Remove("default", p.name)
		return
	}
	s.api.Delete(claimObject(p.claim.Name))
	s.kubelet.Remove("lab", p.name)
	if s.random.IntN(2) == 0 {
		// The kubelet unprepares the claims of pods that it has forgotten.
		ctx, cancel := context.WithTimeout(s.Context(), limit)
		defer cancel()
		_ = s.kubelet.UnprepareClaim(ctx, p.claim.UID)
	}
}

// claimObject is the path of a claim.
func claimObject(name string) string {
	return "/apis/resource.k8s.io/v1/namespaces/lab/resourceclaims/" + name
}
