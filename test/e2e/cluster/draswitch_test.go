//go:build cluster

package cluster_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"

	"github.com/generic-dp/generic-dp/test/e2e/bed"
	"github.com/generic-dp/generic-dp/test/e2e/cluster"
	"github.com/generic-dp/generic-dp/test/e2e/fixture"
	"github.com/generic-dp/generic-dp/test/e2e/wait"
)

const (
	stepsEnv = "GENERIC_DP_E2E_STEPS"
	seedEnv  = "GENERIC_DP_E2E_SEED"
	// perResource is the number of sticks of each of two resources.
	perResource = 3
)

var switched = [2]struct{ name, id string }{{"zigbee", "10c4:ea60"}, {"zwave", "0658:0200"}}

// switching is a node whose two resources change their API at random.
type switching struct {
	*draNode
	random  *rand.Rand
	byDRA   [2]bool
	ttys    [2 * perResource]int // the number of each stick's latest node
	plugged [2 * perResource]bool
	// pods are twice as many as sticks: while a resource moves, its pods wait, and those of the other
	// resource should still be enough for its sticks.
	pods [4 * perResource]string
	made int
	stop chan struct{}
}

func (s *switching) config() string {
	text := `domain = "example.com"` + "\n"
	for i, r := range switched {
		text += fmt.Sprintf("[[resource]]\nname = %q\napi = %q\nmatch = { usb = { id = %q }, glob = \"/dev/ttyUSB*\" }\ncontainer.path = \"/dev/stick\"\n",
			r.name, map[bool]string{false: "device-plugin", true: "dra"}[s.byDRA[i]], r.id)
	}
	return text
}

// plug plugs in a stick, with another port and another node than before.
func (s *switching) plug(i int) {
	s.ttys[i] = (s.ttys[i] + len(s.ttys)) % 252 // a multiple of the number of sticks
	s.plugged[i] = true
	s.Plug(fixture.Stick{Port: fmt.Sprintf("1-%d", 1+s.ttys[i]), ID: switched[i/perResource].id, Serial: fmt.Sprintf("A1B2C3D%d", i), TTY: fmt.Sprintf("ttyUSB%d", s.ttys[i])})
}

// change switches the API of a resource.
func (s *switching) change(t *testing.T, i int) {
	t.Helper()
	s.byDRA[i] = !s.byDRA[i]
	s.plugin.Configure(t, s.config())
}

func (s *switching) toggle(i int) {
	if !s.plugged[i] {
		s.plug(i)
		return
	}
	s.plugged[i] = false
	s.Unplug(fmt.Sprintf("1-%d", 1+s.ttys[i]))
}

// run creates a pod whose environment has its name.
func (s *switching) run(t *testing.T, resource string) string {
	t.Helper()
	s.made++
	pod := bed.Workload(fmt.Sprintf("p%d-%s", s.made, bed.NodeName), "example.com/"+resource, 1)
	pod.Spec.Containers[0].Env = []v1.EnvVar{{Name: "POD", Value: pod.Name}}
	s.CreatePod(t, pod)
	return pod.Name
}

// holder is a process with the node of a stick.
type holder struct {
	pod, pid string
}

// holders reads the processes of containers from /proc, by the stick whose node, current or
// former, is in their root directory.
func (s *switching) holders() map[int][]holder {
	found := map[int][]holder{}
	processes, _ := filepath.Glob(s.Path("/proc") + "/[0-9]*") // the pattern is valid
	for _, dir := range processes {
		var node unix.Stat_t
		if unix.Stat(dir+"/root/dev/stick", &node) != nil || unix.Major(node.Rdev) != 188 {
			continue
		}
		env, _ := os.ReadFile(dir + "/environ") // empty after its end
		for v := range strings.SplitSeq(string(env), "\x00") {
			if pod, ok := strings.CutPrefix(v, "POD="); ok {
				i := int(unix.Minor(node.Rdev)) % len(s.ttys)
				found[i] = append(found[i], holder{pod, filepath.Base(dir)})
			}
		}
	}
	return found
}

// watch fails the test when a stick has two holders. It counts the pods with a stick by API,
// and the moves of sticks from a pod of one API to a pod of the other.
func (s *switching) watch(t *testing.T) (byPlugin, byClaim, moves int) {
	known := map[string]bool{}
	last := map[int]bool{}
	for {
		for i, list := range s.holders() {
			for _, h := range list {
				if h.pod != list[0].pod {
					t.Errorf("stick %d has two holders: %v", i, list)
					return byPlugin, byClaim, moves
				}
			}
			pod := list[0].pod
			if known[pod] {
				continue
			}
			known[pod] = true
			p, err := cluster.Get[v1.Pod](s.Cluster, "/api/v1/namespaces/default/pods/"+pod)
			if err != nil { // deleted meanwhile
				continue
			}
			claim := p.Status.ExtendedResourceClaimStatus != nil
			if claim {
				byClaim++
			} else {
				byPlugin++
			}
			if before, ok := last[i]; ok && before != claim {
				moves++
			}
			last[i] = claim
		}
		select {
		case <-s.stop:
			return byPlugin, byClaim, moves
		case <-time.After(5 * time.Millisecond):
		}
	}
}

func (s *switching) step(t *testing.T) {
	i, pod := s.random.IntN(len(s.ttys)), s.random.IntN(len(s.pods))
	switch n := s.random.IntN(1000); {
	case n < 550 && s.pods[pod] == "":
		s.pods[pod] = s.run(t, switched[i/perResource].name)
	case n < 550:
		s.DeletePod(t, s.pods[pod])
		s.pods[pod] = ""
	case n < 700, n < 900 && !s.plugged[i]:
		s.toggle(i)
	case n < 900:
		for _, h := range s.holders()[i] { // its container restarts
			_, _ = s.Try("", "kill", "-9", h.pid) // unless it has ended
		}
	// A stick moves after a minute without any of these.
	case n < 910:
		s.change(t, i/perResource)
	case n < 920:
		s.plugin.Restart(t)
	case n < 930:
		s.Kubelet.Restart(t)
	}
	<-time.After(time.Duration(s.random.IntN(700)) * time.Millisecond)
}

// envNumber returns a number from the environment.
func envNumber(t *testing.T, name string, defaultValue uint64) uint64 {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return defaultValue
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return n
}

// TestDRASwitchAtRandom switches resources between the kubelet's APIs at random, while pods
// are created and deleted, sticks unplugged, containers and the program killed and the
// kubelet restarted: no stick ever has two holders.
func TestDRASwitchAtRandom(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("devices take minutes to move")
	}
	seed, steps := envNumber(t, seedEnv, 13), envNumber(t, stepsEnv, 250)
	t.Logf("%s=%d %s=%d", seedEnv, seed, stepsEnv, steps)
	s := &switching{random: rand.New(rand.NewPCG(seed, 0)), byDRA: [2]bool{false, true}, stop: make(chan struct{})}
	s.draNode = newDRANode(t, bed.Current, s.config())
	s.class(t, "example.com/zwave")
	for i := range s.ttys {
		s.ttys[i] = i
		s.plug(i)
	}
	s.serve(t)
	s.WaitResource(t, zigbee, perResource)
	s.waitDevices(t, perResource)
	s.plugin.WaitLog(t, limit, "id=usb:0658:0200:A1B2C3D3") // not by its port
	// The check sees a holder of each API.
	for i, r := range switched {
		s.pods[i] = s.run(t, r.name)
		wait.Until(t, limit, "holder of a stick of "+r.name, func() error {
			for stick, list := range s.holders() {
				if stick/perResource == i && list[0].pod == s.pods[i] {
					return nil
				}
			}
			return errors.New("none")
		})
	}
	var watched sync.WaitGroup
	var byPlugin, byClaim, moves int
	watched.Go(func() { byPlugin, byClaim, moves = s.watch(t) })
	began := time.Now()
	for i := range steps {
		// Both resources give sticks to pods until one of them moves, which takes minutes.
		if i == steps/4 {
			s.change(t, s.random.IntN(len(s.byDRA)))
		}
		if s.step(t); t.Failed() {
			break
		}
	}
	close(s.stop)
	watched.Wait()
	t.Logf("%d pods, of which %d had a stick by device plugin and %d by claim, %d moves, in %v", s.made, byPlugin, byClaim, moves, time.Since(began).Round(time.Second))
}
