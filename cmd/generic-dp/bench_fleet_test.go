package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/generic-dp/generic-dp/internal/status"
)

// The limits of the plugin's status on a large cluster.
const (
	manyNodes      = 500
	maxFleetTime   = 15 * time.Second
	maxFleetMemory = 100 << 20
)

// manyNodesScript is a kubectl that answers from files; one node never answers.
const manyNodesScript = `#!/bin/sh
dir=$(dirname "$0")
case "$*" in
"get nodes"*) exec cat "$dir/nodes.json" ;;
"get pods"*) exec cat "$dir/pods.json" ;;
*" dp-7 "*) exec sleep 1000 ;;
exec*) exec cat "$dir/status.json" ;;
esac
exit 1
`

// BenchmarkFleetStatus runs the built program on 500 nodes, of which one does not answer.
func BenchmarkFleetStatus(b *testing.B) {
	binary := os.Getenv("GENERIC_DP_BIN")
	if binary == "" {
		b.Skip("GENERIC_DP_BIN names no program: run make bench")
	}
	kubectl := writeManyNodes(b)
	for b.Loop() {
		cmd := exec.CommandContext(b.Context(), filepath.Join(filepath.Dir(binary), pluginName), "status", "--kubectl", kubectl)
		began := time.Now()
		out, err := cmd.CombinedOutput()
		took := time.Since(began)
		if err != nil || !strings.Contains(string(out), "499 of 500 nodes answered") {
			b.Fatalf("%v\n%.2000s", err, out)
		}
		const kib = 1 << 10
		memory := cmd.ProcessState.SysUsage().(*syscall.Rusage).Maxrss * kib
		b.ReportMetric(took.Seconds(), "s")
		b.ReportMetric(float64(memory)/(1<<20), "MiB")
		if took > maxFleetTime || memory > maxFleetMemory {
			b.Errorf("%s and %d MiB, want at most %s and %d MiB", took, memory>>20, maxFleetTime, maxFleetMemory>>20)
		}
	}
}

// writeManyNodes writes the files of the script, with objects of a realistic size, and returns the
// script.
func writeManyNodes(b *testing.B) string {
	b.Helper()
	dir := b.TempDir()
	var nodes, pods []any
	images := strings.Repeat("registry.example.com/image@sha256:0123456789abcdef ", 400) // 20 kB
	for i := range manyNodes {
		name := fmt.Sprintf("node-%03d", i)
		nodes = append(nodes, fakeObject{
			"metadata": fakeObject{"name": name},
			"status": fakeObject{
				"images":     images,
				"conditions": []fakeObject{{"type": "Ready", "status": "True"}},
			},
		})
		pods = append(pods, fakeObject{
			"metadata": fakeObject{"name": fmt.Sprintf("dp-%d", i), "namespace": "generic-dp"},
			"spec": fakeObject{
				"nodeName":   name,
				"containers": []fakeObject{{"name": "generic-dp", "args": []string{"serve", "--listen=:9418"}}},
			},
			"status": fakeObject{"phase": "Running"},
		})
	}
	writeJSON(b, dir+"/nodes.json", fakeObject{"items": nodes})
	writeJSON(b, dir+"/pods.json", fakeObject{"items": pods})
	writeJSON(b, dir+"/status.json", manyDevices())
	script := filepath.Join(dir, "kubectl")
	if err := os.WriteFile(script, []byte(manyNodesScript), 0o755); err != nil {
		b.Fatal(err)
	}
	return script
}

// manyDevices is the status of a node with twenty devices, each held by a pod, and a full list of
// events.
func manyDevices() status.Status {
	var s status.Status
	for i := range 5 {
		r := status.Resource{
			Name:       fmt.Sprintf("example.com/resource-%d", i),
			API:        "device-plugin",
			Registered: true,
			Slots:      status.Slots{Healthy: 4, Free: new(int)},
		}
		for k := range 4 {
			id := fmt.Sprintf("usb:10c4:ea60:SERIAL-%d-%d", i, k)
			r.Devices = append(r.Devices, status.Device{
				ID:     id,
				Health: status.Healthy,
				Slots:  1,
				Nodes:  []string{"/dev/ttyUSB0", "/dev/bus/usb/001/003"},
				Held:   []status.Holder{{ID: id, Namespace: "home", Pod: fmt.Sprintf("pod-%d-%d", i, k), Container: "main"}},
			})
		}
		s.Resources = append(s.Resources, r)
	}
	for i := range 100 {
		s.Events = append(s.Events, status.Event{
			Time:     time.Unix(int64(i), 0),
			Resource: "example.com/resource-0",
			ID:       "usb:10c4:ea60:SERIAL-0-0",
			What:     status.Healthy,
		})
	}
	return s
}

func writeJSON(b *testing.B, file string, object any) {
	b.Helper()
	text, err := json.Marshal(object)
	if err == nil {
		err = os.WriteFile(file, text, 0o600)
	}
	if err != nil {
		b.Fatal(err)
	}
}
