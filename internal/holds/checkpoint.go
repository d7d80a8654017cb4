package holds

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"

	"golang.org/x/sys/unix"

	"github.com/generic-dp/generic-dp/internal/sys/files"
)

// CheckpointName is the name of the file in the kubelet's device plugin directory in which its device
// manager keeps its allocations (kubeletDeviceManagerCheckpoint,
// pkg/kubelet/cm/devicemanager/types.go). Unlike the PodResources API it names the UIDs of pods, which
// their cgroups have too.
//
// The kubelet replaces the file by a rename after every allocation and every list of a device plugin
// (writeCheckpoint, pkg/kubelet/cm/devicemanager/manager.go). A pod that it forgets is missing from
// the next version.
const CheckpointName = "kubelet_internal_checkpoint"

// maxCheckpoint is the size of the largest file that is read, in bytes. 100,000 devices have a file of
// 1.1 MB.
const maxCheckpoint = 8 << 20

// version identifies the content of a checkpoint.
type version struct {
	inode   uint64
	size    int64
	changed unix.Timespec
}

// currentVersion returns the version of the file at path, the zero version if there is none.
func currentVersion(path string) version {
	var stat unix.Stat_t
	if unix.Stat(path, &stat) != nil {
		return version{}
	}
	return version{inode: stat.Ino, size: stat.Size, changed: stat.Ctim}
}

// checkpointEntry is what one container holds of one resource: a PodDevicesEntry of the kubelet without the response
// of the plugin. DeviceIDs are by NUMA node.
type checkpointEntry struct {
	PodUID       string
	ResourceName string
	DeviceIDs    map[string][]string
}

// errNoEntries means that a file is JSON, but not the checkpoint of a device manager.
var errNoEntries = errors.New("it has no Data.PodDeviceEntries")

// readCheckpoint reads a checkpoint. The checksum at its end is not verified: the kubelet makes it from a
// dump of its own Go types.
func readCheckpoint(path string) ([]checkpointEntry, error) {
	var file struct {
		Data struct{ PodDeviceEntries json.RawMessage }
	}
	var entries []checkpointEntry // the kubelet writes null for an empty list
	err := files.ReadJSON(path, maxCheckpoint, &file)
	if err == nil && file.Data.PodDeviceEntries == nil {
		err = errNoEntries
	}
	if err == nil {
		err = json.Unmarshal(file.Data.PodDeviceEntries, &entries)
	}
	if errors.As(err, new(*fs.PathError)) {
		return nil, err // with the path
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return entries, nil
}
