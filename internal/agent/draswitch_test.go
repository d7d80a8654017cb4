package agent_test

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/generic-dp/generic-dp/internal/agent"
	"github.com/generic-dp/generic-dp/internal/kubelet/dra"
	"github.com/generic-dp/generic-dp/internal/testing/kubeapitest"
	"github.com/generic-dp/generic-dp/internal/testing/kubelettest"
)

// switching is a node whose resource changes its API at random, and a scheduler that gives
// devices by claim where the node has none by device plugin, as Kubernetes' does. Pods are also
// deleted with --force while their processes run on, and kubelet and API server lose their state.
type switching struct {
	*node
	api     *kubeapitest.Server
	cgroups *kubelettest.Cgroups
	random  *rand.Rand
	clock   *clock
	agent   *agent.Agent
	stop    func()

	byDRA   bool
	plugged map[int]string // the port of a stick
	ports   int
	backup  *kubelettest.Backup
	// pods are the pods whose processes run, and the pods that the kubelet could not end yet.
	pods []*switchedPod
	// claims are the claims that the API server has, by the ID of their device.
	claims map[string]kubelettest.ResourceClaim
	// admitted counts pods, byPlugin and byClaim the ones that got a device.
	admitted int
	byPlugin int
	byClaim  int
	// counts has how often each kind of loss happened.
	counts map[string]int
}

// switchedPod is a pod that got a device.
type switchedPod struct {
	name   string
	uid    string
	device string
	// claim is nil for a device plugin.
	claim *kubelettest.ResourceClaim
	// runs is set while the pod has processes.
	runs bool
	// forced is set once the pod was deleted with --force.
	forced bool
}

const zigbeeResource = "example.com/zigbee"

func (s *switching) start() { s.agent, s.stop = s.serveBy(s.clock) }

func (s *switching) serial(i int) string { return []string{"AAAA1111", "BBBB2222", "CCCC3333"}[i] }

func (s *switching) id(i int) string { return "usb:10c4:ea60:" + s.serial(i) }

// starts starts the processes of a pod, which must be the only ones with its device.
func (s *switching) starts(p *switchedPod) {
	s.Helper()
	for _, other := range s.pods {
		if other.runs && other.device == p.device {
			s.Fatalf("device %s has two holders: %+v and %+v", p.device, *other, *p)
		}
	}
	p.runs = true
	s.pods = append(s.pods, p)
	s.cgroups.Start(p.uid)
}

// run makes a pod, which gets a device if there is one.
func (s *switching) run() {
	s.admitted++
	pod := fmt.Sprintf("p%d", s.admitted)
	ctx, cancel := context.WithTimeout(s.Context(), limit)
	defer cancel()
	if s.kubelet.Count(zigbeeResource).Allocatable > 0 {
		request := kubelettest.Request{Namespace: "lab", Pod: pod, Container: "main", Resource: zigbeeResource}
		a, err := s.kubelet.Admit(ctx, request, 1)
		if err == nil {
			s.byPlugin++
			p := &switchedPod{name: pod, uid: s.kubelet.UID("lab", pod), device: a.IDs[0]}
			// The first process starts long after the kubelet has written the pod to its checkpoint.
			// If the checkpoint is lost before it is read, nobody knows the pod.
			s.eventually("hold of "+pod, func() bool { return s.agent.Remembers(p.uid) })
			s.starts(p)
		}
		return
	}
	offered := published(s.api)
	for i := range 3 {
		id := s.id(i)
		taints, isOffered := offered[dra.DeviceName(id)]
		_, isAllocated := s.claims[id]
		if isOffered && taints == "" && !isAllocated {
			s.runByClaim(ctx, pod, id)
			return
		}
	}
}

// runByClaim makes a pod that gets a device by a claim.
func (s *switching) runByClaim(ctx context.Context, pod, id string) {
	s.Helper()
	p := &switchedPod{name: pod, uid: "uid-of-" + pod, device: id}
	c := s.allocate(p)
	p.claim = &c
	if _, err := s.kubelet.PrepareClaim(ctx, dra.Driver, c); err != nil {
		_ = s.release(p) // the pod never ran
		return
	}
	s.byClaim++
	s.starts(p)
}

// allocate makes a claim for a pod, with its device.
func (s *switching) allocate(p *switchedPod) kubelettest.ResourceClaim {
	c := kubelettest.ResourceClaim{
		Namespace: "lab",
		Name:      p.name,
		UID:       "uid-" + p.name,
		Pod:       p.name,
		Container: "main",
	}
	result := kubeapitest.Object{
		"request": "r",
		"driver":  dra.Driver,
		"pool":    "n1/generic-dp",
		"device":  dra.DeviceName(p.device),
	}
	s.api.Put(claimObject(c.Name), kubeapitest.Object{
		"metadata": kubeapitest.Object{"name": c.Name, "uid": c.UID},
		"status": kubeapitest.Object{
			"allocation":  kubeapitest.Object{"devices": kubeapitest.Object{"results": []any{result}}},
			"reservedFor": []any{kubeapitest.Object{"resource": "pods", "name": p.name, "uid": p.uid}},
		},
	})
	s.claims[p.device] = c
	return c
}

// claimObject is the path of a claim.
func claimObject(name string) string {
	return "/apis/resource.k8s.io/v1/namespaces/lab/resourceclaims/" + name
}

// deallocate deletes the claim of a pod from the API server.
func (s *switching) deallocate(p *switchedPod) {
	s.api.Delete(claimObject(p.claim.Name))
	if s.claims[p.device].UID == p.claim.UID {
		delete(s.claims, p.device)
	}
}

// release ends a pod without processes: the kubelet frees its device. It is an error if the driver
// is not running.
func (s *switching) release(p *switchedPod) error {
	if p.claim != nil {
		ctx, cancel := context.WithTimeout(s.Context(), limit)
		defer cancel()
		if err := s.kubelet.UnprepareClaim(ctx, p.claim.UID); err != nil {
			return err
		}
		s.deallocate(p)
	}
	s.kubelet.Remove("lab", p.name)
	return nil
}

// end ends the processes of a pod, and then the pod.
func (s *switching) end(p *switchedPod) {
	p.runs = false
	s.cgroups.End(p.uid)
	if p.forced || s.release(p) == nil {
		s.pods = slices.DeleteFunc(s.pods, func(other *switchedPod) bool { return other == p })
	}
}

// force deletes a pod from the API server and the kubelet while its processes run, which may hang.
func (s *switching) force(p *switchedPod) {
	if p.forced {
		return
	}
	s.counts["pods deleted with --force"]++
	p.forced = true
	if p.claim != nil {
		s.deallocate(p)
	}
	s.kubelet.Remove("lab", p.name)
}

// reconcile has the kubelet unprepare the claims of pods that it has forgotten, as it does once
// a minute.
func (s *switching) reconcile() {
	for _, p := range s.pods {
		if p.forced && p.claim != nil {
			ctx, cancel := context.WithTimeout(s.Context(), limit)
			_ = s.kubelet.UnprepareClaim(ctx, p.claim.UID)
			cancel()
		}
	}
}

// restoreServer restores the API server from a backup that is older than all allocations. The
// kubelet still has the pods.
func (s *switching) restoreServer() {
	for _, p := range s.pods {
		if p.claim != nil {
			s.counts["claims lost by the API server"]++
			s.deallocate(p)
		}
	}
}

// restoreKubelet starts the kubelet with older checkpoints, or without any.
func (s *switching) restoreKubelet() {
	s.counts["checkpoints lost by the kubelet"]++
	backup := s.backup
	if s.random.IntN(2) == 0 {
		backup = nil
	}
	if err := s.kubelet.RestartFrom(backup); err != nil {
		s.Fatal(err)
	}
	// The API server does not have the other pods of the backup.
	for i := range s.admitted + 1 {
		name := fmt.Sprintf("p%d", i)
		isValid := slices.ContainsFunc(s.pods, func(p *switchedPod) bool { return p.name == name && !p.forced })
		if !isValid {
			s.kubelet.Remove("lab", name)
		}
	}
}

// prepareAgain has the kubelet prepare the claim of a pod once more, as for each of its sandboxes.
func (s *switching) prepareAgain(p *switchedPod) {
	if p.claim == nil || p.forced {
		return
	}
	ctx, cancel := context.WithTimeout(s.Context(), limit)
	defer cancel()
	_, _ = s.kubelet.PrepareClaim(ctx, dra.Driver, *p.claim)
}

// toAnyPod calls change for a pod at random, if there is one.
func (s *switching) toAnyPod(change func(*switchedPod)) {
	if len(s.pods) > 0 {
		change(s.pods[s.random.IntN(len(s.pods))])
	}
}

// endAll ends all pods.
func (s *switching) endAll() {
	s.Helper()
	s.eventually("end of the pods", func() bool {
		s.reconcile()
		for _, p := range slices.Clone(s.pods) {
			s.end(p)
		}
		return len(s.pods) == 0
	})
}

// pass moves the clock and waits until the loop has seen it.
func (s *switching) pass(by time.Duration) {
	passes := func() int { return strings.Count(s.log.String(), "msg=\"configuration ") }
	before := passes()
	s.clock.forward(by)
	s.agent.Reload()
	s.eventually("a pass", func() bool { return passes() > before && !s.agent.Busy() })
}

// catchUp waits until the slices are what the program has: it writes once a second.
func (s *switching) catchUp() {
	want := map[string]bool{}
	for _, r := range s.agent.Status(s.Context()).Resources {
		for _, d := range r.Devices {
			if r.API == "dra" {
				want[dra.DeviceName(d.ID)] = d.Health == "Healthy"
			}
		}
	}
	deadline := time.Now().Add(2 * time.Second)
	s.eventually("slices", func() bool {
		have := map[string]bool{}
		for name, taints := range published(s.api) {
			have[name] = taints == ""
		}
		return maps.Equal(want, have) || time.Now().After(deadline) // a device may have changed since
	})
}

func (s *switching) change(byDRA bool) {
	s.byDRA = byDRA
	s.configure(map[bool]string{false: zigbee, true: zigbeeDRA}[byDRA])
	s.pass(0)
}

// gives waits until an API has given a device to one more pod.
func (s *switching) gives(byDRA bool, pods *int) {
	s.Helper()
	s.change(byDRA)
	if s.plugged[0] == "" {
		s.plug(0)
	}
	before := *pods
	s.eventually(fmt.Sprintf("a pod, by claim %t", byDRA), func() bool {
		s.endAll()
		s.pass(30 * time.Second)
		s.run()
		return *pods > before
	})
}

func (s *switching) step() {
	stick := s.random.IntN(3)
	switch n := s.random.IntN(100); {
	case n < 36:
		s.run()
	case n < 45:
		s.toAnyPod(s.end)
	case n < 47:
		s.change(!s.byDRA)
	case n < 69:
		s.pass(time.Duration(20+s.random.IntN(60)) * time.Second)
	case n < 71:
		s.catchUp()
	case n < 79:
		s.toAnyPod(s.force)
	case n < 84:
		s.reconcile()
	case n < 86:
		s.toAnyPod(s.prepareAgain)
	case n < 87:
		s.restoreServer()
	case n < 89:
		s.backup = s.kubelet.Backup()
	case n < 90:
		s.restoreKubelet()
	case n < 96 && s.plugged[stick] != "":
		s.host.RemoveUSB(s.plugged[stick])
		s.plugged[stick] = ""
	case n < 96:
		s.plug(stick)
	case n < 98:
		s.stop()
		s.start()
	default:
		if err := s.kubelet.Restart(); err != nil {
			s.Fatal(err)
		}
	}
}

func (s *switching) plug(i int) {
	if s.plugged[i] != "" {
		return
	}
	s.ports++
	s.plugged[i] = fmt.Sprintf("1-%d", s.ports)
	s.host.AddUSB(stick(s.plugged[i], s.serial(i), fmt.Sprintf("ttyUSB%d", i)))
}

// Switches of api, ends and losses of pods, unplugged sticks and restarts at random: no device
// ever has two holders whose processes run, and both APIs give devices away again afterwards.
func TestSwitchOfAPI(t *testing.T) {
	t.Parallel()
	seed, steps := randomRun(t, 700)
	n, api := newDRANode(t, zigbee)
	// The scheduler may take a device from a slice that is a second old. Its prepare waits as long
	// as it may, and the clock of this test stands still meanwhile.
	n.answerWithin = 50 * time.Millisecond
	n.startWithin = 50 * time.Millisecond
	s := &switching{
		node:    n,
		api:     api,
		cgroups: kubelettest.NewCgroups(t),
		random:  rand.New(rand.NewPCG(seed, 0)),
		clock:   &clock{},
		plugged: map[int]string{},
		claims:  map[string]kubelettest.ResourceClaim{},
		counts:  map[string]int{},
	}
	n.options.Paths.Cgroup = s.cgroups.Dir()
	n.addBus()
	for i := range 3 {
		s.plug(i)
	}
	s.start()
	for range steps {
		before := s.byDRA
		s.step()
		if s.byDRA != before {
			s.counts["switches"]++
		}
	}
	t.Logf("%v, %d pods by device plugin, %d by claim", s.counts, s.byPlugin, s.byClaim)
	s.gives(false, &s.byPlugin)
	s.gives(true, &s.byClaim)
	// At rest everything is free and offered by one API.
	s.endAll()
	names := []string{}
	for i := range 3 {
		s.plug(i)
		names = append(names, s.id(i))
	}
	n.configure(zigbee)
	s.eventually("return to the device plugin", func() bool {
		s.pass(30 * time.Second)
		list, _ := n.kubelet.Latest(zigbeeResource)
		return slices.Equal(list.Healthy(), names) && len(published(api)) == 0
	})
}
