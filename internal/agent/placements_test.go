package agent_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/generic-dp/generic-dp/cdi"
	"github.com/generic-dp/generic-dp/internal/kubelet/dra"
	"github.com/generic-dp/generic-dp/internal/testing/kubeapitest"
	"github.com/generic-dp/generic-dp/internal/testing/kubelettest"
)

// allocateWith is allocate for a claim with parameters.
func allocateWith(api *kubeapitest.Server, name, device string, fields kubeapitest.Object) kubelettest.ResourceClaim {
	c := allocate(api, name, device)
	parameters := kubeapitest.Object{"apiVersion": "generic-dp.github.io/v1alpha1", "kind": "ContainerParameters"}
	for key, value := range fields {
		parameters[key] = value
	}
	result := kubeapitest.Object{"request": "r", "driver": dra.Driver, "pool": "n1/generic-dp", "device": device}
	own := kubeapitest.Object{
		"source": "FromClaim",
		"opaque": kubeapitest.Object{"driver": dra.Driver, "parameters": parameters},
	}
	api.Put(claimObjects+"/"+name, kubeapitest.Object{
		"metadata": kubeapitest.Object{"name": name, "uid": c.UID},
		"status": kubeapitest.Object{"allocation": kubeapitest.Object{"devices": kubeapitest.Object{
			"results": []any{result},
			"config":  []any{own},
		}}},
	})
	return c
}

// nodeOf describes the only node of an entry: its path on the host and in the container, and its
// permissions.
func nodeOf(e *cdi.Edits) string {
	if e == nil {
		return "none"
	}
	n := e.DeviceNodes[0]
	return n.HostPath + " " + n.Path + " " + n.Permissions
}

// The entry of a claim with parameters follows the device: it is gone before the loss is published, has
// the new node after a replug, and returns after a restart. Another claim gets the device as configured.
func TestClaimWithParameters(t *testing.T) {
	t.Parallel()
	n, api := newDRANode(t, zigbeeDRA+"container.env.PORT = \"${usb.port}\"\n")
	n.addBus()
	n.host.AddUSB(stick("1-1", "AAAA1111", "ttyUSB0"))
	_, stop := n.serve()
	name := dra.DeviceName(stickID)
	n.untilPublished(api, map[string]string{name: ""})
	n.until("registration", func() bool { return n.kubelet.Drivers(dra.Driver) == 1 })
	c := allocateWith(api, "a", name, kubeapitest.Object{
		"path":        "/dev/modem",
		"permissions": "r",
		"env":         kubeapitest.Object{"SERIAL": "MODEM_SERIAL"},
	})
	devices, err := n.kubelet.PrepareClaim(t.Context(), dra.Driver, c)
	if err != nil {
		t.Fatal(err)
	}
	ids := names(devices)
	if len(ids) != 2 || !strings.HasPrefix(ids[0], "example.com/zigbee="+stickID+".claim.") {
		t.Fatalf("CDI names %q", ids)
	}
	if got := nodeOf(n.edits(ids[0])); got != "/dev/ttyUSB0 /dev/modem r" {
		t.Errorf("the claim gets %s", got)
	}
	if got := nodeOf(n.edits("example.com/zigbee=" + stickID)); got != "/dev/ttyUSB0 /dev/zigbee rw" {
		t.Errorf("other claims get %s", got)
	}
	if env := n.edits(ids[1]).Env; !slices.Contains(env, "MODEM_SERIAL=AAAA1111") || slices.Contains(env, "SERIAL=AAAA1111") || !slices.ContainsFunc(env, func(e string) bool { return strings.HasPrefix(e, "PORT=") }) {
		t.Errorf("environment %q", env)
	}

	n.host.RemoveUSB("1-1")
	n.untilPublished(api, map[string]string{name: "NoSchedule"})
	if got := nodeOf(n.edits(ids[0])); got != "none" {
		t.Errorf("the published device is gone, and its entry has %s", got)
	}
	n.host.AddUSB(stick("1-2", "AAAA1111", "ttyUSB7"))
	n.untilPublished(api, map[string]string{name: ""})
	if got := nodeOf(n.edits(ids[0])); got != "/dev/ttyUSB7 /dev/modem r" {
		t.Errorf("after a replug the claim gets %s", got)
	}

	// Neither a restart nor a reboot of the host, which empties the directory of specs of other files,
	// loses the entry.
	stop()
	files, err := filepath.Glob(filepath.Join(n.options.Paths.CDIDir, "*zigbee*"))
	if err != nil || len(files) != 1 {
		t.Fatalf("specs %q, %v", files, err)
	}
	if err := os.Remove(files[0]); err != nil {
		t.Fatal(err)
	}
	n.serve()
	n.eventually("the entry after a restart", func() bool { return nodeOf(n.edits(ids[0])) == "/dev/ttyUSB7 /dev/modem r" })

	// An edit of the configuration also applies to the claim.
	n.configure(strings.Replace(zigbeeDRA, `container.path`, "container.permissions = \"w\"\ncontainer.path", 1))
	n.eventually("no entry without a permission", func() bool { return n.edits(ids[0]) == nil })
	n.configure(zigbeeDRA)
	n.eventually("the entry again", func() bool { return nodeOf(n.edits(ids[0])) == "/dev/ttyUSB7 /dev/modem r" })
}

// A claim without a valid use of its parameters is refused, and the error says why.
func TestRefusedParameters(t *testing.T) {
	t.Parallel()
	n, api := newDRANode(t, zigbeeDRA+"container.env.DEVICE = \"${container_path}\"\n")
	n.addBus()
	n.host.AddUSB(stick("1-1", "AAAA1111", "ttyUSB0"))
	n.serve()
	name := dra.DeviceName(stickID)
	n.untilPublished(api, map[string]string{name: ""})
	n.until("registration", func() bool { return n.kubelet.Drivers(dra.Driver) == 1 })
	for _, test := range []struct {
		fields kubeapitest.Object
		want   string
	}{
		{kubeapitest.Object{"permissions": "rwm"}, `device "` + stickID + `": parameters: permissions "rwm": the configuration only gives "rw" for /dev/ttyUSB0`},
		{kubeapitest.Object{"path": "/dev/modem"}, `device "` + stickID + `": parameters: path "/dev/modem": container.env.DEVICE of the configuration contains ${container_path}`},
		{kubeapitest.Object{"env": kubeapitest.Object{"SERIAL": "LD_PRELOAD"}}, `parameters of the claim: env.SERIAL: "LD_PRELOAD" can't be the name of a variable: the loader reads it`},
		{kubeapitest.Object{"env": kubeapitest.Object{"SERIALS": "A"}}, "parameters: env.SERIALS: the configuration sets no such variable for the devices"},
		{kubeapitest.Object{"mounts": []any{}}, `parameters of the claim: unknown field "mounts": want apiVersion, kind, path, permissions or env`},
	} {
		_, err := n.kubelet.PrepareClaim(t.Context(), dra.Driver, allocateWith(api, "a", name, test.fields))
		if want := "claim lab/a: " + test.want; err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v:\n got %v\nwant %s", test.fields, err, want)
		}
	}
	// Nothing of these claims is left.
	if _, err := n.kubelet.PrepareClaim(t.Context(), dra.Driver, allocate(api, "b", name)); err != nil {
		t.Error(err)
	}
}
