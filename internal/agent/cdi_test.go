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

func TestSpecsWithoutAKubelet(t *testing.T) {
	t.Parallel()
	const first, second, kind = stickID, otherID, "example.com/zigbee"
	n := newHost(t, zigbee)
	n.host.AddUSB(stick("1-1", "AAAA1111", "ttyUSB0"))
	// A link of a former instance with a kubelet.
	stale := filepath.Join(n.options.Paths.RunDir, "links", first, "if00:ttyUSB")
	if err := os.MkdirAll(filepath.Dir(stale), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/dev/ttyUSB0", stale); err != nil {
		t.Fatal(err)
	}
	a, stop := n.serve()
	select {
	case <-a.Settled():
	case <-time.After(limit):
		t.Fatal("never settled")
	}
	spec := n.spec(kind)
	for _, want := range []string{`"name": "` + first + `"`, `"name": "all"`, `"SERIAL=AAAA1111"`, `"hostPath": "/dev/ttyUSB0"`} {
		if !strings.Contains(spec, want) {
			t.Errorf("spec lacks %s:\n%s", want, spec)
		}
	}
	if err := a.Ready(); err != nil {
		t.Errorf("Ready: %v", err)
	}
	if _, err := os.Lstat(stale); err == nil {
		t.Error("a stale link is left")
	}
	if _, err := os.Lstat(n.options.Paths.KubeletDir); err == nil {
		t.Error("the kubelet's directory was made")
	}

	n.host.AddUSB(stick("1-2", "BBBB2222", "ttyUSB1"))
	n.eventually("both devices, which can't be at one path together", func() bool {
		spec := n.spec(kind)
		return strings.Contains(spec, first) && strings.Contains(spec, second) && !strings.Contains(spec, `"all"`)
	})
	n.host.RemoveUSB("1-1")
	n.event() // the kernel announces the end of a removal, too
	n.eventually("the second one alone", func() bool {
		spec := n.spec(kind)
		return !strings.Contains(spec, first) && strings.Contains(spec, second) && strings.Contains(spec, `"all"`)
	})
	n.configure(zigbee + "container.env.\"STICK_${index}\" = \"x\"\n")
	n.eventually("a device that can't be in a spec", func() bool {
		s := a.Status(t.Context())
		return n.spec(kind) == "" && len(s.Problems) == 1 && strings.Contains(s.Problems[0].Reason, "has no value for ${index} here")
	})
	n.configure("domain = \"example.com\"\n[[resource]]\nname = \"other\"\nmatch.glob = \"/dev/ttyUSB*\"\n")
	n.eventually("the other resource alone", func() bool {
		return n.spec(kind) == "" && strings.Contains(n.spec("example.com/other"), `"name": "all"`)
	})
	n.eventually("the end of the problem", func() bool { return len(a.Status(t.Context()).Problems) == 0 })
	stop()
	if n.spec("example.com/other") == "" {
		t.Error("the spec was removed at the end")
	}
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
