package resourceapi

import (
	"testing"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/kubernetes/pkg/apis/resource"
	convert "k8s.io/kubernetes/pkg/apis/resource/v1"
	"k8s.io/kubernetes/pkg/apis/resource/validation"
	"sigs.k8s.io/yaml"
)

// The API server accepts a slice with every field that is ever written.
func TestResourceSliceIsValid(t *testing.T) {
	t.Parallel()
	var slice resourceapi.ResourceSlice
	must(t, yaml.UnmarshalStrict(golden(t, "slice.json"), &slice))
	var internal resource.ResourceSlice
	must(t, convert.Convert_v1_ResourceSlice_To_resource_ResourceSlice(&slice, &internal, nil))
	for _, err := range validation.ValidateResourceSlice(&internal) {
		t.Error(err)
	}
	// The test fails if the rules are not applied.
	internal.Spec.Devices[1].Capacity["slots"].RequestPolicy.ValidValues[0] = internal.Spec.Devices[1].Capacity["memory"].Value
	if len(validation.ValidateResourceSlice(&internal)) == 0 {
		t.Error("a default that is no valid value is accepted")
	}
}

// The API server accepts slices with counters, and devices that consume them.
func TestSlicesOfCountersAreValid(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"exclusive.json", "counters.json"} {
		var slice resourceapi.ResourceSlice
		must(t, yaml.UnmarshalStrict(golden(t, name), &slice))
		var internal resource.ResourceSlice
		must(t, convert.Convert_v1_ResourceSlice_To_resource_ResourceSlice(&slice, &internal, nil))
		for _, err := range validation.ValidateResourceSlice(&internal) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
