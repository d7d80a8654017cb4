// Package inspect reports the environment of a process: the tool prints it in a container
// for a test.
package inspect

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// Report is the environment of a process.
type Report struct {
	UID int `json:"uid"`
	// Groups are the supplementary groups.
	Groups []int             `json:"groups"`
	Env    map[string]string `json:"env"`
	Nodes  []Node            `json:"nodes"`
	Mounts []Mount           `json:"mounts"`
	// Interfaces are the names of the network devices.
	Interfaces []string `json:"interfaces"`
}

// Node is a device node, or a symbolic link in its place.
type Node struct {
	Path string `json:"path"`
	// Type is c, b or l.
	Type  string `json:"type"`
	Major uint32 `json:"major"`
	Minor uint32 `json:"minor"`
	Mode  string `json:"mode"` // permissions, as in 0660
	UID   uint32 `json:"uid"`
	GID   uint32 `json:"gid"`
	// Target is the target of a link.
	Target string `json:"target,omitempty"`
}

// Mount is a mounted file system, see mountinfo in proc(5).
type Mount struct {
	Path string `json:"path"`
	// Root is the mounted directory of the file system.
	Root     string `json:"root"`
	Type     string `json:"type"`
	ReadOnly bool   `json:"readOnly"`
	// SuperReadOnly is set for a file system that is read-only wherever it is mounted.
	SuperReadOnly bool `json:"superReadOnly"`
}

// Node returns the node at path.
func (r Report) Node(path string) (Node, bool) {
	for _, n := range r.Nodes {
		if n.Path == path {
			return n, true
		}
	}
	return Node{}, false
}

// Mount returns the file system mounted at path.
func (r Report) Mount(path string) (Mount, bool) {
	for _, m := range r.Mounts {
		if m.Path == path {
			return m, true
		}
	}
	return Mount{}, false
}

// Around reports on the process itself, with the device nodes below dirs.
func Around(dirs ...string) (Report, error) {
	groups, err := os.Getgroups()
	if err != nil {
		return Report{}, err
	}
	r := Report{UID: os.Getuid(), Groups: groups, Env: map[string]string{}}
	for _, kv := range os.Environ() {
		k, v, _ := strings.Cut(kv, "=")
		r.Env[k] = v
	}
	for _, dir := range dirs {
		nodes, err := nodes(dir)
		if err != nil {
			return r, err
		}
		r.Nodes = append(r.Nodes, nodes...)
	}
	entries, err := os.ReadDir("/sys/class/net")
	if err != nil {
		return r, err
	}
	for _, e := range entries {
		r.Interfaces = append(r.Interfaces, e.Name())
	}
	r.Mounts, err = Mounts("/proc/self")
	return r, err
}

// nodes lists the device nodes and links below dir, which may be missing and may change
// meanwhile.
func nodes(dir string) ([]Node, error) {
	var list []Node
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if os.IsNotExist(err) {
			return nil
		}
		if err != nil {
			return err
		}
		if path == "/dev/pts" || path == "/dev/shm" || path == "/dev/mqueue" {
			return fs.SkipDir // other file systems, not devices
		}
		if d.Type()&(fs.ModeDevice|fs.ModeSymlink) == 0 {
			return nil
		}
		var st unix.Stat_t
		if err := unix.Lstat(path, &st); err != nil {
			return nil
		}
		n := Node{Path: path, Mode: fmt.Sprintf("%04o", st.Mode&0o7777), UID: st.Uid, GID: st.Gid}
		switch st.Mode & unix.S_IFMT {
		case unix.S_IFCHR:
			n.Type = "c"
		case unix.S_IFBLK:
			n.Type = "b"
		default:
			n.Type = "l"
			n.Target, _ = os.Readlink(path)
		}
		if n.Type != "l" {
			n.Major, n.Minor = unix.Major(st.Rdev), unix.Minor(st.Rdev)
		}
		list = append(list, n)
		return nil
	})
	return list, err
}

// Mounts lists the mounts of a process, by its directory in /proc, in order of
// mounting. A line is "36 35 98:0 /root /point rw,noatime master:1 - ext3 /dev/root rw".
func Mounts(process string) ([]Mount, error) {
	text, err := os.ReadFile(filepath.Join(process, "mountinfo"))
	if err != nil {
		return nil, err
	}
	readOnly := func(options string) bool { return strings.HasPrefix(options+",", "ro,") }
	var list []Mount
	for line := range strings.Lines(string(text)) {
		mount, super, _ := strings.Cut(line, " - ")
		m, s := strings.Fields(mount), strings.Fields(super)
		if len(m) < 6 || len(s) < 2 {
			return nil, fmt.Errorf("not a line of mountinfo: %q", line)
		}
		list = append(list, Mount{Path: m[4], Root: m[3], Type: s[0], ReadOnly: readOnly(m[5]), SuperReadOnly: readOnly(s[len(s)-1])}) // the source may be empty
	}
	return list, nil
}
