package node_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	api "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/generic-dp/generic-dp/test/e2e/bed"
	"github.com/generic-dp/generic-dp/test/e2e/sample"
	"github.com/generic-dp/generic-dp/test/e2e/wait"
)

// savedCheckpoint is the kubelet's checkpoint at one moment.
type savedCheckpoint struct {
	text    string
	inode   uint64
	changed unix.Timespec
}

// readCheckpoint reads the kubelet's checkpoint. The kubelet replaces the file, so that the inode and the
// text belong together.
func readCheckpoint(t testing.TB, b *bed.Bed) savedCheckpoint {
	t.Helper()
	file, err := os.Open(filepath.Join(b.DevicePlugins(), "kubelet_internal_checkpoint"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	var stat unix.Stat_t
	if err := unix.Fstat(int(file.Fd()), &stat); err != nil {
		t.Fatal(err)
	}
	text := make([]byte, stat.Size)
	if _, err := file.ReadAt(text, 0); err != nil {
		t.Fatal(err)
	}
	return savedCheckpoint{text: string(text), inode: stat.Ino, changed: stat.Ctim}
}

// listAgain sends the list of the plugin to the kubelet again, and returns the checkpoint that the
// kubelet then writes.
func listAgain(t testing.TB, b *bed.Bed, p *sample.Plugin) savedCheckpoint {
	t.Helper()
	before := readCheckpoint(t, b)
	p.ListAgain(t)
	var after savedCheckpoint
	wait.Until(t, limit, "new checkpoint after a list", func() error {
		after = readCheckpoint(t, b)
		if after.inode == before.inode && after.changed == before.changed {
			return errors.New("it is the former one")
		}
		return nil
	})
	return after
}

// TestCheckpointIsBroughtUpToDate proves how a plugin has the kubelet bring its checkpoint up to date, which
// still names pods that have ended: a query of PodResources makes the kubelet forget them, and a list,
// even with equal content, makes it write the file. Neither is enough without the other.
func TestCheckpointIsBroughtUpToDate(t *testing.T) {
	t.Parallel()
	bed.OnEachVersion(t, func(t *testing.T, version bed.Version) {
		const resource = "example.com/null"
		b := bed.New(t, bed.Options{Version: version})
		p := &sample.Plugin{
			Resource: resource,
			IDs:      []string{"null"},
			Respond: func([]string) *api.ContainerAllocateResponse {
				return &api.ContainerAllocateResponse{}
			},
		}
		p.Start(t, b.DevicePlugins())
		b.Kubelet.WaitAllocatable(t, resource, 1)
		pod := b.StartPod(t, bed.Workload("first", resource, 1))
		uid := string(pod.WaitRunning(t).UID)
		pod.Delete(t)

		wantNamed := func(when string, c savedCheckpoint, want bool) {
			t.Helper()
			isNamed := strings.Contains(c.text, uid)
			t.Logf("%s: inode %d, changed %d.%09d, names the pod: %t", when, c.inode, c.changed.Sec, c.changed.Nsec, isNamed)
			if isNamed != want {
				t.Errorf("%s, the checkpoint names the pod: %t, want %t", when, isNamed, want)
			}
		}
		wantNamed("after the end of the pod", readCheckpoint(t, b), true)
		wantNamed("after a list", listAgain(t, b, p), true)
		if held, err := b.Kubelet.Held(t.Context(), resource); err != nil || len(held) > 0 {
			t.Errorf("PodResources: %v, %v, want no holder", held, err)
		}
		wantNamed("after a query", readCheckpoint(t, b), true)
		wantNamed("after a query and a list", listAgain(t, b, p), false)
		wantNamed("after another list", listAgain(t, b, p), false)
	})
}
