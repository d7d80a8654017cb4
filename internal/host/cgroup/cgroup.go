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
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/generic-dp/generic-dp/internal/device"
)

// PodState says whether a process of a pod exists.
type PodState int

const (
	// Unknown: the tree is not visible, has no pods of a kubelet, or can't be read.
	Unknown PodState = iota
	// Running: at least one process exists, possibly only the one of the pod sandbox.
	Running
	// Ended: there is no process, either because all have ended or because none was
	// started.
	Ended
	// missing is Ended without a cgroup.
	missing
)

func (s PodState) String() string {
	switch s {
	case Running:
		return "running"
	case Ended:
		return "ended"
	default:
		return "unknown"
	}
}

const (
	// searchAgain is how long the known parents of pods are used before the tree is
	// searched for more. A kubelet makes them at its start.
	searchAgain = 30 * time.Second
	// retrySearch is the time between searches while the answer is unknown.
	retrySearch = time.Second
	// maxDepth is the depth of a parent of pods: "kubelet.slice/kubelet-kubepods.slice" is
	// at 2, and a runtime in a container adds some.
	maxDepth = 5
	// maxEntries and maxSearch limit a search. A node has a few hundred cgroups outside
	// the kubelet's.
	maxEntries = 20_000
	maxSearch  = 100 * time.Millisecond
	// maxUID is the maximum length of the UID of a pod; an API server makes 36 characters,
	// a kubelet 32 for a static pod.
	maxUID = 63
)

// Tree is the cgroup file system of the host. It is safe for concurrent use.
type Tree struct {
	dir string
	now func() time.Time

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
	return &Tree{dir: dir, now: time.Now}
}

// PodState returns the state of the pod with this UID. It reads a few small files, and
// from time to time the directories above the pods.
func (t *Tree) PodState(uid string) PodState {
	state := t.podState(uid)
	if state == missing {
		return Ended
	}
	return state
}

// MayHavePod reports whether the pod with this UID has a cgroup, with or without a process. A cgroup
// that cannot be read counts. It is false if the tree is not visible: then no pod has one.
func (t *Tree) MayHavePod(uid string) bool {
	state := t.podState(uid)
	if state == Unknown {
		return t.Visible() == nil
	}
	return state != missing
}

// podState is PodState, or missing.
func (t *Tree) podState(uid string) PodState {
	if t == nil || t.dir == "" || !validUID(uid) {
		return Unknown
	}
	t.mu.Lock()
	l := t.layout
	parents := t.parents
	t.mu.Unlock()
	state := l.podState(parents, uid)
	if state == Running {
		return Running
	}
	wait := searchAgain
	if state == Unknown {
		wait = retrySearch
	}
	l, parents, searched := t.search(wait)
	if searched {
		return l.podState(parents, uid)
	}
	return state
}

// Visible returns why the tree can't tell whether a pod runs, nil if it can.
func (t *Tree) Visible() error {
	if t == nil || t.dir == "" {
		return ErrNone
	}
	t.search(retrySearch)
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.err
}

// PodParents returns the directories in which the cgroups of pods are, whether they exist or not.
// There are none before the kubelet has made its first cgroup.
func (t *Tree) PodParents() []string {
	if t == nil || t.dir == "" {
		return nil
	}
	t.search(searchAgain)
	t.mu.Lock()
	defer t.mu.Unlock()
	var dirs []string
	for _, parent := range t.parents {
		for _, pod := range podDirs(parent, "") {
			dirs = append(dirs, filepath.Dir(pod))
		}
	}
	return dirs
}

// ErrNone means that there is no tree on purpose.
var ErrNone = errors.New("no directory is given")

// search searches for the parents of pods if the last search is as long ago as wait, and
// reports whether it did.
func (t *Tree) search(wait time.Duration) (l layout, parents []string, searched bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := t.now()
	due := t.searched.IsZero() || now.Sub(t.searched) >= wait
	if !due {
		return t.layout, t.parents, false
	}
	t.layout, t.err = detect(t.dir)
	if t.err != nil {
		t.parents = nil
	} else {
		t.findParents(now)
	}
	t.searched = t.now()
	return t.layout, t.parents, true
}

// findParents searches for the parents of pods. A search that was cut off, such as on a busy node,
// does not replace what is known: pods below a forgotten parent would look ended. The caller holds
// the lock.
func (t *Tree) findParents(now time.Time) {
	base := filepath.Join(t.dir, t.layout.base)
	found, complete := findParents(base, now.Add(maxSearch), t.now)
	if !complete {
		for _, parent := range t.parents {
			if !slices.Contains(found, parent) && isDir(parent) {
				found = append(found, parent)
			}
		}
	}
	t.parents = found
	isEmpty := len(found) == 0
	if isEmpty && complete {
		t.err = fmt.Errorf("%s: %w", base, errNoPods)
	} else if isEmpty {
		t.err = errTooLarge
	}
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
	for line := range strings.Lines(text) {
		switch strings.TrimSpace(line) {
		case "populated 0":
			return false, nil
		case "populated 1":
			return true, nil
		}
	}
	return false, errors.New("no line says whether it is populated")
}

// counted interprets pids.current of version 1. A zombie counts until it is reaped
// (pids_release, kernel/cgroup/pids.c).
func counted(text string) (bool, error) {
	number := strings.TrimSpace(text)
	for _, c := range number {
		if c < '0' || c > '9' {
			return false, errors.New("it is no number")
		}
	}
	if number == "" {
		return false, errors.New("it is empty")
	}
	return strings.Trim(number, "0") != "", nil
}

// podState looks for a pod below the known parents. All of them count: a node may have
// parents that an earlier configuration of its kubelet left behind.
func (l layout) podState(parents []string, uid string) PodState {
	found := Unknown // unless a parent is visible
	isUnreadable := false
	for _, parent := range parents {
		if !isDir(parent) {
			continue
		}
		if found == Unknown {
			found = missing
		}
		for _, dir := range podDirs(parent, uid) {
			switch l.read(dir) {
			case Running:
				return Running
			case Ended:
				found = Ended
			case Unknown:
				isUnreadable = true
			}
		}
	}
	if isUnreadable {
		return Unknown
	}
	return found
}

// isDir reports whether path is a directory and no link to one: the kernel makes no links
// in a hierarchy.
func isDir(path string) bool {
	var stat unix.Stat_t
	err := unix.Lstat(path, &stat)
	return err == nil && stat.Mode&unix.S_IFMT == unix.S_IFDIR
}

// read returns the state of a cgroup, which may be missing.
func (l layout) read(dir string) PodState {
	text, err := readSmall(filepath.Join(dir, l.alive))
	if err != nil {
		// A cgroup has the file from the start. ENODEV or ENOENT is a cgroup that is being
		// removed.
		var stat unix.Stat_t
		if errors.Is(unix.Lstat(dir, &stat), fs.ErrNotExist) {
			return missing
		}
		return Unknown
	}
	running, err := l.running(text)
	if err != nil {
		return Unknown
	}
	if running {
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
