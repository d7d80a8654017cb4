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
	"github.com/generic-dp/generic-dp/internal/output/deviceinfo"
)

// Paths are the host's directories and sockets as mounted here. In a pod the host's
// /dev is mounted elsewhere; the kubelet always gets the host's own paths.
type Paths struct {
	KubeletDir   string // where the kubelet's and the plugins' sockets are
	Registry     string // the kubelet's directory of registration sockets
	PodResources string // the socket of the kubelet's PodResources API
	Sysfs        string // the host's /sys
	Cgroup       string // the host's cgroup tree; empty for none
	Dev          string // the host's /dev
	RunDir       string // links that follow devices; the same path on the host
	StateDir     string // state that outlives a restart
	CDIDir       string // CDI spec files
	// DeviceInfoDir has files for Multus, see package deviceinfo. Empty means none.
	DeviceInfoDir string
	NFDDir        string // the feature file for Node Feature Discovery; empty for none
	// SpecDirs are the directories of CDI specs, in rising priority; nil is
	// cdi.StaticDir and CDIDir.
	SpecDirs []string
}

// DefaultPaths are the paths outside of a container.
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

// ForeignSpecs reads the CDI specs that are not this program's.
func (p Paths) ForeignSpecs() *cdi.ForeignSpecs {
	return cdi.NewForeignSpecs(p.specOwner(), p.specDirs()...)
}

// SpecWriter writes this installation's CDI specs.
func (p Paths) SpecWriter() *cdi.Writer { return &cdi.Writer{Dir: p.CDIDir, Owner: p.specOwner()} }

// deviceInfos are the files for Multus of this installation.
func (p Paths) deviceInfos() deviceinfo.Dir {
	return deviceinfo.Dir{Path: p.DeviceInfoDir, Writer: cmp.Or(p.specOwner(), "generic-dp")}
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

// local is where a path of the host is found here: /dev and /sys may be mounted elsewhere.
func (p Paths) local(host string) string {
	if rest, ok := strings.CutPrefix(host, "/dev"); ok && (rest == "" || rest[0] == '/') {
		return p.Dev + rest
	}
	if rest, ok := strings.CutPrefix(host, "/sys"); ok && (rest == "" || rest[0] == '/') {
		return p.Sysfs + rest
	}
	return host
}

// seesHost reports whether paths outside /dev and /sys are the host's too. A pod with
// the host's /dev at another path has its own root.
func (p Paths) seesHost() bool { return p.Dev == "/dev" }

// missing returns an error if a path of the host does not exist. One that can't be
// checked from here is assumed to exist.
func (p Paths) missing(host string) error {
	here := p.local(host)
	if here == host && !p.seesHost() && !strings.HasPrefix(host, p.RunDir+"/") {
		return nil
	}
	_, err := os.Lstat(here)
	if err != nil && strings.HasPrefix(host, "/sys/") && p.recorded() {
		return nil
	}
	return err
}

// recorded reports whether this is a recording of a host, whose /sys has only what a
// scan reads.
func (p Paths) recorded() bool {
	_, err := os.Lstat(p.Dev + "/" + inventory.RecordingMarker)
	return err == nil
}

// hostCheck checks that everything to inject exists.
type hostCheck struct {
	paths   Paths
	foreign *cdi.ForeignSpecs
}

// Path returns why a path of the host does not exist.
func (h hostCheck) Path(path string) error { return h.paths.missing(path) }

// CDI returns why a runtime does not resolve the name of a CDI device.
func (h hostCheck) CDI(name string) error { return h.foreign.Read().Check(name) }

// Node returns why a runtime that opens path, the node's own or that of its link,
// would not find the node.
func (h hostCheck) Node(path string, n device.OfferedNode) error {
	if path != n.HostPath {
		target, err := os.Readlink(path)
		if err != nil {
			return fmt.Errorf("its link is not there: %w", err)
		}
		if target != n.HostPath {
			return fmt.Errorf("its link %s leads to %s, want %s", path, target, n.HostPath)
		}
	}
	var stat unix.Stat_t
	if err := unix.Lstat(h.paths.local(n.HostPath), &stat); errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("node %s is gone", n.HostPath)
	} else if err != nil {
		return fmt.Errorf("node %s: %w", n.HostPath, err)
	}
	if kind := stat.Mode & unix.S_IFMT; kind != unix.S_IFCHR && kind != unix.S_IFBLK {
		return nil // a recorded machine has files in place of nodes
	}
	if major, minor := unix.Major(uint64(stat.Rdev)), unix.Minor(uint64(stat.Rdev)); major != n.Major || minor != n.Minor {
		return fmt.Errorf("node %s is now %d:%d, was %d:%d: another device took its name",
			n.HostPath, major, minor, n.Major, n.Minor)
	}
	return nil
}
