package agent_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/generic-dp/generic-dp/internal/agent"
	"github.com/generic-dp/generic-dp/internal/testing/kubelettest"
)

// A held device is listed although the state was lost and the device is gone.
func TestHeldDeviceIsListedWithoutState(t *testing.T) {
	t.Parallel()
	n := newNode(t, zigbee+"register = \"always\"\n")
	n.addBus()
	n.host.AddUSB(stick("1-2", "BBBB2222", "ttyUSB0"))
	const a, b = stickID, otherID
	n.kubelet.Hold(kubelettest.Request{Namespace: "default", Pod: "p", Container: "c", Resource: "example.com/zigbee"}, a)
	n.serve()
	n.untilListed("example.com/zigbee", []string{b}, []string{a})
	n.host.AddUSB(stick("1-1", "AAAA1111", "ttyUSB1"))
	n.untilListed("example.com/zigbee", []string{a, b}, nil)
}

func TestNewNamesTheFlag(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for flag, change := range map[string]func(*agent.Options){
		"--run-dir: mkdir":                           func(o *agent.Options) { o.Paths.RunDir = filepath.Join(file, "run") },
		"--run-dir: \"run\" is not an absolute path": func(o *agent.Options) { o.Paths.RunDir = "run" },
		"--listen": func(o *agent.Options) { o.Listen = "256.0.0.1:1" },
	} {
		n := newNode(t, zigbee)
		change(&n.options)
		if _, err := agent.New(n.Context(), n.options); err == nil || !strings.Contains(err.Error(), flag) {
			t.Errorf("New: %v, want an error that names %s", err, flag)
		}
	}
}

func TestReadyWithoutDevices(t *testing.T) {
	t.Parallel()
	n := newNode(t, zigbee)
	a, _ := n.serve()
	select {
	case <-a.Settled():
	case <-time.After(limit):
		t.Fatal("never settled")
	}
	if err := a.Ready(); err != nil {
		t.Errorf("a node without the hardware is not ready: %v", err)
	}
	if got := n.kubelet.Resources(); len(got) != 0 {
		t.Errorf("registered %v without a device", got)
	}
}
