package output

import (
	"bufio"
	"fmt"
	"io"
	"path/filepath"
	"strings"
)

// CheckMount checks in a container that the run directory is the directory of the host. The host
// resolves the links in it, so it must be mounted at the path that it has on the host. mountinfo
// is /proc/self/mountinfo (proc_pid_mountinfo(5)).
//
// It checks that dir is below a mount point other than "/", and that the mounted directory has
// the same path in its file system, as far as that is visible: "/generic-dp" in the file system
// of the host's /run, or the root of a file system. A volume of the pod has another path in its
// file system, or is a whole tmpfs at dir.
func CheckMount(dir string, mountinfo io.Reader) error {
	dir = filepath.Clean(dir)
	m, err := mountOf(dir, mountinfo)
	if err != nil {
		return fmt.Errorf("--run-dir: find the mount of %q: %w", dir, err)
	}
	if found := m.foreign(dir); found != "" {
		return fmt.Errorf("--run-dir: %q is not the host's directory of that path: %s; mount the host's %[1]q at the identical path (hostPath volume and mountPath), since links in it are resolved on the host",
			dir, found)
	}
	return nil
}

// mount is one line of mountinfo: the directory root of a file system is mounted at point.
type mount struct{ root, point, fstype string }

// foreign returns why this mount of dir is not the directory of the host, empty if it may be.
func (m mount) foreign(dir string) string {
	if m.point == "" || m.point == "/" {
		return "it is not a mount"
	}
	isWholeTmpfs := m.root == "/" && m.fstype == "tmpfs"
	if isWholeTmpfs && m.point == dir {
		return "a file system of the pod's own is mounted there"
	}
	if !sameEnd(m.root, m.point) {
		return fmt.Sprintf("%q is mounted at %q", m.root, m.point)
	}
	return ""
}

// mountOf finds the mount of dir: the mount with the longest mount point above dir. If several
// mounts have this point, the last one covers the others.
func mountOf(dir string, mountinfo io.Reader) (mount, error) {
	var best mount
	lines := bufio.NewScanner(mountinfo)
	for lines.Scan() {
		// 36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw
		line := lines.Text()
		fields, rest, ok := strings.Cut(line, " - ")
		f := strings.Fields(fields)
		if !ok || len(f) < 5 {
			continue
		}
		m := mount{
			root:  unescape(f[3]),
			point: unescape(f[4]),
		}
		m.fstype, _, _ = strings.Cut(rest, " ")
		isCloser := len(m.point) >= len(best.point)
		if isCloser && isBelow(dir, m.point) {
			best = m
		}
	}
	return best, lines.Err()
}

// isBelow reports whether path is dir or below it.
func isBelow(path, dir string) bool {
	if dir == "/" || path == dir {
		return true
	}
	return strings.HasPrefix(path, dir+"/")
}

// sameEnd reports whether the root or the point of a mount ends with the other. The root is
// shorter if its file system is mounted below the root of the host, such as "/generic-dp" in
// /run. It is longer if the root of the host is a subvolume, such as "/@/var/lib/generic-dp".
func sameEnd(root, point string) bool {
	return root == "/" || strings.HasSuffix(point, root) || strings.HasSuffix(root, point)
}

// unescape undoes what the kernel escapes in mountinfo (mangle in fs/proc_namespace.c).
var unescape = strings.NewReplacer(
	`\011`, "\t",
	`\012`, "\n",
	`\040`, " ",
	`\043`, "#",
	`\134`, `\`,
).Replace
