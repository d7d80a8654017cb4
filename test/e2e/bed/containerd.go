package bed

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"
	"k8s.io/apimachinery/pkg/types"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/generic-dp/generic-dp/test/e2e/process"
	"github.com/generic-dp/generic-dp/test/e2e/wait"
)

// Containerd is the container runtime of a bed.
type Containerd struct {
	bed *Bed
	// Process is the running containerd. Containers outlive it.
	*process.Process
	// Runtime is a client of its CRI.
	Runtime cri.RuntimeServiceClient
	images  cri.ImageServiceClient
}

// configuration is containerd's:
//
//   - The native snapshotter copies files: no overlay file system is needed, so
//     that a bed works on any root file system of a CI machine. The transfer
//     service would pull for the default one.
//   - The sandbox image is pinned: the kubelet would collect it, and there is no
//     registry.
//   - AppArmor profiles would need securityfs. OOM scores below the test's own
//     are not permitted.
//   - Pods without the host's network get one by CNI. The loopback device needs
//     no plugin.
const configuration = `version = 3
root = %[1]q
state = "/run/containerd"

[grpc]
address = %[2]q

[plugins.'io.containerd.cri.v1.images']
snapshotter = "native"
use_local_image_pull = true
[plugins.'io.containerd.cri.v1.images'.pinned_images]
sandbox = %[3]q

[plugins.'io.containerd.cri.v1.runtime']
cdi_spec_dirs = [%[4]q, "/run/cdi"]
disable_apparmor = true
restrict_oom_score_adj = true
[plugins.'io.containerd.cri.v1.runtime'.cni]
conf_dir = %[5]q
bin_dirs = [%[6]q]
use_internal_loopback = true
[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"
[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options]
BinaryName = %[7]q
`

// network gives a pod a veth pair and an address, and a route to services.
const network = `{
  "cniVersion": "1.0.0",
  "name": "bed",
  "plugins": [
    {"type": "ptp", "ipam": {"type": "host-local", "subnet": "10.244.0.0/24", "routes": [{"dst": "10.96.0.0/24"}]}}
  ]
}
`

func newContainerd(t testing.TB, b *Bed) *Containerd {
	t.Helper()
	c := &Containerd{bed: b}
	cniDir := filepath.Join(b.Dir, "cni")
	for _, dir := range []string{b.CDIDir(), cniDir} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	writeFile(t, filepath.Join(cniDir, "bed.conflist"), network)
	writeFile(t, c.config(), fmt.Sprintf(configuration, filepath.Join(b.Dir, "containerd"), c.socket(),
		Image, b.CDIDir(), cniDir, b.tools.cni, b.tools.path("runc")))

	conn := dial(t, c.socket())
	c.Runtime = cri.NewRuntimeServiceClient(conn)
	c.images = cri.NewImageServiceClient(conn)
	return c
}

// dial connects to a socket, and reconnects whenever its server restarts.
func dial(t testing.TB, socket string) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient("unix://"+socket,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		// The default delay before the second attempt is a second.
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: 10 * time.Millisecond, Multiplier: 1.5, MaxDelay: 100 * time.Millisecond},
			MinConnectTimeout: time.Second,
		}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

func (c *Containerd) config() string { return filepath.Join(c.bed.Dir, "containerd.toml") }
func (c *Containerd) socket() string { return filepath.Join(c.bed.Dir, "containerd.sock") }

// Start starts containerd and waits until it serves.
func (c *Containerd) Start(t testing.TB) {
	t.Helper()
	c.Process = process.Start(t, process.Spec{
		Name: "containerd",
		Argv: []string{c.bed.tools.path("containerd"), "--config", c.config()},
		// It finds its shim in PATH.
		Env:    []string{"PATH=" + c.bed.tools.bin + ":" + os.Getenv("PATH")},
		LogDir: c.bed.logDir,
		Start:  c.bed.ns.start,
	})
	wait.Until(t, startLimit, "containerd", func() error {
		_, err := c.Runtime.Version(t.Context(), &cri.VersionRequest{})
		if err != nil && !c.Running() {
			t.Fatalf("containerd has ended: %v", err)
		}
		return err
	})
}

// load imports the image and waits until the runtime knows it.
func (c *Containerd) load(t testing.TB) {
	t.Helper()
	archive := filepath.Join(c.bed.Dir, "image.tar")
	if err := writeImage(archive, c.bed.tool); err != nil {
		t.Fatal(err)
	}
	c.bed.Import(t, archive)
	wait.Until(t, startLimit, "image "+Image, func() error {
		resp, err := c.images.ImageStatus(t.Context(), &cri.ImageStatusRequest{Image: &cri.ImageSpec{Image: Image}})
		if err == nil && resp.Image == nil {
			err = fmt.Errorf("not known yet")
		}
		return err
	})
}

// exec runs a command in a container.
func (c *Containerd) exec(t testing.TB, container string, argv ...string) (stdout, stderr string, code int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), execLimit)
	defer cancel()
	resp, err := c.Runtime.ExecSync(ctx, &cri.ExecSyncRequest{
		ContainerId: container,
		Cmd:         argv,
		Timeout:     int64(execLimit / time.Second),
	})
	if err != nil {
		t.Fatalf("exec %v: %v", argv, err)
	}
	return string(resp.Stdout), string(resp.Stderr), int(resp.ExitCode)
}

// kill kills a container. To the kubelet it is a crash.
func (c *Containerd) kill(t testing.TB, container string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), execLimit)
	defer cancel()
	if _, err := c.Runtime.StopContainer(ctx, &cri.StopContainerRequest{ContainerId: container}); err != nil {
		t.Fatalf("kill container: %v", err)
	}
}

// alive checks that some process of a pod still runs.
func (c *Containerd) alive(ctx context.Context, uid types.UID) (bool, error) {
	label := map[string]string{"io.kubernetes.pod.uid": string(uid)}
	running := &cri.ContainerStateValue{State: cri.ContainerState_CONTAINER_RUNNING}
	containers, err := c.Runtime.ListContainers(ctx, &cri.ListContainersRequest{
		Filter: &cri.ContainerFilter{LabelSelector: label, State: running},
	})
	if err != nil {
		return false, err
	}
	ready := &cri.PodSandboxStateValue{State: cri.PodSandboxState_SANDBOX_READY}
	sandboxes, err := c.Runtime.ListPodSandbox(ctx, &cri.ListPodSandboxRequest{
		Filter: &cri.PodSandboxFilter{LabelSelector: label, State: ready},
	})
	return err == nil && len(containers.Containers)+len(sandboxes.Items) > 0, err
}
