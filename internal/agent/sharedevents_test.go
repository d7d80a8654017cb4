package agent_test

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/generic-dp/generic-dp/internal/agent"
	"github.com/generic-dp/generic-dp/internal/device"
	"github.com/generic-dp/generic-dp/internal/kubelet/dra"
	"github.com/generic-dp/generic-dp/internal/testing/kubeapitest"
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

// everyKind offers a dock with its sticks as one device, each stick by one of two names, a radio,
// and a network that claims share by bandwidth.
const everyKind = threeNames + `
[[resource]]
name = "radio"
match.usb.id = "1a86:7523"
[[resource]]
name = "network"
count = 4
match.virtual = "x"
when.node_name = "n1"
capacity.bandwidth = { value = "10", default = "1" }
container.env.BANDWIDTH = "${capacity.bandwidth}"
`

const (
	radioName   = "example.com/radio"
	networkName = "example.com/network"

	// networkSlots and networkBandwidth are what the network has for all claims together.
	networkSlots     = 4
	networkBandwidth = 10

	radioID = "usb:1a86:7523:RADIO001"
)

// dockID is the ID of the dock.
var dockID = device.SharedID(dockName, "usb:2109:2813:DOCK0001")

// hardware is what a pod uses of the node, as a set of bits. It is the plain definition of a
// conflict: two pods must not use the same hardware.
type hardware int

const (
	firstStick hardware = 1 << iota
	secondStick
	dockItself
	radio
	network // it is shared
)

const wholeDock = firstStick | secondStick | dockItself

// sharer is a pod that got a device.
type sharer struct {
	name, uid string
	has       hardware
	// bandwidth is what it has of the network.
	bandwidth int
	// claim is nil for a device plugin, which gave it a device of resource.
	claim    *kubelettest.ResourceClaim
	resource string
	// runs is set while the pod has processes.
	runs bool
	// isForced is set once the pod was deleted with --force.
	isForced bool
}

// sharing is a node whose devices are shared in every way, by claims and by device plugins. Its
// scheduler sometimes allocates what is allocated already, as after a restore of etcd.
type sharing struct {
	*node
	dockedSticks
	api     *kubeapitest.Server
	cgroups *kubelettest.Cgroups
	random  *rand.Rand
	clock   *clock
	agent   *agent.Agent
	stop    func()
	backup  *kubelettest.Backup

	// inClaims has the resources that are offered by DRA. The others are offered by device plugins.
	inClaims map[string]bool
	admitted int
	counts   map[string]int

	// mu protects pods and violation, because resets happen in other goroutines.
	mu        sync.Mutex
	pods      []*sharer
	violation string
}

func newSharing(t *testing.T, seed uint64) *sharing {
	t.Helper()
	n, api := newDRANode(t, everyKind)
	n.answerWithin = 50 * time.Millisecond
	n.startWithin = 50 * time.Millisecond
	s := &sharing{
		node:         n,
		dockedSticks: dockedSticks{bus: n.host},
		api:          api,
		cgroups:      kubelettest.NewCgroups(t),
		random:       rand.New(rand.NewPCG(seed, 0)),
		clock:        &clock{},
		inClaims:     map[string]bool{},
		counts:       map[string]int{},
	}
	n.options.Paths.Cgroup = s.cgroups.Dir()
	s.clock.forward(2 * time.Minute)
	n.host.AddBus()
	n.host.AddUSB(sysfstest.USB{Port: "1-4", Vendor: "2109", Product: "2813", Serial: "DOCK0001"})
	n.host.AddUSB(sysfstest.USB{
		Port: "1-5", Vendor: "1a86", Product: "7523", Serial: "RADIO001",
		Interfaces: []sysfstest.Interface{{Number: 0, Class: "03", Nodes: []sysfstest.Node{{Name: "hidraw0", Subsystem: "hidraw"}}}},
	})
	s.plug(0)
	s.plug(1)
	return s
}

// start starts an instance.
func (s *sharing) start() {
	s.Helper()
	s.agent, s.stop = s.serveBy(s.clock)
}

// hardwareOf returns the hardware of a device that a device plugin offers, by its ID.
func (s *sharing) hardwareOf(id string) hardware {
	s.Helper()
	switch {
	case strings.Contains(id, s.serial(0)[:5]):
		return firstStick
	case strings.Contains(id, s.serial(1)[:5]):
		return secondStick
	case id == dockID:
		return wholeDock
	case id == radioID:
		return radio
	}
	s.Fatalf("unknown device %q", id)
	return 0
}

// configureAPIs makes some of the resources offered by DRA. The network always is.
func (s *sharing) configureAPIs() {
	text := byClaim(everyKind, "network")
	s.inClaims = map[string]bool{networkName: true}
	for _, name := range []string{"zigbee", "serial", "dock", "radio"} {
		if s.random.IntN(2) == 0 {
			text = byClaim(text, name)
			s.inClaims["example.com/"+name] = true
		}
	}
	s.configure(text)
}

// loseKubelet starts the kubelet with an older checkpoint, or without any.
func (s *sharing) loseKubelet() {
	backup := s.backup
	if s.random.IntN(2) == 0 {
		backup = nil
	}
	must(s, s.kubelet.RestartFrom(backup))
	// The API server does not have the other pods of the backup.
	for i := range s.admitted + 1 {
		name := fmt.Sprint("p", i)
		isValid := slices.ContainsFunc(s.pods, func(p *sharer) bool { return p.name == name && !p.isForced })
		if !isValid {
			s.kubelet.Remove("default", name)
			s.kubelet.Remove("lab", name)
		}
	}
}

// update starts another instance, which waits until the old one ends. Pods start meanwhile: the old instance
// gets calls for device plugins after the next one gets calls for claims.
func (s *sharing) update() {
	s.registersSlowly.Store(true)
	defer s.registersSlowly.Store(false)
	stopLast := s.stop
	s.agent, s.stop = s.serveBy(s.clock)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		stopLast()
	}()
	for {
		s.claims()
		s.admit()
		select {
		case <-ended:
			return
		default:
		}
	}
}

// passes moves the clock, and waits until the program has seen it.
func (s *sharing) passes(by time.Duration) {
	s.Helper()
	s.clock.forward(by)
	s.node.passes(s.agent)
}

// catchUp waits until the slices show what the program has: it writes them once a second.
func (s *sharing) catchUp() {
	s.Helper()
	deadline := time.Now().Add(2 * time.Second)
	s.eventually("slices", func() bool {
		want := 0
		for _, r := range s.agent.Status(s.Context()).Resources {
			for _, d := range r.Devices {
				if r.API == "dra" && d.Health == "Healthy" {
					want++
				}
			}
		}
		// A device may have changed since.
		return len(s.offers()) == want || time.Now().After(deadline)
	})
}

func (s *sharing) step() {
	s.Helper()
	var pod *sharer
	if len(s.pods) > 0 {
		pod = s.pods[s.random.IntN(len(s.pods))]
	}
	switch n := s.random.IntN(100); {
	case n < 20:
		s.admit()
	case n < 45:
		s.claims()
	case n < 58 && pod != nil:
		s.end(pod)
	case n < 68:
		s.passes(time.Duration(10+s.random.IntN(60)) * time.Second)
	case n < 72 && pod != nil && !pod.isForced:
		s.force(pod)
	case n < 74 && pod != nil && pod.claim != nil && !pod.isForced:
		// The kubelet prepares the claim of a pod again, as for each of its sandboxes.
		ctx, cancel := context.WithTimeout(s.Context(), limit)
		_, _ = s.kubelet.PrepareClaim(ctx, dra.Driver, *pod.claim)
		cancel()
	case n < 76:
		// A pod gets a device and then fails admission.
		list, _ := s.kubelet.Latest(zigbeeName)
		if healthy := list.Healthy(); len(healthy) > 0 {
			_, _ = s.kubelet.Allocate(s.Context(), zigbeeName, healthy[0])
		}
	case n < 80:
		s.plug(s.random.IntN(2))
	case n < 82:
		s.stop()
		s.start()
	case n < 92:
		s.update()
	case n < 94:
		s.backup = s.kubelet.Backup()
	case n < 95:
		s.loseKubelet()
	case n < 97:
		s.configureAPIs()
	case n < 98:
		must(s, s.kubelet.Restart())
	default:
		s.catchUp()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.violation != "" {
		s.Fatal(s.violation)
	}
}

// isFree reports whether every device is offered by the API of its resource, and by no other.
func (s *sharing) isFree() bool {
	s.Helper()
	s.passes(30 * time.Second)
	byResource := map[string]int{}
	for _, o := range s.offers() {
		byResource[o.resource]++
	}
	for name, want := range map[string]int{zigbeeName: 2, serialName: 2, dockName: 1, radioName: 1, networkName: 1} {
		plugins := s.kubelet.Count(name).Allocatable
		if s.inClaims[name] && (byResource[name] != want || plugins != 0) {
			return false
		}
		if !s.inClaims[name] && (byResource[name] != 0 || plugins != want) {
			return false
		}
	}
	return true
}

// Devices are shared in every way by random pods, with losses, updates and edits between them:
// no two pods use the same hardware, and no claims together have more than there is. All devices are
// offered again afterwards.
func TestRandomEventsOfSharing(t *testing.T) {
	t.Parallel()
	seed, steps := randomRun(t, 300)
	s := newSharing(t, seed)
	s.configureAPIs()
	s.start()
	s.catchUp()
	for range steps {
		s.step()
	}
	t.Log(s.counts)
	s.eventually("the end of the pods", func() bool {
		for _, p := range slices.Clone(s.pods) {
			if p.isForced && p.claim != nil {
				_ = s.release(p)
			}
			s.end(p)
		}
		return len(s.pods) == 0
	})
	for i := range s.portOf {
		if s.portOf[i] == "" {
			s.plug(i)
		}
	}
	defer func() {
		if t.Failed() {
			t.Logf("by claims: %v, without taints: %v", s.inClaims, s.offers())
			for _, r := range s.agent.Status(context.Background()).Resources {
				for _, d := range r.Devices {
					t.Logf("%s (%s): %s %s %s", r.Name, r.API, d.ID, d.Health, d.Reason)
				}
			}
		}
	}()
	s.eventually("all devices are free", s.isFree)
}

// dockedSticks are the two sticks of the dock in tests with random events. Each plug uses another port
// of the dock.
type dockedSticks struct {
	bus *sysfstest.Host
	// portOf is the port of each stick, empty if it is unplugged.
	portOf [2]string
	// ports counts the used ports.
	ports int
}

func (d *dockedSticks) serial(i int) string { return []string{"AAAA1111", "BBBB2222"}[i] }

// plug plugs a stick into the dock, or pulls it.
func (d *dockedSticks) plug(i int) {
	if d.portOf[i] != "" {
		d.bus.RemoveUSB(d.portOf[i])
		d.portOf[i] = ""
		return
	}
	d.ports++
	d.portOf[i] = fmt.Sprintf("1-4.%d", d.ports)
	d.bus.AddUSB(stick(d.portOf[i], d.serial(i), fmt.Sprintf("ttyUSB%d", i)))
}

var (
	long     = flag.Bool("long", false, "run the tests with random events as long as make model does")
	longSeed = flag.Uint64("seed", 0, "repeat a run with -long; 0 takes another seed each time")
)

// randomRun returns the seed and the number of steps of a test with random events: full in make model, and
// a tenth of it in make test, which only shows that the test works, with the same events each time.
func randomRun(t *testing.T, full int) (seed uint64, steps int) {
	t.Helper()
	if !*long {
		return 1, full / 10
	}
	seed = *longSeed
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("seed %d", seed)
	return seed, full
}
