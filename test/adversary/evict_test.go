//go:build adversary

package adversary

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/generic-dp/generic-dp/internal/testing/kubeapitest"
)

// maxLine bounds a line of the log of evict.
const maxLine = 8 << 10

// unhealthyPod is a pod on a node whose devices are all Unhealthy.
func unhealthyPod(name, node string, devices []any) kubeapitest.Object {
	return kubeapitest.Object{
		"metadata": kubeapitest.Object{"namespace": "d", "name": name, "uid": name},
		"spec":     kubeapitest.Object{"nodeName": node},
		"status": kubeapitest.Object{"phase": "Running", "containerStatuses": []any{kubeapitest.Object{
			"name": "c",
			"allocatedResourcesStatus": []any{kubeapitest.Object{
				"name":      "vendor.example/stick",
				"resources": devices,
			}},
		}}},
	}
}

// unhealthyDevice is the status of a device.
func unhealthyDevice(id string) any {
	return kubeapitest.Object{"resourceID": id, "health": "Unhealthy"}
}

// inPod returns the command with the token and the CA of a service account, in a mount
// namespace of its own.
func inPod(api *kubeapitest.Server, group *cgroup, command ...string) *exec.Cmd {
	const script = `echo $$ > "$0" && mount -t tmpfs none /run && dir=/run/secrets/kubernetes.io/serviceaccount &&
mkdir -p $dir && echo "$CA" > $dir/ca.crt && echo "$TOKEN" > $dir/token && exec "$@"`
	ca, _ := os.ReadFile(api.Config.CA)
	token, _ := os.ReadFile(api.Config.Token)
	host, port, _ := net.SplitHostPort(strings.TrimPrefix(api.Config.Server, "https://"))
	cmd := exec.Command("unshare", append([]string{"-m", "/bin/sh", "-c", script, group.procs()}, command...)...)
	cmd.Env = append(os.Environ(), "CA="+string(ca), "TOKEN="+string(token), "KUBERNETES_SERVICE_HOST="+host, "KUBERNETES_SERVICE_PORT="+port)
	return cmd
}

// A node that reports thousands of Unhealthy devices in each of its pods neither ends evict
// nor keeps it from evicting the pods of others.
func TestEvictManyDevices(t *testing.T) {
	t.Parallel()
	api := kubeapitest.New(t)
	var devices []any
	for i := range 22_000 {
		devices = append(devices, unhealthyDevice(fmt.Sprintf("usb:10c4:ea60:%020d", i)))
	}
	const hostile = 40
	for i := range hostile {
		name := fmt.Sprintf("hostile-%02d", i)
		api.PutShared("/api/v1/pods/"+name, unhealthyPod(name, "hostile", devices))
	}
	for start := range 2 { // at the second start, everything is listed again
		group := newCgroup(t, evictDeployment)
		cmd := inPod(api, group, binary(t)+"-evict", "--after=1s", "--per-minute=1000", "--listen=")
		log, err := cmd.StderrPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = cmd.Process.Kill() })
		longest := make(chan int, 1)
		listed := make(chan struct{})
		go func() {
			most := 0
			for lines := bufio.NewReader(log); ; {
				line, err := lines.ReadString('\n')
				most = max(most, len(line))
				if strings.Contains(line, "watching pods") {
					close(listed)
				}
				if err != nil {
					longest <- most
					return
				}
			}
		}()
		select {
		case <-listed:
		case <-longest:
			t.Fatalf("evict ended: %v; OOM kills: %d, peak %.1f MiB", cmd.Wait(), group.kills(), group.peak())
		case <-time.After(startTime):
			t.Fatalf("the pods are not listed within %s; OOM kills: %d, peak %.1f MiB", startTime, group.kills(), group.peak())
		}
		name := fmt.Sprintf("good-%d", start)
		api.Put("/api/v1/pods/"+name, unhealthyPod(name, "good", []any{unhealthyDevice("usb:1")}))
		ctx, cancel := context.WithTimeout(t.Context(), startTime)
		defer cancel()
		for !evicted(api, name) {
			changed := api.Changed()
			select {
			case <-changed:
			case <-ctx.Done():
				t.Fatalf("the pod of the good node is not evicted within %s; OOM kills: %d, peak %.1f MiB", startTime, group.kills(), group.peak())
			}
		}
		if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		most := <-longest
		if err := cmd.Wait(); err != nil || group.kills() > 0 {
			t.Errorf("evict ended with %v; %d OOM kills", err, group.kills())
		}
		if most > maxLine {
			t.Errorf("a line of the log has %d bytes, want at most %d", most, maxLine)
		}
		t.Logf("peak %.1f MiB, longest line %d bytes", group.peak(), most)
	}
}

// evicted reports whether the eviction of a pod was requested.
func evicted(api *kubeapitest.Server, pod string) bool {
	for _, r := range api.Requests() {
		dir, last := path.Split(r.Path)
		if last == "eviction" && path.Base(dir) == pod {
			return true
		}
	}
	return false
}
