package links

import (
	"bufio"
	"fmt"
	"io"
	"path/filepath"
	"strings"
)

// CheckMount checks in a container that the run directory is the host's. Links in it are
// resolved on the host, so it must be a mount of the host's directory at the identical
// path. mountinfo is /proc/self/mountinfo (proc_pid_mountinfo(5)).
//
// It checks that dir is below a mount point other than "/", and that the mounted
// directory has the same path in its file system, as far as visible: "/generic-dp" of
// the host's /run, or the root of a file system. A volume of the pod has another path
// in its file system, or is a whole tmpfs at dir.
func CheckMount(dir string, mountinfo io.Reader) error {
	dir = filepath.Clean(dir)
	m, err := mountOf(dir, mountinfo)
	if err != nil {
		return fmt.Errorf("--run-dir: find the mount of %q: %w", dir, err)
	}
	found := ""
	switch {
	case m.point == "" || m.point == "/":
		found = "it is not a mount"
	case m.root == "/" && m.fstype == "tmpfs" && m.point == dir:
		found = "a file system of the pod's own is mounted there"
	case !sameEnd(m.root, m.point):
		found = fmt.Sprintf("%q is mounted at %q", m.root, m.point)
	default:
		return nil
	}
	return fmt.Errorf("--run-dir: %q is not the host's directory of that path: %s; mount the host's %[1]q at the identical path (hostPath volume and mountPath), since links in it are resolved on the host",
		dir, found)
}

// mount is one line of mountinfo: the directory root of a file system is mounted at
// point.
type mount struct{ root, point, fstype string }

// mountOf finds the mount of dir: the longest mount point above it, and of several
// mounts on one point the last, which covers the others.
func mountOf(dir string, mountinfo io.Reader) (mount, error) {
	var best mount
	lines := bufio.NewScanner(mountinfo)
	for lines.Scan() {
		// 36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw
		fields, rest, ok := strings.Cut(lines.Text(), " - ")
		f := strings.Fields(fields)
		if !ok || len(f) < 5 {
			continue
		}
		m := mount{root: unescape(f[3]), point: unescape(f[4])}
		m.fstype, _, _ = strings.Cut(rest, " ")
		if isBelow(dir, m.point) && len(m.point) >= len(best.point) {
			best = m
		}
	}
	return best, lines.Err()
}

// isBelow reports whether path is dir or in it.
func isBelow(path, dir string) bool {
	return path == dir || dir == "/" || strings.HasPrefix(path, dir+"/")
}

// sameEnd reports whether one of two absolute paths ends with the other: a file system
// may be mounted below the host's root ("/generic-dp" of /run), and the host's root may
// be a subvolume ("/@/var/lib/generic-dp").
func sameEnd(a, b string) bool {
	return a == "/" || strings.HasSuffix(b, a) || strings.HasSuffix(a, b)
}

// unescape undoes what the kernel escapes in mountinfo (mangle in fs/proc_namespace.c).
var unescape = strings.NewReplacer(`\011`, "\t", `\012`, "\n", `\040`, " ", `\043`, "#", `\134`, `\`).Replace
