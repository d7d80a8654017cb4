package agent_test

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/generic-dp/generic-dp/internal/agent"
)

// newHost is a node without a kubelet, where container.cdi is implied.
func newHost(t *testing.T, text string) *node {
	t.Helper()
	n := newNode(t, text)
	n.kubelet.Stop()
	if err := os.RemoveAll(n.options.Paths.KubeletDir); err != nil {
		t.Fatal(err)
	}
	n.options.CDIOnly = true
	n.addBus()
	return n
}

func TestSpecsOnce(t *testing.T) {
	t.Parallel()
	n := newHost(t, zigbee)
	n.host.AddUSB(stick("1-1", "AAAA1111", "ttyUSB0"))
	a, err := agent.New(n.Context(), n.options)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	names, err := a.Once(ctx)
	if want := []string{"example.com/zigbee=all", "example.com/zigbee=usb:10c4:ea60:AAAA1111"}; err != nil || !slices.Equal(names, want) {
		t.Errorf("Once: %v, %v, want %v", names, err, want)
	}

	serving, _ := n.serve()
	<-serving.Settled()
	a, err = agent.New(n.Context(), n.options)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := a.Once(ctx); err == nil || !strings.Contains(err.Error(), "an instance is serving") {
		t.Errorf("Once beside an instance that serves: %v, want a refusal", err)
	}
}

// A kind that another program's spec has taken is free when that file goes, which is an
// event: nothing is tried again meanwhile.
func TestTakenKind(t *testing.T) {
	t.Parallel()
	n := newNode(t, parts("r container.cdi = true"))
	n.addNodes("r-a")
	foreign := filepath.Join(n.options.Paths.CDIDir, "foreign.json")
	spec := `{"cdiVersion": "0.5.0", "kind": "example.com/r", "devices": [{"name": "x", "containerEdits": {"env": ["A=b"]}}]}`
	if err := os.MkdirAll(filepath.Dir(foreign), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(foreign, []byte(spec), 0o600); err != nil {
		t.Fatal(err)
	}
	a, _ := n.serve()
	n.untilListed("example.com/r", nil, []string{"r-a"})
	n.eventually("a problem that names the file", func() bool {
		problems := a.Status(t.Context()).Problems
		return len(problems) == 1 && strings.Contains(problems[0].Reason, "is taken by "+foreign)
	})
	if err := os.Remove(foreign); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	n.untilListed("example.com/r", []string{"r-a"}, nil)
	if took := time.Since(began); took > 9*time.Second { // a timer would take ten
		t.Errorf("listed %v after the file was removed: by a timer", took)
	}
}
