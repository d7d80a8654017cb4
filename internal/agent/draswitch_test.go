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
// devices by claim where the node has none by device plugin, as Kubernetes' does.
type switching struct {
	*node
	api     *kubeapitest.Server
	random  *rand.Rand
	clock   *clock
	agent   *agent.Agent
	stop    func()
	byDRA   bool
	plugged map[int]string // the port of a stick
	ports   int
	pods    int
	holders map[string][]string // pods by the ID of their device
	claims  map[string]kubelettest.ResourceClaim
	byPlugin,
	byClaim int // pods so far
}

func (s *switching) start() { s.agent, s.stop = s.serveBy(s.clock) }

func (s *switching) serial(i int) string { return []string{"AAAA1111", "BBBB2222", "CCCC3333"}[i] }

func (s *switching) id(i int) string { return "usb:10c4:ea60:" + s.serial(i) }

// holds records that a pod holds a device, which nobody else may.
func (s *switching) holds(pod, id string) {
	if s.holders[id] = append(s.holders[id], pod); len(s.holders[id]) > 1 {
		s.Fatalf("device %s has two holders: %v", id, s.holders[id])
	}
}

func (s *switching) run() {
	s.pods++
	pod := fmt.Sprintf("p%d", s.pods)
	ctx, cancel := context.WithTimeout(s.Context(), limit)
	defer cancel()
	const resource = "example.com/zigbee"
	if s.kubelet.Count(resource).Allocatable > 0 {
		a, err := s.kubelet.Admit(ctx, kubelettest.Request{Namespace: "lab", Pod: pod, Container: "main", Resource: resource}, 1)
		if err == nil {
			s.byPlugin++
			s.holds(pod, a.IDs[0])
		}
		return
	}
	offered := published(s.api)
	for i := range 3 {
		name := dra.DeviceName(s.id(i))
		if taints, ok := offered[name]; !ok || taints != "" || s.allocated(name) {
			continue
		}
		c := allocate(s.api, pod, name)
		s.claims[s.id(i)] = c
		if _, err := s.kubelet.PrepareClaim(ctx, dra.Driver, c); err != nil {
			s.end(s.id(i)) // the pod never ran
			return
		}
		s.byClaim++
		s.holds(pod, s.id(i))
		return
	}
}

// allocated reports whether a claim has a device.
func (s *switching) allocated(name string) bool {
	for id := range s.claims {
		if dra.DeviceName(id) == name {
			return true
		}
	}
	return false
}

// end ends the pods with a device or with a claim for it, if the kubelet can.
func (s *switching) end(id string) {
	if c, ok := s.claims[id]; ok {
		ctx, cancel := context.WithTimeout(s.Context(), limit)
		defer cancel()
		if s.kubelet.UnprepareClaim(ctx, c.UID) == nil {
			s.api.Delete("/apis/resource.k8s.io/v1/namespaces/lab/resourceclaims/" + c.Name)
			delete(s.claims, id)
		} else if slices.Contains(s.holders[id], c.Name) {
			return // the driver is not running
		}
		// A claim that could not be prepared leaves its device to pods by device plugin.
	}
	for _, pod := range s.holders[id] {
		s.kubelet.Remove("lab", pod)
	}
	delete(s.holders, id)
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
		for i := range 3 {
			s.end(s.id(i))
		}
		s.pass(30 * time.Second)
		s.run()
		return *pods > before
	})
}

func (s *switching) step() {
	stick := s.random.IntN(3)
	switch n := s.random.IntN(100); {
	case n < 40:
		s.run()
	case n < 55:
		s.end(s.id(stick))
	case n < 58:
		s.change(!s.byDRA)
	case n < 88:
		s.pass(time.Duration(20+s.random.IntN(60)) * time.Second)
	case n < 89:
		s.catchUp()
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
	s.ports++
	s.plugged[i] = fmt.Sprintf("1-%d", s.ports)
	s.host.AddUSB(stick(s.plugged[i], s.serial(i), fmt.Sprintf("ttyUSB%d", i)))
}

// Switches of api, ends of pods, unplugged sticks and restarts at random: no device ever has
// two holders, and both APIs give devices away again afterwards.
func TestSwitchOfAPI(t *testing.T) {
	t.Parallel()
	const steps = 1000
	seed := uint64(time.Now().UnixNano())
	n, api := newDRANode(t, zigbee)
	s := &switching{
		node: n, api: api, random: rand.New(rand.NewPCG(seed, 0)), clock: &clock{}, plugged: map[int]string{},
		holders: map[string][]string{}, claims: map[string]kubelettest.ResourceClaim{},
	}
	n.addBus()
	for i := range 3 {
		s.plug(i)
	}
	s.start()
	moved := 0
	for range steps {
		before := s.byDRA
		s.step()
		if s.byDRA != before {
			moved++
		}
	}
	t.Logf("seed %d: %d switches, %d pods by device plugin, %d by claim", seed, moved, s.byPlugin, s.byClaim)
	s.gives(false, &s.byPlugin)
	s.gives(true, &s.byClaim)
	// At rest everything is free and offered by one API.
	for id := range s.holders {
		s.eventually("end of the pods", func() bool { s.end(id); return s.claims[id].UID == "" })
	}
	names := []string{}
	for i := range 3 {
		if s.plugged[i] == "" {
			s.plug(i)
		}
		names = append(names, s.id(i))
	}
	n.configure(zigbee)
	s.eventually("return to the device plugin", func() bool {
		s.pass(30 * time.Second)
		list, _ := n.kubelet.Latest("example.com/zigbee")
		return slices.Equal(list.Healthy(), names) && len(published(api)) == 0
	})
}
