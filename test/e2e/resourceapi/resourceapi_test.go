// Package resourceapi compares objects that the program writes to the API server with the
// types of Kubernetes, which the program does not import.
package resourceapi

import (
	"bytes"
	"encoding/json"
	"os"
	"reflect"
	"testing"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/dynamic-resource-allocation/api/metadata"
	metadatav1alpha1 "k8s.io/dynamic-resource-allocation/api/metadata/v1alpha1"
	"k8s.io/dynamic-resource-allocation/devicemetadata"
	"sigs.k8s.io/yaml"

	"github.com/generic-dp/generic-dp/test/e2e/product"
)

func golden(t *testing.T, name string) []byte {
	t.Helper()
	text, err := os.ReadFile(product.Repository("internal", "kubelet", "dra", "testdata", name))
	must(t, err)
	return text
}

// roundTrip decodes a golden document strictly, and expects the same document encoded.
func roundTrip(t *testing.T, text []byte, into any) {
	t.Helper()
	must(t, yaml.UnmarshalStrict(text, into))
	encoded, err := json.Marshal(into)
	must(t, err)
	var have, want map[string]any
	must(t, json.Unmarshal(encoded, &have))
	must(t, yaml.Unmarshal(text, &want))
	if !reflect.DeepEqual(have, want) {
		t.Errorf("encoded by the types of Kubernetes:\n%s\nwant\n%s", encoded, text)
	}
}

func TestResourceSlice(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"slice.json", "exclusive.json", "counters.json"} {
		roundTrip(t, golden(t, name), &resourceapi.ResourceSlice{})
	}
}

func TestDeviceClasses(t *testing.T) {
	t.Parallel()
	for _, text := range bytes.Split(golden(t, "classes.yaml"), []byte("---\n")) {
		roundTrip(t, text, &resourceapi.DeviceClass{})
	}
}

// Every version of the metadata has the same type, and Kubernetes's decoder for consumers
// finds one that it knows.
func TestDeviceMetadata(t *testing.T) {
	t.Parallel()
	text := golden(t, "metadata.json")
	var versions []string
	for stream := json.NewDecoder(bytes.NewReader(text)); stream.More(); {
		var one json.RawMessage
		must(t, stream.Decode(&one))
		object := &metadatav1alpha1.DeviceMetadata{}
		roundTrip(t, one, object)
		versions = append(versions, object.APIVersion)
	}
	if want := []string{"metadata.resource.k8s.io/v1beta1", metadatav1alpha1.SchemeGroupVersion.String()}; !reflect.DeepEqual(versions, want) {
		t.Errorf("versions %q, want %q", versions, want)
	}
	var read metadata.DeviceMetadata
	must(t, devicemetadata.DecodeMetadataFromStream(json.NewDecoder(bytes.NewReader(text)), &read))
	if r := read.Requests; len(r) != 1 || len(r[0].Devices) != 2 || len(r[0].Devices[0].Attributes) != 6 || *read.PodClaimName != "sticks" {
		t.Errorf("a consumer reads %+v, want one request with two devices of claim sticks", read)
	}
}

// must ends the test after an error of its own steps.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
