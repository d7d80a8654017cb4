// Package checkpoint reads which pods hold which devices from the file in which the
// kubelet's device manager keeps its allocations. Unlike the PodResources API it names the
// UIDs of pods, which their cgroups have too.
//
// The kubelet replaces the file by a rename after every allocation and every list of a
// device plugin (writeCheckpoint, pkg/kubelet/cm/devicemanager/manager.go). A pod that it
// forgets is missing from the next version.
package checkpoint

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// Name is the name of the file in the kubelet's device plugin directory
// (kubeletDeviceManagerCheckpoint, pkg/kubelet/cm/devicemanager/types.go).
const Name = "kubelet_internal_checkpoint"

// maxSize is the size of the largest file that is read, in bytes. 100,000 devices have a
// file of 1.1 MB.
const maxSize = 16 << 20

// Allocation is what one container of a pod holds of one resource.
type Allocation struct {
	PodUID, Resource string
	IDs              []string
}

// Version identifies the content of a file.
type Version struct {
	inode   uint64
	size    int64
	changed unix.Timespec
}

// Current returns the version of the file at path, the zero Version if there is none.
func Current(path string) Version {
	var stat unix.Stat_t
	if unix.Stat(path, &stat) != nil {
		return Version{}
	}
	return version(&stat)
}

func version(stat *unix.Stat_t) Version {
	return Version{inode: stat.Ino, size: stat.Size, changed: stat.Ctim}
}

// Read calls each for every allocation in the file at path, until it returns false, and
// returns the version that it read. After an error, calls were made for a part of the
// allocations. It needs memory for one container, not for the file.
func Read(path string, each func(Allocation) bool) (Version, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return Version{}, err
	}
	defer f.Close()
	var stat unix.Stat_t
	if err = unix.Fstat(int(f.Fd()), &stat); err != nil {
		return Version{}, fmt.Errorf("%s: %w", path, err)
	}
	if stat.Mode&unix.S_IFMT != unix.S_IFREG {
		return Version{}, fmt.Errorf("%s: not a regular file", path)
	}
	if stat.Size > maxSize {
		return Version{}, fmt.Errorf("%s: %d bytes, at most %d are read", path, stat.Size, maxSize)
	}
	err = decode(io.LimitReader(f, maxSize), each)
	if err != nil {
		return Version{}, fmt.Errorf("%s: %w", path, err)
	}
	return version(&stat), nil
}

// entry is a PodDevicesEntry of the kubelet without the response of the plugin. DeviceIDs
// are by NUMA node.
type entry struct {
	PodUID       string
	ResourceName string
	DeviceIDs    map[string][]string
}

// ErrNoEntries means that the file is JSON, but not the checkpoint of a device manager.
var ErrNoEntries = errors.New("it has no Data.PodDeviceEntries")

// decode reads the object Data and its list PodDeviceEntries, and nothing after that. The checksum at the
// end is not verified: the kubelet makes it from a dump of its own Go types.
func decode(r io.Reader, each func(Allocation) bool) error {
	d := json.NewDecoder(r)
	for _, key := range []string{"Data", "PodDeviceEntries"} {
		if err := enter(d, key); err != nil {
			return err
		}
	}
	open, err := d.Token()
	if err != nil {
		return err
	}
	if open == nil { // the kubelet writes null for an empty list
		return nil
	}
	if open != json.Delim('[') {
		return ErrNoEntries
	}
	for d.More() {
		var e entry
		if err := d.Decode(&e); err != nil {
			return err
		}
		a := Allocation{PodUID: e.PodUID, Resource: e.ResourceName}
		for _, ids := range e.DeviceIDs {
			a.IDs = append(a.IDs, ids...)
		}
		if !each(a) {
			return nil
		}
	}
	_, err = d.Token()
	return err
}

// enter reads an object up to the value of a key.
func enter(d *json.Decoder, key string) error {
	open, err := d.Token()
	if err != nil {
		return err
	}
	if open != json.Delim('{') {
		return ErrNoEntries
	}
	for d.More() {
		name, err := d.Token()
		if err != nil {
			return err
		}
		if name == key {
			return nil
		}
		var skipped json.RawMessage
		if err := d.Decode(&skipped); err != nil {
			return err
		}
	}
	return ErrNoEntries
}
