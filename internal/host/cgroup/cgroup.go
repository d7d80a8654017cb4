// Package cgroup tells whether the containers of a pod still run, from the host's cgroup
// file system. The kubelet is no source for this: it forgets a pod that was deleted with
// --force while the containers of the pod still run.
//
// Every process of a container is in a cgroup below the one that the kubelet made for the
// pod, whose name has the UID of the pod:
//
//	/kubepods/burstable/pod<uid>                                     (cgroupfs driver)
//	/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod<uid>.slice (systemd)
//
// The kernel counts the processes of a cgroup together with the processes of the cgroups below it.
// So one small file says whether a pod has a process.
package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/generic-dp/generic-dp/internal/device"
)

// PodState says whether a pod has a process, or at least a cgroup.
type PodState int

const (
	// Unknown: the tree is not visible, or has no pods of a kubelet.
	Unknown PodState = iota
	// Running: at least one process exists, possibly only the one of the pod sandbox. A cgroup that cannot
	// be read counts, for example while this program has no file descriptor left.
	Running
	// Ended: there is a cgroup without a process, because all have ended or none was started.
	Ended
	// Missing: there is no cgroup.
	Missing
)

// HasEnded reports whether the pod is known to have no process.
func (s PodState) HasEnded() bool { return s == Ended || s == Missing }

const (
	// searchAgain is how long the known parents of pods are used before the tree is
	// searched for more. A kubelet makes them at its start.
	searchAgain = 30 * time.Second
	// retrySearch is the time between searches while no parent is known.
	retrySearch = time.Second
	// maxDepth is the depth of a parent of pods: "kubelet.slice/kubelet-kubepods.slice" is
	// at 2, and a runtime in a container adds some.
	maxDepth = 5
	// maxEntries limits a search. A node has a few hundred cgroups outside the kubelet's.
	maxEntries = 20_000
	// maxUID is the maximum length of the UID of a pod; an API server makes 36 characters,
	// a kubelet 32 for a static pod.
	maxUID = 63
)

// Tree is the cgroup file system of the host. It is safe for concurrent use.
type Tree struct {
	dir string
	now func() time.Time
	// limit is the maximum number of entries of a search.
	limit int

	mu       sync.Mutex
	layout   layout
	parents  []string // directories with pods
	searched time.Time
	err      error // why parents is empty
}

// layout is what differs between the versions of cgroups.
type layout struct {
	// base is the directory of the hierarchy that is read, relative to the tree.
	base string
	// alive is the file of a cgroup that says whether there is a process in or below it.
	alive string
	// running interprets the content of the file.
	running func(text string) (bool, error)
}

// New returns the tree that is mounted at dir, usually "/sys/fs/cgroup". An empty dir is a
// tree without an answer. A container only sees its own cgroup at that place: the host's
// tree must be mounted elsewhere.
func New(dir string) *Tree {
	return &Tree{
		dir:   dir,
		now:   time.Now,
		limit: maxEntries,
	}
}

// ErrNone means that there is no tree on purpose.
var ErrNone = errors.New("no directory is given")

// PodState returns the state of the pod with this UID. It reads a few small files, and
// from time to time the directories above the pods. All parents count: a node may have parents that an
// earlier configuration of its kubelet left behind.
func (t *Tree) PodState(uid string) PodState {
	l, parents, err := t.search()
	if err != nil || !validUID(uid) {
		return Unknown
	}
	state := Missing
	for _, parent := range parents {
		for _, dir := range podDirs(parent, uid) {
			switch l.read(dir) {
			case Running:
				return Running
			case Ended:
				state = Ended
			}
		}
	}
	return state
}

// Visible returns why the tree can't tell whether a pod runs, nil if it can.
func (t *Tree) Visible() error {
	_, _, err := t.search()
	return err
}

// PodParents returns the directories in which the cgroups of pods are, whether they exist or not.
// There are none before the kubelet has made its first cgroup.
func (t *Tree) PodParents() []string {
	_, parents, _ := t.search()
	var dirs []string
	for _, parent := range parents {
		for _, pod := range podDirs(parent, "") {
			dirs = append(dirs, filepath.Dir(pod))
		}
	}
	return dirs
}

// search returns the parents of pods that exist. It searches the tree if the last search was some time ago. A
// search that was cut off does not replace what is known: pods below a forgotten parent would look ended.
func (t *Tree) search() (l layout, parents []string, err error) {
	if t == nil || t.dir == "" {
		return l, nil, ErrNone
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	known := slices.DeleteFunc(slices.Clone(t.parents), func(dir string) bool {
		return !isDir(dir)
	})
	wait := searchAgain
	if len(known) == 0 {
		wait = retrySearch
	}
	if t.searched.IsZero() || t.now().Sub(t.searched) >= wait {
		t.searched = t.now()
		t.layout, t.err = detect(t.dir)
		t.parents = nil
		if t.err == nil {
			t.parents, t.err = findParents(filepath.Join(t.dir, t.layout.base), t.limit, known)
		}
		known = t.parents
	}
	if t.err == nil && len(known) == 0 {
		return l, nil, errNoPods
	}
	return t.layout, known, t.err
}

// detect returns the layout of a tree. With version 1 every controller has a hierarchy of
// its own, and processes are in all of them. The one of pids counts tasks, which its reader
// sees from any PID namespace; cgroup.procs of version 1 leaves out the processes that the
// reader's PID namespace does not have (pidlist_array_load, kernel/cgroup/cgroup-v1.c). With
// version 2 the list of processes is not read either, since an attribute says whether there
// is one.
func detect(dir string) (layout, error) {
	_, err := os.Lstat(filepath.Join(dir, "cgroup.controllers")) // in the root of version 2 only
	if err == nil {
		return layout{base: ".", alive: "cgroup.events", running: populated}, nil
	}
	info, err := os.Stat(filepath.Join(dir, "pids"))
	if err == nil && info.IsDir() {
		return layout{base: "pids", alive: "pids.current", running: counted}, nil
	}
	return layout{}, fmt.Errorf("%s: it is no cgroup tree: neither version 2 nor the pids controller of version 1", dir)
}

// populated interprets cgroup.events of version 2. Zombies do not count
// (css_set_populated, kernel/cgroup/cgroup.c).
func populated(text string) (bool, error) {
	isRunning := strings.Contains(text, "populated 1\n")
	if !isRunning && !strings.Contains(text, "populated 0\n") {
		return false, errors.New("no line says whether it is populated")
	}
	return isRunning, nil
}

// counted interprets pids.current of version 1. A zombie counts until it is reaped
// (pids_release, kernel/cgroup/pids.c).
func counted(text string) (bool, error) {
	number, err := strconv.ParseUint(strings.TrimSpace(text), 10, 64)
	return number > 0, err
}

// isDir reports whether path is a directory and no link to one: the kernel makes no links
// in a hierarchy.
func isDir(path string) bool {
	var stat unix.Stat_t
	err := unix.Lstat(path, &stat)
	return err == nil && stat.Mode&unix.S_IFMT == unix.S_IFDIR
}

// read returns the state of a cgroup, which may be missing. A cgroup has the file from the start. ENODEV or
// ENOENT is a cgroup that is being removed.
func (l layout) read(dir string) PodState {
	text, err := readSmall(filepath.Join(dir, l.alive))
	var stat unix.Stat_t
	if err != nil && errors.Is(unix.Lstat(dir, &stat), fs.ErrNotExist) {
		return Missing
	}
	isRunning := true
	if err == nil {
		isRunning, err = l.running(text)
	}
	if err != nil || isRunning {
		return Running
	}
	return Ended
}

// maxFile is the size of the largest file that is read: cgroup.events has two lines.
const maxFile = 512

// readSmall reads the start of a regular file. It neither follows a link nor waits for the
// writer of a FIFO.
func readSmall(path string) (string, error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return "", err
	}
	defer unix.Close(fd)
	var text [maxFile]byte
	n, err := unix.Read(fd, text[:])
	if err != nil {
		return "", err
	}
	return string(text[:n]), nil
}

// qosClasses are the parts of the path of a pod by its quality of service; a guaranteed pod
// has none.
var qosClasses = []string{"", "burstable", "besteffort"}

// podDirs returns where the cgroup of a pod may be below a parent of pods
// (GetPodContainerName and ToSystemd, pkg/kubelet/cm).
func podDirs(parent, uid string) []string {
	dirs := make([]string, 0, len(qosClasses))
	prefix, systemd := strings.CutSuffix(filepath.Base(parent), ".slice")
	pod := "pod" + uid
	if systemd {
		pod = strings.ReplaceAll(pod, "-", "_")
	}
	for _, class := range qosClasses {
		if !systemd {
			dirs = append(dirs, filepath.Join(parent, class, pod))
		} else if class == "" {
			dirs = append(dirs, filepath.Join(parent, prefix+"-"+pod+".slice"))
		} else {
			slice := prefix + "-" + class
			dirs = append(dirs, filepath.Join(parent, slice+".slice", slice+"-"+pod+".slice"))
		}
	}
	return dirs
}

// validUID reports whether the text can be the UID of a pod, and a part of a name.
func validUID(uid string) bool {
	return len(uid) <= maxUID && device.IsUID(uid)
}
