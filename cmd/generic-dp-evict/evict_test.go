package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"path"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/generic-dp/generic-dp/internal/kubelet/kubeapi"
	"github.com/generic-dp/generic-dp/internal/status"
	"github.com/generic-dp/generic-dp/internal/testing/kubeapitest"
)

const (
	limit  = 20 * time.Second
	all    = "/api/v1/pods"
	mine   = "/api/v1/namespaces/d/pods"
	events = "/api/v1/namespaces/d/events"
)

// cluster is an API server with pods.
type cluster struct {
	*testing.T
	*kubeapitest.Server
}

func newCluster(t *testing.T) cluster { return cluster{t, kubeapitest.New(t)} }

// lines is a log.
type lines struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// start runs evict until the test ends, and returns its log.
func (c cluster) start(o options) *lines {
	c.Helper()
	if o.After == 0 {
		o.After = 50 * time.Millisecond
	}
	text := &lines{}
	o.PerMinute = 100
	o.Retry = 20 * time.Millisecond
	o.Log = slog.New(slog.NewTextHandler(io.MultiWriter(c.Output(), text), nil))
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- evict(ctx, kubeapi.New(c.Config), o) }()
	c.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			c.Errorf("Run: %v", err)
		}
	})
	return text
}

// pod makes or changes a pod whose device has this health, as a kubelet does.
func (c cluster) pod(name, health string, annotations object) {
	c.Put(all+"/"+name, object{
		"metadata": object{"namespace": "d", "name": name, "uid": name, "annotations": annotations},
		"spec":     object{"nodeName": "node"},
		"status": object{"phase": "Running", "containerStatuses": []any{object{
			"name": "c", "allocatedResourcesStatus": []any{object{
				"name": "vendor.example/stick", "resources": []any{object{"resourceID": "stick-" + name, "health": health}},
			}},
		}}},
	})
}

// evictions are the names of pods whose eviction was requested, refused requests included.
func (c cluster) evictions() (names []string) {
	for _, r := range c.Requests() {
		if dir, last := path.Split(r.Path); last == "eviction" {
			names = append(names, path.Base(dir))
		}
	}
	return names
}

// watches counts the watches that began.
func (c cluster) watches() int {
	count := 0
	for _, r := range c.Requests() {
		if r.Path == all {
			count++
		}
	}
	return count
}

// reports are the Events, oldest first.
func (c cluster) reports() (list []string) {
	made := c.Objects(events)
	names := make([]string, 0, len(made))
	for name := range made {
		names = append(names, name)
	}
	version := func(name string) string { return made[name]["metadata"].(object)["resourceVersion"].(string) }
	slices.SortFunc(names, func(a, b string) int { return strings.Compare(version(a), version(b)) })
	for _, name := range names {
		o := made[name]
		list = append(list, o["involvedObject"].(object)["uid"].(string)+" "+o["reason"].(string)+": "+o["message"].(string))
	}
	return list
}

// until waits for a condition.
func (c cluster) until(what string, condition func() bool) {
	c.Helper()
	deadline := time.After(limit)
	for {
		changed := c.Changed()
		if condition() {
			return
		}
		select {
		case <-changed:
		case <-deadline:
			c.Fatalf("%s: not within %s", what, limit)
		}
	}
}

// A pod is evicted when its device was Unhealthy for long enough, and not before; what
// is annotated, static or healthy stays.
func TestRun(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.pod("healthy", "Healthy", nil)
	c.pod("kept", "Unhealthy", object{annotation: "false"})
	c.pod("static", "Unhealthy", object{"kubernetes.io/config.mirror": "x"})
	c.start(options{After: time.Second})
	c.until("watch", func() bool { return c.watches() > 0 })
	c.pod("back", "Unhealthy", nil)
	c.pod("back", "Healthy", nil)
	lost := time.Now()
	c.pod("lost", "Unhealthy", nil)
	c.until("eviction", func() bool { return len(c.reports()) > 0 })
	if got := c.evictions(); !slices.Equal(got, []string{"lost"}) {
		t.Errorf("evicted %v, want the pod whose device is gone", got)
	}
	for _, r := range c.Requests() {
		if took := r.At.Sub(lost); path.Base(r.Path) == "eviction" && took < time.Second {
			t.Errorf("evicted after %s, want a second", took)
		}
	}
	body := c.Objects(mine + "/lost/eviction")[mine+"/lost/eviction/lost"]
	if uid := body["deleteOptions"].(object)["preconditions"].(object)["uid"]; uid != "lost" {
		t.Errorf("eviction of UID %v, want no later pod of the name", uid)
	}
	// TestEvictRights in hack/release compares the chart with this list.
	granted := []string{"create events", "create pods/eviction", "watch pods"}
	if used := c.Used(); !slices.Equal(used, granted) {
		t.Errorf("used: %q, granted: %q", used, granted)
	}
	if got, want := c.reports()[0], "lost Evicted: vendor.example/stick stick-lost has been Unhealthy for "; !strings.HasPrefix(got, want) {
		t.Errorf("event %q, want %q and a time", got, want)
	}
}

// Whoever writes the annotation wrongly keeps the pod.
func TestAnnotations(t *testing.T) {
	t.Parallel()
	for _, optIn := range []bool{false, true} {
		c := newCluster(t)
		for _, value := range []string{"False", "no", "", "True", "yes"} {
			c.pod("v"+strings.ToLower(value), "Unhealthy", object{annotation: value})
		}
		want := []string{"wants"}
		c.pod("wants", "Unhealthy", object{annotation: "true"})
		c.pod("without", "Unhealthy", nil)
		if !optIn {
			want = append(want, "without")
		}
		c.start(options{OptIn: optIn})
		c.until("evictions", func() bool { return len(c.reports()) >= len(want) })
		got := c.evictions()
		slices.Sort(got)
		if !slices.Equal(got, want) {
			t.Errorf("opt-in %t: evicted %v, want %v", optIn, got, want)
		}
	}
}

// failure is a Status as the API server writes it.
func failure(code int, message string, causes ...any) object {
	return object{"kind": "Status", "status": "Failure", "code": code, "message": message, "details": object{"causes": causes}}
}

// budget is the answer to an eviction that a disruption budget does not permit.
func budget() object {
	return failure(http.StatusTooManyRequests, "Cannot evict pod as it would violate the pod's disruption budget.",
		object{"reason": "DisruptionBudget", "message": "The disruption budget b needs 1 healthy pods and has 1 currently"})
}

// refuseEvictions answers the first evictions with these objects, and then evicts.
func (c cluster) refuseEvictions(answers ...object) {
	next := make(chan object, len(answers))
	for _, answer := range answers {
		next <- answer
	}
	c.Refuse(func(r *http.Request) (int, kubeapitest.Object) {
		if path.Base(r.URL.Path) != "eviction" {
			return 0, nil
		}
		select {
		case answer := <-next:
			code := answer["code"].(int)
			if code == http.StatusInternalServerError { // as the eviction API does
				code = http.StatusCreated
			}
			return code, answer
		default:
			return 0, nil
		}
	})
}

// After the end of a watch, all pods are listed again. Pods that were deleted meanwhile are forgotten,
// and no pod is evicted twice.
func TestWatchesGoOn(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.pod("first", "Unhealthy", nil)
	c.start(options{})
	c.until("first", func() bool { return len(c.evictions()) == 1 })
	c.EndWatches()
	c.until("next watch", func() bool { return c.watches() == 2 })
	c.pod("second", "Unhealthy", nil)
	c.until("second", func() bool { return len(c.evictions()) == 2 })
	if got := c.evictions(); !slices.Equal(got, []string{"first", "second"}) {
		t.Errorf("evicted %v, want each once", got)
	}
}

// probed returns options with a listener, and a function that requests a path from it.
func probed(t *testing.T) (get func(path string) string, o options) {
	t.Helper()
	l, err := status.Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	get = func(path string) string {
		resp, err := http.Get("http://" + l.Addr().String() + path)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp.Status + " " + string(body)
	}
	o.Listener = l
	return get, o
}

// Ready is who watches pods; what was evicted, or could not be, is counted. A disruption budget is no
// reason to give up, and is reported, whatever failed before: several budgets, or an API server that is
// overloaded.
func TestProbesAndMetrics(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.Fault(func(r *http.Request, _ object) int {
		if r.URL.Path == all {
			return http.StatusForbidden
		}
		return 0
	})
	get, options := probed(t)
	c.start(options)
	for got := ""; !strings.Contains(got, "GET /api/v1/pods: 403"); {
		if got = get("/readyz"); !strings.HasPrefix(got, "503 ") {
			t.Fatalf("/readyz: %q, want the reason", got)
		}
	}
	if got := get("/healthz"); got != "200 OK ok\n" {
		t.Errorf("/healthz: %q", got)
	}
	if got := get("/"); !strings.HasPrefix(got, "404 ") {
		t.Errorf("/: %q", got)
	}
	c.pod("lost", "Unhealthy", nil)
	several := failure(http.StatusInternalServerError, "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.")
	c.refuseEvictions(several, failure(http.StatusTooManyRequests, "too many requests"), budget())
	c.Fault(nil)
	c.until("refusal", func() bool { return len(c.reports()) == 1 })
	if got := c.reports()[0]; !strings.Contains(got, "EvictionBlocked") || !strings.Contains(got, "429 ") {
		t.Errorf("event %q, want the reason", got)
	}
	if got := get("/readyz"); got != "200 OK ok\n" {
		t.Errorf("/readyz: %q", got)
	}
	c.until("eviction", func() bool { return len(c.reports()) == 2 })
	got := get("/metrics")
	for result, want := range map[string]int{"ok": 1, "blocked": 1, "error": 2} {
		if want := fmt.Sprintf("generic_dp_evictions_total{result=%q} %d\n", result, want); !strings.Contains(got, want) {
			t.Errorf("metrics lack %q:\n%s", want, got)
		}
	}
	if strings.Contains(got, "scan") {
		t.Errorf("metrics of a node:\n%s", got)
	}
}

// While the pods cannot be watched, a device may have recovered: its pod is not evicted before the pods are
// listed again.
func TestNoEvictionWithoutWatch(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	get, options := probed(t)
	options.After = 2 * time.Second
	untilReady := func(status string) {
		for !strings.HasPrefix(get("/readyz"), status) {
		}
	}
	c.pod("back", "Unhealthy", nil)
	c.start(options)
	untilReady("200 ")
	c.Fault(func(r *http.Request, _ object) int {
		if r.URL.Path == all {
			return http.StatusServiceUnavailable
		}
		return 0
	})
	c.EndWatches()
	untilReady("503 ")
	c.pod("back", "Healthy", nil)
	// The delays between these watches add up to more than three seconds.
	refused := c.watches()
	c.until("refused watches", func() bool { return c.watches() > refused+5 })
	c.Fault(nil)
	c.pod("lost", "Unhealthy", nil)
	c.until("eviction", func() bool { return len(c.reports()) > 0 })
	if got := c.evictions(); !slices.Equal(got, []string{"lost"}) {
		t.Errorf("evicted %v, want the pod whose device is gone", got)
	}
}

// The name of an Event is valid, whatever that of its pod is.
func TestLongNames(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	name := strings.Repeat("a", 199) + "-" + strings.Repeat("b", 53)
	c.pod(name, "Unhealthy", nil)
	c.start(options{})
	c.until("report", func() bool { return len(c.reports()) > 0 })
	for event := range c.Objects(events) {
		for label := range strings.SplitSeq(path.Base(event), ".") {
			if label == "" || strings.Trim(label, "-") != label || len(path.Base(event)) > 253 {
				t.Errorf("event %s: no valid name", event)
			}
		}
	}
}
