//go:build cluster

package dra

import (
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"regexp"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/generic-dp/generic-dp/internal/kubelet/kubeapi"
)

// TestClusterLoad simulates many nodes in one process: what they write at the start, in
// a storm and when idle, and what they need.
func TestClusterLoad(t *testing.T) {
	c := newCluster(t)
	c.log = slog.LevelError // each node has to wait when all start
	var nodes []string
	var apis []*kubeapi.Client
	for i := range *simulated {
		nodes = append(nodes, fmt.Sprint("load-", i))
		apis = append(apis, c.node(nodes[i]))
	}
	// The server counts the writes of each slice; tainted are its devices with a taint.
	writes, tainted := map[string]int{}, map[string]string{}
	read := func() {
		var list struct {
			Items []struct {
				Metadata struct{ Generation int }
				Spec     sliceSpec
			}
		}
		if err := c.Get(t.Context(), slicesPath+"?fieldSelector="+url.QueryEscape("spec.driver="+Driver), &list); err != nil {
			t.Fatal(err)
		}
		for _, s := range list.Items {
			node := s.Spec.NodeName
			writes[node], tainted[node] = s.Metadata.Generation, ""
			for _, d := range s.Spec.Devices {
				if len(d.Taints) > 0 {
					tainted[node] += d.Name + " "
				}
			}
		}
	}
	// counts are the writes of each node since the last call, sorted.
	counted := map[string]int{}
	counts := func() (out []int) {
		read()
		for _, n := range nodes {
			out = append(out, writes[n]-counted[n])
			counted[n] = writes[n]
		}
		slices.Sort(out)
		return out
	}
	every := func(ok func(node string) bool) bool {
		read()
		return !slices.ContainsFunc(nodes, func(n string) bool { return !ok(n) })
	}
	ids := numbered(8)
	all := devices(ids...)
	before, began := resident(t), time.Now()
	var publishers []*published
	for i, n := range nodes {
		p := c.publish(apis[i], n)
		p.Set(all)
		publishers = append(publishers, p)
	}
	c.until("published", func() bool { return every(func(n string) bool { return writes[n] > 0 }) })
	t.Logf("%d nodes start at once: all published after %v", len(nodes), time.Since(began).Round(time.Millisecond))
	if got := counts(); got[len(got)-1] != 1 {
		t.Errorf("up to %d writes of a node, want 1", got[len(got)-1])
	}
	<-time.After(5 * time.Second)
	debug.FreeOSMemory()
	t.Logf("memory: %d kB a node", (resident(t)-before)/len(nodes))

	cpu := cpuTime(t)
	<-time.After(10 * time.Second)
	t.Logf("idle: %v CPU time a node in 10 s", (cpuTime(t)-cpu)/time.Duration(len(nodes)))
	if got := counts(); got[len(got)-1] != 0 {
		t.Errorf("up to %d writes of an idle node", got[len(got)-1])
	}

	// Every node has a change every 50 ms for ten seconds.
	cpu, began = cpuTime(t), time.Now()
	changes := 0
	for ; time.Since(began) < 10*time.Second; changes++ {
		changed := slices.Clone(all)
		changed[changes%len(changed)].State = Unhealthy
		for _, p := range publishers {
			p.Set(changed)
		}
		<-time.After(50 * time.Millisecond)
	}
	final := slices.Clone(all)
	final[3].State, final[4].State = Unhealthy, Unhealthy
	ended := time.Now()
	for _, p := range publishers {
		p.Set(final)
	}
	c.until("up to date", func() bool { return every(func(n string) bool { return tainted[n] == "d3 d4 " }) })
	took := time.Since(began)
	got := counts()
	t.Logf("storm of %d changes of each node in 10 s: %d to %d writes a node, the last state published %v later; %v CPU time a node",
		changes, got[0], got[len(got)-1], time.Since(ended).Round(time.Millisecond), (cpuTime(t)-cpu)/time.Duration(len(nodes)))
	if limit := int(took/time.Second) + 4; got[len(got)-1] > limit {
		t.Errorf("up to %d writes of a node, want at most %d", got[len(got)-1], limit)
	}
}

// resident is the memory of the process in kB.
func resident(t testing.TB) int {
	t.Helper()
	runtime.GC()
	debug.FreeOSMemory()
	text, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	kb, _ := strconv.Atoi(string(regexp.MustCompile(`RssAnon:\s*(\d+)`).FindSubmatch(text)[1]))
	return kb
}

func cpuTime(t testing.TB) time.Duration {
	t.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
