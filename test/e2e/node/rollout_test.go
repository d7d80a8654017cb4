package node_test

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"

	"github.com/generic-dp/generic-dp/test/e2e/bed"
	"github.com/generic-dp/generic-dp/test/e2e/product"
	"github.com/generic-dp/generic-dp/test/e2e/wait"
)

const (
	// rolloutRounds is how often an instance is replaced.
	rolloutRounds = 5
	// admissionRounds is how often an instance is replaced while pods start.
	admissionRounds = 14
	// podsBetween is how many pods start before and after the end of an instance.
	podsBetween = 8
	// podsAtOnce is how many of them start at a time.
	podsAtOnce = 4
	// streamResources are the resources of the pods. The processes of a pod end some time after the
	// kubelet has freed its device, so that the next pods get another one.
	streamResources = 24
)

// TestRollout updates the program like the DaemonSet with maxSurge: the new instance is
// ready before the old one is terminated or killed. Meanwhile containers restart and
// find their devices. Kubelets up to 1.36 end the newest stream of a resource when any
// of its streams ends (kubernetes#127803), so that the new instance has to re-register;
// later ones never lose the resource.
func TestRollout(t *testing.T) {
	t.Parallel()
	ends := map[string]func(*testing.T, *product.Plugin){
		"SIGTERM": func(t *testing.T, p *product.Plugin) { p.Stop(t) },
		"SIGKILL": func(_ *testing.T, p *product.Plugin) { p.Kill() },
	}
	// After SIGKILL the next instance has to read what the last one has granted, and match the host,
	// before it registers. That is a part of the outage.
	medians := map[string]time.Duration{
		"SIGTERM": 100 * time.Millisecond,
		"SIGKILL": 300 * time.Millisecond,
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
				if median := outages[len(outages)/2]; median > medians[name] {
					t.Errorf("unavailable for %v in the median, want %v at most", median, medians[name])
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
		old = next
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
	return p
}

// TestRolloutAdmitsPods starts pods, one after the other, while instances are replaced. Each of them
// gets its device, but on kubelets up to 1.36 a resource is without devices for milliseconds, while the new
// instance registers it again: on a busy machine, a pod may be admitted in that time.
func TestRolloutAdmitsPods(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	config := domain
	for i := range streamResources {
		name := fmt.Sprintf("stream%d", i)
		n.mknod(t, name, uint32(i))
		config += fmt.Sprintf("[[resource]]\nname = %q\nmatch.glob = \"/dev/%s\"\n", name, name)
	}
	old := n.instance(t, config, 0)
	for i := range streamResources {
		n.Kubelet.WaitAllocatable(t, fmt.Sprintf("example.com/stream%d", i), 1)
	}

	ended, stop := n.streamPods(t)
	await := func() {
		before := ended()
		wait.Until(t, limit, "pods", func() error {
			if now := ended(); now < before+podsBetween {
				return fmt.Errorf("%d pods, %d before", now, before)
			}
			return nil
		})
	}
	var took []time.Duration
	for i := range admissionRounds {
		next := n.instance(t, config, i+1)
		await()
		began := time.Now()
		old.Stop(t)
		took = append(took, time.Since(began))
		await()
		old = next
	}
	failed := stop()
	slices.Sort(took)
	t.Logf("%d rollouts, %d pods, %d failed; end of an instance: median %v, longest %v",
		admissionRounds, ended(), len(failed), took[len(took)/2], took[len(took)-1])
	lost := 0
	for _, why := range failed {
		isLost := strings.Contains(why, "no healthy devices present") || strings.Contains(why, "the client connection is closing")
		if isLost {
			t.Logf("pod failed: %s", why)
			lost++
		} else {
			t.Errorf("pod failed: %s", why)
		}
	}
	if allowed := int(ended()) / 50; lost > allowed {
		t.Errorf("%d pods failed while their resource was registered again, want at most %d", lost, allowed)
	}
}

// streamPods starts pods that end at once, podsAtOnce at a time. ended returns the number of pods so far.
// stop returns why pods failed.
func (n *node) streamPods(t *testing.T) (ended func() int64, stop func() (failed []string)) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var count atomic.Int64
	results := make(chan []string, 1)
	go func() {
		var failed []string
		started := 0
		running := map[string]*bed.Pod{}
		for ctx.Err() == nil {
			for len(running) < podsAtOnce {
				started++
				resource := fmt.Sprintf("example.com/stream%d", started%streamResources)
				pod := bed.Workload(fmt.Sprintf("stream-%d", started), resource, 1)
				pod.Spec.RestartPolicy = v1.RestartPolicyNever
				pod.Spec.Containers[0].Command = []string{"/tool", "exit", "0"}
				running[pod.Name+"-"+bed.NodeName] = n.StartPod(t, pod)
			}
			pods, _ := n.Kubelet.Pods(ctx) // an error shows as pods that do not end
			for _, pod := range pods {
				manifest := running[pod.Name]
				phase := pod.Status.Phase
				if manifest == nil || phase != v1.PodFailed && phase != v1.PodSucceeded {
					continue
				}
				if phase == v1.PodFailed {
					failed = append(failed, pod.Name+": "+pod.Status.Reason+": "+pod.Status.Message)
				}
				manifest.Remove(t)
				delete(running, pod.Name)
				count.Add(1)
			}
			time.Sleep(pollEvery)
		}
		results <- failed
	}()
	return count.Load, func() []string {
		cancel()
		return <-results
	}
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
