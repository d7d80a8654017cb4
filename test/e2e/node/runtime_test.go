package node_test

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
	api "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/generic-dp/generic-dp/test/e2e/bed"
)

// spec is the container in the runtime: parts of its OCI spec, and its annotations.
type spec struct {
	Annotations map[string]string
	Linux       struct {
		Devices   []specDevice
		Resources struct{ Devices []specRule }
	}
	Mounts []struct{ Destination string }
}

type specDevice struct {
	Path         string
	Type         string
	Major, Minor int64
}

// specRule is a rule of the device cgroup; a nil number is any.
type specRule struct {
	Allow        bool
	Type         string
	Major, Minor *int64
	Access       string
}

// inspect queries the runtime about a running container.
func (n *node) inspect(t testing.TB, p *bed.Pod, container string) spec {
	t.Helper()
	var id string
	for _, c := range p.WaitRunning(t).Status.ContainerStatuses {
		if c.Name == container {
			_, id, _ = strings.Cut(c.ContainerID, "://")
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	resp, err := n.Containerd.Runtime.ContainerStatus(ctx, &cri.ContainerStatusRequest{ContainerId: id, Verbose: true})
	must(t, err)
	var info struct{ RuntimeSpec spec }
	must(t, json.Unmarshal([]byte(resp.Info["info"]), &info))
	info.RuntimeSpec.Annotations = resp.Status.Annotations
	return info.RuntimeSpec
}

// response is the response of the program to Allocate, which the kubelet keeps for every
// start of the container.
func (n *node) response(t testing.TB, resource string) *api.ContainerAllocateResponse {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(n.DevicePlugins(), "kubelet_internal_checkpoint"))
	must(t, err)
	var file struct {
		Data struct {
			PodDeviceEntries []struct {
				ResourceName string
				AllocResp    []byte
			}
		}
	}
	must(t, json.Unmarshal(text, &file))
	for _, e := range file.Data.PodDeviceEntries {
		if e.ResourceName == resource {
			resp := &api.ContainerAllocateResponse{}
			must(t, proto.Unmarshal(e.AllocResp, resp))
			return resp
		}
	}
	t.Fatalf("no response for %s in the kubelet's checkpoint: %s", resource, text)
	return nil
}
