package plugin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// fakeNodes is a kubectl for a cluster of nodes that all have one stick. Each answer takes a
// second; some nodes never answer.
type fakeNodes struct {
	count  int
	silent map[string]bool
	// running counts the calls of kubectl exec, and most is their maximum.
	running atomic.Int64
	most    atomic.Int64
}

func (f *fakeNodes) Run(ctx context.Context, _ []byte, args ...string) ([]byte, error) {
	switch {
	case args[0] == "exec":
		return f.exec(ctx, args)
	case args[1] == "pods":
		return f.objects(func(i int) string {
			return fmt.Sprintf(`{"metadata": {"name": "dp-%d", "namespace": "dp"}, "spec": {"nodeName": "node-%[1]d", "containers": [{"name": "main", "args": ["serve"]}]}, "status": {"phase": "Running"}}`, i)
		})
	case args[1] == "nodes":
		return f.objects(func(i int) string {
			return fmt.Sprintf(`{"metadata": {"name": "node-%d"}, "status": {"conditions": [{"type": "Ready", "status": "True"}]}}`, i)
		})
	}
	return nil, errors.New("unexpected call: " + strings.Join(args, " "))
}

func (f *fakeNodes) objects(object func(i int) string) ([]byte, error) {
	var all []json.RawMessage
	for i := range f.count {
		all = append(all, json.RawMessage(object(i)))
	}
	return json.Marshal(map[string]any{"items": all})
}

func (f *fakeNodes) exec(ctx context.Context, args []string) ([]byte, error) {
	running := f.running.Add(1)
	defer f.running.Add(-1)
	for most := f.most.Load(); running > most && !f.most.CompareAndSwap(most, running); {
		most = f.most.Load()
	}
	answer := time.After(time.Second)
	if f.silent[args[3]] {
		answer = nil
	}
	select {
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	case <-answer:
	}
	return []byte(`{"kubelet": {"present": true}, "resources": [{"name": "example.com/zigbee", "api": "device-plugin", "registered": true, "slots": {"healthy": 1, "held": 0, "free": 1}, "devices": [{"id": "stick", "health": "Healthy", "slots": 1}]}]}`), nil
}

// Nodes are asked in parallel within a limit, and a node that never answers delays nothing beyond
// its timeout. The clock is the clock of the synctest bubble.
func TestEachIsParallelAndBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		fake := &fakeNodes{count: 500, silent: map[string]bool{"dp-7": true, "dp-499": true}}
		f := &Fleet{
			Kubectl:  fake,
			Selector: DefaultSelector,
			Parallel: 50,
			Timeout:  10 * time.Second,
		}
		began := time.Now()
		report, err := f.Status(t.Context(), Filter{})
		if err != nil {
			t.Fatal(err)
		}
		took := time.Since(began)
		if report.Answered != 498 || len(report.Resources) != 498 {
			t.Errorf("%d answered with %d rows, want 498", report.Answered, len(report.Resources))
		}
		for _, n := range report.Nodes {
			if n.Answered || n.Problems[0] != "no answer within 10s" {
				t.Errorf("%+v, want no answer within 10s", n)
			}
		}
		if len(report.Nodes) != 2 {
			t.Errorf("%d silent nodes", len(report.Nodes))
		}
		// 500 answers of a second by 50 workers take 10 s; the last silent node takes 10 s more.
		if most := fake.most.Load(); most != 50 || took > 20*time.Second {
			t.Errorf("%d calls at the same time, %s in all", most, took)
		}
	})
}

// A command that is interrupted ends at once, and says why.
func TestInterrupted(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		fake := &fakeNodes{count: 3, silent: map[string]bool{"dp-0": true, "dp-1": true, "dp-2": true}}
		f := &Fleet{Kubectl: fake, Parallel: 1, Timeout: time.Hour}
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		_, err := f.Status(ctx, Filter{})
		if !errors.Is(err, context.Canceled) {
			t.Errorf("%v, want context canceled", err)
		}
	})
}

// Of two ready pods on a node, the one whose container was started last waits for the other one, even if
// its pod is older.
func TestServingMember(t *testing.T) {
	t.Parallel()
	began := time.Date(2026, 11, 28, 18, 0, 0, 0, time.UTC)
	ready := func(started time.Time) Member {
		status := fmt.Sprintf(`{"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}],
			"containerStatuses": [{"name": "sidecar", "state": {"running": {"startedAt": "2020-01-01T00:00:00Z"}}},
				{"name": "dp", "state": {"running": {"startedAt": %q}}}]}`, started.Format(time.RFC3339))
		pod := &Pod{Spec: PodSpec{NodeName: "a", Containers: []Container{{Name: "sidecar"}, {Name: "dp", Args: []string{"serve"}}}}}
		if err := json.Unmarshal([]byte(status), &pod.Status); err != nil {
			t.Fatal(err)
		}
		return newMember(pod)
	}
	serving := ready(began)
	waiting := ready(began.Add(time.Minute))
	if !serving.precedes(&waiting) || waiting.precedes(&serving) {
		t.Error("the pod that waits would answer")
	}
}

// A pod whose container ends again and again is still Running, but kubectl exec would fail.
func TestCrashingMember(t *testing.T) {
	t.Parallel()
	pod := &Pod{
		Metadata: Meta{Namespace: "generic-dp", Name: "dp-0"},
		Spec:     PodSpec{NodeName: "a", Containers: []Container{{Name: "dp", Args: []string{"serve"}}}},
	}
	status := `{"phase": "Running", "containerStatuses": [{"name": "dp", "state": {"terminated": {"reason": "Error", "exitCode": 1}}}]}`
	if err := json.Unmarshal([]byte(status), &pod.Status); err != nil {
		t.Fatal(err)
	}
	want := "pod generic-dp/dp-0 does not run; its log says why: kubectl logs -n generic-dp dp-0"
	if m := newMember(pod); m.Problem != want {
		t.Errorf("problem %q, want %q", m.Problem, want)
	}
}

// Of two pods on a node, as during an update, the ready pod answers. The container is
// the one that serves.
func TestNewMember(t *testing.T) {
	t.Parallel()
	old := newMember(&Pod{
		Spec:   PodSpec{NodeName: "a", Containers: []Container{{Name: "sidecar"}, {Name: "dp", Args: []string{"serve"}}}},
		Status: PodStatus{Phase: "Running", Conditions: []Condition{{Type: "Ready", Status: "True"}}},
	})
	next := newMember(&Pod{Spec: PodSpec{NodeName: "a"}, Status: PodStatus{Phase: "Pending"}})
	if next.precedes(&old) {
		t.Error("the pod that is not ready would answer")
	}
	if old.Container != "dp" {
		t.Errorf("container %s, want dp", old.Container)
	}
}
