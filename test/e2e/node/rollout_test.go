package node_test

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"

	"github.com/generic-dp/generic-dp/test/e2e/bed"
	"github.com/generic-dp/generic-dp/test/e2e/product"
	"github.com/generic-dp/generic-dp/test/e2e/wait"
)

const (
	// rolloutRounds is how often an instance is replaced.
	rolloutRounds = 5
	// settled is the age of a replaced instance. Below it, the order of its
	// registration and that of the new one is unknown, and the new one registers again
	// a second after it ended, to be safe.
	settled = 16 * time.Second
)

// TestRollout updates the program like the DaemonSet with maxSurge: the new instance is
// ready before the old one is terminated or killed. Meanwhile containers restart and
// find their devices. Kubelets up to 1.36 end the newest stream of a resource when any
// of its streams ends (kubernetes#127803), so that the new instance has to re-register;
// later ones never lose the resource.
func TestRollout(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("instances need a minute and a half to age")
	}
	ends := map[string]func(*testing.T, *product.Plugin){
		"SIGTERM": func(t *testing.T, p *product.Plugin) { p.Stop(t) },
		"SIGKILL": func(_ *testing.T, p *product.Plugin) { p.Kill() },
	}
	for _, c := range []struct {
		version    bed.Version
		maxOutages int // how often a resource may be unavailable in an update
	}{
		{bed.Current, 1},
		{bed.Next, 0},
	} {
		for name, end := range ends {
			t.Run(c.version.Minor+" "+name, func(t *testing.T) {
				t.Parallel()
				c.version.SkipUnlessBuilt(t)
				b := bed.New(t, bed.Options{Version: c.version})
				n := &node{Bed: b, Host: b.Hardware(t)}
				n.logged(t, time.Time{}, "Kubelet version", `kubeletVersion="`+c.version.Minor+".")
				polls, missed, outages := replaceInstances(t, n, end)
				t.Logf("%d of %d polls missed a resource; unavailable, by the kubelet's log: %v", missed, polls, outages)
				if polls == 0 || c.maxOutages == 0 && missed > 0 {
					t.Errorf("%d of %d polls missed a resource, want none of at least one", missed, polls)
				}
				if most := c.maxOutages * rolloutRounds * len(injections); len(outages) > most {
					t.Errorf("unavailable %d times, want at most %d", len(outages), most)
				}
				if len(outages) == 0 {
					return
				}
				if median := outages[len(outages)/2]; median > 100*time.Millisecond {
					t.Errorf("unavailable for %v in the median, want 100ms at most", median)
				}
				if longest := outages[len(outages)-1]; longest > time.Second {
					t.Errorf("unavailable for %v, want a second at most", longest)
				}
			})
		}
	}
}

// replaceInstances replaces instances of the program beside two pods. It returns the
// number of polls of the kubelet, how many of them missed a resource, and the sorted
// outages of the resources.
func replaceInstances(t *testing.T, n *node, end func(*testing.T, *product.Plugin)) (polls, missed int, outages []time.Duration) {
	sticks, config := n.plugBoth()
	config = domain + config
	old := n.instance(t, config, 0)
	pods := n.runBoth(t)

	watched := n.pollAllocatable(t, len(sticks))
	for i := range rolloutRounds {
		wait.Until(t, limit, "age of an instance", func() error {
			if age := time.Since(n.served); age < settled {
				return fmt.Errorf("it is %v", age)
			}
			return nil
		})
		next := n.instance(t, config, i+1)
		for _, p := range pods {
			p.Kill(t, "main")
		}
		end(t, old)
		for kind, p := range pods {
			p.WaitRestarted(t, "main", int32(i+1))
			wantNode(t, p.Inspect(t, "main", "/dev"), "/dev/zigbee", sticks[kind].number())
			n.Kubelet.WaitAllocatable(t, "example.com/"+kind, 1)
			n.wantHeld(t, "example.com/"+kind, map[string]string{sticks[kind].id(): kind + "-bed/main"})
		}
		// The end of the old instance has made it register again, late on a busy machine.
		old, n.served = next, time.Now()
	}
	polls, missed = watched()

	for kind, p := range pods {
		outages = append(outages, n.outages(t, "example.com/"+kind)...)
		n.wantAllocations(t, "example.com/"+kind, 1)
		p.Delete(t)
		after := n.run(t, bed.Workload("after-"+kind, "example.com/"+kind, 1))
		wantNode(t, after.Report(t, "main"), "/dev/zigbee", sticks[kind].number())
	}
	slices.Sort(outages)
	return polls, missed, outages
}

// instance starts the i-th instance of the program with the files of the previous one,
// and waits until it is ready, by the DaemonSet's probe.
func (n *node) instance(t *testing.T, config string, i int) *product.Plugin {
	t.Helper()
	address := fmt.Sprintf("127.0.0.1:%d", 9418+i)
	p := n.Plugin(t, product.Spec{
		Name:   fmt.Sprintf("plugin-%d", i),
		Config: config,
		Args:   []string{"--sysfs", n.Sysfs(), "--log-level", "debug", "--listen", address},
	})
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: n.DialContext}}
	wait.Until(t, limit, address+" to be ready", func() error {
		resp, err := client.Get("http://" + address + "/readyz")
		if err != nil {
			return err
		}
		resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			return fmt.Errorf("/readyz: %s", resp.Status)
		}
		return nil
	})
	n.served = time.Now() // its sockets are older, however slow it started
	return p
}

// pollEvery leaves some of the kubelet's limit of a hundred requests per second to the
// program.
const pollEvery = 15 * time.Millisecond

// pollAllocatable polls the allocatable devices of the kubelet until stop, which returns
// the number of polls, and of polls with fewer devices.
func (n *node) pollAllocatable(t *testing.T, devices int) (stop func() (polls, missed int)) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	var polls, missed int
	go func() {
		defer close(ended)
		tick := time.NewTicker(pollEvery)
		defer tick.Stop()
		for {
			resp, err := n.Kubelet.Resources.GetAllocatableResources(ctx, &podresources.AllocatableResourcesRequest{})
			switch {
			case ctx.Err() != nil:
				return
			case status.Code(err) == codes.ResourceExhausted:
			case err != nil:
				t.Errorf("allocatable resources: %v", err)
				return
			default:
				polls++
				if len(resp.Devices) < devices {
					missed++
				}
			}
			<-tick.C
		}
	}()
	return func() (int, int) {
		cancel()
		<-ended
		return polls, missed
	}
}

// outages returns how long the kubelet had no healthy device of a resource, each time,
// by its log, which is more precise than polling.
func (n *node) outages(t *testing.T, resource string) (outages []time.Duration) {
	t.Helper()
	var since time.Time
	had := false
	for line := range strings.Lines(n.Kubelet.Log()) {
		head := klogTime.FindStringSubmatch(line)
		if head == nil || !strings.Contains(line, fmt.Sprintf("resourceName=%q", resource)) {
			continue
		}
		at, err := time.Parse("0102 15:04:05.000000", head[1])
		if err != nil {
			t.Fatal(err)
		}
		switch {
		case strings.Contains(line, "Mark all resources Unhealthy"), strings.Contains(line, "healthyCount=0"):
			if had && since.IsZero() {
				since = at
			}
		case strings.Contains(line, "healthyCount="):
			if !since.IsZero() {
				outages, since = append(outages, at.Sub(since)), time.Time{}
			}
			had = true
		}
	}
	if !since.IsZero() {
		t.Errorf("%s is unavailable at the end", resource)
	}
	return outages
}
