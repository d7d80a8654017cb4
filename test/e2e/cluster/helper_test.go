//go:build cluster

package cluster_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"
	"k8s.io/dynamic-resource-allocation/resourceslice"

	"github.com/generic-dp/generic-dp/test/e2e/bed"
	"github.com/generic-dp/generic-dp/test/e2e/cluster"
	"github.com/generic-dp/generic-dp/test/e2e/fixture"
	"github.com/generic-dp/generic-dp/test/e2e/wait"
)

// TestOfficialHelper publishes devices with the program, and then the same devices with the helper that
// other drivers use. The slices differ in nothing but their names.
func TestOfficialHelper(t *testing.T) {
	t.Parallel()
	bed.OnEachVersion(t, runOfficialHelper)
}

// rivals are two resources that offer the same stick, which needs counters, and virtual devices.
func rivals(virtual int) string {
	text := `
api = "dra"
domain = "example.com"
[[resource]]
name = "zigbee"
shared = "exclusive"
match = { usb = { id = "10c4:ea60" }, glob = "/dev/ttyUSB*" }
[[resource]]
name = "serial"
shared = "exclusive"
match.glob = "/dev/ttyUSB*"
each = "node"
`
	if virtual == 0 {
		return text
	}
	var names []string
	for i := range virtual {
		names = append(names, fmt.Sprintf("%q", fmt.Sprintf("v%03d", i)))
	}
	return text + `
[[resource]]
name = "fuse"
count = 2
capacity.memory = { value = "16Gi", default = "4Gi" }
match.virtual = [` + strings.Join(names, ", ") + "]\n"
}

func runOfficialHelper(t *testing.T, v bed.Version) {
	n := newDRANode(t, cluster.Options{Plane: v, Kubelet: v}, rivals(0))
	n.Plug(fixture.Stick{Port: "1-1", ID: "10c4:ea60", Serial: "A1B2C3D4", TTY: "ttyUSB0"})
	n.serve(t)
	var published [][]resourcev1.ResourceSlice
	publish := func(healthy, tainted int) {
		published = append(published, n.waitPool(t, healthy, tainted))
	}
	publish(2, 0)
	n.plugin.Configure(t, rivals(100))
	publish(102, 0)
	n.Unplug("1-1")
	publish(100, 2)
	n.plugin.Stop(t)
	n.Kubectl(t, "", "delete", "resourceslices", "--all")

	client, err := kubernetes.NewForConfig(&rest.Config{
		Host:            "https://127.0.0.1:6443",
		BearerToken:     "admin",
		TLSClientConfig: rest.TLSClientConfig{Insecure: true},
		Dial:            n.DialContext,
	})
	must(t, err)
	helper, err := kubeletplugin.Start(t.Context(), noClaims{t},
		kubeletplugin.DriverName(draDriver),
		kubeletplugin.NodeName(bed.NodeName),
		kubeletplugin.KubeClient(client),
		kubeletplugin.RegistrationService(false),
		kubeletplugin.DRAService(false),
	)
	must(t, err)
	t.Cleanup(helper.Stop)
	for step, want := range published {
		pool := resourceslice.Pool{}
		for _, s := range want {
			pool.Slices = append(pool.Slices, resourceslice.Slice{
				Devices:        s.Spec.Devices,
				SharedCounters: s.Spec.SharedCounters,
			})
		}
		resources := resourceslice.DriverResources{Pools: map[string]resourceslice.Pool{want[0].Spec.Pool.Name: pool}}
		must(t, helper.PublishResources(t.Context(), resources))
		wait.Until(t, limit, fmt.Sprintf("the same slices in step %d", step), func() error {
			got, err := n.pool()
			if err != nil {
				return err
			}
			for i := range min(len(got), len(want)) {
				isSame := reflect.DeepEqual(got[i].Spec, want[i].Spec)
				if !isSame || !reflect.DeepEqual(got[i].OwnerReferences, want[i].OwnerReferences) {
					return fmt.Errorf("slice %d of the helper: %+v\nand of the program: %+v", i, got[i], want[i])
				}
			}
			if len(got) != len(want) {
				return fmt.Errorf("%d slices of the helper, and %d of the program", len(got), len(want))
			}
			return nil
		})
	}
}

// pool returns the slices of the node in their order, once they are a whole pool.
func (n *draNode) pool() ([]resourcev1.ResourceSlice, error) {
	all, err := n.slices()
	if err != nil {
		return nil, err
	}
	if len(all) == 0 {
		return nil, errors.New("no slices")
	}
	slices.SortFunc(all, func(a, b resourcev1.ResourceSlice) int {
		return cmp.Compare(a.Name, b.Name) // both kinds of names have the number of the slice
	})
	for _, s := range all {
		if s.Spec.Pool != all[0].Spec.Pool || int(s.Spec.Pool.ResourceSliceCount) != len(all) {
			return nil, fmt.Errorf("%d slices, one of them of %+v", len(all), s.Spec.Pool)
		}
	}
	return all, nil
}

// waitPool waits for a pool with so many devices.
func (n *draNode) waitPool(t *testing.T, healthy, tainted int) (all []resourcev1.ResourceSlice) {
	t.Helper()
	wait.Until(t, limit, fmt.Sprintf("%d healthy and %d tainted devices", healthy, tainted), func() (err error) {
		all, err = n.pool()
		found := map[bool]int{}
		for _, s := range all {
			for _, d := range s.Spec.Devices {
				found[len(d.Taints) > 0]++
			}
		}
		if err == nil && (found[false] != healthy || found[true] != tainted) {
			err = fmt.Errorf("%d healthy and %d tainted devices", found[false], found[true])
		}
		return err
	})
	return all
}

// noClaims is a driver that only publishes.
type noClaims struct{ t *testing.T }

func (noClaims) PrepareResourceClaims(context.Context, []*resourcev1.ResourceClaim) (map[types.UID]kubeletplugin.PrepareResult, error) {
	return nil, errors.New("not called")
}

func (noClaims) UnprepareResourceClaims(context.Context, []kubeletplugin.NamespacedObject) (map[types.UID]error, error) {
	return nil, errors.New("not called")
}

func (d noClaims) HandleError(_ context.Context, err error, msg string) {
	d.t.Errorf("the helper failed: %s: %v", msg, err)
}
