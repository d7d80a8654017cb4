package cdi_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	cdiapi "tags.cncf.io/container-device-interface/pkg/cdi"

	"github.com/generic-dp/generic-dp/cdi"
	"github.com/generic-dp/generic-dp/internal/device"
)

func TestClaim(t *testing.T) {
	t.Parallel()
	w := &cdi.Writer{Dir: t.TempDir(), Owner: "/run/other"}
	c := cdi.Claim{Namespace: "lab", Name: "sticks", PodClaim: "mine", UID: "0f6c1d2e-0000-4000-8000-00000000000a", Requests: []cdi.Request{
		{Name: "two", Devices: []device.Ref{{ID: "usb:10c4:ea60:A1"}, {ID: "usb:10c4:ea60:B2"}}, Env: map[string]string{"SERIAL": "A1,B2"}, Mounts: []device.Mount{{HostPath: "/etc/a", ContainerPath: "/a", ReadOnly: true}}},
		{Name: "gpu/small", Devices: []device.Ref{{ID: "fuse"}, {ID: "fuse"}}, Env: map[string]string{"A": "B"}},
	}}
	must(t, w.WriteClaim(c))
	claims, err := w.Claims()
	if diff := cmp.Diff([]cdi.Claim{c}, claims); err != nil || diff != "" {
		t.Errorf("claims: %v\n%s", err, diff)
	}
	equal(t, "result", []device.Ref{{ID: "usb:10c4:ea60:A1"}, {ID: "usb:10c4:ea60:B2"}, {ID: "fuse"}, {ID: "fuse"}}, claims[0].Devices())

	// A runtime resolves the name of a request that has edits.
	cache, err := cdiapi.NewCache(cdiapi.WithSpecDirs(w.Dir))
	must(t, err)
	if errs := cache.GetErrors(); len(errs) > 0 {
		t.Errorf("runtimes reject the spec: %v", errs)
	}
	name := c.CDIName(c.Requests[0])
	if d := cache.GetDevice(name); d == nil {
		t.Errorf("no CDI device %q, have %q", name, cache.ListDevices())
	} else if diff := cmp.Diff([]string{"SERIAL=A1,B2"}, d.ContainerEdits.Env); diff != "" || d.ContainerEdits.Mounts[0].HostPath != "/etc/a" {
		t.Errorf("edits of %q: %v, %s", name, d.ContainerEdits, diff)
	}
	if name := c.CDIName(c.Requests[1]); cache.GetDevice(name) == nil {
		t.Errorf("no CDI device %q, have %q", name, cache.ListDevices())
	}

	// Neither other specs nor their cleaning take it away, and it is no device of the host.
	if err := apply(w, nil, nil); err != nil {
		t.Error(err)
	}
	if have, err := w.Claims(); len(have) != 1 {
		t.Errorf("after Sync there are %d claims, %v", len(have), err)
	}
	if read := foreign(t, w.Dir); len(read.Devices)+len(read.Problems) > 0 {
		t.Errorf("the claim is a device of the host: %v, %v", read.Devices, read.Problems)
	}
	for range 2 {
		if err := w.RemoveClaim(c.UID); err != nil {
			t.Error(err)
		}
	}
	if have, err := w.Claims(); len(have) > 0 || err != nil {
		t.Errorf("after its removal there are %v, %v", have, err)
	}
}

// A UID that is no file name is refused, and a corrupt file is no claim without devices.
func TestClaimFaults(t *testing.T) {
	t.Parallel()
	w := &cdi.Writer{Dir: t.TempDir()}
	for _, uid := range []string{"", "../x", "a/b", strings.Repeat("a", 65)} {
		if err := w.WriteClaim(cdi.Claim{UID: uid, Requests: []cdi.Request{{Name: "a", Devices: []device.Ref{{ID: "d"}}}}}); err == nil {
			t.Errorf("UID %q was taken", uid)
		}
		if err := w.RemoveClaim(uid); err != nil {
			t.Errorf("remove UID %q: %v", uid, err)
		}
	}
	path := filepath.Join(w.Dir, w.FileName("generic-dp.github.io/claim-77"))
	must(t, os.WriteFile(path, []byte("{"), 0o600))
	if have, err := w.Claims(); err == nil || len(have) > 0 {
		t.Errorf("a spoilt file is %v, %v", have, err)
	}
	if err := apply(w, nil, nil); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(path); err != nil {
		t.Errorf("Sync removed it: %v", err)
	}
}

// A spec with the kind of a claim neither replaces the file of the claim nor adds to it.
func TestClaimIsNotReplaced(t *testing.T) {
	t.Parallel()
	w := &cdi.Writer{Dir: t.TempDir()}
	c := cdi.Claim{
		UID: "0f6c1d2e-0000-4000-8000-00000000000a",
		Requests: []cdi.Request{{
			Name:    "one",
			Devices: []device.Ref{{Resource: "example.com/zigbee", ID: "usb:10c4:ea60:A1"}},
			Env:     map[string]string{"A": "B"},
		}},
	}
	must(t, w.WriteClaim(c))
	before, err := os.ReadFile(w.ClaimPath(c.UID))
	must(t, err)
	forged := build(t, "generic-dp.github.io/claim-"+c.UID, gpu("one", "/dev/null"))
	if err := apply(w, []*cdi.Spec{forged}, nil); err == nil {
		t.Error("a spec with the kind of a claim was accepted")
	}
	after, err := os.ReadFile(w.ClaimPath(c.UID))
	if err != nil || string(after) != string(before) {
		t.Errorf("the file of the claim is now %s, %v", after, err)
	}
}
