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

	v1 "k8s.io/api/core/v1"

	"github.com/generic-dp/generic-dp/test/e2e/bed"
	"github.com/generic-dp/generic-dp/test/e2e/product"
	"github.com/generic-dp/generic-dp/test/e2e/wait"
)

const (
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

// lostMessages are what a kubelet up to 1.36 says of a pod that it admits while its resource is without
// devices: before the choice of a device, between that and Allocate, and during Allocate.
var lostMessages = []string{"no healthy devices present", "has been stopped", "the client connection is closing"}

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

// TestRollout starts pods, one after the other, while instances are replaced. Each of them
// gets its device, but on kubelets up to 1.36 a resource is without devices for milliseconds, while the new
// instance registers it again: on a busy machine, a pod may be admitted in that time.
func TestRollout(t *testing.T) {
	t.Parallel()
	bed.OnEachVersion(t, rollout)
}

func rollout(t *testing.T, v bed.Version) {
	b := bed.New(t, bed.Options{Version: v})
	n := &node{Bed: b, Host: b.Hardware(t)}
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
		if slices.ContainsFunc(lostMessages, func(m string) bool { return strings.Contains(why, m) }) {
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
