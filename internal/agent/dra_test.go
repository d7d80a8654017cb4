package agent_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	claims "k8s.io/kubelet/pkg/apis/dra/v1"

	"github.com/generic-dp/generic-dp/cdi"
	"github.com/generic-dp/generic-dp/internal/agent"
	"github.com/generic-dp/generic-dp/internal/device"
	"github.com/generic-dp/generic-dp/internal/kubelet/dra"
	"github.com/generic-dp/generic-dp/internal/testing/kubeapitest"
	"github.com/generic-dp/generic-dp/internal/testing/kubelettest"
)

// newDRANode makes a node with an API server, whose kubelet has DRA.
func newDRANode(t testing.TB, text string) (*node, *kubeapitest.Server) {
	t.Helper()
	n := newNode(t, text)
	n.kubelet.Stop()
	paths := &n.options.Paths
	paths.Registry = filepath.Join(filepath.Dir(paths.KubeletDir), "registry")
	must(t, os.Mkdir(paths.Registry, 0o755))
	n.kubelet = kubelettest.New(kubelettest.Options{
		Dir:          paths.KubeletDir,
		PodResources: paths.PodResources,
		Registry:     paths.Registry,
		OnRegister: func(_ context.Context, name, _ string) error {
			if n.registersSlowly.Load() && name != dra.Driver {
				<-time.After(200 * time.Millisecond)
			}
			return nil
		},
	})
	must(t, n.kubelet.Start())
	t.Cleanup(n.kubelet.Stop)
	api := kubeapitest.New(t)
	api.Put("/api/v1/nodes/n1", kubeapitest.Object{"metadata": kubeapitest.Object{"name": "n1"}})
	n.options.KubeAPI, n.options.NodeName = api.Config, "n1"
	return n, api
}

// published are the devices in slices, by name: the effects of their taints.
func published(api *kubeapitest.Server) map[string]string {
	all := map[string]string{}
	for _, slice := range api.Objects("/apis/resource.k8s.io/v1/resourceslices") {
		devices, _ := slice["spec"].(kubeapitest.Object)["devices"].([]any)
		for _, d := range devices {
			effects := []string{}
			taints, _ := d.(kubeapitest.Object)["taints"].([]any)
			for _, taint := range taints {
				effects = append(effects, taint.(kubeapitest.Object)["effect"].(string))
			}
			all[d.(kubeapitest.Object)["name"].(string)] = strings.Join(effects, ",")
		}
	}
	return all
}

func (n *node) untilPublished(api *kubeapitest.Server, want map[string]string) {
	n.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	for !cmp.Equal(want, published(api)) {
		select {
		case <-ctx.Done():
			n.Fatalf("published: %v, want %v", published(api), want)
		case <-api.Changed():
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func (n *node) untilDriver() {
	n.Helper()
	n.until("registration", func() bool { return n.kubelet.Drivers(dra.Driver) == 1 })
}

// prepare prepares a claim and returns its devices.
func (n *node) prepare(c kubelettest.ResourceClaim) []*claims.Device {
	n.Helper()
	prepared, err := n.kubelet.PrepareClaim(n.Context(), dra.Driver, c)
	must(n, err)
	return prepared
}

// allocate makes a claim with these devices, each of request "r" or as "REQUEST=DEVICE".
func allocate(api *kubeapitest.Server, name string, devices ...string) kubelettest.ResourceClaim {
	c := kubelettest.ResourceClaim{Namespace: "lab", Name: name, UID: "uid-" + name, Pod: "pod-" + name, Container: "main"}
	results := []any{}
	for _, d := range devices {
		request, device, ok := strings.Cut(d, "=")
		if !ok {
			request, device = "r", d
		}
		results = append(results, kubeapitest.Object{"request": request, "driver": dra.Driver, "pool": "n1/generic-dp", "device": device})
	}
	api.Put(claimObject(name), kubeapitest.Object{
		"metadata": kubeapitest.Object{"name": name, "uid": c.UID},
		"status":   kubeapitest.Object{"allocation": kubeapitest.Object{"devices": kubeapitest.Object{"results": results}}},
	})
	return c
}

// names are the CDI names of prepared devices.
func names(devices []*claims.Device) (all []string) {
	for _, d := range devices {
		all = append(all, d.GetCdiDeviceIds()...)
	}
	return all
}

func (n *node) edits(name string) *cdi.Edits {
	w := n.options.Paths.SpecWriter()
	return w.Edits(name)
}

const zigbeeDRA = "api = \"dra\"\n" + zigbee

// A pod's claim is prepared with the device's CDI name and the environment of the request;
// after a replug the name leads to the new node.
func TestByClaim(t *testing.T) {
	t.Parallel()
	n, api := newDRANode(t, zigbeeDRA)
	n.answerWithin = 3 * time.Second
	n.addSticks(2)
	a, _ := n.serve()
	all := []string{dra.DeviceName(stickID), dra.DeviceName(otherID)}
	n.untilPublished(api, map[string]string{all[0]: "", all[1]: ""})
	n.untilDriver()
	if n.kubelet.Count("example.com/zigbee").Known {
		t.Error("the resource is a device plugin's, too")
	}
	for _, d := range api.Objects("/apis/resource.k8s.io/v1/resourceslices") {
		text := fmt.Sprint(d)
		for _, want := range []string{"AAAA1111", "10c4", "0000:00:14.0:1", "cp210x"} {
			if !strings.Contains(text, want) {
				t.Errorf("no attribute %q in %s", want, text)
			}
		}
	}

	got := names(n.prepare(allocate(api, "a", all[1])))
	if len(got) != 2 || got[0] != "example.com/zigbee=usb:10c4:ea60:BBBB2222" {
		t.Fatalf("CDI names: %q", got)
	}
	if e := n.edits(got[0]); e == nil || len(e.DeviceNodes) != 1 || e.DeviceNodes[0].HostPath != "/dev/ttyUSB1" || e.DeviceNodes[0].Path != "/dev/zigbee" || len(e.Env) > 0 {
		t.Errorf("edits of the device: %+v", e)
	}
	if e := n.edits(got[1]); e == nil || !slices.Equal(e.Env, []string{"SERIAL=BBBB2222"}) {
		t.Errorf("edits of the claim: %+v", e)
	}

	metadata := func() string {
		text, _ := os.ReadFile(n.edits(got[1]).Mounts[0].HostPath)
		return string(text)
	}
	if text := metadata(); !strings.Contains(text, "0000:00:14.0:2") {
		t.Errorf("metadata: %s", text)
	}

	// Gone: healthy nowhere; back at another place: the same name.
	n.host.RemoveUSB("1-2")
	n.untilPublished(api, map[string]string{all[0]: "", all[1]: "NoSchedule"})
	if e := n.edits(got[0]); e != nil {
		t.Errorf("the entry of a device that is gone: %+v", e)
	}
	n.until("health", func() bool {
		return n.kubelet.DeviceHealth(dra.Driver, "n1/generic-dp/"+all[1]).GetMessage() == "device is gone"
	})
	if _, err := n.kubelet.PrepareClaim(t.Context(), dra.Driver, allocate(api, "a", all[1])); err == nil || !strings.Contains(err.Error(), `device "usb:10c4:ea60:BBBB2222" is unhealthy: device is gone`) {
		t.Errorf("a device that is gone was prepared: %v", err)
	}
	n.host.AddUSB(stick("1-3", "BBBB2222", "ttyUSB7"))
	n.untilPublished(api, map[string]string{all[0]: "", all[1]: ""})
	if e := n.edits(got[0]); e == nil || e.DeviceNodes[0].HostPath != "/dev/ttyUSB7" {
		t.Errorf("edits after the replug: %+v", e)
	}

	// What the page shows.
	n.eventually("holders", func() bool {
		r := a.Status(t.Context()).Resources[0]
		return slices.Equal(r.Devices[1].Holders(), []string{"lab/pod-a/main"}) && *r.Slots.Held == 1 && *r.Slots.Free == 1
	})
	s := a.Status(t.Context())
	r := s.Resources[0]
	if r.Name != "example.com/zigbee" || r.API != "dra" || !r.Registered || len(s.NotReady) > 0 || len(s.Resources) != 1 {
		t.Errorf("status: %+v, not ready: %v", r, s.NotReady)
	}
}

// A new instance withdraws nothing that the last one published, even if the first results
// of health checks come late.
func TestRestartByClaim(t *testing.T) {
	t.Parallel()
	n, api := newDRANode(t, zigbeeDRA+"health.attr.serial = \"AAAA*\"\n")
	n.addSticks(1)
	_, stop := n.serve()
	name := dra.DeviceName(stickID)
	n.untilPublished(api, map[string]string{name: ""})
	before := len(api.Requests())
	for range 3 {
		stop()
		a, again := n.serve()
		stop = again
		n.eventually("ready", func() bool { return a.Ready() == nil })
		watches := func() (n int) {
			for _, r := range api.Requests()[before:] {
				if strings.Contains(r.Query, "watch") {
					n++
				}
			}
			return n
		}
		n.eventually("a watch", func() bool { return watches() > 0 })
		n.eventually("the device", func() bool { return published(api)[name] == "" && len(published(api)) == 1 })
		for _, r := range api.Requests()[before:] {
			if r.Method != "GET" {
				t.Errorf("%s %s of an unchanged device", r.Method, r.Path)
			}
		}
		before = len(api.Requests())
	}
}

// The state is lost, and api was edited meanwhile: a prepared claim still keeps its device
// from the device plugin, and old slices go.
func TestClaimOfALostState(t *testing.T) {
	t.Parallel()
	n, api := newDRANode(t, zigbee)
	n.addSticks(2)
	const held, free = stickID, otherID
	api.Put("/apis/resource.k8s.io/v1/resourceslices/stale", kubeapitest.Object{
		"metadata": kubeapitest.Object{"name": "stale"},
		"spec": kubeapitest.Object{
			"driver": dra.Driver, "nodeName": "n1", "pool": kubeapitest.Object{"name": "n1/generic-dp", "generation": 1, "resourceSliceCount": 1},
			"devices": []any{kubeapitest.Object{"name": dra.DeviceName(held)}},
		},
	})
	claim := cdi.Claim{
		Namespace: "lab",
		Name:      "a",
		UID:       "uid-a",
		Pods:      []string{"uid-of-pod"},
		Requests:  []cdi.Request{{Name: "r", Devices: []device.Ref{{Resource: "example.com/zigbee", ID: held}}}},
	}
	specs := n.options.Paths.SpecWriter()
	must(t, specs.WriteClaim(claim))
	longAgo := time.Now().Add(-time.Hour)
	must(t, os.Chtimes(specs.ClaimPath(claim.UID), longAgo, longAgo))
	cgroups := kubelettest.NewCgroups(t)
	n.options.Paths.Cgroup = cgroups.Dir()
	cgroups.Start("uid-of-pod")
	allocate(api, "a", dra.DeviceName(held))
	var c clock
	a, _ := n.serveBy(&c)
	n.untilListed("example.com/zigbee", []string{free}, nil)
	n.untilPublished(api, map[string]string{})
	n.untilDriver()

	// The claim ends without a call of the kubelet, and its containers do so later.
	api.Delete(claimObject("a"))
	for range 4 {
		c.forward(30 * time.Second)
		a.Reload()
	}
	if list, _ := n.kubelet.Latest("example.com/zigbee"); slices.Contains(list.Healthy(), held) {
		t.Error("the device is free while a pod with its claim runs")
	}
	cgroups.End("uid-of-pod")
	n.untilOffered(a, &c, "example.com/zigbee", held, free)
}

// Without its part of the manifest a resource says what is missing, and others are served.
func TestByClaimWithoutRights(t *testing.T) {
	t.Parallel()
	text := "domain = \"example.com\"\n[[resource]]\nname = \"stick\"\napi = \"dra\"\nmatch = { usb = { id = \"10c4:ea60\" }, glob = \"/dev/ttyUSB*\" }\n" +
		"[[resource]]\nname = \"fuse\"\nmatch.virtual = [\"x\"]\n"
	for what, test := range map[string]struct {
		change func(o *agent.Options)
		want   string
	}{
		"no token":    {func(o *agent.Options) { o.KubeAPI.Token += ".none" }, "set dra.enabled"},
		"no node":     {func(o *agent.Options) { o.NodeName = "" }, "--node-name"},
		"no registry": {func(o *agent.Options) { o.Paths.Registry += ".none" }, "--plugins-registry"},
		"no CDI":      {func(o *agent.Options) { o.Paths.CDIDir = "" }, "--cdi-dir"},
	} {
		n, api := newDRANode(t, text)
		test.change(&n.options)
		n.addSticks(1)
		a, _ := n.serve()
		n.eventually(what, func() bool {
			reason := reasons(a, "example.com/stick")[stickID]
			return strings.Contains(reason, test.want)
		})
		n.untilListed("example.com/fuse", []string{"virtual:example.com:fuse:x"}, nil)
		if devices := published(api); what != "no registry" && len(devices) > 0 {
			t.Errorf("%s: published %v", what, devices)
		}
	}
}

// A container that uses a claim with several requests gets one environment and the health
// directories of all of its devices, whatever it names; two resources at one path are
// refused.
func TestRequestsOfAClaimAreTogether(t *testing.T) {
	t.Parallel()
	n, api := newDRANode(t, strings.Replace(zigbeeDRA, "container.path = \"/dev/zigbee\"\n", "", 1)+`container.health_dir = "/run/device"
[[resource]]
name = "seat"
match.virtual = ["a"]
container.health_dir = "/run/device"
`)
	n.addSticks(2)
	n.serve()
	a, b, seat := dra.DeviceName(stickID), dra.DeviceName(otherID), dra.DeviceName("virtual:example.com:seat:a")
	n.untilPublished(api, map[string]string{a: "", b: "", seat: ""})
	n.untilDriver()
	refused := func(claim kubelettest.ResourceClaim) {
		t.Helper()
		want := "claim lab/" + claim.Name + ": path /run/device is of example.com/zigbee and of example.com/seat in one claim: "
		_, err := n.kubelet.PrepareClaim(t.Context(), dra.Driver, claim)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("two resources at one path: %v", err)
		}
	}
	refused(allocate(api, "three", "one="+a, "two="+b, "three="+seat))
	devices := n.prepare(allocate(api, "both", "one="+a, "two="+b))
	if len(devices) != 2 {
		t.Fatalf("devices: %v", devices)
	}
	healthDir := filepath.Join(n.options.Paths.RunDir, "health")
	for i, d := range devices {
		ids := d.GetCdiDeviceIds()
		if len(ids) != 2 || d.GetRequestNames()[0] != []string{"one", "two"}[i] {
			t.Fatalf("device: %v", d)
		}
		e := n.edits(ids[1])
		if e == nil || !slices.Equal(e.Env, []string{"SERIAL=AAAA1111,BBBB2222"}) || len(e.Mounts) != 3 {
			t.Fatalf("edits of %s: %+v", ids[1], e)
		}
		for k, id := range []string{stickID, otherID} {
			m := e.Mounts[k]
			if m.HostPath != filepath.Join(healthDir, id) || m.ContainerPath != fmt.Sprint("/run/device/", k) {
				t.Errorf("mount %+v, want the health directory of %s", m, id)
			}
		}
	}
	there := func() bool {
		_, err := os.Stat(filepath.Join(healthDir, stickID, "healthy"))
		return err == nil
	}
	n.eventually("healthy", there)
	n.host.RemoveUSB("1-1")
	n.eventually("not healthy", func() bool { return !there() })
	refused(allocate(api, "mixed", "one="+b, "two="+seat))
}

// A pod with a claim keeps a healthy device when the driver may not publish any more, and when
// api changes, until the device goes; nobody else gets it.
func TestHeldDeviceStaysHealthy(t *testing.T) {
	t.Parallel()
	n, api := newDRANode(t, "api = \"dra\"\n"+followed)
	n.addSticks(1)
	n.serve()
	name := dra.DeviceName(stickID)
	n.untilPublished(api, map[string]string{name: ""})
	n.untilDriver()
	devices := n.prepare(allocate(api, "a", name))
	dir := ""
	for _, m := range n.edits(names(devices)[1]).Mounts {
		if m.ContainerPath == "/run/device" {
			dir = m.HostPath
		}
	}
	n.eventually("healthy", func() bool { return healthy(dir) != nil })
	told := func(text string) func() bool {
		return func() bool {
			h := n.kubelet.DeviceHealth(dra.Driver, "n1/generic-dp/"+name)
			return strings.HasPrefix(h.GetHealth().String()+": "+h.GetMessage(), text)
		}
	}
	token, err := os.ReadFile(api.Config.Token)
	must(t, err)
	must(t, os.Remove(api.Config.Token))
	n.host.AddUSB(stick("1-2", "BBBB2222", "ttyUSB1"))
	n.until("health without a token", told("HEALTHY: api = \"dra\" can't be served: no service account token"))
	n.wantHealthy(dir, true, "without a token")
	n.host.RemoveUSB("1-2")
	must(t, os.WriteFile(api.Config.Token, token, 0o600))
	n.configure(followed)
	n.untilPublished(api, map[string]string{name: "NoSchedule", dra.DeviceName(otherID): "NoSchedule"})
	n.until("health of a device that moves", told("HEALTHY: to be offered by example.com/zigbee"))
	n.wantHealthy(dir, true, "while it moves")
	n.host.RemoveUSB("1-1")
	n.until("health of a device that is gone", told("UNHEALTHY: resource was removed from the configuration"))
	n.wantHealthy(dir, false, "when it is gone")
}
