package node_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/generic-dp/generic-dp/test/e2e/bed"
	"github.com/generic-dp/generic-dp/test/e2e/inspect"
)

// TestInjection compares a pod whose device has every container key with a pod without a
// device: exactly the configured values are added.
func TestInjection(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.mknod(t, "companion", 200)
	data := t.TempDir()
	sticks := map[string]stick{
		"link": adapter("1-1", "A1B2C3D4", 0),
		"cdi":  adapter("1-2", "B5C6D7E8", 1),
	}
	var config string
	for _, kind := range []string{"link", "cdi"} {
		config += fmt.Sprintf(`
[[resource]]
name = %[1]q
match = { usb = { serial = %[2]q }, glob = "/dev/ttyUSB*" }
with = [
  { path = "/dev/companion", permissions = "r", container_path = "/dev/beside" },
  { path = %[3]q, container_path = "/data" },
]
container.path = "/dev/zigbee"
container.env.ZIGBEE = "${container_path} is ${usb.serial} at ${devnode}"
container.annotations."example.com/zigbee" = "${id} of ${resource}"
%[4]s`, kind, sticks[kind].Serial, data, injections[kind])
		n.Plug(sticks[kind].Stick)
	}
	n.serve(t, config, "--allow=mount:"+data)
	without := n.run(t, bed.Workload("without", "", 0))
	emptyReport, emptySpec := without.Report(t, "main"), n.inspect(t, without, "main")

	for kind, d := range sticks {
		t.Run(kind, func(t *testing.T) {
			resource := "example.com/" + kind
			n.Kubelet.WaitAllocatable(t, resource, 1)
			pod := n.run(t, bed.Workload(kind, resource, 1))
			n.wantHeld(t, resource, map[string]string{d.id(): kind + "-bed/main"})
			report, spec := pod.Report(t, "main"), n.inspect(t, pod, "main")

			nodes := added(emptyReport.Nodes, report.Nodes, func(n inspect.Node) string {
				return fmt.Sprintf("%s %s %d:%d", n.Path, n.Type, n.Major, n.Minor)
			})
			wantSame(t, "nodes", nodes, "/dev/beside c 188:200", fmt.Sprintf("/dev/zigbee c 188:%d", d.number().minor))
			wantSame(t, "mounts", added(emptyReport.Mounts, report.Mounts, func(m inspect.Mount) string {
				return fmt.Sprintf("%s read-only=%t", m.Path, m.ReadOnly)
			}), "/data read-only=true")
			wantSame(t, "environment", added(pairs(emptyReport.Env), pairs(report.Env), self),
				fmt.Sprintf("ZIGBEE=/dev/zigbee is %s at /dev/%s", d.Serial, d.TTY))
			wantSame(t, "annotations of the container", slices.DeleteFunc(
				added(pairs(emptySpec.Annotations), pairs(spec.Annotations), self),
				func(s string) bool {
					return strings.HasPrefix(s, "io.kubernetes.") || strings.HasPrefix(s, "cdi.k8s.io/")
				}),
				fmt.Sprintf("example.com/zigbee=%s of %s", d.id(), resource))

			wantSame(t, "devices in the OCI spec", added(emptySpec.Linux.Devices, spec.Linux.Devices, func(d specDevice) string {
				return fmt.Sprintf("%s %s %d:%d", d.Path, d.Type, d.Major, d.Minor)
			}), nodes...)
			wantSame(t, "rules of the device cgroup", added(emptySpec.Linux.Resources.Devices, spec.Linux.Resources.Devices, specRule.String),
				fmt.Sprintf("allow c 188:%d rw", d.number().minor), "allow c 188:200 r")
			for _, c := range []struct{ path, mode, want string }{
				{"/dev/zigbee", "rw", "no such device or address"},
				{"/dev/beside", "r", "no such device or address"},
				{"/dev/beside", "w", "operation not permitted"},
			} {
				if _, stderr, _ := pod.Exec(t, "main", "/tool", "open", c.path, c.mode); !strings.Contains(stderr, c.want) {
					t.Errorf("open %s for %s: %q, want %q", c.path, c.mode, stderr, c.want)
				}
			}
			node, _ := report.Node("/dev/zigbee")
			t.Logf("the node in the container: mode %s, owner %d:%d", node.Mode, node.UID, node.GID)
		})
	}
}

// TestTwoDevices has a container with two devices: their values are joined or numbered
// in the order of their IDs, and companions are injected once.
func TestTwoDevices(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.mknod(t, "companion", 200)
	paths := map[string]string{"link": "/dev/zigbee${index}", "cdi": "/dev/zigbee-${usb.serial}"}
	var config string
	for i, kind := range []string{"link", "cdi"} {
		config += fmt.Sprintf(`
[[resource]]
name = %[1]q
match = { usb = { serial = "%[1]s*" }, glob = "/dev/ttyUSB*" }
with = [{ path = "/dev/companion" }, { path = %[3]q, container_path = "/data" }]
container.path = %[2]q
container.env.SERIALS = "${usb.serial}"
container.env.PATHS = "${container_path}"
container.env.SAME = "${count} of ${resource} on ${node_name}"
container.env."ZIGBEE_${index}" = "${id}"
container.annotations."example.com/zigbee-${index}" = "${usb.serial}"
%[4]s`, kind, paths[kind], n.Dir, injections[kind])
		// The orders of names, of ports and of serial numbers differ.
		n.Plug(adapter(fmt.Sprintf("1-%d", 2*i+1), kind+"B", uint32(2*i+1)).Stick)
		n.Plug(adapter(fmt.Sprintf("1-%d", 2*i+2), kind+"A", uint32(2*i)).Stick)
	}
	n.serve(t, config, "--allow=mount:"+n.Dir)
	want := map[string][]string{"link": {"/dev/zigbee0", "/dev/zigbee1"}, "cdi": {"/dev/zigbee-cdiA", "/dev/zigbee-cdiB"}}
	for i, kind := range []string{"link", "cdi"} {
		t.Run(kind, func(t *testing.T) {
			resource := "example.com/" + kind
			n.Kubelet.WaitAllocatable(t, resource, 2)
			pod := n.run(t, bed.Workload(kind, resource, 2))
			r := pod.Report(t, "main")
			wantNode(t, r, want[kind][0], number{188, uint32(2 * i)})
			wantNode(t, r, want[kind][1], number{188, uint32(2*i + 1)})
			wantNode(t, r, "/dev/companion", number{188, 200})
			for key, value := range map[string]string{
				"SERIALS":  kind + "A," + kind + "B",
				"PATHS":    strings.Join(want[kind], ","),
				"SAME":     "2 of " + resource + " on bed",
				"ZIGBEE_0": "usb:10c4:ea60:" + kind + "A",
				"ZIGBEE_1": "usb:10c4:ea60:" + kind + "B",
			} {
				if r.Env[key] != value {
					t.Errorf("%s=%q, want %q", key, r.Env[key], value)
				}
			}
			spec := n.inspect(t, pod, "main")
			for i, serial := range []string{kind + "A", kind + "B"} {
				key := fmt.Sprintf("example.com/zigbee-%d", i)
				if spec.Annotations[key] != serial {
					t.Errorf("annotation %s: %q, want %q", key, spec.Annotations[key], serial)
				}
			}
			// Once each in the response of the program, and in the container.
			devices, mounts := 3, 1
			resp := n.response(t, resource)
			if kind == "cdi" {
				devices, mounts = 0, 0
				if len(resp.CdiDevices) != 2 {
					t.Errorf("CDI names in the response: %+v, want two", resp.CdiDevices)
				}
			}
			if len(resp.Devices) != devices || len(resp.Mounts) != mounts {
				t.Errorf("response %+v, want %d devices and %d mounts", resp, devices, mounts)
			}
			companions := slices.DeleteFunc(spec.Linux.Devices, func(d specDevice) bool { return d.Path != "/dev/companion" })
			if len(companions) != 1 {
				t.Errorf("companions in the OCI spec: %+v, want one", companions)
			}
			mounts = 0
			for _, m := range spec.Mounts {
				if m.Destination == "/data" {
					mounts++
				}
			}
			if mounts != 1 {
				t.Errorf("the mount is in the OCI spec %d times, want once", mounts)
			}
		})
	}
}

// added lists the values of after that before lacks, as sorted text.
func added[T any](before, after []T, text func(T) string) []string {
	var have, out []string
	for _, v := range before {
		have = append(have, text(v))
	}
	for _, v := range after {
		if s := text(v); !slices.Contains(have, s) {
			out = append(out, s)
		}
	}
	slices.Sort(out)
	return out
}

func wantSame(t testing.TB, what string, got []string, want ...string) {
	t.Helper()
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("%s: %q, want %q", what, got, want)
	}
}

func pairs(m map[string]string) []string {
	var list []string
	for k, v := range m {
		list = append(list, k+"="+v)
	}
	return list
}

func self(s string) string { return s }

// String formats a rule like cgroups.
func (r specRule) String() string {
	verb := "deny"
	if r.Allow {
		verb = "allow"
	}
	number := func(n *int64) string {
		if n == nil {
			return "*"
		}
		return fmt.Sprint(*n)
	}
	return fmt.Sprintf("%s %s %s:%s %s", verb, r.Type, number(r.Major), number(r.Minor), r.Access)
}
