package agent_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/generic-dp/generic-dp/internal/device"
	"github.com/generic-dp/generic-dp/internal/testing/kubelettest"
	"github.com/generic-dp/generic-dp/internal/testing/sysfstest"
)

// threeNames offers a dock with sticks as one device, or each stick by one of two names.
const threeNames = twoNames + `
[[resource]]
name = "dock"
match.usb.id = "2109:2813"
shared = "exclusive"
`

const dockName = "example.com/dock"

// rivalPod is a pod that got a device, as long as its processes run.
type rivalPod struct {
	name, uid, resource string
	// stick is the index of its stick, -1 for the dock.
	stick int
	// isListed is cleared once the kubelet has forgotten the pod.
	isListed bool
}

// conflicts reports whether two pods have the same hardware.
func (p *rivalPod) conflicts(other *rivalPod) bool {
	return p.stick < 0 || other.stick < 0 || p.stick == other.stick
}

// rivalEvents is a node to which random things happen.
type rivalEvents struct {
	*rivalry
	dockedSticks
	random   *rand.Rand
	pods     []*rivalPod
	backup   *kubelettest.Backup
	admitted int
	counts   map[string]int
}

// admit admits a pod, and checks that no other pod with the same hardware runs.
func (s *rivalEvents) admit() {
	s.Helper()
	s.admitted++
	resource := []string{zigbeeName, serialName, dockName}[s.random.IntN(3)]
	name := fmt.Sprint("p", s.admitted)
	a, err := s.kubelet.Admit(s.Context(), request(name, resource), 1)
	if err != nil {
		s.counts["refused"]++
		return
	}
	p := &rivalPod{
		name:     name,
		uid:      s.kubelet.UID("default", name),
		resource: resource,
		stick:    -1,
		isListed: true,
	}
	if resource != dockName {
		p.stick = s.stickOf(a)
	}
	s.counts[resource]++
	for _, other := range s.pods {
		if p.conflicts(other) {
			s.Fatalf("%s got %s (stick %d) while %s runs with %s (stick %d)", p.name, p.resource, p.stick, other.name, other.resource, other.stick)
		}
	}
	// The first process starts long after the kubelet has written the pod to its checkpoint. If the
	// checkpoint is lost before it is read, nobody knows the pod.
	s.eventually("hold of "+p.name, func() bool { return s.agent.Remembers(p.uid) })
	s.cgroups.Start(p.uid)
	s.pods = append(s.pods, p)
}

// stickOf returns the stick of an admission.
func (s *rivalEvents) stickOf(a *kubelettest.Admission) int {
	s.Helper()
	for i := range s.portOf {
		if slices.Contains(s.idsOf(i), a.IDs[0]) {
			return i
		}
	}
	s.Fatalf("unknown device %q", a.IDs)
	return 0
}

// end ends a pod with its processes.
func (s *rivalEvents) end(i int) {
	p := s.pods[i]
	s.cgroups.End(p.uid)
	if p.isListed {
		s.kubelet.Remove("default", p.name)
	}
	s.pods = slices.Delete(s.pods, i, i+1)
}

// passes moves the clock, and waits until the program has seen it.
func (s *rivalEvents) passes(by time.Duration) {
	count := func() int { return strings.Count(s.log.String(), "msg=\"configuration ") }
	before := count()
	s.clock.forward(by)
	s.agent.Reload()
	s.eventually("a pass", func() bool { return count() > before && !s.agent.Busy() })
}

// update starts another instance, which waits until the old one ends.
func (s *rivalEvents) update() {
	next, stop := s.serveBy(s.clock)
	if s.random.IntN(2) == 0 {
		s.admit()
	}
	s.stop()
	s.agent, s.stop = next, stop
}

// loseKubelet starts the kubelet with an older checkpoint, or without any.
func (s *rivalEvents) loseKubelet() {
	backup := s.backup
	if s.random.IntN(2) == 0 {
		backup = nil
	}
	if err := s.kubelet.RestartFrom(backup); err != nil {
		s.Fatal(err)
	}
	for i := range s.admitted + 1 {
		// Pods that have ended are not among the pods of the API server.
		if !slices.ContainsFunc(s.pods, func(p *rivalPod) bool { return p.isListed && p.name == fmt.Sprint("p", i) }) {
			s.kubelet.Remove("default", fmt.Sprint("p", i))
		}
	}
	for _, p := range s.pods {
		p.isListed = p.isListed && s.kubelet.UID("default", p.name) == p.uid
	}
}

func (s *rivalEvents) step() {
	s.Helper()
	switch n := s.random.IntN(100); {
	case n < 40:
		s.admit()
	case n < 55 && len(s.pods) > 0:
		s.end(s.random.IntN(len(s.pods)))
	case n < 75:
		s.passes(time.Duration(10+s.random.IntN(60)) * time.Second)
	case n < 80 && len(s.pods) > 0:
		s.counts["forced"]++
		p := s.pods[s.random.IntN(len(s.pods))]
		s.kubelet.Remove("default", p.name)
		p.isListed = false
	case n < 83:
		// A pod gets a device and then fails admission.
		list, _ := s.kubelet.Latest(zigbeeName)
		if healthy := list.Healthy(); len(healthy) > 0 {
			_, _ = s.kubelet.Allocate(s.Context(), zigbeeName, healthy[0])
		}
	case n < 87:
		s.plug(s.random.IntN(2))
	case n < 90:
		s.stop()
		s.agent, s.stop = s.serveBy(s.clock)
	case n < 93:
		s.update()
	case n < 95:
		s.backup = s.kubelet.Backup()
	case n < 96:
		s.loseKubelet()
	case n < 98:
		text := threeNames
		if s.random.IntN(2) == 0 {
			text = strings.Replace(text, "name = \"serial\"", "name = \"uart\"", 1)
		}
		s.configure(text)
	default:
		if err := s.kubelet.Restart(); err != nil {
			s.Fatal(err)
		}
	}
}

// Ends, losses, updates, edits and unplugged sticks at random: no two pods with the same hardware ever
// run, and all devices are allocated again afterwards.
func TestRandomEventsOfRivals(t *testing.T) {
	t.Parallel()
	seed, steps := randomRun(t, 300)
	r := &rivalry{holding: newHolding(t, threeNames), clock: new(clock)}
	r.clock.forward(2 * time.Minute)
	r.addBus()
	r.host.AddUSB(sysfstest.USB{Port: "1-4", Vendor: "2109", Product: "2813", Serial: "DOCK0001"})
	s := &rivalEvents{
		rivalry:      r,
		dockedSticks: dockedSticks{bus: r.host},
		random:       rand.New(rand.NewPCG(seed, 0)),
		counts:       map[string]int{},
	}
	s.plug(0)
	s.plug(1)
	s.agent, s.stop = s.serveBy(s.clock)
	s.untilListed(dockName, []string{dockID}, nil)
	for range steps {
		s.step()
	}
	t.Log(s.counts)
	for len(s.pods) > 0 {
		s.end(0)
	}
	s.configure(threeNames)
	for i := range s.portOf {
		if s.portOf[i] == "" {
			s.plug(i)
		}
	}
	for _, c := range []struct {
		resource string
		ids      []string
	}{
		{zigbeeName, []string{s.idsOf(0)[0], s.idsOf(1)[0]}},
		{serialName, []string{s.idsOf(0)[1], s.idsOf(1)[1]}},
		{dockName, []string{dockID}},
	} {
		slices.Sort(c.ids)
		s.eventually("all devices are free: "+c.resource, func() bool {
			s.passes(30 * time.Second)
			list, _ := s.kubelet.Latest(c.resource)
			return slices.Equal(list.Healthy(), c.ids)
		})
	}
}

// dockID is the ID of the dock.
var dockID = device.SharedID(dockName, "usb:2109:2813:DOCK0001")

// idsOf are the IDs of a stick, by its names.
func (s *rivalEvents) idsOf(stick int) []string {
	id := "usb:10c4:ea60:" + s.serial(stick)
	return []string{
		device.SharedID(zigbeeName, id),
		device.SharedID(serialName, id+":if00:ttyUSB"),
	}
}
