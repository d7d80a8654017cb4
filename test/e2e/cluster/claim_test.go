//go:build cluster

package cluster_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/dynamic-resource-allocation/api/metadata"
	"k8s.io/dynamic-resource-allocation/devicemetadata"

	"github.com/generic-dp/generic-dp/test/e2e/bed"
	"github.com/generic-dp/generic-dp/test/e2e/fixture"
	"github.com/generic-dp/generic-dp/test/e2e/wait"
)

// TestDRAClaim runs a pod with a claim of two requests, which select devices by serial
// number: its container has the environment, health and metadata of both.
func TestDRAClaim(t *testing.T) {
	t.Parallel()
	bed.OnVersions(t, runDRAClaim)
}

func runDRAClaim(t *testing.T, v bed.Version) {
	n := newDRANode(t, v, strings.Replace(byDRA, "/dev/zigbee\"", "/dev/zigbee-${usb.serial}\"", 1)+"container.health_dir = \"/run/device\"\n")
	n.Plug(fixture.Stick{Port: "1-1", ID: "10c4:ea60", Serial: "A1B2C3D4", TTY: "ttyUSB0"})
	n.Plug(fixture.Stick{Port: "1-2", ID: "10c4:ea60", Serial: "B5C6D7E8", TTY: "ttyUSB1"})
	n.serve(t)
	n.waitDevices(t, 2)
	claim := &resourcev1.ResourceClaim{
		TypeMeta:   metav1.TypeMeta{APIVersion: "resource.k8s.io/v1", Kind: "ResourceClaim"},
		ObjectMeta: metav1.ObjectMeta{Name: "sticks", Namespace: metav1.NamespaceDefault},
	}
	for _, r := range [][2]string{{"two", "B5C6D7E8"}, {"one", "A1B2C3D4"}} {
		claim.Spec.Devices.Requests = append(claim.Spec.Devices.Requests, resourcev1.DeviceRequest{
			Name: r[0],
			Exactly: &resourcev1.ExactDeviceRequest{
				DeviceClassName: "example.com.zigbee",
				Selectors: []resourcev1.DeviceSelector{{CEL: &resourcev1.CELDeviceSelector{
					Expression: fmt.Sprintf("device.attributes[%q].serial == %q", draDriver, r[1]),
				}}},
			},
		})
	}
	n.Apply(t, claim)
	pod := bed.Workload("claimed-"+bed.NodeName, "", 0)
	pod.Spec.ResourceClaims = []v1.PodResourceClaim{{Name: "mine", ResourceClaimName: new("sticks")}}
	pod.Spec.Containers[0].Resources.Claims = []v1.ResourceClaim{{Name: "mine"}}
	n.Apply(t, pod)
	mine := n.PodOf("claimed")
	mine.WaitRunning(t)
	r := mine.Report(t, "main")
	if serials := r.Env["ZIGBEE_SERIAL"]; serials != "A1B2C3D4,B5C6D7E8" {
		t.Errorf("the container has the serials %q, want both, sorted", serials)
	}
	for _, path := range []string{"/dev/zigbee-A1B2C3D4", "/dev/zigbee-B5C6D7E8"} {
		if _, ok := r.Node(path); !ok {
			t.Errorf("the container has no %s, but %+v", path, r.Nodes)
		}
	}

	canRead := func(path string) error {
		if _, text, code := mine.Exec(t, "main", "/tool", "open", path, "r"); code != 0 {
			return errors.New(text)
		}
		return nil
	}
	for request, serial := range map[string]string{"one": "A1B2C3D4", "two": "B5C6D7E8"} {
		if err := canRead(metadata.ResourceClaimFilePath(draDriver, "sticks", request)); err != nil {
			t.Errorf("metadata of request %s: %v", request, err)
		}
		files, err := filepath.Glob(filepath.Join(n.PluginDir(), "run", "claims", "*."+request+".json"))
		if err != nil || len(files) != 1 {
			t.Fatalf("metadata of request %s on the host: %q, %v, want one file", request, files, err)
		}
		text, err := os.ReadFile(files[0])
		if err != nil {
			t.Fatal(err)
		}
		var read metadata.DeviceMetadata
		if err := devicemetadata.DecodeMetadataFromStream(json.NewDecoder(bytes.NewReader(text)), &read); err != nil {
			t.Fatal(err)
		}
		if have := read.Requests[0].Devices[0].Attributes["serial"].StringValue; have == nil || *have != serial {
			t.Errorf("metadata of request %s: %s, want serial %s", request, text, serial)
		}
	}

	// Each request mounts the directories of both devices at the same paths, in the order of the IDs.
	const healthy = "/run/device/0/healthy"
	const other = "/run/device/1/healthy"
	for _, file := range []string{healthy, other} {
		if err := canRead(file); err != nil {
			t.Errorf("%s: %v", file, err)
		}
	}
	n.Unplug("1-1")
	wait.Until(t, limit, "removal of "+healthy, func() error {
		if canRead(healthy) == nil {
			return errors.New("the container can read it")
		}
		return nil
	})
	if err := canRead(other); err != nil {
		t.Errorf("the other device, %s: %v", other, err)
	}
	n.delete(t, "claimed")
	if left, err := filepath.Glob(filepath.Join(n.PluginDir(), "run", "claims", "*")); err != nil || len(left) > 0 {
		t.Errorf("metadata after the end of the pod: %q, %v, want none", left, err)
	}
}
