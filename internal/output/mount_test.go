package output_test

import (
	"strings"
	"testing"

	"github.com/generic-dp/generic-dp/internal/output"
)

func TestCheckMount(t *testing.T) {
	t.Parallel()
	const dir = "/run/generic-dp"
	const rootfs = "600 500 0:50 / / ro,relatime master:1 - overlay overlay ro\n"
	for _, tc := range []struct {
		name, dir, mountinfo string
		wantErr              string
	}{
		{name: "host's directory on the tmpfs /run", mountinfo: rootfs + "700 600 0:23 /generic-dp /run/generic-dp rw,nosuid - tmpfs tmpfs rw\n"},
		{name: "host's directory on its root file system", mountinfo: rootfs + "700 600 8:1 /run/generic-dp /run/generic-dp rw - ext4 /dev/sda1 rw\n"},
		{name: "host's directory in a subvolume", dir: "/var/lib/generic-dp", mountinfo: rootfs + "700 600 0:30 /@/var/lib/generic-dp /var/lib/generic-dp rw - btrfs /dev/sda1 rw\n"},
		{name: "all of the host's /run", mountinfo: rootfs + "700 600 0:23 / /run rw,nosuid - tmpfs tmpfs rw\n"},
		{name: "a file system of its own on the host", mountinfo: rootfs + "700 600 8:5 / /run/generic-dp rw - ext4 /dev/sda5 rw\n"},
		{name: "trailing slash", dir: dir + "/", mountinfo: rootfs + "700 600 0:23 /generic-dp /run/generic-dp rw - tmpfs tmpfs rw\n"},
		{name: "space in the path", dir: "/run/generic dp", mountinfo: rootfs + `700 600 0:23 /generic\040dp /run/generic\040dp rw - tmpfs tmpfs rw` + "\n"},

		{name: "no mount", mountinfo: rootfs, wantErr: "it is not a mount"},
		{name: "no mounts at all", mountinfo: "", wantErr: "it is not a mount"},
		{name: "another path of a like name", mountinfo: rootfs + "700 600 0:23 /generic-dp2 /run/generic-dp2 rw - tmpfs tmpfs rw\n", wantErr: "it is not a mount"},
		{name: "another path that begins alike", mountinfo: rootfs + "700 600 0:23 /generic /run/generic rw - tmpfs tmpfs rw\n", wantErr: "it is not a mount"},
		{name: "another directory of the host", mountinfo: rootfs + "700 600 0:23 /gdp /run/generic-dp rw - tmpfs tmpfs rw\n", wantErr: `"/gdp" is mounted at "/run/generic-dp"`},
		{name: "a volume of the pod", mountinfo: rootfs + "700 600 8:1 /var/lib/kubelet/pods/1/volumes/kubernetes.io~empty-dir/run /run/generic-dp rw - ext4 /dev/sda1 rw\n", wantErr: `"/var/lib/kubelet/pods/1/volumes/kubernetes.io~empty-dir/run" is mounted at`},
		{name: "a volume of the pod in memory", mountinfo: rootfs + "700 600 0:99 / /run/generic-dp rw - tmpfs tmpfs rw\n", wantErr: "a file system of the pod's own"},
		{name: "covered by a later mount", mountinfo: rootfs + "700 600 0:23 /generic-dp /run/generic-dp rw - tmpfs tmpfs rw\n701 700 0:99 / /run/generic-dp rw - tmpfs tmpfs rw\n", wantErr: "a file system of the pod's own"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			if tc.dir == "" {
				tc.dir = dir
			}
			err := output.CheckMount(tc.dir, strings.NewReader(tc.mountinfo))
			if tc.wantErr == "" {
				must(t, err)
				return
			}
			if err == nil || !strings.Contains(err.Error(), tc.wantErr) || !strings.HasPrefix(err.Error(), "--run-dir: ") {
				t.Errorf("error = %v, want --run-dir and %q in it", err, tc.wantErr)
			}
		})
	}
}
