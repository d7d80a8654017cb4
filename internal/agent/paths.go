package agent

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/generic-dp/generic-dp/cdi"
	"github.com/generic-dp/generic-dp/internal/device"
	"github.com/generic-dp/generic-dp/internal/host/inventory"
	"github.com/generic-dp/generic-dp/internal/output"
)

// Paths are the host's directories and sockets as mounted here. In a pod the host's
// /dev is mounted elsewhere; the kubelet always gets the host's own paths.
type Paths struct {
	// KubeletDir has the sockets of the kubelet and of device plugins.
	KubeletDir string
	// Registry is the directory of registration sockets, where the kubelet finds DRA drivers.
	Registry string
	// PodResources is the socket of the kubelet's PodResources API.
	PodResources string
	// Sysfs is the host's /sys.
	Sysfs string
	// Cgroup is the cgroup tree of the host. Empty means none.
	Cgroup string
	// Dev is the host's /dev.
	Dev string
	// Files has the files of the host outside of /dev and /sys, by their paths. It is only set for a
	// recording, and otherwise empty: they have the same paths here.
	Files string
	// RunDir has the links that follow devices. It has the same path on the host.
	RunDir string
	// StateDir has the state that outlives a restart.
	StateDir string
	// CDIDir has the CDI specs of this program.
	CDIDir string
	// DeviceInfoDir has files for Multus, see output.DeviceInfos. Empty means none.
	DeviceInfoDir string
	// NFDDir has the feature file for Node Feature Discovery. Empty means none.
	NFDDir string
	// SpecDirs are the directories of CDI specs, in rising priority. nil means
	// cdi.StaticDir and CDIDir.
	SpecDirs []string
}

// DefaultPaths are the paths outside of a container. There is none for Multus and for Node Feature
// Discovery.
func DefaultPaths() Paths {
	return Paths{
		KubeletDir:   "/var/lib/kubelet/device-plugins",
		Registry:     "/var/lib/kubelet/plugins_registry",
		PodResources: "/var/lib/kubelet/pod-resources/kubelet.sock",
		Sysfs:        "/sys",
		Cgroup:       "/sys/fs/cgroup",
		Dev:          "/dev",
		RunDir:       "/run/generic-dp",
		StateDir:     "/var/lib/generic-dp",
		CDIDir:       "/var/run/cdi",
	}
}

// specDirs are the directories of CDI specs.
func (p Paths) specDirs() []string {
	if len(p.SpecDirs) > 0 {
		return p.SpecDirs
	}
	return []string{cdi.StaticDir, p.CDIDir}
}

// Inventory are the options of a scan of this host.
func (p Paths) Inventory() inventory.Options {
	return inventory.Options{Sysfs: p.Sysfs, Dev: p.Dev}
}

// ForeignSpecs reads the CDI specs that are not this program's. The reader keeps what it has read.
// Each caller gets its own.
func (p Paths) ForeignSpecs() *cdi.ForeignSpecs {
	return cdi.NewForeignSpecs(p.specOwner(), p.specDirs()...)
}

// SpecWriter writes this installation's CDI specs.
func (p Paths) SpecWriter() *cdi.Writer {
	return &cdi.Writer{
		Dir:   p.CDIDir,
		Owner: p.specOwner(),
	}
}

// deviceInfos are the files for Multus of this installation.
func (p Paths) deviceInfos() output.DeviceInfos {
	return output.DeviceInfos{Dir: p.DeviceInfoDir, Writer: cmp.Or(p.specOwner(), "generic-dp")}
}

// WritesCDI reports whether the directory of CDI specs is there and may be written, which
// SELinux decides too: in a pod it is mounted where the runtime resolves CDI names. A
// recording stands for such a node.
func (p Paths) WritesCDI() bool {
	return unix.Access(p.CDIDir, unix.W_OK|unix.X_OK) == nil || p.recorded()
}

// specOwner marks the CDI specs of this installation. Another run directory means another
// installation, whose files stay.
func (p Paths) specOwner() string {
	if p.RunDir == DefaultPaths().RunDir {
		return ""
	}
	return p.RunDir
}

// local is the path at which this process finds a path of the host: /dev and /sys may be mounted
// elsewhere. Other paths are returned as they are, except for a recording.
func (p Paths) local(host string) string {
	if rest, ok := below(host, "/dev"); ok {
		return p.Dev + rest
	}
	if rest, ok := below(host, "/sys"); ok {
		return p.Sysfs + rest
	}
	return p.Files + host
}

// below returns the rest of a path that is a directory or below it. The rest is empty or begins
// with a slash: "/device" is not below "/dev".
func below(path, dir string) (rest string, ok bool) {
	rest, ok = strings.CutPrefix(path, dir)
	if !ok {
		return "", false
	}
	isDir := rest == ""
	isBelow := strings.HasPrefix(rest, "/")
	return rest, isDir || isBelow
}

// seesHost reports whether paths outside of /dev and /sys belong to the host. A pod in which the
// host's /dev has another path has a root of its own.
func (p Paths) seesHost() bool { return p.Dev == "/dev" }

// missing returns an error if a path of the host does not exist. A path that cannot be checked from
// here is assumed to exist. It does not follow links: a dangling link exists.
func (p Paths) missing(host string) error {
	here := p.local(host)
	// These parts of the host are mounted in the pod, wherever its root is.
	isMounted := here != host || strings.HasPrefix(host, p.RunDir+"/")
	if !isMounted && !p.seesHost() {
		return nil
	}
	_, isOfDev := below(host, "/dev")
	isUnknown := here != host && !isOfDev && p.recorded()
	if isUnknown {
		return nil
	}
	_, err := os.Lstat(here)
	return err
}

// recorded reports whether this is a recording of a host. Except for its /dev, it has only what was read.
func (p Paths) recorded() bool {
	_, err := os.Lstat(p.Dev + "/" + inventory.RecordingMarker)
	return err == nil
}

// hostCheck checks that everything to inject exists. It implements cdi.Host, and is safe for
// concurrent use.
type hostCheck struct {
	paths   Paths
	foreign *cdi.ForeignSpecs
}

// Path returns why a path of the host does not exist. It returns nil if the path exists or cannot
// be checked from here.
func (h hostCheck) Path(path string) error { return h.paths.missing(path) }

// CDI returns why a runtime does not resolve the name of a CDI device.
func (h hostCheck) CDI(name string) error { return h.foreign.Read().Check(name) }

// Node returns why a runtime that opens path, which is the path of the node or of its link, would
// not find the node.
func (h hostCheck) Node(path string, n device.OfferedNode) error {
	// Links are below the run directory, which has the same path here and on the host.
	if path != n.HostPath {
		target, _ := os.Readlink(path) // empty if it is missing
		if target != n.HostPath {
			return fmt.Errorf("its link %s points to %q instead of %s", path, target, n.HostPath)
		}
	}
	var stat unix.Stat_t
	err := unix.Lstat(h.paths.local(n.HostPath), &stat)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("node %s is gone", n.HostPath)
	}
	if err != nil {
		return fmt.Errorf("node %s: %w", n.HostPath, err)
	}
	kind := stat.Mode & unix.S_IFMT
	isNode := kind == unix.S_IFCHR || kind == unix.S_IFBLK
	if !isNode {
		return nil // a recorded machine has files in place of nodes
	}
	// The kernel may give the name of a removed device to the next one before a scan has noticed.
	major := unix.Major(uint64(stat.Rdev))
	minor := unix.Minor(uint64(stat.Rdev))
	if major != n.Major || minor != n.Minor {
		return fmt.Errorf("node %s is now %d:%d, was %d:%d: another device took its name",
			n.HostPath, major, minor, n.Major, n.Minor)
	}
	return nil
}
