package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/generic-dp/generic-dp/internal/agent"
	"github.com/generic-dp/generic-dp/internal/device"
	"github.com/generic-dp/generic-dp/internal/tools/catalog"
	"github.com/generic-dp/generic-dp/internal/tools/cli"
)

// nodeStates are the nodes of offered devices.
type nodeStates struct {
	Nodes []nodeState `json:"nodes"`
	// HostProcesses is set if the processes of the whole host were examined. A pod only sees its
	// own ones, and a user other than root only the user's.
	HostProcesses bool `json:"host_processes"`
}

// nodeState is a node of an offered device, with owner, group and mode as they are in a container.
type nodeState struct {
	Resource string `json:"resource"`
	ID       string `json:"id"`
	Path     string `json:"path"`
	UID      uint32 `json:"uid"`
	GID      uint32 `json:"gid"`
	// Mode has the permission bits.
	Mode uint32 `json:"mode"`
	// OpenIn are the processes that have the node open: "ModemManager (612)".
	OpenIn []string `json:"open_in"`
}

// describeNode describes the state of a node in a line, after the path.
func describeNode(n nodeState) string {
	text := fmt.Sprintf("mode %04o, uid %d, gid %d", n.Mode, n.UID, n.GID)
	if n.Mode == 0 {
		text += ": only root can open it"
	}
	const few = 5 // every process has /dev/null
	if len(n.OpenIn) > few {
		return fmt.Sprintf("%s, open in %s and %d more", text, strings.Join(n.OpenIn[:few], ", "), len(n.OpenIn)-few)
	}
	if len(n.OpenIn) > 0 {
		text += ", open in " + strings.Join(n.OpenIn, ", ")
	}
	return text
}

// states returns the state of the nodes of all offered devices: owner, group and mode as they are in
// a container, and who has them open. A node of several devices is in the list once for each of them.
// A recording has nodes without owners and processes, so the list is empty for it.
func (f *flags) states(view *agent.View, resources []explanation) nodeStates {
	states := nodeStates{
		Nodes:         []nodeState{},
		HostProcesses: seesHostProcesses(),
	}
	if f.unpacked != "" {
		return states
	}
	open := openNodes()
	offered := offeredIn(resources)
	for _, m := range view.Matched.Resources {
		for _, o := range m.Offers {
			if !offered(o.ID) {
				continue
			}
			for _, n := range o.Nodes {
				state, err := f.stateOf(n.HostPath, o.Owner, open)
				if err != nil {
					continue // it has disappeared meanwhile
				}
				state.Resource = m.Name
				state.ID = o.ID
				states.Nodes = append(states.Nodes, state)
			}
		}
	}
	return states
}

// stateOf reads the state of a node. owner is nil if the configuration does not replace anything,
// and open has the processes by device number. Resource and ID are left to the caller.
func (f *flags) stateOf(path string, owner *device.Owner, open map[uint64][]string) (nodeState, error) {
	var stat unix.Stat_t
	err := unix.Stat(f.here(path), &stat)
	if err != nil {
		return nodeState{}, err
	}
	state := nodeState{
		Path: path,
		UID:  stat.Uid,
		GID:  stat.Gid,
		// The kind of the file and the bits above the permissions do not matter here.
		Mode:   uint32(stat.Mode) & 0o777,
		OpenIn: append([]string{}, open[stat.Rdev]...),
	}
	if owner != nil {
		// The runtime sets these when it makes the node in the container.
		replace(&state.UID, owner.UID)
		replace(&state.GID, owner.GID)
		replace(&state.Mode, owner.Mode)
	}
	return state, nil
}

// replace replaces a value if there is another one. other is nil if there is none.
func replace(value, other *uint32) {
	if other != nil {
		*value = *other
	}
}

// seesHostProcesses reports whether this process is root in the first PID namespace of the host, whose
// inode is a constant: PROC_PID_INIT_INO in include/linux/proc_ns.h.
func seesHostProcesses() bool {
	namespace, _ := os.Readlink("/proc/self/ns/pid")
	return namespace == "pid:[4026531836]" && os.Geteuid() == 0
}

// openNodes returns the processes that have device nodes open, by device number, as far as they are
// visible: see seesHostProcesses.
func openNodes() map[uint64][]string {
	open := map[uint64][]string{}
	files, _ := filepath.Glob("/proc/[0-9]*/fd/*") // the only error is a malformed pattern
	for _, file := range files {
		// Only a path below /dev is examined: a file of a network that is down would block.
		target, err := os.Readlink(file)
		if err != nil || !strings.HasPrefix(target, "/dev/") {
			continue
		}
		var stat unix.Stat_t
		err = unix.Stat(file, &stat)
		isNode := stat.Mode&unix.S_IFMT == unix.S_IFCHR || stat.Mode&unix.S_IFMT == unix.S_IFBLK
		if err != nil || !isNode {
			continue
		}
		process := processOf(file)
		if !slices.Contains(open[stat.Rdev], process) {
			open[stat.Rdev] = append(open[stat.Rdev], process)
		}
	}
	return open
}

// processOf returns name and number of the process that a path such as /proc/612/fd/3 belongs to.
func processOf(file string) string {
	number := strings.Split(file, "/")[2]
	name, _ := os.ReadFile("/proc/" + number + "/comm") // a process that has just ended has no name
	return fmt.Sprintf("%s (%s)", strings.TrimSpace(string(name)), number)
}

// here returns where a path below /dev is for this process: the /dev of the host may be mounted
// elsewhere.
func (f *flags) here(path string) string {
	return filepath.Join(f.paths.Dev, strings.TrimPrefix(path, "/dev/"))
}

// isGroupNode reports whether a node is the node of an IOMMU group, with which matching selects
// nothing: it selects the functions of the group.
func isGroupNode(n *device.Node) bool {
	return n != nil && n.Hardware != nil && strings.HasPrefix(n.Path, "/dev/vfio/")
}

// addGroup explains the device of a whole IOMMU group: which device the explained hardware is a part of,
// or for no hardware, why there are fewer devices than functions.
func (e *explanation) addGroup(snap *device.Snapshot, o *device.Offer, found catalog.Found) {
	group := groupOf(snap, o)
	if len(group) < 2 {
		return
	}
	number := group[0].IOMMUGroup()
	isAbout := found != (catalog.Found{})
	if !isAbout && e.Reason == "" {
		e.Reason = fmt.Sprintf("IOMMU group %s with %s is one device", number, cli.Count(len(group), "function"))
	}
	isPart := found.Hardware != nil && slices.Contains(group, found.Hardware)
	if isPart && found.Hardware.Path != o.Hardware {
		e.Offered = []string{o.ID}
		e.Reason = fmt.Sprintf("as a part of %s: both are in IOMMU group %s", o.ID, number)
	}
}

// groupOf returns the functions that come with a device: all of its IOMMU group that a driver of
// VFIO has. It returns none for a device without the node of a group.
func groupOf(snap *device.Snapshot, o *device.Offer) []*device.Hardware {
	var group []*device.Hardware
	for _, h := range snap.Hardware {
		node := "/dev/vfio/" + h.IOMMUGroup()
		hasNode := slices.ContainsFunc(o.Nodes, func(n device.OfferedNode) bool {
			return n.HostPath == node
		})
		isBound := h.PCI != nil && h.PCI.VFIO
		if isBound && hasNode {
			group = append(group, h)
		}
	}
	return group
}

// offeredIn reports whether an explanation has a device.
func offeredIn(all []explanation) func(id string) bool {
	return func(id string) bool {
		return slices.ContainsFunc(all, func(e explanation) bool {
			return slices.Contains(e.Offered, id)
		})
	}
}
