package resourceapi

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/dynamic-resource-allocation/cel"
	"k8s.io/dynamic-resource-allocation/structured"
	"sigs.k8s.io/yaml"
)

// anyClass is the class of all devices of the driver.
type anyClass struct{}

func (c anyClass) List() ([]*resourceapi.DeviceClass, error) {
	class, err := c.Get("any")
	return []*resourceapi.DeviceClass{class}, err
}

func (anyClass) Get(name string) (*resourceapi.DeviceClass, error) {
	return &resourceapi.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: name}}, nil
}

// claim requests a device that an expression selects, and amounts as pairs of name and amount.
func claim(name, expression string, amounts ...string) *resourceapi.ResourceClaim {
	request := &resourceapi.ExactDeviceRequest{
		DeviceClassName: "any",
		AllocationMode:  resourceapi.DeviceAllocationModeExactCount,
		Count:           1,
		Selectors:       []resourceapi.DeviceSelector{{CEL: &resourceapi.CELDeviceSelector{Expression: expression}}},
	}
	if len(amounts) > 0 {
		request.Capacity = &resourceapi.CapacityRequirements{Requests: map[resourceapi.QualifiedName]resource.Quantity{}}
	}
	for i := 0; i < len(amounts); i += 2 {
		request.Capacity.Requests[resourceapi.QualifiedName(amounts[i])] = resource.MustParse(amounts[i+1])
	}
	return &resourceapi.ResourceClaim{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "lab", UID: types.UID(name)},
		Spec: resourceapi.ResourceClaimSpec{Devices: resourceapi.DeviceClaim{
			Requests: []resourceapi.DeviceRequest{{Name: "r", Exactly: request}},
		}},
	}
}

// The scheduler selects by typed attributes, and divides capacities among claims.
func TestAllocation(t *testing.T) {
	t.Parallel()
	var slice resourceapi.ResourceSlice
	must(t, yaml.UnmarshalStrict(golden(t, "slice.json"), &slice))
	allocate := func(claims ...*resourceapi.ResourceClaim) []resourceapi.AllocationResult {
		t.Helper()
		features := structured.Features{AdminAccess: true, ConsumableCapacity: true, DeviceTaints: true, PrioritizedList: true}
		allocator, err := structured.NewAllocator(
			t.Context(), features, structured.AllocatedState{}, anyClass{}, []*resourceapi.ResourceSlice{&slice},
			cel.NewCache(10, cel.Features{EnableConsumableCapacity: true}),
		)
		must(t, err)
		node := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-1"}}
		results, err := allocator.Allocate(t.Context(), node, claims)
		must(t, err)
		return results
	}
	const own = `device.attributes["generic-dp.github.io"]`
	typed := claim("typed", `has(`+own+`.speed) && `+own+`.speed < 0 && !`+own+`.removable && `+own+`.firmware.isLessThan(semver("2.0.0"))`)
	if got := allocate(typed); len(got) != 1 || got[0].Devices.Results[0].Device != "usb-10c4-ea60-a1b2c3-x4g98vdbd67" {
		t.Errorf("selected by typed attributes: %+v", got)
	}

	const fuse = own + `.id == "fuse"`
	claims := []*resourceapi.ResourceClaim{
		claim("six", fuse, "bandwidth", "6G", "memory", "1Gi"),
		claim("three", fuse, "bandwidth", "3G", "memory", "1Gi"),
		claim("default", fuse, "memory", "1Gi"),
	}
	results := allocate(claims...)
	for i, want := range []string{"6G", "3G", "1G"} {
		if len(results) != len(claims) {
			t.Fatalf("%d of %d claims are allocated", len(results), len(claims))
		}
		got := results[i].Devices.Results[0].ConsumedCapacity["bandwidth"]
		if got.Cmp(resource.MustParse(want)) != 0 {
			t.Errorf("claim %s gets %s, want %s", claims[i].Name, got.String(), want)
		}
	}
	if got := allocate(append(claims, claim("more", fuse, "bandwidth", "500M", "memory", "1Gi"))...); got != nil {
		t.Errorf("claims for more than there is: %+v", got)
	}
}
