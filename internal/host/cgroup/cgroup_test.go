package cgroup

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

const (
	uid       = "7f7e5ef5-9c5f-4a4e-8a5e-0123456789ab"
	systemdID = "7f7e5ef5_9c5f_4a4e_8a5e_0123456789ab"
	staticUID = "0123456789abcdef0123456789abcdef"
)

// write makes a file and the directories above it.
func write(t *testing.T, dir, name, text string) {
	t.Helper()
	path := filepath.Join(dir, name)
	must(t, os.MkdirAll(filepath.Dir(path), 0o755))
	must(t, os.WriteFile(path, []byte(text), 0o644))
}

// fake makes a cgroup tree of files; names ending in "/" are directories.
func fake(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		if name[len(name)-1] != '/' {
			write(t, dir, name, text)
		} else if err := os.MkdirAll(filepath.Join(dir, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestPodState(t *testing.T) {
	const (
		populated = "populated 1\nfrozen 0\n"
		empty     = "populated 0\nfrozen 0\n"
	)
	tests := []struct {
		name  string
		files map[string]string
		uid   string
		want  PodState
	}{
		{"v2 systemd guaranteed", map[string]string{
			"cgroup.controllers": "pids",
			"kubepods.slice/kubepods-pod" + systemdID + ".slice/cgroup.events": populated,
		}, uid, Running},
		{"v2 systemd burstable", map[string]string{
			"cgroup.controllers": "pids",
			"kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod" + systemdID + ".slice/cgroup.events": populated,
		}, uid, Running},
		{"v2 systemd best effort in a nested root", map[string]string{
			"cgroup.controllers": "pids",
			"kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-besteffort.slice/kubelet-kubepods-besteffort-pod" + systemdID + ".slice/cgroup.events": populated,
		}, uid, Running},
		{"v2 systemd, all processes ended", map[string]string{
			"cgroup.controllers": "pids",
			"kubepods.slice/kubepods-pod" + systemdID + ".slice/cgroup.events": empty,
		}, uid, Ended},
		{"v2 cgroupfs", map[string]string{
			"cgroup.controllers":                      "pids",
			"kubepods/pod" + uid + "/cgroup.events":   populated,
			"kubepods/burstable/podabc/cgroup.events": empty,
		}, uid, Running},
		{"v2 cgroupfs burstable below a root", map[string]string{
			"cgroup.controllers": "pids",
			"a/b/kubepods/burstable/pod" + uid + "/cgroup.events": populated,
		}, uid, Running},
		{"v2 other pod", map[string]string{
			"cgroup.controllers":                    "pids",
			"kubepods/pod" + uid + "/cgroup.events": populated,
		}, "7f7e5ef5-9c5f-4a4e-8a5e-000000000000", Missing},
		{"v2 the UID of a static pod", map[string]string{
			"cgroup.controllers": "pids",
			"kubepods/besteffort/pod" + staticUID + "/cgroup.events": populated,
		}, staticUID, Running},
		{"v1 cgroupfs", map[string]string{
			"pids/kubepods/besteffort/pod" + uid + "/pids.current": "2\n",
			"memory/kubepods/besteffort/":                          "",
		}, uid, Running},
		{"v1 cgroupfs, no tasks", map[string]string{
			"pids/kubepods/besteffort/pod" + uid + "/pids.current": "0\n",
		}, uid, Ended},
		{"v1 systemd", map[string]string{
			"pids/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod" + systemdID + ".slice/pids.current": "1\n",
		}, uid, Running},
		{"v1 hybrid without pids", map[string]string{
			"unified/kubepods/pod" + uid + "/cgroup.events": populated,
		}, uid, Unknown},
		{"left-over parent beside the used one", map[string]string{
			"cgroup.controllers":                    "pids",
			"kubepods.slice/":                       "",
			"kubepods/pod" + uid + "/cgroup.events": populated,
		}, uid, Running},

		{"no tree", map[string]string{}, uid, Unknown},
		{"v2 without pods of a kubelet", map[string]string{
			"cgroup.controllers":               "pids",
			"system.slice/cgroup.events":       populated,
			"pod" + uid + "/cgroup.events":     populated,
			"a/b/c/d/e/f/kubepods/":            "",
			"kubepods-extra/pod/cgroup.events": populated,
		}, uid, Unknown},
		{"v2 without the attribute", map[string]string{
			"cgroup.controllers":       "pids",
			"kubepods/pod" + uid + "/": "",
		}, uid, Running},
		{"v2 with other text", map[string]string{
			"cgroup.controllers":                    "pids",
			"kubepods/pod" + uid + "/cgroup.events": "frozen 0\n",
		}, uid, Running},
		{"v1 with other text", map[string]string{
			"pids/kubepods/pod" + uid + "/pids.current": "max\n",
		}, uid, Running},
		{"v1 with no text", map[string]string{
			"pids/kubepods/pod" + uid + "/pids.current": "",
		}, uid, Running},
		{"the attribute is a directory", map[string]string{
			"cgroup.controllers":                     "pids",
			"kubepods/pod" + uid + "/cgroup.events/": "",
		}, uid, Running},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			if got := New(fake(t, test.files)).PodState(test.uid); got != test.want {
				t.Errorf("pod is %v, want %v", got, test.want)
			}
		})
	}
}

func TestInvalidUIDIsUnknown(t *testing.T) {
	t.Parallel()
	dir := fake(t, map[string]string{
		"cgroup.controllers":         "pids",
		"kubepods/pod/cgroup.events": "populated 1\n",
		"kubepods/cgroup.events":     "populated 1\n",
		"kubepods/poda/x":            "",
	})
	long := string(make([]byte, maxUID+1))
	for _, uid := range []string{"", "/..", "a/..", "..", "a_b", "a b", "ü", "a\x00", long} {
		if got := New(dir).PodState(uid); got != Unknown {
			t.Errorf("UID %q is %v, want unknown", uid, got)
		}
	}
}

// A link never leads out of the tree, and a FIFO never blocks.
func TestLinksAndFIFOs(t *testing.T) {
	t.Parallel()
	outside := fake(t, map[string]string{"pod" + uid + "/cgroup.events": "populated 1\n"})
	dir := fake(t, map[string]string{"cgroup.controllers": "pids", "kubepods/": "", "kubepods/podfifo/": ""})
	must(t, os.Symlink(outside, filepath.Join(dir, "kubepods.slice")))
	must(t, unix.Mkfifo(filepath.Join(dir, "kubepods/podfifo/cgroup.events"), 0o600))
	for uid, want := range map[string]PodState{uid: Missing, "fifo": Running} {
		if got := New(dir).PodState(uid); got != want {
			t.Errorf("pod %s is %v, want %v", uid, got, want)
		}
	}
}

// The parents of pods appear when the kubelet starts, and may move when it gets another
// configuration.
func TestParentsChange(t *testing.T) {
	t.Parallel()
	dir := fake(t, map[string]string{"cgroup.controllers": "pids"})
	tree := New(dir)
	now := time.Now()
	tree.now = func() time.Time { return now }
	check := func(when string, want PodState) {
		t.Helper()
		if got := tree.PodState(uid); got != want {
			t.Errorf("%s: pod is %v, want %v", when, got, want)
		}
	}
	check("without a kubelet", Unknown)
	write(t, dir, "kubepods/pod"+uid+"/cgroup.events", "populated 1\n")
	check("at once", Unknown) // not searched so soon again
	now = now.Add(retrySearch)
	check("after the kubelet started", Running)
	must(t, os.RemoveAll(filepath.Join(dir, "kubepods/pod"+uid)))
	check("after the pod ended", Missing)
	must(t, os.RemoveAll(filepath.Join(dir, "kubepods")))
	check("without its parent", Unknown)
	write(t, dir, "kubepods.slice/kubepods-pod"+systemdID+".slice/cgroup.events", "populated 1\n")
	now = now.Add(retrySearch)
	check("with another driver", Running)
	if err := tree.Visible(); err != nil {
		t.Error(err)
	}
}

// A search that is cut off does not make a pod that runs look ended.
func TestSearchThatIsCutOff(t *testing.T) {
	t.Parallel()
	dir := fake(t, map[string]string{
		"cgroup.controllers":                    "pids",
		"kubepods/pod" + uid + "/cgroup.events": "populated 1\n",
	})
	tree := New(dir)
	if got := tree.PodState(uid); got != Running {
		t.Fatalf("pod is %v, want running", got)
	}
	tree.limit = 1
	tree.now = func() time.Time { return time.Now().Add(searchAgain) }
	if got := tree.PodState(uid); got != Running {
		t.Errorf("after a search that was cut off, the pod is %v, want running", got)
	}
	tree = New(dir)
	tree.limit = 1
	if err := tree.Visible(); err != errTooLarge {
		t.Errorf("without a known parent: %v, want %v", err, errTooLarge)
	}
}

func TestPodParents(t *testing.T) {
	t.Parallel()
	dir := fake(t, map[string]string{
		"cgroup.controllers":                    "pids",
		"kubepods/":                             "",
		"kubelet.slice/kubelet-kubepods.slice/": "",
	})
	want := map[string]bool{}
	for _, name := range []string{
		"kubepods", "kubepods/burstable", "kubepods/besteffort",
		"kubelet.slice/kubelet-kubepods.slice",
		"kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-burstable.slice",
		"kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-besteffort.slice",
	} {
		want[filepath.Join(dir, name)] = true
	}
	got := New(dir).PodParents()
	for _, parent := range got {
		if !want[parent] {
			t.Errorf("%s is not expected", parent)
		}
	}
	if len(got) != len(want) {
		t.Errorf("%d parents, want %d: %q", len(got), len(want), got)
	}
	if none := New("").PodParents(); none != nil {
		t.Errorf("without a tree: %q, want none", none)
	}
}

// must ends the test after an error of its own steps.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
