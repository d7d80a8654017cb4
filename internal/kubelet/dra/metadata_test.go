package dra_test

import (
	"bytes"
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/generic-dp/generic-dp/internal/device"
	"github.com/generic-dp/generic-dp/internal/kubelet/dra"
)

// A container finds the attributes of its devices where Kubernetes says, by the name that
// the pod knows; a replug that changes them changes the file, but not the one that a running
// container has.
func TestMetadata(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	at := func(port string) dra.Device {
		d := stick("usb:1")
		d.Slots, d.Attributes = 3, map[string]device.Typed{
			"port":                            {Text: port},
			"resource.kubernetes.io/pciBusID": {Text: "0000:3b:00.0"},
			"mdevUUID":                        {Text: "8a1c"},
		}
		return d
	}
	b.sticks.set(at("1-1"), stick("usb:2"))
	b.serveRegistered()

	const root = "/var/run/kubernetes.io/dra-device-attributes/"
	files := map[string]string{} // on the host, by claim
	for name, want := range map[string]string{
		"own":     root + "resourceclaims/own/stick/generic-dp.github.io-metadata.json",
		"made":    root + "resourceclaimtemplates/mine/stick/generic-dp.github.io-metadata.json",
		"hostile": root + "resourceclaims/hostile/stick/generic-dp.github.io-metadata.json",
		"long":    root + "resourceclaims/long/stick/generic-dp.github.io-metadata.json",
		"control": root + "resourceclaims/control/stick/generic-dp.github.io-metadata.json",
	} {
		c := claim(name)
		b.api.set(c, results(result("stick/small", "usb-1")), "pod-claim-name", map[string]string{"made": "mine", "hostile": "../../../../etc", "long": strings.Repeat("a", 200_000), "control": "a\nb"}[name])
		devices, err := b.kubelet.PrepareClaim(t.Context(), dra.Driver, c)
		must(t, err)
		names := devices[0].GetCdiDeviceIds()
		e := b.claims.Edits(names[len(names)-1])
		if e == nil || len(e.Mounts) != 1 || e.Mounts[0].ContainerPath != want {
			t.Fatalf("claim %s: edits %+v, want a mount at %s", name, e, want)
		}
		files[name] = e.Mounts[0].HostPath
		text, err := os.ReadFile(files[name])
		if err != nil || !strings.Contains(string(text), `"1-1"`) || !strings.Contains(string(text), `"name": "`+name+`"`) {
			t.Errorf("claim %s: %s, %v", name, text, err)
		}
		if pci, mdev := forKubeVirt(t, text); pci != "0000:3b:00.0" || mdev != "8a1c" {
			t.Errorf("claim %s: KubeVirt finds %q and %q: %s", name, pci, mdev, text)
		}
		if name != "own" {
			b.unprepare(c)
			if _, err := os.Stat(files[name]); !os.IsNotExist(err) {
				t.Errorf("claim %s: its metadata after its release: %v", name, err)
			}
		}
	}
}

// forKubeVirt returns the address and the UUID that KubeVirt 1.9 finds for a request (pkg/dra/utils.go
// there): in the first version of the file that it knows, of the only device.
func forKubeVirt(t *testing.T, text []byte) (pci, mdev string) {
	t.Helper()
	decoder := json.NewDecoder(bytes.NewReader(text))
	for {
		var file struct {
			APIVersion string
			Requests   []struct {
				Devices []struct {
					Attributes map[string]struct{ String string }
				}
			}
		}
		must(t, decoder.Decode(&file))
		if file.APIVersion != "metadata.resource.k8s.io/v1alpha1" {
			continue
		}
		if len(file.Requests) != 1 || len(file.Requests[0].Devices) != 1 {
			t.Fatalf("want one device: %s", text)
		}
		attributes := file.Requests[0].Devices[0].Attributes
		return attributes["resource.kubernetes.io/pciBusID"].String, attributes["mdevUUID"].String
	}
}

// A full disk leaves no claim prepared for the kubelet, which asks again.
func TestMetadataCannotBeWritten(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	d := stick("usb:1")
	d.Attributes = map[string]device.Typed{}
	b.sticks.set(d)
	must(t, os.WriteFile(b.options.Metadata, nil, 0o600))
	b.serveRegistered()
	b.api.set(claim("a"), results(result("one", "usb-1")))
	b.refuses(claim("a"), "claim lab/a: device metadata: ")
	must(t, os.Remove(b.options.Metadata))
	b.prepare(claim("a"))
	b.unprepare(claim("a"))
	if left, err := b.claims.Claims(); err != nil || len(left) > 0 {
		t.Errorf("claims after the release: %v, %v", left, err)
	}
}
